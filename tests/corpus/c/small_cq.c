// Four connections with sixteen receives each share a CQ. The wrong program creates the CQ with
// sixteen entries. The program works while it polls in time. Otherwise the CQ overruns, and all
// four connections fail.
// From libfabric #4913 and ucx #7143.
#include "corpus.h"
#define LINKS 4
#define DEPTH 16
#define ROUNDS 100
#if WRONG
#define ENTRIES DEPTH
#else
#define ENTRIES (LINKS * DEPTH)
#endif

static struct end senders[LINKS];
static struct ibv_qp *receivers[LINKS];
static int handled;

static void *send_bursts(void *arg)
{
	int i, k, n, sent = 0;

	(void)arg;
	for (i = 0; i < ROUNDS; i++) {
		n = rand() % 400 ? 2 : 6;
		for (k = 0; k < LINKS * n; k++) {
			CHECK(!put(senders[k % LINKS].qp, k % 64, 16, IBV_SEND_SIGNALED), "post send");
			poll_good(senders[k % LINKS].scq);
			sent++;
		}
		until(&handled, sent);
	}
	add(&handled, 1 << 30);
	return NULL;
}

int main(void)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	pthread_t t;
	int i, k;

	start();
	cq = cq_new(&port, ENTRIES, NULL, NULL);
	for (i = 0; i < LINKS; i++) {
		end_open(&senders[i], IBV_QPT_RC, DEPTH);
		receivers[i] = qp_new(&port, IBV_QPT_RC, cq, cq, DEPTH);
		qp_pair(&port, senders[i].qp, receivers[i]);
		for (k = 0; k < DEPTH; k++)
			give(receivers[i], INBOX + i * DEPTH + k);
	}
	thread(&t, send_bursts, NULL);
	while (get(&handled) < 1 << 30) {
		work(20);
		k = ibv_poll_cq(cq, 1, &wc);
		CHECK(k >= 0, "poll");
		if (!k)
			continue;
		CHECK(!wc.status, "receive: %s", ibv_wc_status_str(wc.status));
		give(receivers[(wc.wr_id - INBOX) / DEPTH], wc.wr_id);
		add(&handled, 1);
	}
	pthread_join(t, NULL);
	for (i = 0; i < LINKS; i++) {
		CHECK(!ibv_destroy_qp(receivers[i]), "destroy qp");
		end_close(&senders[i]);
	}
	CHECK(!ibv_destroy_cq(cq), "destroy cq");
	return finish("small_cq");
}
