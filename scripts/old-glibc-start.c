/* The start file of a new glibc passes no list of constructors to the C library, because a new C
 * library finds the list itself. An old glibc needs the list. The linker option `--wrap` makes the
 * start file call this function, which passes the list. */
typedef int start(int, char **, char **);
typedef void constructor(int, char **, char **);

extern constructor *__init_array_start[] __attribute__((visibility("hidden")));
extern constructor *__init_array_end[] __attribute__((visibility("hidden")));
extern void _init(void) __attribute__((visibility("hidden")));
int __real___libc_start_main(start *, int, char **, start *, void (*)(void), void (*)(void), void *);

static int construct(int count, char **arguments, char **environment)
{
    _init();
    for (constructor **next = __init_array_start; next != __init_array_end; next++)
        (*next)(count, arguments, environment);
    return 0;
}

__attribute__((visibility("hidden"))) int __wrap___libc_start_main(start *program, int count, char **arguments, start *none,
    void (*end)(void), void (*unload)(void), void *stack)
{
    (void)none;
    return __real___libc_start_main(program, count, arguments, construct, end, unload, stack);
}
