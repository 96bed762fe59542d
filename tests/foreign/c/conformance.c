// Cases in which IBTA, NICs and soft-RoCE differ, and cases that programs often get wrong.
// docs/conformance.md has the table. Each case checks the behaviour of Adverb.
// usage: conformance CASE
#include "rig.h"

#define SIZE 4096
static struct port port;
static struct ibv_cq *left, *right;
static struct ibv_qp *a, *b;
static struct ibv_mr *mine, *theirs;
static uint64_t from[SIZE / 8], to[SIZE / 8];

static void open_regions(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

	port_open(&port);
	left = cq_new(&port, 64, NULL, NULL);
	right = cq_new(&port, 64, NULL, NULL);
	mine = ibv_reg_mr(port.pd, from, SIZE, access);
	theirs = ibv_reg_mr(port.pd, to, SIZE, access);
	CHECK(mine && theirs, "regions");
	from[0] = 1;
	to[0] = 2;
}

// Opens two connected RC queue pairs. Completions of `a` go to `left`, and completions of `b` go to
// `right`.
static void open_pair(void)
{
	open_regions();
	a = qp_new(&port, IBV_QPT_RC, left, left, 16);
	b = qp_new(&port, IBV_QPT_RC, right, right, 16);
	qp_pair(&port, a, b);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "query");
	return attr.qp_state;
}

static void is_status(struct ibv_wc wc, struct ibv_qp *qp, uint64_t wr_id, enum ibv_wc_status status)
{
	CHECK(wc.status == status, "status %s, not %s", ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
	CHECK(wc.qp_num == qp->qp_num && wc.wr_id == wr_id, "queue pair %u, request %lu", wc.qp_num,
	      (unsigned long)wc.wr_id);
}

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int error = ibv_post_send(qp, wr, &bad);

	CHECK(!error || bad == wr, "the refused request is named");
	return error;
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge, uint64_t wr_id)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .sg_list = sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};

	return wr;
}

static struct ibv_sge part(struct ibv_mr *mr, uint32_t len)
{
	struct ibv_sge sge = {.addr = (uintptr_t)mr->addr, .length = len, .lkey = mr->lkey};

	return sge;
}

static void post_recv(struct ibv_qp *qp, uint64_t wr_id)
{
	struct ibv_sge sge = part(theirs, SIZE);
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(qp, &wr, &bad), "receive");
}

// A post of a READ, WRITE or atomic on UD is refused. The queue pair stays in RTS and can send.
static void ud_has_sends_alone(void)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						     IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
	struct timers t = {14, 7, 7};
	struct ibv_ah_attr way = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_ah *ah;
	size_t i;

	open_regions();
	a = qp_new(&port, IBV_QPT_UD, left, left, 16);
	b = qp_new(&port, IBV_QPT_UD, right, right, 16);
	qp_init(&port, a);
	qp_init(&port, b);
	qp_join(&port, a, 1, 0, 0, port.gid, t);
	qp_join(&port, b, 1, 0, 0, port.gid, t);
	way.grh.dgid = port.gid;
	way.grh.sgid_index = port.gid_index;
	CHECK((ah = ibv_create_ah(port.pd, &way)), "address handle");
	for (i = 0; i <= ARRAY_LEN(opcodes); i++) {
		sge = part(mine, 8);
		wr = request(i < ARRAY_LEN(opcodes) ? opcodes[i] : IBV_WR_SEND, &sge, i);
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = b->qp_num;
		wr.wr.ud.remote_qkey = 0x11111111;
		if (i < ARRAY_LEN(opcodes)) {
			int error = post(a, &wr);

			CHECK(error == EINVAL, "opcode %d: %d", opcodes[i], error);
			CHECK(state_of(a) == IBV_QPS_RTS, "state");
			CHECK(!ibv_poll_cq(left, 1, &(struct ibv_wc){0}), "a completion");
		} else {
			post_recv(b, 7);
			CHECK(!post(a, &wr), "send");
			is_status(poll_one(left), a, i, IBV_WC_SUCCESS);
			is_status(poll_one(right), b, 7, IBV_WC_SUCCESS);
		}
	}
}

