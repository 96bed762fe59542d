// Tests the report of lost wake-ups (EXT-4). Some cases are right programs. The others are wrong,
// because a thread sleeps although completions are in its CQ.
// usage: asleep CASE. The table of cases is at the end. The program prints "ok EXT-4 CASE" and ends
// with status 0, or prints FAIL with the file and line of the failed check.
// The case runs in a child. The parent reads what the library writes to the child's standard error.
// A right program ends, and the library must write nothing. A wrong program sleeps until the
// library reports the thread and the call. Then the parent kills the child.
#define _GNU_SOURCE
#include "rig.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define BURST 6
#define SLOT 64
// Duration of a completion handler in a right program. During this time the library checks the CQ
// several times, and must not report the program.
#define HANDLER_MS 1300
// The longest wait for a report, in seconds.
#define LIMIT 60

static struct port port;
static struct ibv_comp_channel *channel;
static struct ibv_cq *send_cq, *recv_cq, *other_cq;
static struct ibv_qp *from, *to;
static struct ibv_mr *mr;
static uint8_t memory[2 * SLOT];

static void open_all(void)
{
	struct ibv_sge s = {.addr = (uintptr_t)memory + SLOT, .length = SLOT};
	struct ibv_recv_wr wr = {.sg_list = &s, .num_sge = 1}, *bad;
	int i;

	port_open(&port);
	channel = ibv_create_comp_channel(port.ctx);
	CHECK(channel, "channel");
	send_cq = cq_new(&port, 2 * BURST, NULL, NULL);
	recv_cq = cq_new(&port, 4 * BURST, channel, NULL);
	from = qp_new(&port, IBV_QPT_RC, send_cq, send_cq, 4 * BURST);
	to = qp_new(&port, IBV_QPT_RC, send_cq, recv_cq, 4 * BURST);
	mr = ibv_reg_mr(port.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr, "mr");
	s.lkey = mr->lkey;
	qp_pair(&port, from, to);
	for (i = 0; i < 4 * BURST; i++)
		CHECK(!ibv_post_recv(to, &wr, &bad), "post recv");
}

static void arm(int solicited)
{
	CHECK(!ibv_req_notify_cq(recv_cq, solicited), "arm");
}

// Sends `n` messages. On return the completions of all messages are in the receiver's CQ.
static void send_messages(int n)
{
	struct ibv_sge s = {(uintptr_t)memory, SLOT, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	while (n--) {
		CHECK(!ibv_post_send(from, &wr, &bad), "post send");
		poll_good(send_cq);
	}
}

static int take(int most)
{
	struct ibv_wc wc;
	int n = 0;

	while (n < most && ibv_poll_cq(recv_cq, 1, &wc) == 1) {
		CHECK(wc.status == IBV_WC_SUCCESS, "status %d", wc.status);
		n++;
	}
	return n;
}

static void get_event(void)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_get_cq_event(channel, &cq, &context), "get");
	ibv_ack_cq_events(cq, 1);
}

static void nap(int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};

	nanosleep(&t, NULL);
}

static void start(void *(*run)(void *))
{
	pthread_t t;

	CHECK(!pthread_create(&t, NULL, run, NULL), "thread");
	pthread_detach(t);
}

static int new_epoll(int fd, uint32_t events)
{
	struct epoll_event e = {.events = events};
	int epoll = epoll_create1(0);

	CHECK(epoll >= 0 && !epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e), "epoll");
	return epoll;
}

// ---- Completion handlers of right programs. Each handler takes HANDLER_MS.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int done, ends[2];

static void compute(void)
{
	double end = now() + HANDLER_MS * 1e-3;

	while (now() < end)
		;
}

static void sleep_for_a_while(void)
{
	nap(HANDLER_MS);
}

