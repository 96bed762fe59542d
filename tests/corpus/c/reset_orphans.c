// A client drops its connection and waits until all posted receives have completed. A queue pair in
// RESET forgets its requests without completions. Only the error state flushes the requests. The
// right client moves the queue pair to ERR.
// From Mooncake #2427.
#include "corpus.h"
#define RECEIVES 8

static struct duo d;

static void drop(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};
#if !WRONG
	a.qp_state = IBV_QPS_ERR;
#endif
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE), "drop the connection");
}

int main(void)
{
	int i;

	start();
	duo_open(&d, 16);
	for (i = 0; i < RECEIVES; i++)
		give(d.b.qp, INBOX + i);
	CHECK(!put(d.a.qp, 0, 64, IBV_SEND_SIGNALED), "send");
	poll_good(d.a.scq);
	poll_good(d.b.rcq);
	drop(d.b.qp);
	for (i = 1; i < RECEIVES; i++)
		poll_one(d.b.rcq);
	duo_close(&d);
	return finish("reset_orphans");
}
