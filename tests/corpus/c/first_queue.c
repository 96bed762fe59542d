// Sends complete in a CQ, and receives complete in another CQ. Both CQs share a completion channel.
// The wrong program treats every event as an event of the receive CQ. The program arms and polls
// only the receive CQ, and then waits for the send CQ for ever.
// From rpma #1643.
#include "corpus.h"
#define ROUNDS 60

static struct ibv_comp_channel *ch;
static struct ibv_cq *scq, *rcq;
static int sent, received;

static void handle(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	CHECK(!ibv_req_notify_cq(cq, 0), "arm");
	while (ibv_poll_cq(cq, 1, &wc) > 0) {
		CHECK(!wc.status, "completion: %s", ibv_wc_status_str(wc.status));
		if (wc.opcode & IBV_WC_RECV)
			received++;
		else
			sent++;
	}
}

static void wait_for_event(void)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_get_cq_event(ch, &cq, &context), "get event");
	ibv_ack_cq_events(cq, 1);
#if WRONG
	handle(rcq); // the event may belong to scq
#else
	handle(cq);
#endif
}

int main(void)
{
	struct ibv_qp *a, *b;
	int i;

	start();
	ch = ibv_create_comp_channel(port.ctx);
	CHECK(ch, "channel");
	scq = cq_new(&port, 32, ch, NULL);
	rcq = cq_new(&port, 32, ch, NULL);
	a = qp_new(&port, IBV_QPT_RC, scq, scq, 16);
	b = qp_new(&port, IBV_QPT_RC, rcq, rcq, 16);
	qp_pair(&port, a, b);
	CHECK(!ibv_req_notify_cq(scq, 0) && !ibv_req_notify_cq(rcq, 0), "arm");
	for (i = 1; i <= ROUNDS; i++) {
		give(b, INBOX);
		CHECK(!put(a, 0, 64, IBV_SEND_SIGNALED), "send");
		while (sent < i || received < i)
			wait_for_event();
		work(20);
	}
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b), "destroy qp");
	CHECK(!ibv_destroy_cq(scq) && !ibv_destroy_cq(rcq), "destroy cq");
	CHECK(!ibv_destroy_comp_channel(ch), "destroy channel");
	return finish("first_queue");
}