// The thread that polls `recv_cq` sleeps on the channel. `other_cq` is armed and uses this channel,
// too. The library treats a wait of less than a second as a pause between two polls. HANDLER_MS is
// longer, so the thread counts as a waiting thread.
static void wait_for_the_other_queue(void)
{
	struct epoll_event e;
	int epoll = new_epoll(channel->fd, EPOLLIN);

	CHECK(epoll_wait(epoll, &e, 1, HANDLER_MS) == 0, "an event of a queue that is empty");
	close(epoll);
}

static void *finish_work(void *unused)
{
	nap(HANDLER_MS);
	CHECK(write(ends[1], "x", 1) == 1, "write");
	pthread_mutex_lock(&lock);
	done = 1;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return unused;
}

static void wait_for_condition(void)
{
	start(finish_work);
	pthread_mutex_lock(&lock);
	while (!done)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void wait_for_pipe(void)
{
	char c;

	start(finish_work);
	CHECK(read(ends[0], &c, 1) == 1, "read");
}

static void wait_in_poll(void)
{
	struct pollfd p[2] = {{.fd = ends[0], .events = POLLIN}, {.fd = channel->fd, .events = 0}};

	start(finish_work);
	CHECK(poll(p, 2, -1) == 1, "poll");
}

static void wait_in_other_epoll(void)
{
	struct epoll_event e;
	int epoll = new_epoll(ends[0], EPOLLIN);

	start(finish_work);
	CHECK(epoll_wait(epoll, &e, 1, -1) == 1, "epoll_wait");
}

// The program has a single epoll instance. While a handler runs, the instance watches the channel
// for no events.
static void wait_in_epoll_without_channel(void)
{
	struct epoll_event e = {.events = EPOLLIN};
	int epoll = new_epoll(channel->fd, 0);

	CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &e), "epoll");
	start(finish_work);
	CHECK(epoll_wait(epoll, &e, 1, -1) == 1, "epoll_wait");
}

// The right order: get the event, acknowledge it, arm, poll until empty. The handler of the first
// message is slow.
static void consume(void (*handle)(void))
{
	int n;

	arm(0);
	send_messages(BURST);
	get_event();
	arm(0);
	CHECK(take(1) == 1, "first");
	handle();
	n = 1 + take(BURST);
	CHECK(n == BURST, "%d taken", n);
}

static void *get_beside(void *unused)
{
	get_event();
	return unused;
}

static void *wait_in_epoll_beside(void *unused)
{
	struct epoll_event e;
	int epoll = new_epoll(channel->fd, EPOLLIN | EPOLLET);

	while (epoll_wait(epoll, &e, 1, -1) >= 0)
		;
	return unused;
}

static void beside_get(void (*handle)(void))
{
	arm(0);
	send_messages(BURST);
	get_event();
	arm(0);
	start(get_beside);
	CHECK(take(1) == 1, "first");
	handle();
	CHECK(take(BURST) == BURST - 1, "the others");
}

static void beside_epoll(void (*handle)(void))
{
	start(wait_in_epoll_beside);
	consume(handle);
}

// One thread takes the events and gives the work to another thread.
static int work;

static void *worker(void *handle)
{
	int taken = 0;

	while (taken < BURST) {
		pthread_mutex_lock(&lock);
		while (!work)
			pthread_cond_wait(&changed, &lock);
		work = 0;
		pthread_mutex_unlock(&lock);
		arm(0);
		taken += take(1);
		if (handle)
			((void (*)(void))handle)();
		if (handle)
			taken += take(BURST);
	}
	return NULL;
}

