// An XRC target receives into two shared receive queues. The wrong server posts each new receive to
// the first queue. When the receives of the second queue are used up, its sender waits for ever.
// The queue pair reports no error.
#include "corpus.h"
#define ROUNDS 100
#define RECEIVES 16

static struct ibv_xrcd *domain;
static struct ibv_srq *srqs[2];
static struct ibv_cq *scq, *rcq;
static uint32_t numbers[2];

static void give_shared(struct ibv_srq *srq, int n)
{
	struct ibv_sge s = piece(n, SLOT);
	struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_srq_recv(srq, &wr, &bad), "post a shared receive");
}

static void open_shared(int i)
{
	struct ibv_srq_init_attr_ex a = {
		.attr = {.max_wr = 2 * ROUNDS, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC, .pd = port.pd, .xrcd = domain, .cq = rcq};
	int n;

	srqs[i] = ibv_create_srq_ex(port.ctx, &a);
	CHECK(srqs[i] && !ibv_get_srq_num(srqs[i], &numbers[i]), "create srq");
	for (n = 0; n < RECEIVES; n++)
		give_shared(srqs[i], INBOX + RECEIVES * i + n);
}

static struct ibv_qp *open_half(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex a = {.qp_type = type, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = domain};
	struct ibv_qp *qp;

	if (type == IBV_QPT_XRC_SEND) {
		a.comp_mask = IBV_QP_INIT_ATTR_PD;
		a.pd = port.pd;
		a.send_cq = scq;
		a.cap.max_send_wr = 8;
		a.cap.max_send_sge = 1;
	}
	qp = ibv_create_qp_ex(port.ctx, &a);
	CHECK(qp, "create qp");
	qp_init(&port, qp);
	return qp;
}

static void join_half(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .path_mtu = port.attr.active_mtu, .dest_qp_num = peer,
				.max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = {.is_global = 1, .port_num = 1}};

	a.ah_attr.grh.dgid = port.gid;
	a.ah_attr.grh.sgid_index = port.gid_index;
	a.ah_attr.grh.hop_limit = 64;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "to RTR");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			     IBV_QP_MAX_QP_RD_ATOMIC), "to RTS");
}

int main(void)
{
	struct ibv_xrcd_init_attr d = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
	struct ibv_qp *client, *server;
	int i, n;

	start();
	domain = ibv_open_xrcd(port.ctx, &d);
	CHECK(domain, "open xrcd");
	scq = cq_new(&port, 64, NULL, NULL);
	rcq = cq_new(&port, 64, NULL, NULL);
	open_shared(0);
	open_shared(1);
	client = open_half(IBV_QPT_XRC_SEND);
	server = open_half(IBV_QPT_XRC_RECV);
	join_half(client, server->qp_num);
	join_half(server, client->qp_num);
	for (i = 0; i < ROUNDS; i++) {
		struct ibv_sge s = piece(i % 64, 16);
		struct ibv_send_wr wr = {.wr_id = i, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED, .qp_type.xrc.remote_srqn = numbers[i % 2]}, *bad;

		CHECK(!ibv_post_send(client, &wr, &bad), "request");
		n = poll_good(rcq).wr_id;
#if WRONG
		give_shared(srqs[0], n); // always to the first queue
#else
		give_shared(srqs[i % 2], n);
#endif
		poll_good(scq);
	}
	CHECK(!ibv_destroy_qp(client) && !ibv_destroy_qp(server), "destroy qp");
	CHECK(!ibv_destroy_srq(srqs[0]) && !ibv_destroy_srq(srqs[1]) && !ibv_close_xrcd(domain), "destroy srq");
	CHECK(!ibv_destroy_cq(scq) && !ibv_destroy_cq(rcq), "destroy");
	return finish("xrc_dry");
}
