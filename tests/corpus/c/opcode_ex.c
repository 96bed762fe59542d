// Sends and receives share an extended CQ. Before it exits, the program moves its queue pair into
// the error state and polls until every request has completed. The wrong program reads the kind of
// each request with ibv_wc_read_opcode. The opcode of a failed completion is undefined.
// From spdk #3212 and #3214, here with an extended CQ.
#include "corpus.h"
#define REQUESTS 8
// This bit of wr_id marks a receive request. wr_id is defined in every completion, also in a failed
// one.
#define IS_RECV (1ull << 63)

static struct duo d;
static struct ibv_cq_ex *ex;
static int sends, receives;

static void post_recv(int n)
{
	struct ibv_sge s = piece(n, SLOT);
	struct ibv_recv_wr wr = {.wr_id = IS_RECV | n, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(d.b.qp, &wr, &bad), "post recv");
	receives++;
}

static void count(void)
{
#if WRONG
	bool receive = ibv_wc_read_opcode(ex) & IBV_WC_RECV; // also of failed ones
#else
	bool receive = ex->wr_id & IS_RECV;
#endif
	if (receive)
		receives--;
	else
		sends--;
	CHECK(sends >= 0 && receives >= 0, "%d sends and %d receives are out", sends, receives);
}

int main(void)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 64};
	struct ibv_poll_cq_attr poll_attr = {0};
	int i;

	start();
	end_open(&d.a, IBV_QPT_RC, 32);
	ex = ibv_create_cq_ex(port.ctx, &attr);
	CHECK(ex, "create cq ex");
	d.b.qp = qp_new(&port, IBV_QPT_RC, ibv_cq_ex_to_cq(ex), ibv_cq_ex_to_cq(ex), 32);
	qp_pair(&port, d.a.qp, d.b.qp);
	for (i = 0; i < REQUESTS; i++)
		post_recv(INBOX + i);
	qp_to_err(d.b.qp);
	for (i = 0; i < REQUESTS; i++, sends++)
		CHECK(!put(d.b.qp, i, 64, IBV_SEND_SIGNALED), "a late send");
	while (sends || receives) {
		if (ibv_start_poll(ex, &poll_attr))
			continue;
		do
			count();
		while (!ibv_next_poll(ex));
		ibv_end_poll(ex);
	}
	end_close(&d.a);
	CHECK(!ibv_destroy_qp(d.b.qp), "destroy qp");
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), "destroy cq");
	return finish("opcode_ex");
}
