// One wait in a world of waits.h (REAL or TWIN): the kind of the call, a mistake in the arguments,
// and everything that the call returns.
#ifndef WAITS_CALLS_H
#define WAITS_CALLS_H
#include "waits.h"

enum how { EPOLL_WAIT, EPOLL_PWAIT, EPOLL_PWAIT2, POLL, PPOLL, SELECT, PSELECT, HOWS };
enum mistake { NONE, BAD_POINTER, BAD_COUNT, BAD_DESCRIPTOR, BAD_TIME, MISTAKES };
#define MEMBERS 6
#define RESULTS 32
#define NOWHERE 777
struct call {
	enum how how;
	enum mistake mistake;
	// Numbers of items: the set of an epoll call, or the descriptors of another call. -1 stands
	// for no descriptor, -2 for a closed descriptor.
	int member[MEMBERS], members;
	uint32_t want[MEMBERS];
	int most;
	const sigset_t *mask;
	// If set, a blocked signal is pending when the call begins.
	int pending;
};
struct result {
	int n, error, handled, pending;
	struct {
		uint32_t events;
		uint64_t data;
	} out[RESULTS];
};

static sigset_t open_mask, usual_mask, closed_mask;
static pthread_t main_thread;
static pid_t main_tid;
static volatile int handled, jumps;
// How far the main thread is: 0 before the wait on the descriptors of the world REAL, 1 in this
// wait, 2 after the wait.
static volatile int inside;
static sigjmp_buf back;
static void *no_memory;

static void handler(int number)
{
	struct pollfd p = {.fd = items[PAIR].fd[REAL], .events = POLLIN};
	int e = errno;

	(void)number;
	handled++;
	// poll is async-signal-safe, also in a handler that interrupts a wait.
	if (handled % 2)
		poll(&p, 1, 0);
	errno = e;
	if (jumps)
		siglongjmp(back, 1);
}

static int member_fd(const struct call *c, int i, int world)
{
	return c->member[i] >= 0 ? items[c->member[i]].fd[world] : c->member[i] == -1 ? -1 : NOWHERE;
}

static struct timespec time_of(const struct call *c, int limit)
{
	int timed = c->how == EPOLL_PWAIT2 || c->how == PPOLL || c->how >= SELECT;

	return (struct timespec){limit / 1000, timed && c->mistake == BAD_TIME ? 2000000000 : limit % 1000 * 1000000L};
}

static int call_epoll(const struct call *c, int world, int limit, struct result *r)
{
	struct timespec time = time_of(c, limit);
	struct epoll_event out[RESULTS], *events = c->mistake == BAD_POINTER ? no_memory : out;
	int fd = c->mistake == BAD_DESCRIPTOR ? NOWHERE : member_fd(c, 0, world);
	int most = c->mistake == BAD_COUNT ? -c->most % 2 : c->most, n, i;

	n = world == TWIN	    ? (int)syscall(SYS_epoll_pwait2, fd, events, most, limit < 0 ? NULL : &time, c->mask, 8)
	    : c->how == EPOLL_WAIT  ? epoll_wait(fd, events, most, limit)
	    : c->how == EPOLL_PWAIT ? epoll_pwait(fd, events, most, limit, c->mask)
				    : epoll_pwait2(fd, events, most, limit < 0 ? NULL : &time, c->mask);
	for (i = 0; i < n; i++) {
		r->out[i].events = out[i].events;
		r->out[i].data = out[i].data.u64;
	}
	return n;
}

static int call_poll(const struct call *c, int world, int limit, struct result *r)
{
	struct timespec time = time_of(c, limit);
	struct pollfd p[MEMBERS], *all = c->mistake == BAD_POINTER ? no_memory : p;
	nfds_t count = c->mistake == BAD_COUNT ? 1 << 30 : c->members;
	int n, i;

	for (i = 0; i < c->members; i++)
		p[i] = (struct pollfd){.fd = member_fd(c, i, world), .events = c->want[i], .revents = 0x55};
	n = world == TWIN    ? (int)syscall(SYS_ppoll, all, count, limit < 0 ? NULL : &time, c->mask, 8)
	    : c->how == POLL ? poll(all, count, limit)
			     : ppoll(all, count, limit < 0 ? NULL : &time, c->mask);
	for (i = 0; i < c->members; i++)
		r->out[i].events = n < 0 ? 0 : (uint16_t)p[i].revents;
	return n;
}

