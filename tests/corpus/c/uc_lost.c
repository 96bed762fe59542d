// An unreliable connection loses the messages that the network loses, and reports nothing. The
// wrong program relies on every message. The right program waits for a while and sends the missing
// messages again.
// From valkey #916: no error reports the loss.
#include "corpus.h"
#define TOTAL 60

static struct duo d;
static bool have[TOTAL];

// Receives until no message has come for `ms` milliseconds, or without a limit if `ms` is negative.
// Returns the number of messages that are still missing.
static int collect(int missing, int ms)
{
	double end = now() + ms * 1e-3;
	struct ibv_wc wc;
	int number;

	while (missing && (ms < 0 || now() < end)) {
		if (ibv_poll_cq(d.b.rcq, 1, &wc) != 1)
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
		memcpy(&number, slot(wc.wr_id), 4);
		give(d.b.qp, wc.wr_id);
		missing -= !have[number];
		have[number] = true;
		end = now() + ms * 1e-3;
	}
	return missing;
}

static void send_missing(void)
{
	int i;

	for (i = 0; i < TOTAL; i++) {
		if (have[i])
			continue;
		memcpy(slot(i), &i, 4);
		CHECK(!put(d.a.qp, i, 64, IBV_SEND_SIGNALED), "post send");
		poll_good(d.a.scq);
	}
}

int main(void)
{
	int i;

	start();
	end_open(&d.a, IBV_QPT_UC, 64);
	end_open(&d.b, IBV_QPT_UC, 64);
	qp_pair(&port, d.a.qp, d.b.qp);
	for (i = 0; i < 64; i++)
		give(d.b.qp, INBOX + i);
	send_missing();
#if WRONG
	collect(TOTAL, -1); // until all have come
#else
	for (i = TOTAL; (i = collect(i, 100));)
		send_missing();
#endif
	duo_close(&d);
	return finish("uc_lost");
}
