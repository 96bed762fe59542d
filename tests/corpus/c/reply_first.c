// A client has a single request at a time. The answer proves that the request arrived. The program
// may still see the completion of the request after the answer. The wrong program assumes that the
// completion came first, and stops otherwise. QEMU's migration had this mistake and worked on NICs.
// The right program waits for both.
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
