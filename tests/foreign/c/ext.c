// Adverb's extensions of verbs, called from C (EXT-1 to EXT-4), one case a process.
// usage: ext CASE. The table of cases is at the end. The program prints "ok ID CASE" and ends with
// status 0, or prints FAIL with the file and line of the failed check.
#include "rig.h"
#include "adverb.h"

static struct port port;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *a, *b;
static struct ibv_mr *mr;
static uint8_t memory[128];

static void set_up(void)
{
	struct timers t = {14, 7, 7};

	CHECK(adverb_peek_cq && adverb_notify_cq && adverb_disarm_cq && adverb_overlooked, "not there");
	port_open(&port);
	channel = ibv_create_comp_channel(port.ctx);
	CHECK(channel, "channel");
	CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK), "fcntl");
	cq = cq_new(&port, 64, channel, NULL);
	a = qp_new(&port, IBV_QPT_RC, cq_new(&port, 64, NULL, NULL), cq, 64);
	b = qp_new(&port, IBV_QPT_RC, cq, cq, 64);
	qp_init(&port, a);
	qp_init(&port, b);
	qp_join(&port, a, 7, b->qp_num, 9, port.gid, t);
	qp_join(&port, b, 9, a->qp_num, 7, port.gid, t);
	mr = ibv_reg_mr(port.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr, "mr");
}

// Sends `n` messages from `a` to `b`. On return all receive completions are in `cq`.
static void burst(int n)
{
	struct ibv_sge sge = {(uintptr_t)memory, 8, mr->lkey};
	struct ibv_recv_wr r = {.sg_list = &sge, .num_sge = 1}, *bad_r;
	struct ibv_send_wr s = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				.send_flags = IBV_SEND_SIGNALED}, *bad_s;
	struct ibv_wc wc[64];
	double end = now() + 20;
	int i, sent = 0, before = adverb_peek_cq(cq, 64, wc);

	for (i = 0; i < n; i++) {
		r.wr_id = s.wr_id = i;
		CHECK(!ibv_post_recv(b, &r, &bad_r), "recv");
		CHECK(!ibv_post_send(a, &s, &bad_s), "send");
	}
	while (sent < n || adverb_peek_cq(cq, 64, wc) < before + n) {
		i = ibv_poll_cq(a->send_cq, 64, wc);
		CHECK(i >= 0 && now() < end, "%d of %d", sent, n);
		sent += i;
	}
}

// Reads and acknowledges all waiting events. Returns their number.
static int events(void)
{
	struct ibv_cq *got;
	void *context;
	int n = 0;

	while (!ibv_get_cq_event(channel, &got, &context)) {
		CHECK(got == cq, "which");
		n++;
	}
	CHECK(errno == EAGAIN, "get");
	ibv_ack_cq_events(cq, n);
	return n;
}

static void peek(void)
{
	// The length of the structure without the padding at its end. The comparison leaves the
	// padding out, because the library does not write the padding.
	size_t fields = offsetof(struct ibv_wc, dlid_path_bits) + sizeof(uint8_t);
	struct ibv_wc wc[8], taken[8];
	int i;

	burst(5);
	CHECK(adverb_peek_cq(cq, 3, wc) == 3, "three");
	CHECK(adverb_peek_cq(cq, 8, wc) == 5, "all, still");
	CHECK(ibv_poll_cq(cq, 8, taken) == 5, "poll");
	for (i = 0; i < 5; i++)
		CHECK(wc[i].wr_id == (uint64_t)i && !memcmp(&wc[i], &taken[i], fields), "%d", i);
	CHECK(adverb_peek_cq(cq, 8, wc) == 0, "none");
	CHECK(adverb_peek_cq(cq, -1, wc) == -EINVAL, "negative");
}

static void persistent(void)
{
	CHECK(!adverb_notify_cq(cq, ADVERB_NOTIFY_NEXT, ADVERB_NOTIFY_PERSISTENT), "arm");
	burst(4);
	CHECK(events() == 4, "one for each");
	CHECK(!adverb_disarm_cq(cq), "disarm");
	burst(1);
	CHECK(events() == 0, "none");
	CHECK(adverb_notify_cq(cq, 3, 0) == EINVAL, "kind");
	CHECK(adverb_notify_cq(cq, ADVERB_NOTIFY_NEXT, 2) == EINVAL, "flag");
	CHECK(!adverb_notify_cq(cq, ADVERB_NOTIFY_ERRORS, 0), "errors");
	burst(1);
	CHECK(events() == 0, "no failure");
}