static void *hand_over(void *unused)
{
	for (;;) {
		get_event();
		pthread_mutex_lock(&lock);
		work = 1;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
	return unused;
}

static void handed_over(void (*handle)(void))
{
	pthread_t t;

	arm(0);
	CHECK(!pthread_create(&t, NULL, worker, handle), "thread");
	send_messages(BURST);
	start(hand_over);
	pthread_join(t, NULL);
}

// Two CQs share a channel. `other_cq` is armed. The program never arms `recv_cq`, but polls this CQ
// now and then, so the library must report nothing.
static void polled_now_and_then(void (*handle)(void))
{
	int i, n = 0;

	other_cq = cq_new(&port, BURST, channel, NULL);
	CHECK(!ibv_req_notify_cq(other_cq, 0), "arm");
	start(wait_in_epoll_beside);
	for (i = 0; i < 2; i++) {
		CHECK(take(1) == 0, "empty");
		send_messages(BURST);
		handle();
		n += take(BURST);
	}
	CHECK(n == 2 * BURST, "%d taken", n);
}

// The program arms the CQ for solicited messages only. So unsolicited messages may stay in the CQ,
// and the library must report nothing.
static void solicited(void (*handle)(void))
{
	struct epoll_event e;
	int epoll = new_epoll(channel->fd, EPOLLIN);

	(void)handle;
	send_messages(BURST);
	arm(1);
	CHECK(epoll_wait(epoll, &e, 1, HANDLER_MS) == 0, "no event");
	CHECK(take(BURST) == BURST, "all");
}

// ---- Calls in which a wrong program sleeps while completions are in the CQ.
static void in_get(void)
{
	get_event();
}

static void in_read(void)
{
	char c;

	CHECK(read(channel->fd, &c, 1) == 1, "read");
}

static void in_readv(void)
{
	char c;
	struct iovec v = {&c, 1};

	CHECK(readv(channel->fd, &v, 1) == 1, "readv");
}

static void in_poll(void)
{
	struct pollfd p[2] = {{.fd = ends[0], .events = POLLIN}, {.fd = channel->fd, .events = POLLIN}};

	poll(p, 2, -1);
}

static void in_dup(void)
{
	struct pollfd p = {.fd = fcntl(channel->fd, F_DUPFD, 200), .events = POLLIN};

	poll(&p, 1, -1);
}

static void in_ppoll(void)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	struct timespec t = {LIMIT, 0};

	ppoll(&p, 1, &t, NULL);
}

static void in_select(void)
{
	struct timeval t = {LIMIT, 0};
	fd_set set;

	FD_ZERO(&set);
	FD_SET(channel->fd, &set);
	select(channel->fd + 1, &set, NULL, NULL, &t);
}

static void in_pselect(void)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(channel->fd, &set);
	pselect(channel->fd + 1, &set, NULL, NULL, NULL, NULL);
}

static void in_epoll(void)
{
	struct epoll_event e;

	epoll_wait(new_epoll(channel->fd, EPOLLIN), &e, 1, -1);
}

static void in_epoll_pwait(void)
{
	struct epoll_event e;
	sigset_t none;

	sigemptyset(&none);
	epoll_pwait(new_epoll(channel->fd, EPOLLIN | EPOLLET), &e, 1, LIMIT * 1000, &none);
}

static void in_epoll_pwait2(void)
{
	struct epoll_event e;

	syscall(SYS_epoll_pwait2, new_epoll(channel->fd, EPOLLIN), &e, 1, NULL, NULL, 0);
}

static void in_nested(void)
{
	struct epoll_event e;
	int inner = new_epoll(new_epoll(channel->fd, EPOLLIN), EPOLLIN);

	epoll_wait(new_epoll(inner, EPOLLIN), &e, 1, -1);
}

// The epoll watches a duplicate of the channel's descriptor.
static void in_epoll_of_dup(void)
{
	struct epoll_event e;
	int copy = dup(channel->fd), epoll = new_epoll(copy, EPOLLIN);

	epoll_wait(epoll, &e, 1, -1);
}

// The thread wakes every 200 ms, but does not poll the CQ.
static void in_pauses(void)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};

	while (!poll(&p, 1, 200))
		;
}

static void in_pause(void)
{
	CHECK(!fcntl(channel->fd, F_SETOWN, getpid()), "owner");
	CHECK(!fcntl(channel->fd, F_SETFL, O_ASYNC), "O_ASYNC");
	pause();
}

static void slow_then_in_epoll(void)
{
	nap(300);
	in_epoll();
}

