// The reports about lost wake-ups (EXT-4) and missing acknowledgements (EXT-5), one case a process.
// usage: heart CASE. The table of cases is at the end. The program prints "ok ID CASE" and ends
// with status 0, or prints FAIL with the file and line of the failed check.
// The program reads the library's standard error through a pipe, and forwards the lines. So the
// program can continue at once after a report.
#define _GNU_SOURCE
#include "rig.h"
#include <sys/epoll.h>

#define BURST 10
// The number of messages of the burst that an early receiver polls. An early receiver sleeps again
// before its CQ is empty.
#define EARLY 2
#define SLOT 64
// The longest wait for anything, in seconds.
#define LIMIT 20
// The time in which the library must stay silent. The library reports a waiting thread after a
// fraction of this time.
#define QUIET_MS 500

static struct port port;
static struct ibv_comp_channel *channel;
static struct ibv_cq *send_cq, *recv_cq;
static struct ibv_qp *from, *to;
static struct ibv_mr *mr;
static uint8_t memory[2 * SLOT];

// ---- The output of the library.
static struct {
	int from_library, to_outside;
	char text[1 << 14];
	size_t len, passed_on;
} said;

// Replaces standard error by a pipe. The program calls this function before any function of the
// library.
static void listen_to_library(void)
{
	int ends[2];

	CHECK(!pipe2(ends, O_CLOEXEC), "pipe");
	said.to_outside = dup(2);
	CHECK(said.to_outside >= 0 && dup2(ends[1], 2) == 2, "dup");
	said.from_library = ends[0];
}

// Reads what the library writes within `ms`, and forwards whole lines. Returns 0 if the library
// wrote nothing.
static int hear(int ms)
{
	struct pollfd p = {.fd = said.from_library, .events = POLLIN};
	char *end = said.text + said.len, *whole;
	ssize_t n;

	if (poll(&p, 1, ms) < 1)
		return 0;
	n = read(said.from_library, end, sizeof(said.text) - 1 - said.len);
	CHECK(n > 0, "read");
	said.len += n;
	said.text[said.len] = 0;
	whole = strrchr(said.text + said.passed_on, '\n');
	if (whole) {
		n = whole + 1 - (said.text + said.passed_on);
		CHECK(write(said.to_outside, said.text + said.passed_on, n) == n, "write");
		said.passed_on += n;
	}
	return 1;
}

// Returns whether the library has written a whole line with these words.
static int said_line(const char *words)
{
	const char *found = strstr(said.text, words);

	return found && strchr(found, '\n');
}

static void wait_for_words(const char *words)
{
	double end = now() + LIMIT;

	while (!said_line(words)) {
		CHECK(now() < end, "the library did not say \"%s\" but \"%s\"", words, said.text);
		hear(100);
	}
}

static void expect_silence(const char *words)
{
	double end = now() + QUIET_MS * 1e-3;

	while (now() < end)
		hear(20);
	CHECK(!strstr(said.text, words), "the library said \"%s\"", said.text);
}

// ---- A sender and a receiver in this process.
static void recv_on(int n)
{
	struct ibv_sge s = {(uintptr_t)memory + SLOT, SLOT, mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &s, .num_sge = 1}, *bad;

	while (n--)
		CHECK(!ibv_post_recv(to, &wr, &bad), "post recv");
}

static void open_all(void)
{
	listen_to_library();
	port_open(&port);
	channel = ibv_create_comp_channel(port.ctx);
	CHECK(channel, "channel");
	send_cq = cq_new(&port, 2 * BURST, NULL, NULL);
	recv_cq = cq_new(&port, 2 * BURST, channel, NULL);
	from = qp_new(&port, IBV_QPT_RC, send_cq, send_cq, 2 * BURST);
	to = qp_new(&port, IBV_QPT_RC, send_cq, recv_cq, 2 * BURST);
	mr = ibv_reg_mr(port.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr, "mr");
	qp_pair(&port, from, to);
	recv_on(2 * BURST);
}

static void destroy_qps(void)
{
	CHECK(!ibv_destroy_qp(from) && !ibv_destroy_qp(to), "destroy qp");
}

static void close_all(void)
{
	destroy_qps();
	CHECK(!ibv_destroy_cq(send_cq) && !ibv_destroy_cq(recv_cq), "destroy cq");
	CHECK(!ibv_destroy_comp_channel(channel), "destroy channel");
	CHECK(!ibv_dereg_mr(mr), "dereg");
	port_close(&port);
}

