// A client connects again. The old queue pair enters the error state, and its receives complete
// with a flush error at some later time. The wrong client polls the shared queue until empty, once.
// Then the client takes later flush errors for completions of the new connection.
// From spdk #3859.
#include "corpus.h"
#define CONNECTIONS 12
#define RECEIVES 4

static struct ibv_cq *scq, *rcq;

static void forget_the_old(struct ibv_qp *qp)
{
	struct ibv_wc wc;
	int left = RECEIVES;

#if WRONG
	while (ibv_poll_cq(rcq, 1, &wc) > 0) // until it is empty
		left--;
#else
	while (left) {
		wc = poll_one(rcq);
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == qp->qp_num, "flush");
		left--;
	}
#endif
	(void)left;
	(void)qp;
}

int main(void)
{
	struct ibv_qp *server, *client, *old = NULL, *peer = NULL;
	struct ibv_wc wc;
	int i, n;

	start();
	scq = cq_new(&port, 64, NULL, NULL);
	rcq = cq_new(&port, 64, NULL, NULL);
	for (i = 0; i < CONNECTIONS; i++) {
		client = qp_new(&port, IBV_QPT_RC, scq, rcq, 8);
		server = qp_new(&port, IBV_QPT_RC, scq, scq, 8);
		qp_pair(&port, client, server);
		if (old) {
			qp_to_err(old);
			forget_the_old(old);
		}
		for (n = 0; n <= RECEIVES; n++)
			give(client, INBOX + n);
		CHECK(!put(server, 0, 64, IBV_SEND_SIGNALED), "greeting");
		wc = poll_one(rcq);
		CHECK(wc.status == IBV_WC_SUCCESS, "connection %d: %s", i, ibv_wc_status_str(wc.status));
		poll_good(scq);
		if (old)
			CHECK(!ibv_destroy_qp(old) && !ibv_destroy_qp(peer), "destroy qp");
		old = client;
		peer = server;
		work(100);
	}
	CHECK(!ibv_destroy_qp(old) && !ibv_destroy_qp(peer), "destroy qp");
	CHECK(!ibv_destroy_cq(scq) && !ibv_destroy_cq(rcq), "destroy cq");
	return finish("stale_flush");
}