// The kernel does not show which files an io_uring waits for. So the library can only report that
// no thread has polled. If the kernel has no io_uring, the program prints a message and ends.
static void in_uring(void)
{
	struct io_uring_params params = {0};
	int ring = syscall(SYS_io_uring_setup, 4, &params);

	if (ring < 0) {
		fputs("no io_uring here\n", stderr);
		exit(0);
	}
	for (;;)
		syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
}

// Takes the event, arms, polls a single completion, and sleeps while the other completions are in
// the CQ.
static void oversleep(void (*sleep)(void))
{
	prctl(PR_SET_NAME, "consumer");
	arm(0);
	send_messages(BURST);
	get_event();
	arm(0);
	CHECK(take(1) == 1, "first");
	sleep();
}

// Polls until empty and forgets to arm. So the next message makes no event.
static void forget(void (*sleep)(void))
{
	prctl(PR_SET_NAME, "consumer");
	arm(0);
	send_messages(1);
	get_event();
	CHECK(take(BURST) == 1, "first");
	send_messages(1);
	sleep();
}

static void never_arm(void (*sleep)(void))
{
	prctl(PR_SET_NAME, "consumer");
	send_messages(BURST);
	sleep();
}

static void *consumer(void *sleep)
{
	oversleep((void (*)(void))sleep);
	return NULL;
}

// The main thread computes, and never polls the queue.
static void beside_work(void (*sleep)(void))
{
	pthread_t t;

	CHECK(!pthread_create(&t, NULL, consumer, sleep), "thread");
	for (;;)
		compute();
}

static void hand_over_early(void (*handle)(void))
{
	prctl(PR_SET_NAME, "consumer");
	handed_over(handle);
}

// ---- The cases.
static const struct {
	const char *name;
	void (*run)(void (*)(void)), (*part)(void);
	// For a wrong program: text that the library's report must contain. NULL for a right
	// program, for which the library must print nothing.
	const char *says;
} cases[] = {
	{"right_computes", consume, compute, NULL},
	{"right_sleeps", consume, sleep_for_a_while, NULL},
	{"right_waits_for_a_condition", consume, wait_for_condition, NULL},
	{"right_waits_for_a_pipe", consume, wait_for_pipe, NULL},
	{"right_waits_in_poll", consume, wait_in_poll, NULL},
	{"right_waits_in_another_epoll", consume, wait_in_other_epoll, NULL},
	{"right_waits_in_an_epoll_without_the_channel", consume, wait_in_epoll_without_channel, NULL},
	{"right_computes_beside_a_thread_in_get_event", beside_get, compute, NULL},
	{"right_computes_beside_a_thread_in_epoll", beside_epoll, compute, NULL},
	{"right_sleeps_beside_a_thread_in_epoll", beside_epoll, sleep_for_a_while, NULL},
	{"right_waits_for_a_condition_beside_a_thread", beside_epoll, wait_for_condition, NULL},
	{"right_waits_for_a_pipe_beside_a_thread", beside_epoll, wait_for_pipe, NULL},
	{"right_waits_in_another_epoll_beside_a_thread", beside_epoll, wait_in_other_epoll, NULL},
	{"right_hands_over_and_computes", handed_over, compute, NULL},
	{"right_hands_over_and_waits_for_a_condition", handed_over, wait_for_condition, NULL},
	{"right_polls_now_and_then", polled_now_and_then, wait_for_the_other_queue, NULL},
	{"right_polls_and_sleeps_beside_a_thread", polled_now_and_then, sleep_for_a_while, NULL},
	{"right_leaves_unsolicited_messages", solicited, compute, NULL},
	{"wrong_in_get_event", oversleep, in_get, "\"consumer\" waits in ibv_get_cq_event\n"},
	{"wrong_in_read", oversleep, in_read, "\"consumer\" waits in read("},
	{"wrong_in_readv", oversleep, in_readv, "\"consumer\" waits in readv("},
	{"wrong_in_poll", oversleep, in_poll, "\"consumer\" waits in p"},
	{"wrong_in_poll_of_a_duplicate", oversleep, in_dup, "poll(200)\n"},
	{"wrong_in_ppoll", oversleep, in_ppoll, "\"consumer\" waits in ppoll("},
	{"wrong_in_select", oversleep, in_select, "select"},
	{"wrong_in_pselect", oversleep, in_pselect, "\"consumer\" waits in pselect6("},
	{"wrong_in_epoll_wait", oversleep, in_epoll, "\"consumer\" waits in epoll_"},
	{"wrong_in_epoll_pwait", oversleep, in_epoll_pwait, "\"consumer\" waits in epoll_pwait("},
	{"wrong_in_epoll_pwait2", oversleep, in_epoll_pwait2, "\"consumer\" waits in epoll_pwait2("},
	{"wrong_in_nested_epoll", oversleep, in_nested, "\"consumer\" waits in epoll_"},
	{"wrong_in_epoll_of_a_duplicate", oversleep, in_epoll_of_dup, "\"consumer\" waits in epoll_"},
	{"wrong_in_pauses", oversleep, in_pauses, "\"consumer\" waits in p"},
	{"wrong_in_pause", oversleep, in_pause, "\"consumer\" waits in "},
	{"wrong_after_a_while", oversleep, slow_then_in_epoll, "\"consumer\" waits in epoll_"},
	{"wrong_in_io_uring", oversleep, in_uring, "no thread has polled for 1 s\n"},
	{"wrong_forgets_to_arm", forget, in_epoll, "\"consumer\" waits in epoll_"},
	{"wrong_never_arms", never_arm, in_epoll, "\"consumer\" waits in epoll_"},
	{"wrong_beside_work", beside_work, in_epoll, "\"consumer\" waits in epoll_"},
	{"wrong_hands_over", hand_over_early, NULL, "every other thread is idle\n"},
};

