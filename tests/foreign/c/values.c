// Tests the values that creations and modifications of objects accept and grant. The values are
// wider than their field, ask for entries or inline data, or are flags of completion fields.
// usage: values CASE; the table of cases is at the end. Prints "ok CASE" and ends with status 0, or
// prints FAIL with the file and line of the failed check.
#include "rig.h"

#define DEPTH 16
#define SIZE 4096

static struct port port;
static struct ibv_cq *cq;
static uint8_t *mem;
static struct ibv_mr *mr;

static void open_all(void)
{
	port_open(&port);
	cq = cq_new(&port, 64, NULL, NULL);
	CHECK(!posix_memalign((void **)&mem, 4096, SIZE), "memory");
	memset(mem, 0, SIZE);
	mr = ibv_reg_mr(port.pd, mem, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr, "mr");
}

// True if the device imitates this NIC, which ADVERB_AS_NIC names. "" means that the device
// imitates no NIC.
static int stands_for(const char *nic)
{
	const char *name = getenv("ADVERB_AS_NIC");

	return name ? !strcmp(name, nic) : !*nic;
}

#define RTR (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | \
	     IBV_QP_MIN_RNR_TIMER)
#define RTS (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)

// The device must accept every value of a byte, and a query must show the bits that fit in the
// field.
static void narrow_fields(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr got;
	struct ibv_qp *qp;
	uint32_t wide = 0xabcdef12;
	int v;

	open_all();
	qp = qp_new(&port, IBV_QPT_RC, cq, cq, DEPTH);
	for (v = 0; v < 256; v++) {
		struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
		struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .max_dest_rd_atomic = 1};
		struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .max_rd_atomic = 1};

		CHECK(!ibv_modify_qp(qp, &reset, IBV_QP_STATE), "RESET");
		qp_init(&port, qp);
		rtr.dest_qp_num = rtr.rq_psn = wide;
		rtr.min_rnr_timer = v;
		rtr.ah_attr.is_global = 1;
		rtr.ah_attr.port_num = 1;
		rtr.ah_attr.sl = v;
		rtr.ah_attr.grh.dgid = port.gid;
		rtr.ah_attr.grh.sgid_index = port.gid_index;
		rtr.ah_attr.grh.hop_limit = v;
		rtr.ah_attr.grh.traffic_class = v;
		rtr.ah_attr.grh.flow_label = wide;
		CHECK(!ibv_modify_qp(qp, &rtr, RTR), "RTR with %d", v);
		rts.timeout = rts.retry_cnt = rts.rnr_retry = v;
		rts.sq_psn = wide;
		CHECK(!ibv_modify_qp(qp, &rts, RTS), "RTS with %d", v);
		CHECK(!ibv_query_qp(qp, &got, ~0, &init), "query");
		CHECK(got.min_rnr_timer == (v & 31), "min_rnr_timer %d: %d", v, got.min_rnr_timer);
		CHECK(got.timeout == (v & 31), "timeout %d: %d", v, got.timeout);
		CHECK(got.retry_cnt == (v & 7), "retry_cnt %d: %d", v, got.retry_cnt);
		CHECK(got.rnr_retry == (v & 7), "rnr_retry %d: %d", v, got.rnr_retry);
		CHECK(got.ah_attr.sl == (v & 15), "sl %d: %d", v, got.ah_attr.sl);
		CHECK(got.ah_attr.grh.hop_limit == v && got.ah_attr.grh.traffic_class == v, "bytes %d", v);
		CHECK(got.ah_attr.grh.flow_label == (wide & 0xfffff), "flow label %#x", got.ah_attr.grh.flow_label);
		CHECK(got.dest_qp_num == (wide & 0xffffff), "destination %#x", got.dest_qp_num);
		CHECK(got.rq_psn == (wide & 0xffffff) && got.sq_psn == (wide & 0xffffff), "PSN %#x %#x", got.rq_psn,
		      got.sq_psn);
	}
	CHECK(!ibv_destroy_qp(qp), "destroy");
}

