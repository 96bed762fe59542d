// The receiver polls for a while and then sleeps until a solicited message arrives. The sender
// should mark the last message of each burst. The wrong sender marks every fourth message instead.
// A receiver that sleeps before the end of a burst then sleeps for ever.
// From libfabric #875: the program never requested the event.
#include "corpus.h"
#define TOTAL 40
#define WINDOW 8
#define SPIN_US 10000

static struct duo d;
static int handled;

static void *send_bursts(void *arg)
{
	int i, left = 0, flags;

	(void)arg;
	for (i = 0; i < TOTAL; i++) {
		if (!left--) {
			until(&handled, i);
			work(100);
			left = rand() % 4;
			if (left > TOTAL - 1 - i)
				left = TOTAL - 1 - i;
		}
#if WRONG
		flags = i % 4 == 3 ? IBV_SEND_SOLICITED : 0;
#else
		flags = left ? 0 : IBV_SEND_SOLICITED;
#endif
		CHECK(!put(d.a.qp, i % 64, 64, IBV_SEND_SIGNALED | flags), "post send");
		poll_good(d.a.scq);
	}
	return NULL;
}

static int look(void)
{
	struct ibv_wc wc;
	int n = 0;

	while (ibv_poll_cq(d.b.rcq, 1, &wc) > 0) {
		CHECK(wc.status == IBV_WC_SUCCESS, "receive: %s", ibv_wc_status_str(wc.status));
		give(d.b.qp, wc.wr_id);
		add(&handled, 1);
		n++;
	}
	return n;
}

static void wait_for_messages(void)
{
	double end = now() + SPIN_US * 1e-6;
	struct ibv_cq *cq;
	void *context;

	while (now() < end)
		if (look())
			return;
	CHECK(!ibv_req_notify_cq(d.b.rcq, 1), "arm for solicited ones");
	if (look())
		return;
	CHECK(!ibv_get_cq_event(d.b.ch, &cq, &context), "get event");
	ibv_ack_cq_events(cq, 1);
}

int main(void)
{
	pthread_t t;
	int i;

	start();
	duo_open(&d, 16);
	for (i = 0; i < WINDOW; i++)
		give(d.b.qp, INBOX + i);
	thread(&t, send_bursts, NULL);
	while (handled < TOTAL)
		wait_for_messages();
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("solicited");
}
