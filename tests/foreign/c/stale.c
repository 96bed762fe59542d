// Makes calls with handles of destroyed objects, through the inline functions of the header. Each
// call must return EINVAL and set errno, also after the device is closed (as in CQN-10, but for all
// kinds of objects).
#include "rig.h"

static struct port port;

#define REFUSED(call)                                                                              \
	do {                                                                                       \
		int got_;                                                                          \
		errno = 0;                                                                         \
		got_ = (call);                                                                     \
		CHECK(got_ == EINVAL && errno == EINVAL, "gave %d", got_);                         \
	} while (0)

static struct ibv_qp_ex *extended(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = port.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(port.ctx, &attr);

	return qp ? ibv_qp_to_qp_ex(qp) : NULL;
}

static void dead(struct ibv_qp *qp, struct ibv_qp_ex *ex, struct ibv_cq *cq, struct ibv_cq_ex *cq_ex,
		 struct ibv_srq *srq)
{
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send = NULL;
	struct ibv_recv_wr recv = {.num_sge = 0}, *bad_recv = NULL;
	struct ibv_poll_cq_attr attr = {.comp_mask = 0};
	struct ibv_wc wc;
	uint32_t number;

	REFUSED(ibv_post_send(qp, &send, &bad_send));
	CHECK(bad_send == &send, "the first request is named");
	REFUSED(ibv_post_recv(qp, &recv, &bad_recv));
	CHECK(bad_recv == &recv, "the first request is named");
	bad_recv = NULL;
	REFUSED(ibv_post_srq_recv(srq, &recv, &bad_recv));
	CHECK(bad_recv == &recv, "the first request is named");
	REFUSED(-ibv_poll_cq(cq, 1, &wc));
	REFUSED(ibv_req_notify_cq(cq, 0));
	REFUSED(ibv_get_srq_num(srq, &number));
	REFUSED(ibv_start_poll(cq_ex, &attr));
	REFUSED(ibv_next_poll(cq_ex));
	ibv_end_poll(cq_ex);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, 1, 2, 3);
	REFUSED(ibv_wr_complete(ex));
	ibv_wr_abort(ex);
	REFUSED(ibv_destroy_qp(qp));
	REFUSED(ibv_destroy_qp(&ex->qp_base));
	REFUSED(ibv_destroy_cq(cq));
	REFUSED(ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex)));
	REFUSED(ibv_destroy_srq(srq));
}

int main(void)
{
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 4};
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_cq_ex *cq_ex;
	struct ibv_qp_ex *ex;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	port_open(&port);
	cq = cq_new(&port, 8, NULL, NULL);
	cq_ex = ibv_create_cq_ex(port.ctx, &cq_attr);
	srq = ibv_create_srq(port.pd, &srq_attr);
	qp = qp_new(&port, IBV_QPT_RC, cq, cq, 4);
	ex = extended(cq);
	CHECK(cq_ex && srq && ex, "create");
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(&ex->qp_base), "queue pairs");
	CHECK(!ibv_destroy_srq(srq), "shared receive queue");
	CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq_ex)), "completion queues");
	dead(qp, ex, cq, cq_ex, srq);
	CHECK(!ibv_dealloc_pd(port.pd), "domain");
	REFUSED(ibv_dealloc_pd(port.pd));
	CHECK(!ibv_close_device(port.ctx), "device");
	dead(qp, ex, cq, cq_ex, srq);
	REFUSED(ibv_dealloc_pd(port.pd));
	REFUSED(ibv_close_device(port.ctx));
	printf("ok stale\n");
	return 0;
}
