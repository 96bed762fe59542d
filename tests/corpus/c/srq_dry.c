// Two queue pairs share a receive queue. The wrong server posts a new receive for each request, but
// not for notes, which need no answer. When notes have used all receives, every sender waits for
// ever.
// From StepMesh #36 and ucx #10505.
#include "corpus.h"
#define ROUNDS 200
#define RECEIVES 16
#define NOTE 7

static struct ibv_srq *srq;
static struct ibv_cq *scq, *rcq;
static struct ibv_qp *client[2], *server[2];

static void give_shared(int n)
{
	struct ibv_sge s = piece(n, SLOT);
	struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_srq_recv(srq, &wr, &bad), "post a shared receive");
}

static void serve(void)
{
	int n = poll_good(rcq).wr_id;

#if WRONG
	if (slot(n)[0] == NOTE)
		return; // nothing to answer
#endif
	give_shared(n);
}

int main(void)
{
	struct ibv_srq_init_attr a = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
	int i;

	start();
	srq = ibv_create_srq(port.pd, &a);
	CHECK(srq, "create srq");
	scq = cq_new(&port, 64, NULL, NULL);
	rcq = cq_new(&port, 64, NULL, NULL);
	for (i = 0; i < 2; i++) {
		struct ibv_qp_init_attr q = {.send_cq = scq, .recv_cq = rcq, .srq = srq, .qp_type = IBV_QPT_RC,
					     .cap = {.max_send_wr = 8, .max_send_sge = 1}};

		client[i] = qp_new(&port, IBV_QPT_RC, scq, scq, 8);
		server[i] = ibv_create_qp(port.pd, &q);
		CHECK(server[i], "create qp");
		qp_pair(&port, client[i], server[i]);
	}
	for (i = 0; i < RECEIVES; i++)
		give_shared(INBOX + i);
	for (i = 0; i < ROUNDS; i++) {
		slot(i % 64)[0] = i % 10;
		CHECK(!put(client[i % 2], i % 64, 16, IBV_SEND_SIGNALED), "request");
		serve();
		poll_good(scq);
	}
	for (i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(client[i]) && !ibv_destroy_qp(server[i]), "destroy qp");
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(scq) && !ibv_destroy_cq(rcq), "destroy");
	return finish("srq_dry");
}
