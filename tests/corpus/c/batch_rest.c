// A client sends two requests. The client waits for the first answer, then for the second. Each
// poll takes up to eight completions. The wrong program returns as soon as the awaited answer is
// found. If both answers came in the same poll, the program drops the other completion.
// From rust-rdma-io and perftest #137.
#include "corpus.h"
#define ROUNDS 3
#define BATCH 8

static struct duo d;
static bool arrived[2];

// Waits for answer number `which`. The answer lies in slot INBOX + which, because receives are used
// in order.
static void wait_for(int which)
{
	struct ibv_wc wc[BATCH];
	int i, n;

	while (!arrived[which]) {
		n = ibv_poll_cq(d.a.rcq, BATCH, wc);
		for (i = 0; i < n; i++) {
			CHECK(wc[i].status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc[i].status));
			arrived[wc[i].wr_id - INBOX] = true;
#if WRONG
			if (arrived[which])
				return; // drops the rest of the batch
#endif
		}
	}
}

int main(void)
{
	struct echoes e = {&d, 2 * ROUNDS, 8};
	pthread_t t;
	int i, k;

	start();
	duo_open(&d, 16);
	for (i = 0; i < 8; i++)
		give(d.b.qp, INBOX + 16 + i);
	thread(&t, echo, &e);
	for (i = 0; i < ROUNDS; i++) {
		arrived[0] = arrived[1] = false;
		for (k = 0; k < 2; k++)
			give(d.a.qp, INBOX + k);
		for (k = 0; k < 2; k++)
			CHECK(!put(d.a.qp, k, 64, IBV_SEND_SIGNALED), "request");
		for (k = 0; k < 2; k++)
			poll_good(d.a.scq);
		for (k = 0; k < 2; k++) {
			wait_for(k);
			work(5);
		}
	}
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("batch_rest");
}
