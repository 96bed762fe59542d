// The program posts four requests in a chain. If the queue is full, ibv_post_send takes some of the
// requests, and `bad_wr` points at the first refused request. The wrong program posts the whole
// chain again. The peer then receives the accepted requests twice.
// From FastDeploy #8091.
#include "corpus.h"
#define TOTAL 2000
#define DEPTH 16
#define CHAIN 4

static struct duo d;

static void *receive(void *arg)
{
	int i, n, number;

	(void)arg;
	for (i = 0; i < TOTAL; i++) {
		n = poll_good(d.b.rcq).wr_id;
		memcpy(&number, slot(n), 4);
		CHECK(number == i, "message %d came where %d was expected", number, i);
		give(d.b.qp, n);
	}
	return NULL;
}

// Polls up to CHAIN completions and returns their number.
static int reap(void)
{
	struct ibv_wc wc[CHAIN];
	int i, n = ibv_poll_cq(d.a.scq, CHAIN, wc);

	for (i = 0; i < n; i++)
		CHECK(wc[i].status == IBV_WC_SUCCESS, "send: %s", ibv_wc_status_str(wc[i].status));
	return n;
}

static void post_chain(int first)
{
	struct ibv_send_wr wr[CHAIN], *todo = wr, *bad;
	struct ibv_sge s[CHAIN];
	int i, number, r;

	for (i = 0; i < CHAIN; i++) {
		number = first + i;
		s[i] = piece(number % 64, 64);
		memcpy(slot(number % 64), &number, 4);
		wr[i] = (struct ibv_send_wr){.wr_id = number, .sg_list = &s[i], .num_sge = 1, .opcode = IBV_WR_SEND};
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].next = i + 1 < CHAIN ? &wr[i + 1] : NULL;
	}
	while ((r = ibv_post_send(d.a.qp, todo, &bad))) {
		CHECK(r == ENOMEM, "ibv_post_send: %s", strerror(r));
#if !WRONG
		todo = bad;
#endif
		while (!reap())
			;
	}
}

int main(void)
{
	pthread_t t;
	int i;

	start();
	duo_open(&d, DEPTH);
	for (i = 0; i < DEPTH; i++)
		give(d.b.qp, INBOX + i);
	thread(&t, receive, NULL);
	for (i = 0; i < TOTAL; i += CHAIN) {
		post_chain(i);
		work(60);
		reap();
		reap();
	}
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("chain_again");
}
