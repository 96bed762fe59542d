// Reads the words that choose a mistake, for the programs of this book.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Returns argument number `i`, which must be a word of `known`, or "" if there is no argument. An
// unknown word ends the program.
static inline const char *word(int argc, char **argv, int i, const char *known)
{
	const char *given = argc > i ? argv[i] : "", *at = known;
	size_t length = strlen(given);

	if (argc <= i)
		return given;
	while (length && (at = strstr(at, given))) {
		if ((at == known || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
			return given;
		at += length;
	}
	fprintf(stderr, "%s: unknown argument '%s'; known: %s\n", argv[0], given, known);
	exit(2);
}
