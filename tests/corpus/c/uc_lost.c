// An unreliable connection loses what the network loses, and says nothing. The wrong program counts on every message. The right
// one waits for a while, and asks for what is missing.
// From valkey #916: nobody tells of the loss.
#include "corpus.h"
#define TOTAL 60

static struct duo d;
static bool have[TOTAL];

// The numbers that have come within `ms` of the last one.
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
