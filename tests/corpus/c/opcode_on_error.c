// Sends and receives share a CQ. Before it exits, the program moves its queue pair into the error
// state and polls until every request has completed. The wrong program reads the kind of each
// request from `opcode`. In a failed completion only wr_id, status, qp_num and vendor_err are
// defined. The program may therefore wait for the wrong kind for ever.
// From spdk #3212 and #3214, DeepEP #558.
#include "corpus.h"
#define MESSAGES 20
// This bit of wr_id marks a receive request. wr_id is defined in every completion, also in a failed
// one.
#define IS_RECV (1ull << 63)

static struct duo d;
static int sends, receives;

static void post_recv(int n)
{
	struct ibv_sge s = piece(n, SLOT);
	struct ibv_recv_wr wr = {.wr_id = IS_RECV | n, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(d.b.qp, &wr, &bad), "post recv");
	receives++;
}

static void count(struct ibv_wc *wc)
{
#if WRONG
	bool receive = wc->opcode & IBV_WC_RECV; // also of failed ones
#else
	bool receive = wc->wr_id & IS_RECV;
#endif
	if (receive)
		receives--;
	else
		sends--;
	CHECK(sends >= 0 && receives >= 0, "%d sends and %d receives are out", sends, receives);
}

int main(void)
{
	struct ibv_wc wc;
	int i;

	start();
	end_open(&d.a, IBV_QPT_RC, 32);
	d.b.ch = ibv_create_comp_channel(port.ctx);
	CHECK(d.b.ch, "channel");
	d.b.scq = d.b.rcq = cq_new(&port, 128, d.b.ch, NULL);
	d.b.qp = qp_new(&port, IBV_QPT_RC, d.b.scq, d.b.rcq, 32);
	qp_pair(&port, d.a.qp, d.b.qp);
	for (i = 0; i < 8; i++)
		post_recv(INBOX + i);
	for (i = 0; i < MESSAGES; i++) {
		CHECK(!put(d.a.qp, i, 64, IBV_SEND_SIGNALED), "post send");
		poll_good(d.a.scq);
		wc = poll_good(d.b.rcq);
		count(&wc);
		post_recv(INBOX + i % 8);
	}
	qp_to_err(d.b.qp);
	for (i = 0; i < 8; i++, sends++)
		CHECK(!put(d.b.qp, i, 64, IBV_SEND_SIGNALED), "a late send");
	while (sends || receives) {
		wc = poll_one(d.b.rcq);
		count(&wc);
	}
	end_close(&d.a);
	CHECK(!ibv_destroy_qp(d.b.qp), "destroy qp");
	CHECK(!ibv_destroy_cq(d.b.rcq), "destroy cq");
	CHECK(!ibv_destroy_comp_channel(d.b.ch), "destroy channel");
	return finish("opcode_on_error");
}