static void bind_type_2(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mw *mw, struct ibv_mr *mr)
{
	struct ibv_send_wr wr = {.wr_id = 90, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		mr, (uintptr_t)mr->addr, SIZE, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
	CHECK(!post(qp, &wr), "bind");
	is_status(poll_one(cq), qp, 90, IBV_WC_SUCCESS);
	mw->rkey = wr.bind_mw.rkey;
}

static struct ibv_mw *window(enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(port.pd, type);

	CHECK(mw, "window");
	return mw;
}

static void bind_type_1(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mw *mw)
{
	struct ibv_mw_bind bind = {.wr_id = 91, .send_flags = IBV_SEND_SIGNALED};

	bind.bind_info = (struct ibv_mw_bind_info){theirs, (uintptr_t)to, SIZE, IBV_ACCESS_REMOTE_READ};
	CHECK(!ibv_bind_mw(qp, mw, &bind), "bind of type 1");
	is_status(poll_one(cq), qp, 91, IBV_WC_SUCCESS);
}

// Posts at `a` a SEND with Invalidate, with a key that `b` must not invalidate. The sender must
// still get an acknowledgement. The receive must fail, and `b` must go to the error state.
static void invalidate_fails(uint32_t key)
{
	struct ibv_sge sge = part(mine, 8);
	struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_INV, &sge, 1);

	post_recv(b, 5);
	wr.invalidate_rkey = key;
	CHECK(!post(a, &wr), "send");
	is_status(poll_one(right), b, 5, IBV_WC_REM_INV_REQ_ERR);
	is_status(poll_one(left), a, 1, IBV_WC_SUCCESS);
	CHECK(state_of(b) == IBV_QPS_ERR, "state");
}

static void invalidate_of_no_key(void)
{
	open_pair();
	invalidate_fails(0xdead00);
}

static void invalidate_of_a_region(void)
{
	open_pair();
	invalidate_fails(theirs->rkey);
}

static void invalidate_of_a_type_1_window(void)
{
	struct ibv_mw *mw;

	open_pair();
	mw = window(IBV_MW_TYPE_1);
	bind_type_1(b, right, mw);
	invalidate_fails(mw->rkey);
}

static void invalidate_of_another_queue_pairs_window(void)
{
	struct ibv_mw *mw;

	open_pair();
	mw = window(IBV_MW_TYPE_2);
	bind_type_2(a, left, mw, mine);
	invalidate_fails(mw->rkey);
}

