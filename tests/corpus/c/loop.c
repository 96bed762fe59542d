// The loop of the manual page of ibv_get_cq_event: get the event, acknowledge the event, arm, poll
// until empty. Four variants have a mistake.
// - SWAPPED polls before it arms.
// - ONE_POLL does not poll again after the first batch.
// - EARLY stops polling after the last message of a burst, also if the CQ is not empty.
// - NEVER_ACKS leaves the events unacknowledged, so that destroying the CQ waits for ever.
// From beegfs #133 and libfabric #795: the first three variants sleep for ever although completions
// are in the CQ.
#include "corpus.h"
#define TOTAL 300
#define WINDOW 8
#define BATCH 4

static struct duo d;
static int handled;

static void handle(struct ibv_wc *wc)
{
	CHECK(wc->status == IBV_WC_SUCCESS, "receive: %s", ibv_wc_status_str(wc->status));
	give(d.b.qp, wc->wr_id);
	add(&handled, 1);
}

static UNUSED void poll_until_empty(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(d.b.rcq, 1, &wc) > 0)
		handle(&wc);
}

static UNUSED void poll_one_batch(void)
{
	struct ibv_wc wc[BATCH];
	int i, n = ibv_poll_cq(d.b.rcq, BATCH, wc);

	for (i = 0; i < n; i++)
		handle(&wc[i]);
}

static UNUSED void poll_until_last(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(d.b.rcq, 1, &wc) > 0) {
		bool last = slot(wc.wr_id)[4];

		handle(&wc);
		if (last)
			return;
	}
}

static void wait_for_messages(void)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_get_cq_event(d.b.ch, &cq, &context), "get event");
#ifndef NEVER_ACKS
	ibv_ack_cq_events(cq, 1);
#endif
#ifdef SWAPPED
	poll_until_empty();
	CHECK(!ibv_req_notify_cq(cq, 0), "arm late");
#else
	CHECK(!ibv_req_notify_cq(cq, 0), "arm");
#ifdef ONE_POLL
	poll_one_batch();
#elif defined(EARLY)
	poll_until_last();
#else
	poll_until_empty();
#endif
#endif
}

int main(void)
{
	struct bursts s = {&d, TOTAL, 4, WINDOW, 200, &handled};
	pthread_t t;
	int i;

	start();
	duo_open(&d, 16);
	for (i = 0; i < WINDOW; i++)
		give(d.b.qp, INBOX + i);
	CHECK(!ibv_req_notify_cq(d.b.rcq, 0), "first arm");
	thread(&t, sender, &s);
	while (handled < TOTAL)
		wait_for_messages();
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("loop");
}