// A connection with values wider than their fields must carry data.
static void a_wide_connection(void)
{
	struct timers t = {32 + 14, 8 + 7, 8 + 7};
	struct ibv_qp *a, *b;
	struct ibv_sge s;
	struct ibv_recv_wr rwr = {.sg_list = &s, .num_sge = 1}, *rbad;
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	int i;

	open_all();
	a = qp_new(&port, IBV_QPT_RC, cq, cq, DEPTH);
	b = qp_new(&port, IBV_QPT_RC, cq, cq, DEPTH);
	qp_init(&port, a);
	qp_init(&port, b);
	qp_join(&port, a, 0xff000064, b->qp_num | 0xff000000, 0x7f0000c8, port.gid, t);
	qp_join(&port, b, 0x010000c8, a->qp_num | 0x01000000, 0xaa000064, port.gid, t);
	s = (struct ibv_sge){(uintptr_t)mem, 64, mr->lkey};
	CHECK(!ibv_post_recv(b, &rwr, &rbad), "receive");
	CHECK(!ibv_post_send(a, &wr, &bad), "send");
	for (i = 0; i < 2; i++)
		poll_good(cq);
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b), "destroy");
}

// In an address handle and a datagram, the device must cut the service level, the flow label and
// the queue pair number to the width of their fields.
static void wide_datagrams(void)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .sl = 0xff};
	struct timers t = {0};
	struct ibv_qp *qp;
	struct ibv_sge s, in;
	struct ibv_recv_wr rwr = {.sg_list = &in, .num_sge = 1}, *rbad;
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	int i;

	open_all();
	qp = qp_new(&port, IBV_QPT_UD, cq, cq, DEPTH);
	qp_init(&port, qp);
	qp_join(&port, qp, 7, 0, 0, port.gid, t);
	attr.grh.dgid = port.gid;
	attr.grh.sgid_index = port.gid_index;
	attr.grh.flow_label = 0xffffffff;
	wr.wr.ud.ah = ibv_create_ah(port.pd, &attr);
	CHECK(wr.wr.ud.ah, "ah");
	wr.wr.ud.remote_qpn = qp->qp_num | 0xab000000;
	wr.wr.ud.remote_qkey = 0x11111111;
	in = (struct ibv_sge){(uintptr_t)mem, 256, mr->lkey};
	s = (struct ibv_sge){(uintptr_t)mem + 1024, 64, mr->lkey};
	CHECK(!ibv_post_recv(qp, &rwr, &rbad), "receive");
	CHECK(!ibv_post_send(qp, &wr, &bad), "send");
	for (i = 0; i < 2; i++)
		poll_good(cq);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_ah(wr.wr.ud.ah), "destroy");
}

// Posts a WRITE of `count` entries of 16 bytes each on `qp`, which is connected with itself.
static int post_entries(struct ibv_qp *qp, uint32_t count, int inlined)
{
	struct ibv_sge s[64];
	struct ibv_send_wr wr = {.sg_list = s, .num_sge = count, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED | (inlined ? IBV_SEND_INLINE : 0)}, *bad;
	uint32_t i;

	CHECK(count <= ARRAY_LEN(s), "%u entries", count);
	for (i = 0; i < count; i++)
		s[i] = (struct ibv_sge){(uintptr_t)mem + 16 * i, 16, mr->lkey};
	wr.wr.rdma.remote_addr = (uintptr_t)mem + 2048;
	wr.wr.rdma.rkey = mr->rkey;
	return ibv_post_send(qp, &wr, &bad);
}

static void room_of(struct ibv_qp_cap asked, struct ibv_qp_cap granted)
{
	struct ibv_qp_init_attr a = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = asked}, init;
	struct ibv_qp *qp = ibv_create_qp(port.pd, &a);
	struct timers t = {14, 7, 7};
	struct ibv_qp_attr got;

	CHECK(qp, "create");
	CHECK(a.cap.max_send_sge == granted.max_send_sge && a.cap.max_recv_sge == granted.max_recv_sge &&
		      a.cap.max_inline_data == granted.max_inline_data,
	      "granted %u %u %u", a.cap.max_send_sge, a.cap.max_recv_sge, a.cap.max_inline_data);
	CHECK(!ibv_query_qp(qp, &got, IBV_QP_CAP, &init), "query");
	CHECK(!memcmp(&init.cap, &a.cap, sizeof(a.cap)) && !memcmp(&got.cap, &a.cap, sizeof(a.cap)), "the query differs");
	qp_init(&port, qp);
	qp_join(&port, qp, 100, qp->qp_num, 100, port.gid, t);
	CHECK(!post_entries(qp, granted.max_send_sge, 0), "%u entries", granted.max_send_sge);
	poll_good(cq);
	CHECK(post_entries(qp, granted.max_send_sge + 1, 0), "more than %u entries", granted.max_send_sge);
	if (granted.max_inline_data >= 16) {
		CHECK(!post_entries(qp, granted.max_inline_data / 16, 1), "%u bytes inline", granted.max_inline_data);
		poll_good(cq);
	}
	CHECK(post_entries(qp, granted.max_inline_data / 16 + 1, 1), "more than %u bytes inline", granted.max_inline_data);
	CHECK(!ibv_destroy_qp(qp), "destroy");
}

