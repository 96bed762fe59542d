// Threads post, poll and wait for events, and the test cancels the threads at random moments.
// Afterwards no lock may stay held, and no completion and no event may be lost.
// usage: cancel ROUNDS
#include "rig.h"

static struct port port;
static struct ibv_comp_channel *channel;
static struct ibv_cq *scq, *rcq;
static struct ibv_qp *x, *y;
static struct ibv_mr *mr;
static uint64_t words[2];
// The counters of operations. No cancellation point lies between an operation and the change of its
// counter, so a cancellation cannot make a counter wrong.
static volatile uint64_t posted, sent, received, waited;

static void post(void)
{
	struct ibv_sge from = {(uintptr_t)&words[0], 8, mr->lkey}, to = {(uintptr_t)&words[1], 8, mr->lkey};
	struct ibv_recv_wr r = {.sg_list = &to, .num_sge = 1}, *rbad;
	struct ibv_send_wr w = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	words[0] = posted;
	CHECK(!ibv_post_recv(y, &r, &rbad), "post recv");
	CHECK(!ibv_post_send(x, &w, &bad), "post send");
	posted++;
}

static void look(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(scq, 1, &wc) > 0) {
		CHECK(wc.status == IBV_WC_SUCCESS, "send: %s", ibv_wc_status_str(wc.status));
		sent++;
	}
	while (ibv_poll_cq(rcq, 1, &wc) > 0) {
		CHECK(wc.status == IBV_WC_SUCCESS && words[1] == received, "receive: %s", ibv_wc_status_str(wc.status));
		received++;
	}
}

static int in_flight(void)
{
	return sent < posted || received < posted;
}

static void *polls(void *arg)
{
	for (;;) {
		pthread_testcancel();
		post();
		while (in_flight())
			look();
	}
	return arg;
}

static void *waits(void *arg)
{
	struct ibv_cq *cq;
	void *context;

	for (;;) {
		CHECK(!ibv_req_notify_cq(rcq, 0), "arm");
		look();
		// If `arg` is set, the thread posts nothing, so the cancellation meets a thread
		// that waits.
		if (!in_flight() && !arg)
			post();
		CHECK(!ibv_get_cq_event(channel, &cq, &context), "get");
		ibv_ack_cq_events(cq, 1);
		waited++;
	}
	return arg;
}

static void *waits_async(void *arg)
{
	struct ibv_async_event event;

	CHECK(!ibv_get_async_event(port.ctx, &event), "get");
	CHECK(0, "event %d", event.event_type);
	return arg;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1000, i;

	port_open(&port);
	channel = ibv_create_comp_channel(port.ctx);
	CHECK(channel, "channel");
	scq = cq_new(&port, 16, NULL, NULL);
	rcq = cq_new(&port, 16, channel, NULL);
	x = qp_new(&port, IBV_QPT_RC, scq, scq, 16);
	y = qp_new(&port, IBV_QPT_RC, rcq, rcq, 16);
	mr = ibv_reg_mr(port.pd, words, sizeof(words), IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr, "mr");
	qp_pair(&port, x, y);
	srand(1);
	for (i = 0; i < rounds; i++) {
		double end;
		pthread_t t;
		void *result, *(*run)(void *) = i % 4 == 0 ? polls : i % 4 == 3 ? waits_async : waits;

		alarm(20);
		CHECK(!pthread_create(&t, NULL, run, i % 4 == 2 ? &port : NULL), "thread");
		usleep(rand() % 2000);
		CHECK(!pthread_cancel(t), "cancel");
		CHECK(!pthread_join(t, &result) && result == PTHREAD_CANCELED, "join");
		end = now() + 10;
		while (in_flight()) {
			look();
			CHECK(now() < end, "round %d: %d posted, %d sent, %d received", i, (int)posted, (int)sent,
			      (int)received);
		}
	}
	alarm(20);
	printf("%d rounds, %d messages, %d events\n", rounds, (int)posted, (int)waited);
	// `ibv_destroy_cq` waits until the program has acknowledged every event that a thread has
	// read. If a cancelled thread had taken an event with it, this call would wait until the
	// alarm ends the program.
	CHECK(!ibv_destroy_qp(x) && !ibv_destroy_qp(y) && !ibv_destroy_cq(scq) && !ibv_destroy_cq(rcq), "destroy");
	CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dereg_mr(mr), "destroy");
	port_close(&port);
	printf("ok cancel\n");
	return 0;
}