static char text[1 << 16];

// Reads what the child writes to standard error, up to the end of the child or up to the report.
static void listen_to(int fd, int stop_at_report)
{
	double end = now() + LIMIT;
	size_t len = 0;
	char *found;
	ssize_t n;

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		CHECK(now() < end, "nothing but \"%s\" in %d s", text, LIMIT);
		if (poll(&p, 1, 100) < 1)
			continue;
		n = read(fd, text + len, sizeof(text) - 1 - len);
		CHECK(n >= 0, "read");
		if (!n)
			return;
		len += n;
		found = strstr(text, "lost wake-up: ");
		if (stop_at_report && found && strchr(found, '\n'))
			return;
	}
}

int main(int argc, char **argv)
{
	int said[2], status;
	char *report;
	size_t i = 0;
	pid_t child;

	while (i < ARRAY_LEN(cases) && !(argc == 2 && !strcmp(argv[1], cases[i].name)))
		i++;
	CHECK(i < ARRAY_LEN(cases), "usage: asleep CASE");
	CHECK(!pipe2(said, O_CLOEXEC), "pipe");
	child = fork();
	CHECK(child >= 0, "fork");
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		CHECK(dup2(said[1], 2) == 2 && !pipe2(ends, O_CLOEXEC), "pipe");
		open_all();
		cases[i].run(cases[i].part);
		_exit(0);
	}
	close(said[1]);
	listen_to(said[0], cases[i].says != NULL);
	if (cases[i].says && strcmp(text, "no io_uring here\n"))
		kill(child, SIGKILL);
	CHECK(waitpid(child, &status, 0) == child, "wait");
	fputs(text, stderr);
	report = strstr(text, "lost wake-up: ");
	if (!cases[i].says) {
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "status %x: %s", status, text);
		CHECK(!*text, "the library said \"%s\"", text);
	} else if (strcmp(text, "no io_uring here\n")) {
		CHECK(report && strstr(report, cases[i].says), "no report that says \"%s\": \"%s\"", cases[i].says, text);
	}
	printf("ok EXT-4 %s\n", cases[i].name);
	return 0;
}
