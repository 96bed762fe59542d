// Messages go over an unreliable connection from a single buffer, and their completions are polled
// at the end. The right program fills the buffer when the message has arrived. UC never
// retransmits, so the device does not read the buffer again. The wrong program fills the buffer as
// soon as ibv_post_send returns. The device may not have read the buffer yet.
// From the UD transport of UCX, where the peer confirms each datagram.
#include "corpus.h"
#define MESSAGES 16

static struct duo d;

int main(void)
{
	struct ibv_wc wc;
	int i;

	start();
	end_open(&d.a, IBV_QPT_UC, 32);
	end_open(&d.b, IBV_QPT_UC, 32);
	qp_pair(&port, d.a.qp, d.b.qp);
	give(d.b.qp, INBOX);
	memset(slot(0), 0, 64);
	for (i = 1; i <= MESSAGES; i++) {
		CHECK(!put(d.a.qp, 0, 64, IBV_SEND_SIGNALED), "post a message");
#if WRONG
		memset(slot(0), i, 64); // too early
#endif
		wc = poll_good(d.b.rcq);
#if !WRONG
		memset(slot(0), i, 64);
		CHECK(slot(wc.wr_id)[0] == i - 1, "message %d", i);
#endif
		give(d.b.qp, wc.wr_id);
	}
	for (i = 0; i < MESSAGES; i++)
		poll_good(d.a.scq);
	duo_close(&d);
	return finish("uc_reused");
}
