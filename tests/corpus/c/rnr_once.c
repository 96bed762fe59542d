// A server answers a request, and only then posts the receive for the next request. With rnr_retry
// 0, the first message that arrives before its receive ends the connection. The right program posts
// the receive first and allows retries.
// From spdk #2429 and Nugine/rdma #2.
#include "corpus.h"
#define ROUNDS 100
#if WRONG
#define RNR_RETRY 0
#else
#define RNR_RETRY 7
#endif

static struct duo d;

static void *serve(void *arg)
{
	int i, n;

	(void)arg;
	for (i = 0; i < ROUNDS; i++) {
		n = poll_good(d.b.rcq).wr_id;
#if WRONG
		CHECK(!put(d.b.qp, n, 64, IBV_SEND_SIGNALED), "answer");
		give(d.b.qp, INBOX); // after the answer
#else
		give(d.b.qp, INBOX);
		CHECK(!put(d.b.qp, n, 64, IBV_SEND_SIGNALED), "answer");
#endif
		poll_good(d.b.scq);
	}
	return NULL;
}

int main(void)
{
	struct timers t = {14, 7, RNR_RETRY};
	struct ibv_wc wc;
	pthread_t server;
	int i;

	start();
	end_open(&d.a, IBV_QPT_RC, 16);
	end_open(&d.b, IBV_QPT_RC, 16);
	qp_init(&port, d.a.qp);
	qp_init(&port, d.b.qp);
	qp_join(&port, d.a.qp, 1, d.b.qp->qp_num, 2, port.gid, t);
	qp_join(&port, d.b.qp, 2, d.a.qp->qp_num, 1, port.gid, t);
	give(d.b.qp, INBOX);
	thread(&server, serve, NULL);
	for (i = 0; i < ROUNDS; i++) {
		give(d.a.qp, INBOX + 1);
		CHECK(!put(d.a.qp, 0, 64, IBV_SEND_SIGNALED), "request");
		wc = poll_one(d.a.scq);
		CHECK(!wc.status, "request %d: %s, vendor error %#x", i, ibv_wc_status_str(wc.status), wc.vendor_err);
		poll_good(d.a.rcq);
		work(10);
	}
	pthread_join(server, NULL);
	duo_close(&d);
	return finish("rnr_once");
}
