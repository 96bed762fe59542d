// Connects a queue pair and creates an address handle. `noway SOURCE DESTINATION ERRNO` expects
// ERRNO from ibv_modify_qp (to RTR) and from ibv_create_ah. With ERRNO 0 both calls must succeed,
// and the program sends a datagram. `noway SOURCE DESTINATION 0 COMMAND` then runs COMMAND and
// sends a message over the connection. This send must fail, because no peer answers.
#include "rig.h"
#include <arpa/inet.h>

// A queue pair number in the range of the device. No queue pair has the number.
#define NOBODY 0x345678

static union ibv_gid gid_of(const char *address)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

	if (inet_pton(AF_INET, address, gid.raw + 12) != 1)
		CHECK(inet_pton(AF_INET6, address, gid.raw) == 1, "%s", address);
	return gid;
}

// Opens the device that has this GID.
static void open_at(struct port *p, const union ibv_gid *source)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_gid_entry entries[64];
	ssize_t n;
	int i, k;

	CHECK(list, "devices");
	for (i = 0; list[i]; i++) {
		p->ctx = ibv_open_device(list[i]);
		CHECK(p->ctx, "open");
		n = ibv_query_gid_table(p->ctx, entries, ARRAY_LEN(entries), 0);
		for (k = 0; k < n; k++) {
			if (memcmp(&entries[k].gid, source, sizeof(*source)))
				continue;
			p->gid = *source;
			p->gid_index = entries[k].gid_index;
			p->pd = ibv_alloc_pd(p->ctx);
			CHECK(p->pd, "pd");
			ibv_free_device_list(list);
			return;
		}
		CHECK(!ibv_close_device(p->ctx), "close");
	}
	CHECK(0, "no device has the address");
}

static int to_rts(struct ibv_qp *qp, struct ibv_ah_attr to)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	int e;

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "to INIT");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = NOBODY, .min_rnr_timer = 12};
	attr.ah_attr = to;
	e = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (e)
		return e;
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 8, .retry_cnt = 2};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "to RTS");
	return 0;
}

static void send_in_vain(struct ibv_qp *qp)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_wc wc;

	CHECK(!ibv_post_send(qp, &wr, &bad), "post");
	while (!ibv_poll_cq(qp->send_cq, 1, &wc))
		usleep(1000);
	CHECK(wc.status == IBV_WC_RETRY_EXC_ERR, "%s", ibv_wc_status_str(wc.status));
}

// The send of a datagram must succeed for every destination, because UD has no acknowledgements.
static void send_datagram(struct port *p, struct ibv_ah *ah)
{
	struct ibv_cq *cq = cq_new(p, 4, NULL, NULL);
	struct ibv_qp *qp = qp_new(p, IBV_QPT_UD, cq, cq, 1);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	qp_init(p, qp);
	qp_join(p, qp, 0, 0, 0, p->gid, (struct timers){0, 0, 0});
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = NOBODY;
	CHECK(!ibv_post_send(qp, &wr, &bad), "post");
	poll_good(cq);
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};
	union ibv_gid source;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	struct port p = {.attr = {.active_mtu = IBV_MTU_1024}};
	int e, expected;

	CHECK(argc >= 4, "SOURCE DESTINATION ERRNO [COMMAND]");
	expected = atoi(argv[3]);
	source = gid_of(argv[1]);
	open_at(&p, &source);
	to.grh.dgid = gid_of(argv[2]);
	to.grh.sgid_index = p.gid_index;
	init.send_cq = init.recv_cq = ibv_create_cq(p.ctx, 4, NULL, NULL, 0);
	qp = ibv_create_qp(p.pd, &init);
	CHECK(qp, "queue pair");
	e = to_rts(qp, to);
	CHECK(e == expected, "RTR: %d", e);
	errno = 0;
	ah = ibv_create_ah(p.pd, &to);
	CHECK(!ah == !!expected && (ah || errno == expected), "create_ah");
	if (ah)
		send_datagram(&p, ah);
	if (argc > 4) {
		CHECK(!system(argv[4]), "%s", argv[4]);
		send_in_vain(qp);
	}
	puts("ok noway");
	return 0;
}
