// Two processes, "sender" and "receiver", stay in a known state until a signal ends them. Meanwhile
// the test runs `adverb top`, which must report on both processes.
// usage: stuck lost|right
// The receiver sleeps in epoll_wait on its completion channel. With "lost" the receiver polls
// before arming, and eight messages arrive in between. With "right" the receiver arms before
// polling. In both cases one more message finds no receive, so the sender waits for the receiver.
// Prints "READY" in this state.
#include "rig.h"
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define MESSAGES 8
#define SLOT 64

struct card {
	uint32_t qpn;
	union ibv_gid gid;
};

static struct port port;
static struct ibv_comp_channel *channel;
static struct ibv_cq *send_cq, *recv_cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint8_t memory[SLOT];
static int other, poller;

static void tell(const void *bytes, size_t len)
{
	CHECK(write(other, bytes, len) == (ssize_t)len, "write");
}

static void hear(void *bytes, size_t len)
{
	CHECK(read(other, bytes, len) == (ssize_t)len, "the other process has ended");
}

static void token_out(void)
{
	tell("x", 1);
}

static void token_in(void)
{
	char c;

	hear(&c, 1);
}

static void open_all(const char *name)
{
	struct ibv_sge s = {.addr = (uintptr_t)memory, .length = SLOT};
	struct ibv_recv_wr wr = {.sg_list = &s, .num_sge = 1}, *bad;
	struct epoll_event e = {.events = EPOLLIN};
	// The sender retries for eight seconds without an answer. A test stops the receiver for a
	// shorter time.
	struct timers t = {18, 7, 7};
	struct card mine, theirs;
	int i;

	prctl(PR_SET_NAME, name);
	alarm(600);
	port_open(&port);
	channel = ibv_create_comp_channel(port.ctx);
	CHECK(channel, "channel");
	send_cq = cq_new(&port, 2 * MESSAGES, NULL, NULL);
	recv_cq = cq_new(&port, 2 * MESSAGES, channel, NULL);
	qp = qp_new(&port, IBV_QPT_RC, send_cq, recv_cq, 2 * MESSAGES);
	mr = ibv_reg_mr(port.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr, "mr");
	s.lkey = mr->lkey;
	qp_init(&port, qp);
	for (i = 0; i < MESSAGES + 1; i++)
		CHECK(!ibv_post_recv(qp, &wr, &bad), "post recv");
	poller = epoll_create1(0);
	CHECK(poller >= 0 && !epoll_ctl(poller, EPOLL_CTL_ADD, channel->fd, &e), "epoll");
	mine = (struct card){qp->qp_num, port.gid};
	tell(&mine, sizeof(mine));
	hear(&theirs, sizeof(theirs));
	qp_join(&port, qp, 0, theirs.qpn, 0, theirs.gid, t);
}

static void post(void)
{
	struct ibv_sge s = {(uintptr_t)memory, SLOT, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	CHECK(!ibv_post_send(qp, &wr, &bad), "post send");
}

static void poll_until_empty(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(recv_cq, 1, &wc) == 1)
		CHECK(wc.status == IBV_WC_SUCCESS, "status %d", wc.status);
}

static void wait_for_messages(bool arms_first, bool more)
{
	struct epoll_event e;
	struct ibv_cq *cq;
	void *context;
	int n;

	// When the test stops and continues this process, epoll_wait fails with EINTR.
	while ((n = epoll_wait(poller, &e, 1, -1)) < 0 && errno == EINTR)
		;
	CHECK(n == 1, "epoll_wait");
	CHECK(!ibv_get_cq_event(channel, &cq, &context), "get");
	ibv_ack_cq_events(cq, 1);
	if (arms_first)
		CHECK(!ibv_req_notify_cq(cq, 0), "arm");
	poll_until_empty();
	if (more) {
		// The sender now sends the other messages. If the receiver arms after this, the
		// messages raise no event.
		token_out();
		token_in();
	}
	if (!arms_first)
		CHECK(!ibv_req_notify_cq(cq, 0), "arm late");
}

static void receiver(bool right)
{
	open_all("receiver");
	CHECK(!ibv_req_notify_cq(recv_cq, 0), "first arm");
	token_out();
	wait_for_messages(right, true);
	token_out();
	for (;;)
		wait_for_messages(right, false);
}

static void sender(void)
{
	int i;

	open_all("sender");
	token_in();
	post();
	poll_good(send_cq);
	token_in();
	for (i = 0; i < MESSAGES; i++)
		post();
	for (i = 0; i < MESSAGES; i++)
		poll_good(send_cq);
	token_out();
	token_in();
	post();
	printf("READY\n");
	fflush(stdout);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	int ends[2], child;

	CHECK(argc == 2, "usage: stuck lost|right");
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	child = fork();
	CHECK(child >= 0, "fork");
	other = ends[child != 0];
	close(ends[child == 0]);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		receiver(!strcmp(argv[1], "right"));
	}
	sender();
	return 0;
}
