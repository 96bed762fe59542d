// A send queue and a receive queue share a completion channel. The client polls for a while before
// it sleeps, so events are rare. The wrong program acknowledges every event on the receive queue,
// also the events of the send queue. Destroying the send queue then waits for the missing
// acknowledgement for ever.
// From ucx #1039, where a program acknowledged the events of another queue.
#include "corpus.h"
#define TOTAL 40
#define SPIN_US 5000

static struct duo d;
static bool answered;
static int open_sends;

static void look(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) > 0) {
		CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
		if (cq != d.a.rcq) {
			open_sends--;
			continue;
		}
		give(d.a.qp, wc.wr_id);
		answered = true;
	}
}

static void look_at_both(void)
{
	look(d.a.scq);
	look(d.a.rcq);
}

static void sleep_for_an_event(void)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_get_cq_event(d.a.ch, &cq, &context), "get event");
#if WRONG
	ibv_ack_cq_events(d.a.rcq, 1); // whichever it was of
#else
	ibv_ack_cq_events(cq, 1);
#endif
}

static void wait_for_answer(void)
{
	double end = now() + SPIN_US * 1e-6;

	while (!answered && now() < end)
		look_at_both();
	while (!answered) {
		CHECK(!ibv_req_notify_cq(d.a.scq, 0), "arm the send queue");
		CHECK(!ibv_req_notify_cq(d.a.rcq, 0), "arm the receive queue");
		look_at_both();
		if (!answered)
			sleep_for_an_event();
	}
	answered = false;
}

int main(void)
{
	struct echoes e = {&d, TOTAL, 8};
	pthread_t t;
	int i;

	start();
	end_open(&d.b, IBV_QPT_RC, 16);
	d.a.ch = ibv_create_comp_channel(port.ctx);
	CHECK(d.a.ch, "channel");
	d.a.scq = cq_new(&port, 32, d.a.ch, NULL);
	d.a.rcq = cq_new(&port, 32, d.a.ch, NULL);
	d.a.qp = qp_new(&port, IBV_QPT_RC, d.a.scq, d.a.rcq, 16);
	qp_pair(&port, d.a.qp, d.b.qp);
	for (i = 0; i < 8; i++) {
		give(d.a.qp, INBOX + i);
		give(d.b.qp, INBOX + 16 + i);
	}
	thread(&t, echo, &e);
	for (i = 0; i < TOTAL; i++) {
		// An answer does not free a place in the send queue. Only a polled completion does.
		while (open_sends == 16)
			look(d.a.scq);
		open_sends++;
		CHECK(!put(d.a.qp, i % 64, 64, IBV_SEND_SIGNALED), "request");
		wait_for_answer();
	}
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("other_ack");
}