static void batches(void)
{
	struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {.cq_count = 4}};
	int i;

	CHECK(!ibv_modify_cq(cq, &attr), "modify");
	CHECK(!adverb_notify_cq(cq, ADVERB_NOTIFY_NEXT, ADVERB_NOTIFY_PERSISTENT), "arm");
	burst(9);
	CHECK(events() == 2, "two batches of four");
	attr.moderate.cq_count = 100;
	attr.moderate.cq_period = 2000;
	CHECK(!ibv_modify_cq(cq, &attr), "modify");
	for (i = 0; i < 2; i++) {
		// The first event is for the completion that is left from the burst of nine.
		struct pollfd p = {.fd = channel->fd, .events = POLLIN};

		if (i)
			burst(1);
		CHECK(poll(&p, 1, 20000) == 1, "after two milliseconds");
		CHECK(events() == 1, "one");
	}
}

static void overlooked(void)
{
	struct ibv_wc wc[8];

	CHECK(adverb_overlooked(channel) == 0, "empty");
	burst(3);
	CHECK(adverb_overlooked(channel) == 3, "never armed");
	CHECK(!ibv_req_notify_cq(cq, 0), "arm");
	CHECK(ibv_poll_cq(cq, 1, wc) == 1, "poll");
	CHECK(adverb_overlooked(channel) == 2, "before the arm");
	burst(1);
	CHECK(adverb_overlooked(channel) == 0, "an event waits");
	CHECK(events() == 1, "it");
	CHECK(adverb_overlooked(channel) == 3, "not armed again");
	CHECK(ibv_poll_cq(cq, 8, wc) == 3, "poll");
	CHECK(adverb_overlooked(channel) == 0, "polled until empty");
}

// The library's report must name this function as the place of the arm. The test suite checks the
// name, so the compiler must not inline the function.
static void __attribute__((noinline)) arm_the_queue(void)
{
	int armed = adverb_notify_cq(cq, ADVERB_NOTIFY_NEXT, 0);

	CHECK(!armed, "arm");
}

// The library writes its report to standard error. The program replaces standard error by a pipe,
// so the program can wait for the report. The program forwards the text.
static void named(void)
{
	int ends[2], outside = dup(2);
	double end = now() + 30;
	char text[1 << 12] = "";
	size_t len = 0;
	ssize_t n;

	CHECK(outside >= 0 && !pipe(ends) && dup2(ends[1], 2) == 2, "standard error");
	burst(3);
	arm_the_queue();
	while (!strstr(text, "lost wake-up") || text[len - 1] != '\n') {
		// The thread waits for the report and, in the same poll(), for a completion event
		// that never comes. The thread does not call ibv_poll_cq, so the completions stay
		// in the CQ. This is the lost wake-up that the library must report.
		struct pollfd p[] = {{.fd = ends[0], .events = POLLIN}, {.fd = channel->fd, .events = POLLIN}};

		CHECK(now() < end, "nothing is said but \"%s\"", text);
		if (poll(p, 2, 100) < 1)
			continue;
		n = read(ends[0], text + len, sizeof(text) - 1 - len);
		CHECK(n > 0 && write(outside, text + len, n) == n, "read and write");
		len += n;
	}
	dup2(outside, 2);
}

static const struct {
	const char *id, *name;
	void (*run)(void);
} cases[] = {
	{"EXT-1", "peek_leaves_completions", peek},
	{"EXT-2", "events_come_in_batches_or_after_a_time", batches},
	{"EXT-3", "a_persistent_arm_tells_of_every_completion", persistent},
	{"EXT-4", "the_report_names_the_arm", named},
	{"EXT-4", "what_no_event_will_speak_of_is_counted", overlooked},
};

int main(int argc, char **argv)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(cases); i++) {
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			set_up();
			cases[i].run();
			printf("ok %s %s\n", cases[i].id, cases[i].name);
			return 0;
		}
	}
	fprintf(stderr, "no such case\n");
	return 2;
}
