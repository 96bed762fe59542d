// A signal handler calls poll, select or epoll_wait. The handler may interrupt any call of the
// library. The calls in the handler must return the kernel's result, and must never wait for a lock
// of the interrupted call. In other cases, a call passes memory that the kernel cannot use, or the
// handler forks.
#define POLL_SECONDS 10
#include "rig.h"
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { DEPTH = 32, LOOPS = 4000 };
static struct port port;
static struct ibv_mr *mr;
static uint64_t memory[8];
static struct ibv_comp_channel *channel;
static struct ibv_cq *sends, *receives;
static struct ibv_qp *from, *to;
static int set;
static volatile int calls, forked, waiting;
// The wait that the handler makes.
static int (*in_handler)(void);

static void give(void)
{
	struct ibv_sge s = {(uintptr_t)memory, sizeof(memory), mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(to, &wr, &bad), "post receive");
}

static void put(void)
{
	struct ibv_sge s = {(uintptr_t)memory, 8, mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_send(from, &wr, &bad), "post send");
}

static void start(void)
{
	struct epoll_event e = {.events = EPOLLIN};
	int i;

	port_open(&port);
	mr = ibv_reg_mr(port.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr, "reg mr");
	channel = ibv_create_comp_channel(port.ctx);
	CHECK(channel, "channel");
	sends = cq_new(&port, 2 * DEPTH, NULL, NULL);
	receives = cq_new(&port, 2 * DEPTH, channel, NULL);
	from = qp_new(&port, IBV_QPT_RC, sends, sends, DEPTH);
	to = qp_new(&port, IBV_QPT_RC, sends, receives, DEPTH);
	qp_pair(&port, from, to);
	for (i = 0; i < DEPTH; i++)
		give();
	set = epoll_create1(0);
	CHECK(!epoll_ctl(set, EPOLL_CTL_ADD, channel->fd, &e), "add");
}

static int by_poll(void)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};

	return poll(&p, 1, 0);
}

static int by_epoll(void)
{
	struct epoll_event e[4];

	return epoll_wait(set, e, 4, 1);
}

static int by_select(void)
{
	struct timeval none = {0, 0};
	fd_set read;

	FD_ZERO(&read);
	FD_SET(channel->fd, &read);
	return select(channel->fd + 1, &read, NULL, NULL, &none);
}

// Polls a new descriptor, which the library does not know yet.
static int by_new_pipe(void)
{
	int both[2], n;
	struct pollfd p;

	CHECK(!pipe(both), "pipe");
	p = (struct pollfd){.fd = both[0], .events = POLLIN};
	n = poll(&p, 1, 0);
	close(both[0]);
	close(both[1]);
	return n;
}

static void handle(int signal)
{
	int e = errno;

	(void)signal;
	CHECK(in_handler() >= 0, "a wait in the handler");
	calls++;
	errno = e;
}

static void interrupt(int (*wait)(void), int flags, int micros)
{
	struct sigaction a = {.sa_handler = handle, .sa_flags = SA_RESTART | flags};
	struct itimerval often = {{0, micros}, {0, micros}};

	in_handler = wait;
	CHECK(!sigaction(SIGALRM, &a, NULL), "sigaction");
	CHECK(!setitimer(ITIMER_REAL, &often, NULL), "timer");
}

// Posts, arms, polls and takes events. A signal may interrupt each call.
static void work(void)
{
	int loop, flying = 0;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	for (loop = 0; loop < LOOPS || calls < 500; loop++) {
		struct pollfd p = {.fd = channel->fd, .events = POLLIN};

		CHECK(!ibv_req_notify_cq(receives, 0), "arm");
		if (flying < DEPTH / 2) {
			put();
			flying++;
		}
		while (ibv_poll_cq(sends, 1, &wc) == 1) {
			CHECK(!wc.status, "send: %s", ibv_wc_status_str(wc.status));
			flying--;
		}
		while (ibv_poll_cq(receives, 1, &wc) == 1) {
			CHECK(!wc.status, "receive: %s", ibv_wc_status_str(wc.status));
			give();
		}
		if (syscall(SYS_ppoll, &p, 1, &(struct timespec){0, 0}, NULL) == 1) {
			CHECK(!ibv_get_cq_event(channel, &cq, &context), "event");
			ibv_ack_cq_events(cq, 1);
		}
	}
}

static void in_calls_poll(void)
{
	interrupt(by_poll, 0, 300);
	work();
}

static void in_calls_epoll(void)
{
	interrupt(by_epoll, 0, 3000);
	work();
}

