// One thread builds chains with the extended interface and aborts each chain. Another thread uses
// ibv_post_send on the same queue pair. The device must never send a request of an aborted chain.
#include "rig.h"

static struct ibv_qp *x;
static volatile int done;

static void *builds(void *arg)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(x);
	int i;

	CHECK(ex, "extended");
	while (!done) {
		ibv_wr_start(ex);
		for (i = 0; i < 2; i++) {
			ex->wr_id = 666;
			ex->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_send(ex);
		}
		ibv_wr_abort(ex);
	}
	return arg;
}

int main(void)
{
	struct port port;
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *y;
	struct ibv_send_wr w = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_recv_wr r = {0}, *rbad;
	pthread_t t;
	int i;

	alarm(60);
	port_open(&port);
	scq = cq_new(&port, 64, NULL, NULL);
	rcq = cq_new(&port, 64, NULL, NULL);
	struct ibv_qp_init_attr_ex a = {
		.send_cq = scq,
		.recv_cq = scq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = port.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};

	x = ibv_create_qp_ex(port.ctx, &a);
	CHECK(x, "create");
	y = qp_new(&port, IBV_QPT_RC, rcq, rcq, 16);
	qp_pair(&port, x, y);
	CHECK(!pthread_create(&t, NULL, builds, NULL), "thread");
	for (i = 0; i < 5000; i++) {
		w.wr_id = r.wr_id = i;
		CHECK(!ibv_post_recv(y, &r, &rbad) && !ibv_post_send(x, &w, &bad), "post");
		CHECK(poll_good(scq).wr_id == (uint64_t)i, "a request that was given up went out before %d", i);
		poll_good(rcq);
	}
	done = 1;
	pthread_join(t, NULL);
	// The program posts in the middle of a chain of its own. This is an error of the program,
	// but the calls must return.
	ibv_wr_start(ibv_qp_to_qp_ex(x));
	CHECK(!ibv_post_recv(y, &r, &rbad) && !ibv_post_send(x, &w, &bad), "post");
	CHECK(!ibv_wr_complete(ibv_qp_to_qp_ex(x)), "complete");
	poll_good(scq);
	CHECK(!ibv_destroy_qp(x) && !ibv_destroy_qp(y) && !ibv_destroy_cq(scq) && !ibv_destroy_cq(rcq), "destroy");
	port_close(&port);
	printf("ok two ways\n");
	return 0;
}