// Sends `n` messages in one chain. On return the completions of all messages are in the receiver's
// CQ, because the receiver acknowledges a message after its completion.
static void send_messages(int n)
{
	struct ibv_sge s = {(uintptr_t)memory, SLOT, mr->lkey};
	struct ibv_send_wr wr[BURST], *bad;
	int i;

	for (i = 0; i < n; i++)
		wr[i] = (struct ibv_send_wr){.next = i + 1 < n ? &wr[i + 1] : NULL,
					     .sg_list = &s,
					     .num_sge = 1,
					     .opcode = IBV_WR_SEND,
					     .send_flags = IBV_SEND_SIGNALED};
	CHECK(!ibv_post_send(from, wr, &bad), "post send");
	while (n--)
		poll_good(send_cq);
}

// ---- The receiver, a thread.
enum sleep { IN_GET, IN_POLL, IN_EPOLL };
static struct {
	enum sleep sleep;
	int early; // after the first event, the thread polls EARLY completions and sleeps again
	int want; // the thread ends after this number of messages
	volatile int received;
	volatile int armed, burst_is_there;
} receiver;

static int became(volatile int *flag)
{
	double end = now() + LIMIT;

	while (!*flag && now() < end)
		usleep(1000);
	return *flag;
}

// Not inlined, so that the report of the library can name this function.
static void __attribute__((noinline)) arm_the_receiver(void)
{
	int r = ibv_req_notify_cq(recv_cq, 0);

	CHECK(r == 0, "req_notify %d", r);
}

// Sleeps on the descriptor with the chosen call. For IN_GET the function returns at once, because
// the thread then sleeps in ibv_get_cq_event.
static void sleep_on_channel(int epoll)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	struct epoll_event e;

	if (receiver.sleep == IN_POLL)
		CHECK(poll(&p, 1, LIMIT * 1000) == 1, "poll: no event");
	else if (receiver.sleep == IN_EPOLL)
		CHECK(epoll_wait(epoll, &e, 1, LIMIT * 1000) == 1, "epoll: no event");
}

static int new_epoll(void)
{
	struct epoll_event e = {.events = EPOLLIN};
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	CHECK(epoll >= 0 && !epoll_ctl(epoll, EPOLL_CTL_ADD, channel->fd, &e), "epoll");
	return epoll;
}

static int poll_until_empty(int most)
{
	struct ibv_wc wc;
	int n, found = 0;

	while (found < most && (n = ibv_poll_cq(recv_cq, 1, &wc))) {
		CHECK(n == 1 && wc.status == IBV_WC_SUCCESS, "poll %d status %d", n, wc.status);
		found++;
	}
	return found;
}

static void *receive(void *unused)
{
	int epoll = new_epoll(), first = 1, most;
	struct ibv_cq *cq;
	void *context;

	arm_the_receiver();
	receiver.armed = 1;
	while (receiver.received < receiver.want) {
		sleep_on_channel(epoll);
		CHECK(!ibv_get_cq_event(channel, &cq, &context), "get");
		CHECK(cq == recv_cq, "event of another CQ");
		// The receiver is slow. Before its second arm, the receiver waits until the whole
		// burst is in the CQ.
		CHECK(!first || became(&receiver.burst_is_there), "the burst");
		ibv_ack_cq_events(cq, 1);
		arm_the_receiver();
		most = first && receiver.early ? EARLY : 4 * BURST;
		first = 0;
		receiver.received += poll_until_empty(most);
	}
	close(epoll);
	return unused;
}

static void burst(enum sleep sleep, int early)
{
	pthread_t t;

	open_all();
	receiver.sleep = sleep;
	receiver.early = early;
	receiver.want = early ? BURST + 1 : BURST;
	CHECK(!pthread_create(&t, NULL, receive, NULL), "thread");
	CHECK(became(&receiver.armed), "arm");
	send_messages(BURST);
	receiver.burst_is_there = 1;
	if (early) {
		wait_for_words("lost wake-up");
		CHECK(receiver.received == EARLY, "%d received", receiver.received);
		// The next message wakes the receiver, which then finds the other messages, too.
		send_messages(1);
	}
	pthread_join(t, NULL);
	CHECK(receiver.received == receiver.want, "%d received", receiver.received);
	if (!early)
		expect_silence("lost wake-up");
	close_all();
}

static void epoll_in_order(void)
{
	burst(IN_EPOLL, 0);
}
static void epoll_early(void)
{
	burst(IN_EPOLL, 1);
}
static void poll_in_order(void)
{
	burst(IN_POLL, 0);
}
static void poll_early(void)
{
	burst(IN_POLL, 1);
}
static void get_in_order(void)
{
	burst(IN_GET, 0);
}
static void get_early(void)
{
	burst(IN_GET, 1);
}

