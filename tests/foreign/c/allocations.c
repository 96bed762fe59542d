// While a thread forks, this library counts the calls of allocator functions, `mmap` and `munmap`
// by this thread. The test links a program with this library. So in the order of symbol lookup,
// this library comes after the preload library of `adverb run` and before the C library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
	*__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

// Set while this thread forks. With the initial-exec model of thread-local storage, an access to
// the variable needs no allocation. The model works because the library is loaded at program start.
static __thread volatile int forking __attribute__((tls_model("initial-exec")));
static volatile int count;
static const char *volatile first;
static void *volatile caller;

void allocations_begin(void)
{
	count = 0;
	first = NULL;
	forking = 1;
}

// Returns the number of calls since `allocations_begin`.
int allocations_end(void)
{
	forking = 0;
	return count;
}

void allocations_print(const char *where)
{
	Dl_info info;
	const char *object = dladdr(caller, &info) ? info.dli_fname : "?";

	printf("%s: %d calls of the allocator, the first is %s, called in %s\n", where, count, first, object);
}

static void note(const char *name, void *from)
{
	if (!forking)
		return;
	if (!count++) {
		first = name;
		caller = from;
	}
}
#define NOTE() note(__func__, __builtin_return_address(0))

void *malloc(size_t n)
{
	NOTE();
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	NOTE();
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	NOTE();
	return __libc_realloc(p, n);
}

void free(void *p)
{
	NOTE();
	__libc_free(p);
}

void *memalign(size_t align, size_t n)
{
	NOTE();
	return __libc_memalign(align, n);
}

void *aligned_alloc(size_t align, size_t n)
{
	NOTE();
	return __libc_memalign(align, n);
}

int posix_memalign(void **to, size_t align, size_t n)
{
	NOTE();
	*to = __libc_memalign(align, n);
	return *to ? 0 : ENOMEM;
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
	NOTE();
	return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}

int munmap(void *at, size_t n)
{
	NOTE();
	return syscall(SYS_munmap, at, n);
}
