// A program written for InfiniBand leaves `is_global` at zero. On RoCE every address has a GRH, so
// the transition to RTR fails with EINVAL. The error does not say which of the seven attributes is
// wrong.
// From smart #2 and Mooncake #204.
#include "corpus.h"

static int to_rtr(struct ibv_qp *qp, uint32_t qpn)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.attr.active_mtu,
		.dest_qp_num = qpn,
		.rq_psn = 7,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.port_num = 1, .sl = 0, .dlid = port.attr.lid},
	};

#if !WRONG
	a.ah_attr.is_global = 1;
#endif
	a.ah_attr.grh.dgid = port.gid;
	a.ah_attr.grh.sgid_index = port.gid_index;
	a.ah_attr.grh.hop_limit = 64;
	return ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 7, .max_rd_atomic = 1};
	int mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		   IBV_QP_MAX_QP_RD_ATOMIC;

	CHECK(!ibv_modify_qp(qp, &a, mask), "to RTS");
}

int main(void)
{
	struct duo d;
	int r;

	start();
	end_open(&d.a, IBV_QPT_RC, 16);
	end_open(&d.b, IBV_QPT_RC, 16);
	qp_init(&port, d.a.qp);
	qp_init(&port, d.b.qp);
	r = to_rtr(d.a.qp, d.b.qp->qp_num);
	CHECK(!r, "ibv_modify_qp: %s", strerror(r));
	r = to_rtr(d.b.qp, d.a.qp->qp_num);
	CHECK(!r, "ibv_modify_qp: %s", strerror(r));
	to_rts(d.a.qp);
	to_rts(d.b.qp);
	give(d.b.qp, INBOX);
	CHECK(!put(d.a.qp, 0, 64, IBV_SEND_SIGNALED), "post send");
	poll_good(d.a.scq);
	poll_good(d.b.rcq);
	duo_close(&d);
	return finish("not_global");
}
