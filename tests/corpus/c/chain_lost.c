// The program builds requests with ibv_wr_start, ibv_wr_send and ibv_wr_complete. The requests come
// from a pool of eight, for a send queue of six. If ibv_wr_complete refuses the chain, nothing was
// posted. The wrong program does not put the refused request back into the pool. After eight
// refusals the pool is empty, and the program sends nothing more.
// From nbs #2690 and #4533, here with the extended interface.
#include "corpus.h"
#define TOTAL 60
#define POOL 8
#define DEPTH 6

static struct duo d;
static struct ibv_qp_ex *ex;
static int pool[POOL], in_pool, completed;

static void *receive(void *arg)
{
	int i;

	(void)arg;
	for (i = 0; i < TOTAL; i++)
		give(d.b.qp, poll_good(d.b.rcq).wr_id);
	return NULL;
}

static void reap(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(d.a.scq, 1, &wc) > 0) {
		CHECK(wc.status == IBV_WC_SUCCESS, "send: %s", ibv_wc_status_str(wc.status));
		pool[in_pool++] = wc.wr_id;
		completed++;
	}
}

static bool send_one(void)
{
	int request = pool[--in_pool], r;

	ibv_wr_start(ex);
	ex->wr_id = request;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)slot(request), 64);
	r = ibv_wr_complete(ex); // whether it was posted
	if (!r)
		return true;
	CHECK(r == ENOMEM, "ibv_wr_complete: %s", strerror(r));
#if !WRONG
	pool[in_pool++] = request;
#endif
	return false;
}

int main(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	pthread_t t;
	int i;

	start();
	d.a.ch = ibv_create_comp_channel(port.ctx);
	d.a.scq = cq_new(&port, 2 * DEPTH, NULL, NULL);
	d.a.rcq = cq_new(&port, 2 * DEPTH, d.a.ch, NULL);
	attr.pd = port.pd;
	attr.send_cq = d.a.scq;
	attr.recv_cq = d.a.rcq;
	d.a.qp = ibv_create_qp_ex(port.ctx, &attr);
	CHECK(d.a.ch && d.a.qp, "qp");
	ex = ibv_qp_to_qp_ex(d.a.qp);
	end_open(&d.b, IBV_QPT_RC, 2 * POOL);
	qp_pair(&port, d.a.qp, d.b.qp);
	for (i = 0; i < 2 * POOL; i++)
		give(d.b.qp, INBOX + i);
	for (i = 0; i < POOL; i++)
		pool[in_pool++] = i;
	thread(&t, receive, NULL);
	for (i = 0; i < TOTAL;) {
		reap();
		if (in_pool && send_one())
			i++;
		work(100);
	}
	while (completed < TOTAL)
		reap();
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("chain_lost");
}
