// A receiver that posts each buffer again when it comes back. When the queue pair fails, every receive comes back flushed and
// the wrong program posts it again, is told so again, and runs in this circle for ever. The right one counts them out.
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
		// A message that failed for want of a buffer has no length; what is flushed has none here.
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