// ---- Programs that arm after the completions have arrived, or never arm. Then a thread sleeps.
static void *get_one(void *result)
{
	struct ibv_cq *cq;
	void *context;
	int r = ibv_get_cq_event(channel, &cq, &context);

	*(int *)result = r ? errno : 0;
	if (!r)
		ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void ignore(int sig)
{
	(void)sig;
}

// Sends a signal, which wakes a thread that sleeps in ibv_get_cq_event (CHN-7).
static void interrupt(pthread_t t, int *result)
{
	double end = now() + LIMIT;
	void *none;

	// A signal may arrive before the thread calls ibv_get_cq_event, or between two waits within
	// this call. So the loop repeats the signal until the thread has ended.
	while (pthread_tryjoin_np(t, &none)) {
		CHECK(now() < end, "the thread does not end");
		pthread_kill(t, SIGUSR1);
		usleep(2000);
	}
	CHECK(*result == EINTR, "get gave %d", *result);
}

static void sleep_beside(const char *words)
{
	struct sigaction sa = {.sa_handler = ignore}; // without SA_RESTART
	pthread_t t;
	int result = -1;

	CHECK(!sigaction(SIGUSR1, &sa, NULL), "sigaction");
	CHECK(!pthread_create(&t, NULL, get_one, &result), "thread");
	wait_for_words(words);
	interrupt(t, &result);
	CHECK(poll_until_empty(4 * BURST) == 5, "the completions");
	close_all();
}

static void never_armed(void)
{
	open_all();
	send_messages(5);
	sleep_beside("never armed");
}

static void armed_too_late(void)
{
	open_all();
	send_messages(5);
	arm_the_receiver();
	sleep_beside("lost wake-up");
}

// ---- A program that polls slowly, but never sleeps. The program loses no wake-up, so the library
// must not report one.
#define PACE_MS 25

// Polls a burst that arrived before the arm, one completion at a time. Returns whether the library
// was silent.
static int poll_slowly(int armed)
{
	size_t before = said.len;
	struct ibv_cq *cq;
	void *context;
	int n;

	send_messages(BURST);
	if (armed) {
		// The previous call armed the CQ, so the burst made this event. As long as the
		// program has not read the event, the event announces the burst.
		CHECK(!ibv_get_cq_event(channel, &cq, &context), "get");
		ibv_ack_cq_events(cq, 1);
	}
	arm_the_receiver();
	for (n = 0; n < BURST; n++) {
		CHECK(poll_until_empty(1) == 1, "completion %d", n);
		hear(PACE_MS);
	}
	recv_on(BURST);
	return said.len == before;
}

static void slow_poller(void)
{
	int times;

	open_all();
	for (times = 0; times < 2; times++)
		CHECK(poll_slowly(times > 0), "reports about a program that polls: %s", said.text);
	close_all();
}

// ---- Missing acknowledgements of events.
static volatile int destroyed;

static void *destroy_cq(void *unused)
{
	CHECK(!ibv_destroy_cq(recv_cq), "destroy cq");
	destroyed = 1;
	return unused;
}

static void unacknowledged(void)
{
	struct ibv_cq *cq = NULL;
	void *context;
	pthread_t t;
	int i;

	open_all();
	for (i = 0; i < 3; i++) {
		arm_the_receiver();
		send_messages(1);
		CHECK(!ibv_get_cq_event(channel, &cq, &context), "get");
		CHECK(poll_until_empty(BURST) == 1, "completion");
	}
	destroy_qps();
	ibv_ack_cq_events(cq, 1);
	CHECK(!pthread_create(&t, NULL, destroy_cq, NULL), "thread");
	wait_for_words("not acknowledged");
	CHECK(!destroyed, "destroyed with two events not acknowledged");
	ibv_ack_cq_events(cq, 2);
	CHECK(became(&destroyed), "all events are acknowledged, and the destroy waits on");
	pthread_join(t, NULL);
	CHECK(!ibv_destroy_cq(send_cq) && !ibv_destroy_comp_channel(channel), "destroy");
	CHECK(!ibv_dereg_mr(mr), "dereg");
	port_close(&port);
}

static const struct {
	const char *id, *name;
	void (*run)(void);
} cases[] = {
	{"EXT-4", "epoll_in_order", epoll_in_order},
	{"EXT-4", "epoll_early", epoll_early},
	{"EXT-4", "poll_in_order", poll_in_order},
	{"EXT-4", "poll_early", poll_early},
	{"EXT-4", "get_in_order", get_in_order},
	{"EXT-4", "get_early", get_early},
	{"EXT-4", "never_armed", never_armed},
	{"EXT-4", "armed_too_late", armed_too_late},
	{"EXT-4", "slow_poller", slow_poller},
	{"EXT-5", "unacknowledged", unacknowledged},
};

int main(int argc, char **argv)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(cases); i++) {
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			while (hear(0))
				;
			printf("ok %s %s\n", cases[i].id, cases[i].name);
			fflush(stdout);
			return 0;
		}
	}
	fprintf(stderr, "no such case\n");
	return 2;
}
