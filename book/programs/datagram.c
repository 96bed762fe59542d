// Sends a datagram from a queue pair to another. With an argument, one thing is wrong.
#include "pair.h"
#include <time.h>

enum { KEY = 0x11, GRH = 40 };

static struct end a, b;

// Makes a queue pair for datagrams, ready to send.
static void open_datagrams(struct end *end)
{
	MUST(end->cq = ibv_create_cq(context, 4, NULL, NULL, 0));
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.qp_type = IBV_QPT_UD,
		.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
	};
	MUST(end->qp = ibv_create_qp(pd, &init));
	MUST(end->mr = ibv_reg_mr(pd, end->memory, sizeof end->memory, IBV_ACCESS_LOCAL_WRITE));
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY};
	MUST(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	MUST(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

int main(int argc, char **argv)
{
	const char *wrong = word(argc, argv, 1, "no-room wrong-key");
#define IS(name) (!strcmp(wrong, name))
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}};

	open_device("adverb0");
	open_datagrams(&a);
	open_datagrams(&b);
	to.grh.dgid = gid;
	struct ibv_ah *ah = ibv_create_ah(pd, &to);
	MUST(ah);
	// The 40 bytes before the message are for the GRH.
	MUST(!receive(&b, IS("no-room") ? 6 : GRH + 6));

	struct ibv_sge sge = {(uintptr_t)a.memory, 6, a.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = b.qp->qp_num;
	wr.wr.ud.remote_qkey = IS("wrong-key") ? KEY + 1 : KEY;
	strcpy(a.memory, "hello");
	MUST(!ibv_post_send(a.qp, &wr, &bad));
	printf("sent: %s\n", ibv_wc_status_str(completion(&a).status));
	// No acknowledgement tells when a datagram has arrived, so wait up to half a second.
	struct ibv_wc wc;
	int n = 0;
	for (int i = 0; i < 500 && n == 0; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		n = ibv_poll_cq(b.cq, 1, &wc);
	}
	if (n == 0) {
		printf("nothing received\n");
		return 1;
	}
	MUST(n == 1);
	printf("received: %s\n", ibv_wc_status_str(wc.status));
	if (wc.status == IBV_WC_SUCCESS)
		printf("%u bytes: %s\n", wc.byte_len, b.memory + GRH);
	return 0;
}
