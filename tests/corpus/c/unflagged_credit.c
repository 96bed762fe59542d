// A receiver gets credits as immediate data of some messages. The wrong program takes every
// imm_data other than 0 for a credit. imm_data is undefined in messages without immediate data.
// Some devices leave the value of an earlier message there, or random bytes. The right program
// checks wc_flags.
#include "corpus.h"
#include <arpa/inet.h>
#define MESSAGES 40

static struct duo d;
static int credits;

static void post(int i)
{
	struct ibv_sge s = piece(i, 64);
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	if (i % 4 == 0) {
		wr.opcode = IBV_WR_SEND_WITH_IMM;
		wr.imm_data = htonl(1);
	}
	CHECK(!ibv_post_send(d.a.qp, &wr, &bad), "post send");
	poll_good(d.a.scq);
}

static void take(void)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(d.b.rcq, 1, &wc)) // a message
		sched_yield();
	CHECK(!wc.status, "%s", ibv_wc_status_str(wc.status));
#if WRONG
	if (wc.imm_data)
#else
	if (wc.wc_flags & IBV_WC_WITH_IMM)
#endif
		credits += ntohl(wc.imm_data);
	give(d.b.qp, wc.wr_id);
}

int main(void)
{
	int i;

	start();
	duo_open(&d, 16);
	for (i = 0; i < 8; i++)
		give(d.b.qp, INBOX + i);
	for (i = 0; i < MESSAGES; i++) {
		post(i);
		take();
	}
	CHECK(credits == MESSAGES / 4, "%d credits of %d", credits, MESSAGES / 4);
	duo_close(&d);
	return finish("unflagged_credit");
}