static int call_select(const struct call *c, int world, int limit, struct result *r)
{
	struct timespec time = time_of(c, limit), *until = limit < 0 ? NULL : &time;
	struct timeval left = {time.tv_sec, c->mistake == BAD_TIME ? -1 : time.tv_nsec / 1000};
	struct {
		const sigset_t *mask;
		size_t size;
	} mask = {c->mask, 8};
	fd_set set[3], *sets[3];
	int n, i, k, top = 0, fd;

	for (k = 0; k < 3; k++) {
		FD_ZERO(&set[k]);
		sets[k] = k == 2 && !c->want[0] ? NULL : &set[k];
	}
	for (i = 0; i < c->members; i++) {
		fd = member_fd(c, i, world);
		for (k = 0; k < 3 && fd >= 0; k++)
			if (c->want[i] & (k == 0 ? POLLIN : k == 1 ? POLLOUT : POLLPRI))
				FD_SET(fd, &set[k]);
		top = fd >= top ? fd + 1 : top;
	}
	if (c->mistake == BAD_POINTER)
		sets[0] = no_memory;
	if (c->mistake == BAD_COUNT)
		top = -1;
	n = world == TWIN      ? (int)syscall(SYS_pselect6, top, sets[0], sets[1], sets[2], until, &mask)
	    : c->how == SELECT ? select(top, sets[0], sets[1], sets[2], limit < 0 ? NULL : &left)
			       : pselect(top, sets[0], sets[1], sets[2], until, c->mask);
	if (world == REAL && c->how == SELECT && n >= 0 && limit >= 0)
		RULE(n ? left.tv_sec * 1000000 + left.tv_usec <= limit * 1000 : !left.tv_sec && !left.tv_usec,
		     "%ld.%06ld s left of %d ms", (long)left.tv_sec, (long)left.tv_usec, limit);
	for (i = 0; i < c->members && n >= 0; i++)
		for (k = 0; k < 3; k++)
			if ((fd = member_fd(c, i, world)) >= 0 && FD_ISSET(fd, &set[k]))
				r->out[i].events |= 1 << k;
	return n;
}

// Makes the call in the world REAL or TWIN (waits.h). For TWIN, the function makes raw system
// calls. So the result comes from the kernel and not from the library.
static struct result ask(const struct call *c, int world, int limit)
{
	struct timespec none = {0};
	struct result r = {0};
	siginfo_t info;
	sigset_t one;
	double since;
	int before = handled;

	sigemptyset(&one);
	sigaddset(&one, SIGUSR2);
	if (c->pending)
		pthread_kill(pthread_self(), SIGUSR2);
	since = now();
	if (world == REAL)
		inside = 1;
	if (!sigsetjmp(back, 1)) {
		errno = 0;
		r.n = c->how <= EPOLL_PWAIT2 ? call_epoll(c, world, limit, &r)
		      : c->how <= PPOLL	     ? call_poll(c, world, limit, &r)
					     : call_select(c, world, limit, &r);
		r.error = r.n < 0 ? errno : 0;
	} else {
		r = (struct result){.n = -1, .error = EINTR};
	}
	inside = 2;
	r.handled = handled - before;
	r.pending = c->pending && sigtimedwait(&one, &info, &none) == SIGUSR2;
	// A wait without an event must last as long as its time-out.
	if (!r.n)
		RULE(now() - since >= limit * 1e-3 - 1e-6, "it returned after %f of %d ms", (now() - since) * 1e3, limit);
	if (!r.n && c->how <= EPOLL_PWAIT2)
		memset(r.out, 0, sizeof(r.out));
	return r;
}

static const char *words(const struct result *r)
{
	static char text[2][600];
	static int turn;
	char *t = text[turn ^= 1];
	int i, at = sprintf(t, "%d %s, handlers %d, pending %d:", r->n, strerror(r->error), r->handled, r->pending);

	for (i = 0; i < 10; i++)
		at += sprintf(t + at, " %x@%llx", r->out[i].events, (unsigned long long)r->out[i].data);
	return t;
}

static void same(const struct result *real, const struct result *twin)
{
	RULE(!memcmp(real, twin, sizeof(*real)), "the device: %s; the kernel: %s", words(real), words(twin));
}
#endif
