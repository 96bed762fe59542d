// Shared code of the message-passing programs: bytes that identify their sender, and checks that
// end the program with file and line.
#ifndef VERIFY_H
#define VERIFY_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof(*(a)))
// If the condition is false, prints file, line and message, and ends the program.
#define CHECK(cond, ...)                                                                   \
	do {                                                                               \
		if (!(cond)) {                                                             \
			fprintf(stderr, "FAIL %s:%d: %s: ", __FILE__, __LINE__, #cond);    \
			fprintf(stderr, __VA_ARGS__);                                      \
			fputc('\n', stderr);                                               \
			abort();                                                           \
		}                                                                          \
	} while (0)

// Byte `i` of a message. The byte depends on the sender, the number of the message, and `i`.
static inline uint8_t byte_of(unsigned from, unsigned message, size_t i)
{
	uint32_t x = (uint32_t)i * 2654435761u ^ from * 40503u ^ message * 97u;

	return x >> 13 ^ x;
}

static inline void fill(uint8_t *p, size_t len, unsigned from, unsigned message)
{
	for (size_t i = 0; i < len; i++)
		p[i] = byte_of(from, message, i);
}

static inline void verify(const uint8_t *p, size_t len, unsigned from, unsigned message)
{
	for (size_t i = 0; i < len; i++)
		CHECK(p[i] == byte_of(from, message, i), "byte %zu of %zu, message %u from %u: %#x", i,
		      len, message, from, p[i]);
}

static inline void *memory(size_t len)
{
	void *p = malloc(len ? len : 1);

	CHECK(p, "no memory for %zu bytes", len);
	return p;
}
#endif
