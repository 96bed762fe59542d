/* SYS-5: an IPv6 address during duplicate address detection. The second argument is the address.
 * "wait": the device must list the address. The address must work before the kernel has finished
 * the detection.
 * "gone": another host has the address, so the device must not list the address. */
#include <arpa/inet.h>

#include "rig.h"

static struct port port;

static int entry_of(const char *address)
{
	union ibv_gid gid, wanted;
	int i;

	CHECK(inet_pton(AF_INET6, address, &wanted) == 1, "%s", address);
	for (i = 0; i < port.attr.gid_tbl_len; i++) {
		CHECK(!ibv_query_gid(port.ctx, 1, i, &gid), "gid %d", i);
		if (!memcmp(&gid, &wanted, sizeof(gid)))
			return i;
	}
	return -1;
}

// Sends one message between two queue pairs of this process.
static void talk(void)
{
	static char buf[8192];
	struct ibv_cq *cq = cq_new(&port, 16, NULL, NULL);
	struct ibv_qp *a = qp_new(&port, IBV_QPT_RC, cq, cq, 4), *b = qp_new(&port, IBV_QPT_RC, cq, cq, 4);
	struct ibv_mr *mr = ibv_reg_mr(port.pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge to = {(uintptr_t)buf, 4096, mr->lkey}, from = {(uintptr_t)buf + 4096, 4096, mr->lkey};
	struct ibv_recv_wr recv = {.sg_list = &to, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send = {
		.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	fill(buf + 4096, 4096, 1, 1);
	qp_pair(&port, a, b);
	CHECK(!ibv_post_recv(b, &recv, &bad_recv) && !ibv_post_send(a, &send, &bad), "post");
	poll_good(cq);
	poll_good(cq);
	CHECK(!memcmp(buf, buf + 4096, 4096), "other bytes");
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq), "destroy");
}

int main(int argc, char **argv)
{
	struct ibv_qp *datagrams;
	struct ibv_cq *cq;
	struct ibv_ah *ah;
	int index;

	CHECK(argc == 3, "tentative wait|gone ADDRESS");
	port_open(&port);
	index = entry_of(argv[2]);
	if (!strcmp(argv[1], "gone")) {
		CHECK(index < 0, "an address that another host has is entry %d", index);
	} else {
		CHECK(index >= 0, "%s is not listed", argv[2]);
		port.gid_index = index;
		CHECK(!ibv_query_gid(port.ctx, 1, index, &port.gid), "gid");
		// This queue pair opens the UDP port at every usable address. The device must not
		// wait for an address here.
		cq = cq_new(&port, 16, NULL, NULL);
		datagrams = qp_new(&port, IBV_QPT_UD, cq, cq, 4);
		qp_init(&port, datagrams);
		ah = ibv_create_ah(port.pd, &(struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {
			.dgid = port.gid, .sgid_index = index, .hop_limit = 64}});
		CHECK(ah, "an address handle");
		talk();
		CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_qp(datagrams) && !ibv_destroy_cq(cq), "destroy");
	}
	port_close(&port);
	puts("ok tentative");
	return 0;
}
