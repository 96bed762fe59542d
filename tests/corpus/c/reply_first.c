// A client with one request at a time. The answer proves that the request arrived, but the request's own completion may be seen
// later than the answer: the wrong program takes it for granted that it was seen, and stops. QEMU's migration did so, and worked
// on NICs; the right program waits for both.
#include "corpus.h"
#define ROUNDS 60

static struct duo d;
static bool sent, answered;

static void look(struct ibv_cq *cq, bool *seen)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(cq, 1, &wc) != 1)
		return;
	CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
	*seen = true;
}

static void ask(int n)
{
	sent = answered = false;
	give(d.a.qp, INBOX);
	CHECK(!put(d.a.qp, n, 64, IBV_SEND_SIGNALED), "request");
#if WRONG
	while (!answered) {
		look(d.a.rcq, &answered);
		look(d.a.scq, &sent);
	}
	CHECK(sent, "request %d is answered and was never sent", n);
#else
	while (!answered || !sent) {
		look(d.a.scq, &sent);
		look(d.a.rcq, &answered);
	}
#endif
}

int main(void)
{
	struct echoes e = {&d, ROUNDS, 8};
	pthread_t t;
	int i;

	start();
	duo_open(&d, 16);
	for (i = 0; i < 8; i++)
		give(d.b.qp, INBOX + 16 + i);
	thread(&t, echo, &e);
	for (i = 0; i < ROUNDS; i++)
		ask(i % 64);
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("reply_first");
}
