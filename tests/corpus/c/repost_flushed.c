// A receiver posts each buffer again when its receive completes. When the queue pair fails, every
// receive completes with a flush error. The wrong program posts the buffer again, gets a flush
// error again, and repeats this for ever. The right program counts the flushed receives.
// From nbs #4533: posting after the error.
#include "corpus.h"
#define RECEIVES 8
#define MESSAGES 50

static struct duo d;
static int handled, out;

static void *drain(void *arg)
{
	struct ibv_wc wc;

	(void)arg;
	while (out) {
		if (ibv_poll_cq(d.b.rcq, 1, &wc) != 1) {
			sched_yield();
			continue;
		}
#if WRONG
		// byte_len is undefined in a failed completion. This condition relies on 0, the
		// value in flushed receives of Adverb.
		if (wc.status == IBV_WC_SUCCESS || wc.byte_len) {
#else
		if (wc.status == IBV_WC_SUCCESS) {
#endif
			give(d.b.qp, wc.wr_id);
			add(&handled, 1);
			continue;
		}
		out--;
	}
	return NULL;
}

int main(void)
{
	struct bursts s = {&d, MESSAGES, 2, RECEIVES, 100, &handled};
	pthread_t t, r;
	int i;

	start();
	duo_open(&d, 16);
	for (i = 0; i < RECEIVES; i++, out++)
		give(d.b.qp, INBOX + i);
	thread(&r, drain, NULL);
	thread(&t, sender, &s);
	pthread_join(t, NULL);
	until(&handled, MESSAGES);
	qp_to_err(d.b.qp);
	pthread_join(r, NULL);
	duo_close(&d);
	return finish("repost_flushed");
}
