// A client has a single CQ for sends and receives, and a single request at a time. The wrong
// program expects the completion of the request first and the completion of the answer second. The
// two completions come from different work queues and have no order. The completion of the request
// may come second. The right program looks at wr_id.
#include "corpus.h"
#define ROUNDS 40
// This bit of wr_id marks a receive request.
#define IS_RECV (1ull << 63)

static struct duo d;

static void post_recv(int n)
{
	struct ibv_sge s = piece(n, SLOT);
	struct ibv_recv_wr wr = {.wr_id = IS_RECV | n, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(d.a.qp, &wr, &bad), "post recv");
}

static void ask(int n)
{
	bool sent = false, answered = false;

	post_recv(INBOX);
	CHECK(!put(d.a.qp, n, 64, IBV_SEND_SIGNALED), "request");
	while (!sent || !answered) {
		uint64_t id = poll_good(d.a.rcq).wr_id;
#if WRONG
		CHECK(sent == !!(id & IS_RECV), "request %d: the answer before the request", n); // in this order
#endif
		if (id & IS_RECV)
			answered = true;
		else
			sent = true;
	}
}

int main(void)
{
	struct echoes e = {&d, ROUNDS, 8};
	pthread_t t;
	int i;

	start();
	d.a.ch = ibv_create_comp_channel(port.ctx);
	CHECK(d.a.ch, "channel");
	d.a.scq = d.a.rcq = cq_new(&port, 64, d.a.ch, NULL);
	d.a.qp = qp_new(&port, IBV_QPT_RC, d.a.scq, d.a.rcq, 16);
	end_open(&d.b, IBV_QPT_RC, 16);
	qp_pair(&port, d.a.qp, d.b.qp);
	for (i = 0; i < 8; i++)
		give(d.b.qp, INBOX + 16 + i);
	thread(&t, echo, &e);
	for (i = 0; i < ROUNDS; i++)
		ask(i % 64);
	pthread_join(t, NULL);
	end_close(&d.b);
	CHECK(!ibv_destroy_qp(d.a.qp), "destroy qp");
	CHECK(!ibv_destroy_cq(d.a.rcq), "destroy cq");
	CHECK(!ibv_destroy_comp_channel(d.a.ch), "destroy channel");
	return finish("send_first");
}
