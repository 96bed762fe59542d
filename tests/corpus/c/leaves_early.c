// The receiver destroys its queue pair when the last message has arrived. The sender may not have
// the acknowledgement yet. The destroyed queue pair answers no retransmission, so the send may fail
// with retry exceeded. The right program waits until the sender has finished.
// From ucx #5199 and spdk #2436.
#include "corpus.h"
#define TOTAL 100

static struct duo d;
static int sent_all;

static void *receive(void *arg)
{
	int i;

	(void)arg;
	for (i = 0; i < TOTAL; i++)
		poll_good(d.b.rcq);
#if !WRONG
	until(&sent_all, 1);
#endif
	CHECK(!ibv_destroy_qp(d.b.qp), "destroy the receiver's queue pair");
	return NULL;
}

int main(void)
{
	struct ibv_wc wc;
	pthread_t t;
	int i;

	start();
	end_open(&d.a, IBV_QPT_RC, 128);
	end_open(&d.b, IBV_QPT_RC, 128);
	qp_init(&port, d.a.qp);
	qp_init(&port, d.b.qp);
	// The timeout is short, so that the failure comes before the time limit of the program.
	qp_join(&port, d.a.qp, 1, d.b.qp->qp_num, 2, port.gid, (struct timers){10, 3, 7});
	qp_join(&port, d.b.qp, 2, d.a.qp->qp_num, 1, port.gid, (struct timers){10, 3, 7});
	for (i = 0; i < TOTAL; i++)
		give(d.b.qp, INBOX + i);
	thread(&t, receive, NULL);
	for (i = 0; i < TOTAL; i++) {
		work(20);
		CHECK(!put(d.a.qp, i, 64, IBV_SEND_SIGNALED), "post send");
	}
	for (i = 0; i < TOTAL; i++) {
		wc = poll_one(d.a.scq);
		CHECK(!wc.status, "send %d: %s, vendor error %#x", i, ibv_wc_status_str(wc.status), wc.vendor_err);
	}
	add(&sent_all, 1);
	pthread_join(t, NULL);
	end_close(&d.a);
	CHECK(!ibv_destroy_cq(d.b.scq) && !ibv_destroy_cq(d.b.rcq), "destroy cq");
	CHECK(!ibv_destroy_comp_channel(d.b.ch), "destroy channel");
	return finish("leaves_early");
}
