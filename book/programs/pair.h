// Two connected queue pairs of a process, for the programs of this book. Any failure ends the
// program.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "word.h"

#define MUST(what)                                                                                                     \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			perror(#what);                                                                                 \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

struct end {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char memory[64];
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;

static inline void open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			MUST(context = ibv_open_device(list[i]));
	MUST(context);
	ibv_free_device_list(list);
	MUST(pd = ibv_alloc_pd(context));
	MUST(!ibv_query_gid(context, 1, 0, &gid));
}

// Makes a queue pair in INIT, which can take receives, with room for `depth` requests.
static inline void open_end(struct end *end, int depth, int access)
{
	MUST(end->channel = ibv_create_comp_channel(context));
	MUST(end->cq = ibv_create_cq(context, 16, NULL, end->channel, 0));
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1},
	};
	MUST(end->qp = ibv_create_qp(pd, &init));
	MUST(end->mr = ibv_reg_mr(pd, end->memory, sizeof end->memory, access));
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};
	MUST(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static inline void connect_to(struct end *end, struct end *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 28,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 1}},
	};
	MUST(!ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .max_rd_atomic = 1};
	// If the peer has no receive for a message, the message is sent again twice.
	attr.rnr_retry = 2;
	MUST(!ibv_modify_qp(end->qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC));
}

// Posts a receive for `length` bytes. Returns 0 or an error number.
static inline int receive(struct end *end, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)end->memory, length, end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(end->qp, &wr, &bad);
}

// Posts `text` as a send, or as a write if `rkey` is not 0. Returns 0 or an error number.
static inline int transmit(struct end *end, const char *text, const struct end *peer, uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)end->memory, strlen(text) + 1, end->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED}, *bad;

	strcpy(end->memory, text);
	wr.opcode = rkey ? IBV_WR_RDMA_WRITE : IBV_WR_SEND;
	wr.wr.rdma.remote_addr = (uintptr_t)peer->memory;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(end->qp, &wr, &bad);
}

// Polls for the next completion.
static inline struct ibv_wc completion(struct end *end)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(end->cq, 1, &wc)) == 0)
		;
	MUST(n == 1);
	return wc;
}