static void in_calls_select(void)
{
	interrupt(by_select, 0, 300);
	work();
}

static void in_malloc(void)
{
	static void *blocks[256];
	int i;

	interrupt(by_new_pipe, 0, 200);
	while (calls < 3000)
		for (i = 0; i < 1000; i++) {
			int k = rand() % 256;

			free(blocks[k]);
			blocks[k] = malloc(rand() % 5000);
		}
}

// The handler runs on an alternate stack with the traditional size of SIGSTKSZ. The waits must need
// no more stack.
static void on_a_small_stack(void)
{
	static char room[8192];
	stack_t stack = {.ss_sp = room, .ss_size = sizeof(room)};
	int (*const waits[])(void) = {by_poll, by_epoll, by_select};
	size_t i;

	CHECK(!sigaltstack(&stack, NULL), "alternate stack");
	for (i = 0; i < ARRAY_LEN(waits); i++) {
		calls = 0;
		interrupt(waits[i], SA_ONSTACK, 2000);
		while (calls < 20)
			by_poll();
	}
}

static void bad_memory(void)
{
	struct timeval short_time = {0, 10000};
	struct epoll_event e[4];
	struct pollfd *p;
	fd_set *sets;

	sets = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(sets != MAP_FAILED && p != MAP_FAILED, "mmap");
	// The kernel can read the sets but cannot write to the sets, so select must fail.
	FD_SET(channel->fd, sets);
	CHECK(!mprotect(sets, 4096, PROT_READ), "mprotect");
	CHECK(select(channel->fd + 1, sets, NULL, NULL, &short_time) == -1 && errno == EFAULT, "select");
	// The array is unmapped after the first call, so the second call must fail.
	*p = (struct pollfd){.fd = channel->fd, .events = POLLIN};
	CHECK(poll(p, 1, 1) == 0, "poll");
	CHECK(!munmap(p, 4096), "munmap");
	CHECK(poll(p, 1, 1) == -1 && errno == EFAULT, "poll without memory");
	CHECK(epoll_pwait2(set, e, 4, (void *)8, NULL) == -1 && (errno == EFAULT || errno == ENOSYS), "epoll_pwait2");
}

static void fork_in_wait(int signal)
{
	(void)signal;
	if (waiting && !fork())
		forked = 1;
}

// The signal handler forks. The child returns from the handler into the interrupted wait. There the
// wait must end with EINTR or with a result, as in the parent.
static void forks(void)
{
	struct sigaction a = {.sa_handler = fork_in_wait};
	struct itimerval often = {{0, 10000}, {0, 10000}};
	int children = 0, loop = 0, status, n;
	struct epoll_event e[4];
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	CHECK(!sigaction(SIGALRM, &a, NULL), "sigaction");
	CHECK(!setitimer(ITIMER_REAL, &often, NULL), "timer");
	CHECK(!ibv_req_notify_cq(receives, 0), "arm");
	while (children < 50) {
		if (loop++ % 4 == 0) {
			put();
			poll_good(sends);
		}
		waiting = 1;
		n = epoll_wait(set, e, 4, 20);
		waiting = 0;
		if (forked)
			_exit(n >= 0 || errno == EINTR ? 0 : 7);
		CHECK(n >= 0 || errno == EINTR, "wait");
		if (n == 1) {
			CHECK(!ibv_get_cq_event(channel, &cq, &context), "event");
			ibv_ack_cq_events(cq, 1);
			CHECK(!ibv_req_notify_cq(receives, 0), "arm");
		}
		while (ibv_poll_cq(receives, 1, &wc) == 1)
			give();
		while (waitpid(-1, &status, WNOHANG) > 0) {
			CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "a child ended with %#x", status);
			children++;
		}
	}
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"in_calls_poll", in_calls_poll},
	{"in_calls_epoll", in_calls_epoll},
	{"in_calls_select", in_calls_select},
	{"in_malloc", in_malloc},
	{"on_a_small_stack", on_a_small_stack},
	{"bad_memory", bad_memory},
	{"forks", forks},
};

int main(int argc, char **argv)
{
	struct itimerval never = {{0, 0}, {0, 0}};
	size_t i;

	for (i = 0; argc > 1 && i < ARRAY_LEN(cases); i++)
		if (!strcmp(argv[1], cases[i].name)) {
			start();
			cases[i].run();
			setitimer(ITIMER_REAL, &never, NULL);
			printf("ok %s\n", argv[1]);
			return 0;
		}
	CHECK(0, "usage: waits_in_handlers CASE");
}
