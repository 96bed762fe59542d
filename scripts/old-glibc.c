/* Newer functions that glibc 2.17 does not have, for programs that are linked with the libraries of
 * scripts/old-glibc. Each function here calls a function of glibc 2.17. */
#include <stddef.h>
#include <sys/syscall.h>

#pragma GCC visibility push(hidden)

/* __xstat and the functions after it take a number that selects the layout of `struct stat`. LAYOUT
 * selects the kernel's layout. `struct stat64` has the same layout. */
#ifdef __x86_64__
#define LAYOUT 1
#else
#define LAYOUT 0
#endif
extern int __xstat(int, const char *, void *) __attribute__((visibility("default")));
extern int __lxstat(int, const char *, void *) __attribute__((visibility("default")));
extern int __fxstat(int, int, void *) __attribute__((visibility("default")));
extern int __fxstatat(int, int, const char *, void *, int) __attribute__((visibility("default")));
extern long syscall(long, ...) __attribute__((visibility("default")));

int stat(const char *path, void *to) { return __xstat(LAYOUT, path, to); }
int lstat(const char *path, void *to) { return __lxstat(LAYOUT, path, to); }
int fstat(int fd, void *to) { return __fxstat(LAYOUT, fd, to); }
int fstatat(int fd, const char *path, void *to, int flags) { return __fxstatat(LAYOUT, fd, path, to, flags); }
int stat64(const char *path, void *to) { return stat(path, to); }
int lstat64(const char *path, void *to) { return lstat(path, to); }
int fstat64(int fd, void *to) { return fstat(fd, to); }
int fstatat64(int fd, const char *path, void *to, int flags) { return fstatat(fd, path, to, flags); }

int memfd_create(const char *name, unsigned flags) { return (int)syscall(SYS_memfd_create, name, flags); }
/* Weak, because the verbs library also defines getrandom. */
#pragma weak getrandom
long getrandom(void *to, size_t size, unsigned flags) { return syscall(SYS_getrandom, to, size, flags); }

#pragma GCC visibility pop