// A bind is refused with ENOENT if the structure of the window or region has a wrong `handle`. The
// `handle` of the queue pair is not checked.
static void binds_of_foreign_handles(void)
{
	struct ibv_mw_bind bind = {.wr_id = 3, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_mw *mw;

	open_pair();
	mw = window(IBV_MW_TYPE_1);
	bind.bind_info = (struct ibv_mw_bind_info){theirs, (uintptr_t)to, SIZE, IBV_ACCESS_REMOTE_READ};
	mw->handle ^= 0x5a5a;
	CHECK(ibv_bind_mw(b, mw, &bind) == ENOENT, "window");
	mw->handle ^= 0x5a5a;
	theirs->handle ^= 0x5a5a;
	CHECK(ibv_bind_mw(b, mw, &bind) == ENOENT, "region");
	theirs->handle ^= 0x5a5a;
	b->handle ^= 0x5a5a;
	CHECK(!ibv_bind_mw(b, mw, &bind), "queue pair");
	b->handle ^= 0x5a5a;
	is_status(poll_one(right), b, 3, IBV_WC_SUCCESS);
	CHECK(state_of(b) == IBV_QPS_RTS, "state");
}

// A bind of a destroyed window or region is refused at the post, for both types of windows.
static void binds_of_destroyed_handles(void)
{
	struct ibv_mw_bind bind = {.wr_id = 3, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr wr = {.wr_id = 4, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_mw_bind_info good, bad;
	struct ibv_mw *mw;
	struct ibv_mr *gone;

	open_pair();
	gone = ibv_reg_mr(port.pd, to, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	CHECK(gone && !ibv_dereg_mr(gone), "region");
	good = (struct ibv_mw_bind_info){theirs, (uintptr_t)to, SIZE, IBV_ACCESS_REMOTE_READ};
	bad = (struct ibv_mw_bind_info){gone, (uintptr_t)to, SIZE, IBV_ACCESS_REMOTE_READ};
	mw = window(IBV_MW_TYPE_1);
	bind.bind_info = bad;
	CHECK(ibv_bind_mw(b, mw, &bind) == EINVAL, "destroyed region");
	CHECK(!ibv_dealloc_mw(mw), "dealloc");
	bind.bind_info = good;
	CHECK(ibv_bind_mw(b, mw, &bind) == EINVAL, "destroyed window");
	mw = window(IBV_MW_TYPE_2);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = bad;
	CHECK(post(b, &wr) == EINVAL, "destroyed region, type 2");
	CHECK(!ibv_dealloc_mw(mw), "dealloc");
	wr.bind_mw.bind_info = good;
	CHECK(post(b, &wr) == EINVAL, "destroyed window, type 2");
	CHECK(state_of(b) == IBV_QPS_RTS, "state");
	CHECK(!ibv_poll_cq(right, 1, &(struct ibv_wc){0}), "a completion");
}

// An atomic returns 8 bytes. With less room the atomic fails at the requester and changes nothing.
// With more room only the first 8 bytes are written.
static void swaps_of_a_wrong_length(void)
{
	static const uint32_t lengths[] = {16, 9, 8, 7, 4, 0};
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	size_t i;

	for (i = 0; i < ARRAY_LEN(lengths); i++) {
		open_pair();
		from[1] = 77;
		sge = part(mine, lengths[i]);
		wr = request(IBV_WR_ATOMIC_CMP_AND_SWP, &sge, i);
		wr.wr.atomic.remote_addr = (uintptr_t)to;
		wr.wr.atomic.rkey = theirs->rkey;
		wr.wr.atomic.compare_add = 2;
		wr.wr.atomic.swap = 3;
		CHECK(!post(a, &wr), "post of %u bytes", lengths[i]);
		if (lengths[i] >= 8) {
			is_status(poll_one(left), a, i, IBV_WC_SUCCESS);
			CHECK(from[0] == 2 && from[1] == 77 && to[0] == 3, "bytes, %u", lengths[i]);
		} else {
			is_status(poll_one(left), a, i, IBV_WC_LOC_LEN_ERR);
			CHECK(from[0] == 1 && from[1] == 77 && to[0] == 2, "bytes, %u", lengths[i]);
			CHECK(state_of(a) == IBV_QPS_ERR, "state");
		}
	}
}

// An arm of a destroyed CQ is refused. An arm of a CQ without a channel succeeds without effect.
// The `handle` of a CQ is not checked.
static void arming(void)
{
	struct ibv_comp_channel *channel;

	open_regions();
	CHECK(!ibv_req_notify_cq(left, 0), "without a channel");
	CHECK(!ibv_destroy_cq(left), "destroy");
	CHECK(ibv_req_notify_cq(left, 0) == EINVAL, "destroyed");
	CHECK((channel = ibv_create_comp_channel(port.ctx)), "channel");
	left = cq_new(&port, 4, channel, NULL);
	left->handle ^= 0x5a5a;
	CHECK(!ibv_req_notify_cq(left, 0), "a number that is not its own");
	left->handle ^= 0x5a5a;
	CHECK(!ibv_destroy_cq(left), "destroy");
	CHECK(ibv_req_notify_cq(left, 0) == EINVAL, "destroyed, with a channel");
}

static const struct {
	const char *id, *name;
	void (*run)(void);
} cases[] = {
	{"OBJ-12", "ud_has_sends_alone", ud_has_sends_alone},
	{"OBJ-13", "invalidate_of_no_key", invalidate_of_no_key},
	{"OBJ-13", "invalidate_of_a_region", invalidate_of_a_region},
	{"OBJ-13", "invalidate_of_a_type_1_window", invalidate_of_a_type_1_window},
	{"OBJ-13", "invalidate_of_another_queue_pairs_window", invalidate_of_another_queue_pairs_window},
	{"OBJ-14", "binds_of_foreign_handles", binds_of_foreign_handles},
	{"OBJ-14", "binds_of_destroyed_handles", binds_of_destroyed_handles},
	{"OBJ-11", "swaps_of_a_wrong_length", swaps_of_a_wrong_length},
	{"CQN-10", "arming", arming},
};

int main(int argc, char **argv)
{
	size_t i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (i = 0; i < ARRAY_LEN(cases); i++)
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			printf("ok %s\n", argv[1]);
			return 0;
		}
	printf("FAIL no case %s\n", argc == 2 ? argv[1] : "");
	return 1;
}
