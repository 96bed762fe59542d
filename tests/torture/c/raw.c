// Random numbers, patterns, and the ways to make a system call.
#include "torture.h"

uint64_t rng_next(struct rng *r)
{
	r->s ^= r->s << 13;
	r->s ^= r->s >> 7;
	r->s ^= r->s << 17;
	return r->s * 0x2545F4914F6CDD1Dull;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
	return n ? (rng_next(r) >> 11) % n : 0;
}

int rng_chance(struct rng *r, unsigned p)
{
	return rng_below(r, 100) < p;
}

void pattern(void *to, size_t len, uint64_t seed)
{
	uint8_t *b = to;
	uint64_t x = seed * 0x9E3779B97F4A7C15ull + 0x1234567, w;
	size_t i, n;

	for (i = 0; i < len; i += 8) {
		x += 0x9E3779B97F4A7C15ull;
		w = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9ull;
		w ^= w >> 32;
		n = len - i < 8 ? len - i : 8;
		memcpy(b + i, &w, n);
	}
}

#if defined(__x86_64__)
long raw_call(long n, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
long raw_call(long n, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
}
#else
#error "no raw system call for this machine"
#endif

// Converts the result of a system call as the C library does: an error becomes -1, with errno.
static long with_errno(long r)
{
	if (r < 0 && r > -4096) {
		errno = -r;
		return -1;
	}
	return r;
}

void *raw_map(size_t len)
{
	long r = raw_call(SYS_mmap, 0, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(r > 0 || r < -4095, "no memory for the model");
	return (void *)r;
}

const char *way_name(enum way w)
{
	return w == BY_LIBC ? "libc" : w == BY_SYSCALL ? "syscall()" : "asm";
}

void *way_mmap(enum way w, void *at, size_t len, int prot, int flags)
{
	if (w == BY_LIBC)
		return mmap(at, len, prot, flags, -1, 0);
	if (w == BY_SYSCALL)
		return (void *)syscall(SYS_mmap, at, len, prot, flags, -1, 0);
	return (void *)with_errno(raw_call(SYS_mmap, (long)at, len, prot, flags, -1, 0));
}

int way_munmap(enum way w, void *at, size_t len)
{
	if (w == BY_LIBC)
		return munmap(at, len);
	if (w == BY_SYSCALL)
		return syscall(SYS_munmap, at, len);
	return with_errno(raw_call(SYS_munmap, (long)at, len, 0, 0, 0, 0));
}

void *way_mremap(enum way w, void *at, size_t old, size_t len, int flags, void *to)
{
	if (w == BY_LIBC)
		return mremap(at, old, len, flags, to);
	if (w == BY_SYSCALL)
		return (void *)syscall(SYS_mremap, at, old, len, flags, to);
	return (void *)with_errno(raw_call(SYS_mremap, (long)at, old, len, flags, (long)to, 0));
}

int way_madvise(enum way w, void *at, size_t len, int advice)
{
	if (w == BY_LIBC)
		return madvise(at, len, advice);
	if (w == BY_SYSCALL)
		return syscall(SYS_madvise, at, len, advice);
	return with_errno(raw_call(SYS_madvise, (long)at, len, advice, 0, 0, 0));
}

// Calls process_madvise on this process, through a pidfd. Kernels before 6.13 refuse most kinds of
// advice with EINVAL.
int process_advise(void *at, size_t len, int advice)
{
	struct iovec v = {at, len};
	int fd = syscall(SYS_pidfd_open, getpid(), 0), r, e;

	if (fd < 0)
		return -1;
	r = syscall(SYS_process_madvise, fd, &v, 1ul, advice, 0);
	e = errno;
	close(fd);
	errno = e;
	if (r < 0)
		return -1;
	CHECK((size_t)r == len, "process_madvise took %d of %zu bytes", r, len);
	return 0;
}
