// Moves a queue pair to RTR. With an argument, an attribute is wrong. The program prints the result
// of ibv_create_qp or ibv_modify_qp.
#include "pair.h"

static void say(const char *call, int error)
{
	printf("%s: %s\n", call, error ? strerror(error) : "ok");
}

int main(int argc, char **argv)
{
	const char *wrong = word(argc, argv, 1, "no-peer no-grh wrong-index too-far too-deep");
#define IS(name) (!strcmp(wrong, name))
	static struct end a;

	open_device("adverb0");
	open_end(&a, 2, IBV_ACCESS_LOCAL_WRITE);
	if (IS("too-deep")) {
		struct ibv_qp_init_attr init = {
			.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1 << 20}};
		say("ibv_create_qp", ibv_create_qp(pd, &init) ? 0 : errno);
		return 0;
	}
	struct ibv_qp_attr attr = {
		.qp_state = IS("too-far") ? IBV_QPS_RTS : IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = a.qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = !IS("no-grh"), .port_num = 1, .grh = {.dgid = gid, .hop_limit = 1}},
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (IS("no-peer"))
		mask &= ~IBV_QP_DEST_QPN;
	if (IS("wrong-index"))
		attr.ah_attr.grh.sgid_index = 99;
	say("ibv_modify_qp", ibv_modify_qp(a.qp, &attr, mask));
	return 0;
}
