// A send queue has 16 places. Every fourth request is signalled, and also the last request of each
// burst. A completion frees all requests up to its own. The right program puts their number into
// wr_id. The wrong program counts four requests for each completion. The count of free places
// becomes too large, and at some time a post finds the queue full.
// From brpc #3132 and spdk #3195.
#include "corpus.h"
#define TOTAL 200
#define DEPTH 16
#define EVERY 4

static struct duo d;
static int places = DEPTH;
static int handled;

static void *receive(void *arg)
{
	int i;

	(void)arg;
	for (i = 0; i < TOTAL; i++) {
		give(d.b.qp, poll_good(d.b.rcq).wr_id);
		add(&handled, 1);
	}
	return NULL;
}

static void reap(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(d.a.scq, 1, &wc) > 0) {
		CHECK(wc.status == IBV_WC_SUCCESS, "send: %s", ibv_wc_status_str(wc.status));
#if WRONG
		places += EVERY; // counts each completion as a whole round
		if (places > DEPTH)
			places = DEPTH;
#else
		places += wc.wr_id;
#endif
	}
}

static void post(int i, int covers)
{
	struct ibv_sge s = piece(i % 64, 64);
	struct ibv_send_wr wr = {.wr_id = covers, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	int r;

	wr.send_flags = covers ? IBV_SEND_SIGNALED : 0;
	r = ibv_post_send(d.a.qp, &wr, &bad);
	CHECK(!r, "ibv_post_send: %s", strerror(r));
	places--;
}

int main(void)
{
	int i = 0, n, since = 0;
	pthread_t t;

	start();
	duo_open(&d, DEPTH);
	for (n = 0; n < DEPTH; n++)
		give(d.b.qp, INBOX + n);
	thread(&t, receive, NULL);
	while (i < TOTAL) {
		n = 1 + rand() % 6;
		if (n > TOTAL - i)
			n = TOTAL - i;
		for (; n; n--, i++) {
			bool last = n == 1;

			since++;
			do
				reap();
			while (!places);
			post(i, last || since == EVERY ? since : 0);
			if (last || since == EVERY)
				since = 0;
		}
		work(150);
	}
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("ledger");
}