static struct ibv_qp_cap cap(uint32_t send, uint32_t recv, uint32_t inlined)
{
	return (struct ibv_qp_cap){DEPTH, DEPTH, send, recv, inlined};
}

// A send request has a number of bytes for inline data or for scatter/gather entries, as with rxe
// or with the NIC that ADVERB_AS_NIC names. The function ibv_create_qp must grant as many entries
// as fit in these bytes. The function ibv_query_qp must show their number. A request with one entry
// more must fail.
static void room(void)
{
	struct ibv_srq_init_attr s = {.attr = {.max_wr = DEPTH, .max_sge = 4}};
	struct ibv_srq *srq;

	open_all();
	if (stands_for("mlx5")) {
		room_of(cap(1, 1, 72), cap(1, 1, 124));
		room_of(cap(2, 3, 0), cap(2, 4, 60));
	} else if (stands_for("siw")) {
		room_of(cap(1, 1, 0), cap(1, 1, 80));
		room_of(cap(6, 6, 0), cap(6, 6, 80));
		return;
	} else if (stands_for("irdma")) {
		room_of(cap(1, 1, 72), cap(1, 1, 72));
		room_of(cap(6, 6, 0), cap(6, 6, 0));
		return;
	} else {
		room_of(cap(1, 1, 72), cap(4, 1, 72));
		room_of(cap(1, 1, 220), cap(13, 1, 220));
		room_of(cap(4, 3, 0), cap(4, 3, 64));
	}
	srq = ibv_create_srq(port.pd, &s);
	CHECK(srq, "srq");
	CHECK(s.attr.max_sge == (stands_for("mlx5") ? 7 : 4), "%u entries", s.attr.max_sge);
	CHECK(!ibv_destroy_srq(srq), "destroy");
}

// A program may ask for the completion fields of all kinds. The VLAN and the flow tag must be 0.
static void fields(void)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = DEPTH, .wc_flags = IBV_CREATE_CQ_SUP_WC_FLAGS};
	struct ibv_poll_cq_attr poll = {0};
	double end = now() + POLL_SECONDS;
	struct ibv_cq_ex *ex;
	struct ibv_qp *a;
	struct timers t = {14, 7, 7};
	int code;

	open_all();
	ex = ibv_create_cq_ex(port.ctx, &attr);
	CHECK(ex, "create with all flags");
	a = qp_new(&port, IBV_QPT_RC, ibv_cq_ex_to_cq(ex), cq, DEPTH);
	qp_init(&port, a);
	qp_join(&port, a, 100, a->qp_num, 100, port.gid, t);
	CHECK(!post_entries(a, 1, 0), "post");
	while ((code = ibv_start_poll(ex, &poll)) == ENOENT)
		CHECK(now() < end, "no completion");
	CHECK(!code && ex->status == IBV_WC_SUCCESS, "poll: %d", code);
	CHECK(ibv_wc_read_cvlan(ex) == 0 && ibv_wc_read_flow_tag(ex) == 0, "not 0");
	ibv_end_poll(ex);
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), "destroy");
	attr.wc_flags = 1ull << 40;
	CHECK(!ibv_create_cq_ex(port.ctx, &attr) && errno, "a flag that is not known");
}

static const struct {
	const char *id, *name;
	void (*run)(void);
} cases[] = {
	{"OBJ-8", "narrow_fields_keep_their_low_bits", narrow_fields},
	{"OBJ-8", "a_connection_with_wide_values_works", a_wide_connection},
	{"OBJ-8", "a_datagram_with_wide_values_arrives", wide_datagrams},
	{"NIC-6", "a_request_has_room", room},
	{"OBJ-9", "all_fields_of_a_completion_may_be_asked_for", fields},
};

int main(int argc, char **argv)
{
	size_t i;

	setlinebuf(stdout);
	for (i = 0; i < ARRAY_LEN(cases); i++) {
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			printf("ok %s\n", cases[i].name);
			return 0;
		}
	}
	printf("FAIL no such case\n");
	return 1;
}
