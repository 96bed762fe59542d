// Tests the arming of CQs (requirements CQN-1 to CQN-12) and completion channels (CHN-1 to CHN-7).
// Each case runs in a process of its own, and uses connected queue pairs within this process.
// usage: notify CASE. The table of cases is at the end. The program prints "ok ID CASE" and ends
// with status 0, or prints FAIL with the file and line of the failed check.
#include "rig.h"
#include <sys/epoll.h>
#include <sys/select.h>

#define DEPTH 64
#define SLOT 256
// How long the test waits to see that no event arrives.
#define QUIET_MS 150
// The longest wait for an expected event.
#define COMES_MS 30000

// One end of the connection. Each CQ has a separate channel, so that the test can tell the events
// apart.
struct end {
	struct ibv_comp_channel *sch, *rch;
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp;
};
static struct port port;
static struct end a, b;
static struct ibv_mr *mr;
// The memory of both ends. `a` sends from the first half, and `b` receives into the second half.
static uint8_t *mem;
static int ctx_tag[4];

static struct ibv_comp_channel *channel(void)
{
	struct ibv_comp_channel *c = ibv_create_comp_channel(port.ctx);

	CHECK(c, "channel");
	return c;
}

static void end_open(struct end *e, enum ibv_qp_type type, int tag)
{
	e->sch = channel();
	e->rch = channel();
	e->scq = cq_new(&port, DEPTH * 2, e->sch, &ctx_tag[tag]);
	e->rcq = cq_new(&port, DEPTH * 2, e->rch, &ctx_tag[tag + 1]);
	e->qp = qp_new(&port, type, e->scq, e->rcq, DEPTH);
}

static void open_memory(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_MW_BIND;

	port_open(&port);
	CHECK(!posix_memalign((void **)&mem, 4096, 2 * DEPTH * SLOT), "memory");
	memset(mem, 7, 2 * DEPTH * SLOT);
	mr = ibv_reg_mr(port.pd, mem, 2 * DEPTH * SLOT, access);
	CHECK(mr, "mr");
}

static void open_pair(enum ibv_qp_type type)
{
	open_memory();
	end_open(&a, type, 0);
	end_open(&b, type, 2);
	qp_pair(&port, a.qp, b.qp);
}

static void open_rc(void)
{
	open_pair(IBV_QPT_RC);
}

static void recv_on(struct ibv_qp *qp, int n)
{
	struct ibv_sge s = {(uintptr_t)mem + DEPTH * SLOT, SLOT, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 77, .sg_list = &s, .num_sge = 1}, *bad;

	while (n--)
		CHECK(!ibv_post_recv(qp, &wr, &bad), "post recv");
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode op, int flags, uint32_t rkey)
{
	struct ibv_sge s = {(uintptr_t)mem, 32, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = op, .send_flags = flags}, *bad;

	if (op == IBV_WR_SEND_WITH_INV) {
		wr.invalidate_rkey = rkey;
	} else if (op != IBV_WR_SEND && op != IBV_WR_SEND_WITH_IMM) {
		wr.wr.rdma.remote_addr = (uintptr_t)mem + DEPTH * SLOT;
		wr.wr.rdma.rkey = rkey;
	}
	CHECK(!ibv_post_send(qp, &wr, &bad), "post send op %d", op);
}

// Posts a receive on `b`, sends one message from `a` to `b`, and polls both completions.
static void message(int flags)
{
	recv_on(b.qp, 1);
	post(a.qp, IBV_WR_SEND, IBV_SEND_SIGNALED | flags, 0);
	poll_good(a.scq);
	poll_good(b.rcq);
}

static void arm(struct ibv_cq *cq, int solicited)
{
	int r = ibv_req_notify_cq(cq, solicited);

	CHECK(r == 0, "req_notify %d", r);
}

static int readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
	int n = poll(&p, 1, ms);

	CHECK(n >= 0, "poll");
	CHECK(!(p.revents & POLLOUT), "it is never writable");
	return n == 1 && (p.revents & POLLIN);
}

// Waits for an event of this CQ, reads the event and acknowledges it.
static void expect_event(struct ibv_comp_channel *ch, struct ibv_cq *want, const char *what)
{
	struct ibv_cq *cq = NULL;
	void *c = NULL;

	CHECK(readable(ch->fd, COMES_MS), "%s: no event", what);
	CHECK(!ibv_get_cq_event(ch, &cq, &c), "%s: get", what);
	CHECK(cq == want, "%s: event of another CQ", what);
	CHECK(c == want->cq_context, "%s: another cq_context", what);
	ibv_ack_cq_events(cq, 1);
}

static void expect_quiet(struct ibv_comp_channel *ch, const char *what)
{
	CHECK(!readable(ch->fd, QUIET_MS), "%s: an event came", what);
}

// ---- CQN-1
static void next_send(void)
{
	open_rc();
	arm(a.scq, 0);
	expect_quiet(a.sch, "armed, nothing sent");
	message(0);
	expect_event(a.sch, a.scq, "successful send");
	expect_quiet(b.rch, "the receive CQ was not armed");
}
static void next_recv(void)
{
	open_rc();
	arm(b.rcq, 0);
	message(0);
	expect_event(b.rch, b.rcq, "successful receive");
	expect_quiet(a.sch, "the send CQ was not armed");
}
static void next_failed_send(void)
{
	open_rc();
	arm(a.scq, 0);
	post(a.qp, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, mr->rkey ^ 0x5a5a00);
	expect_event(a.sch, a.scq, "failed write");
	CHECK(poll_one(a.scq).status == IBV_WC_REM_ACCESS_ERR, "status");
}
static void next_flushed_recv(void)
{
	open_rc();
	recv_on(b.qp, 1);
	arm(b.rcq, 0);
	qp_to_err(b.qp);
	expect_event(b.rch, b.rcq, "flushed receive");
	CHECK(poll_one(b.rcq).status == IBV_WC_WR_FLUSH_ERR, "status");
}
static struct ibv_ah *ud_ah(void)
{
	struct ibv_ah_attr at = {.is_global = 1, .port_num = 1};
	struct ibv_ah *ah;

	at.grh.dgid = port.gid;
	at.grh.sgid_index = port.gid_index;
	at.grh.hop_limit = 64;
	ah = ibv_create_ah(port.pd, &at);
	CHECK(ah, "ah");
	return ah;
}
static void ud_send(uint32_t lkey, int flags)
{
	struct ibv_sge s = {(uintptr_t)mem, 32, lkey};
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags}, *bad;

	wr.wr.ud.ah = ud_ah();
	wr.wr.ud.remote_qpn = b.qp->qp_num;
	wr.wr.ud.remote_qkey = 0x11111111;
	CHECK(!ibv_post_send(a.qp, &wr, &bad), "post");
}
static void ud_failed_send(int solicited)
{
	open_pair(IBV_QPT_UD);
	arm(a.scq, solicited);
	ud_send(mr->lkey ^ 0x5a5a00, IBV_SEND_SIGNALED);
	expect_event(a.sch, a.scq, "UD send with a wrong lkey");
	CHECK(poll_one(a.scq).status == IBV_WC_LOC_PROT_ERR, "status");
}
static void next_ud_failed_send(void)
{
	ud_failed_send(0);
}

// ---- CQN-2
static void solicited_recv(void)
{
	open_rc();
	arm(b.rcq, 1);
	message(0);
	message(0);
	expect_quiet(b.rch, "not solicited");
	message(IBV_SEND_SOLICITED);
	expect_event(b.rch, b.rcq, "solicited");
}
static void solicited_send_never(void)
{
	open_rc();
	arm(a.scq, 1);
	message(IBV_SEND_SOLICITED);
	expect_quiet(a.sch, "a successful send is never solicited");
	message(0);
	expect_quiet(a.sch, "a successful send is never solicited");
	// The CQ is still armed, so a failed send must raise an event.
	post(a.qp, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, mr->rkey ^ 0x5a5a00);
	expect_event(a.sch, a.scq, "failed send");
}
static void solicited_failed_recv(void)
{
	open_rc();
	recv_on(b.qp, 1);
	arm(b.rcq, 1);
	qp_to_err(b.qp);
	expect_event(b.rch, b.rcq, "flushed receive");
}
static void solicited_flushed_send(void)
{
	open_rc();
	qp_to_err(a.qp);
	arm(a.scq, 1);
	post(a.qp, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	expect_event(a.sch, a.scq, "flushed send");
	CHECK(poll_one(a.scq).status == IBV_WC_WR_FLUSH_ERR, "status");
}
static void solicited_ud_failed_send(void)
{
	ud_failed_send(1);
}
static void solicited_ud_recv(void)
{
	open_pair(IBV_QPT_UD);
	arm(b.rcq, 1);
	recv_on(b.qp, 2);
	ud_send(mr->lkey, IBV_SEND_SIGNALED);
	poll_good(b.rcq);
	expect_quiet(b.rch, "not solicited");
	ud_send(mr->lkey, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
	expect_event(b.rch, b.rcq, "solicited datagram");
	poll_good(b.rcq);
}

// ---- CQN-3
static void present_is_not_next(int solicited, int flags)
{
	open_rc();
	recv_on(b.qp, 1);
	post(a.qp, IBV_WR_SEND, IBV_SEND_SIGNALED | flags, 0);
	poll_good(a.scq);
	// The message is acknowledged. A moment later the completion of `b` is certainly in the CQ,
	// unpolled.
	usleep(20000);
	arm(b.rcq, solicited);
	expect_quiet(b.rch, "the completion was there before the arm");
	recv_on(b.qp, 1);
	post(a.qp, IBV_WR_SEND, IBV_SEND_SIGNALED | flags, 0);
	expect_event(b.rch, b.rcq, "added after the arm");
	poll_good(b.rcq);
	poll_good(b.rcq);
	expect_quiet(b.rch, "one arm, one event");
}
static void present_next(void)
{
	present_is_not_next(0, 0);
}
static void present_solicited(void)
{
	present_is_not_next(1, IBV_SEND_SOLICITED);
}

// ---- CQN-4
static void one_shot(int solicited, int flags)
{
	int round;

	open_rc();
	for (round = 0; round < 3; round++) {
		arm(b.rcq, solicited);
		message(flags);
		expect_event(b.rch, b.rcq, "first after the arm");
		message(flags);
		message(flags);
		expect_quiet(b.rch, "not armed again");
	}
}
static void one_shot_next(void)
{
	one_shot(0, 0);
}
static void one_shot_solicited(void)
{
	one_shot(1, IBV_SEND_SOLICITED);
}

// ---- CQN-5
static void twice(int solicited, int flags)
{
	open_rc();
	arm(b.rcq, solicited);
	arm(b.rcq, solicited);
	arm(b.rcq, solicited);
	message(flags);
	expect_event(b.rch, b.rcq, "armed three times");
	expect_quiet(b.rch, "only one event");
	message(flags);
	expect_quiet(b.rch, "the arms were one");
}
static void twice_next(void)
{
	twice(0, 0);
}
static void twice_solicited(void)
{
	twice(1, IBV_SEND_SOLICITED);
}

// ---- CQN-6
static void next_wins(int first, int second)
{
	open_rc();
	arm(b.rcq, first);
	arm(b.rcq, second);
	message(0);
	expect_event(b.rch, b.rcq, "next beats solicited");
	message(IBV_SEND_SOLICITED);
	expect_quiet(b.rch, "both arms were used by one event");
	// A new solicited arm must raise an event for a solicited message only. The earlier mix of
	// arms must have no effect.
	arm(b.rcq, 1);
	message(0);
	expect_quiet(b.rch, "solicited only");
	message(IBV_SEND_SOLICITED);
	expect_event(b.rch, b.rcq, "solicited");
}
static void solicited_then_next(void)
{
	next_wins(1, 0);
}
static void next_then_solicited(void)
{
	next_wins(0, 1);
}

// ---- CQN-7
static void pollable_first(void)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *c;
	int i;

	open_rc();
	for (i = 0; i < 3000; i++) {
		recv_on(b.qp, 1);
		arm(b.rcq, 0);
		post(a.qp, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
		CHECK(!ibv_get_cq_event(b.rch, &cq, &c), "get");
		CHECK(ibv_poll_cq(b.rcq, 1, &wc) == 1, "message %d: event read, completion not there", i);
		CHECK(wc.status == IBV_WC_SUCCESS, "status");
		ibv_ack_cq_events(cq, 1);
		poll_good(a.scq);
	}
}

// ---- CQN-8
static void polling_leaves_event(void)
{
	struct ibv_wc wc;

	open_rc();
	arm(b.rcq, 0);
	message(0); // polls the CQ of `b` until empty
	expect_event(b.rch, b.rcq, "after the CQ was drained");
	CHECK(ibv_poll_cq(b.rcq, 1, &wc) == 0, "the CQ must be empty");
}
static void events_leave_completions(void)
{
	open_rc();
	arm(b.rcq, 0);
	recv_on(b.qp, 3);
	post(a.qp, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	post(a.qp, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	post(a.qp, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	expect_event(b.rch, b.rcq, "first of three");
	poll_good(b.rcq);
	poll_good(b.rcq);
	poll_good(b.rcq);
}

// `a` sends one message to `b`. `b` does not poll the completion.
static void unseen_message(void)
{
	recv_on(b.qp, 1);
	post(a.qp, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	poll_good(a.scq);
}
static void extended_leaves_for_event(void)
{
	struct ibv_cq_init_attr_ex init = {.cqe = DEPTH, .cq_context = &ctx_tag[3]};
	struct ibv_poll_cq_attr attr = {};
	struct ibv_cq_ex *cq;
	struct ibv_cq *plain;

	open_memory();
	end_open(&a, IBV_QPT_RC, 0);
	init.channel = b.rch = channel();
	cq = ibv_create_cq_ex(port.ctx, &init);
	CHECK(cq, "extended cq");
	plain = ibv_cq_ex_to_cq(cq);
	b.qp = qp_new(&port, IBV_QPT_RC, plain, plain, DEPTH);
	qp_pair(&port, a.qp, b.qp);

	unseen_message();
	arm(plain, 0);
	unseen_message();
	unseen_message();
	CHECK(!ibv_start_poll(cq, &attr), "what came before the arm");
	CHECK(ibv_next_poll(cq) == ENOENT, "what made the event, which nobody has read");
	ibv_end_poll(cq);
	expect_event(b.rch, plain, "came behind the arm");
	CHECK(!ibv_start_poll(cq, &attr), "what made the event");
	CHECK(!ibv_next_poll(cq), "what came behind it");
	CHECK(ibv_next_poll(cq) == ENOENT && ibv_next_poll(cq) == ENOENT, "nothing more");
	ibv_end_poll(cq);

	unseen_message();
	arm(plain, 0);
	unseen_message();
	CHECK(!ibv_start_poll(cq, &attr), "what came before the arm");
	CHECK(ibv_next_poll(cq) == ENOENT, "what made the event");
	CHECK(!ibv_next_poll(cq), "who polls on gets it");
	ibv_end_poll(cq);
	expect_event(b.rch, plain, "after the CQ was drained");
	CHECK(ibv_start_poll(cq, &attr) == ENOENT, "the CQ must be empty");
}

// ---- CQN-9
static void flag_travels(enum ibv_wr_opcode op, uint32_t rkey, uint32_t rkey2)
{
	recv_on(b.qp, 2);
	arm(b.rcq, 1);
	post(a.qp, op, IBV_SEND_SIGNALED, rkey);
	poll_good(a.scq);
	poll_good(b.rcq);
	expect_quiet(b.rch, "without the flag");
	post(a.qp, op, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, rkey2);
	poll_good(a.scq);
	expect_event(b.rch, b.rcq, "with the flag");
	poll_good(b.rcq);
}
static void se_send(void)
{
	open_rc();
	flag_travels(IBV_WR_SEND, 0, 0);
}
static void se_send_imm(void)
{
	open_rc();
	flag_travels(IBV_WR_SEND_WITH_IMM, 0, 0);
}
static void se_write_imm(void)
{
	open_rc();
	flag_travels(IBV_WR_RDMA_WRITE_WITH_IMM, mr->rkey, mr->rkey);
}
static uint32_t bound_window(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(port.pd, IBV_MW_TYPE_2);
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;

	CHECK(mw, "memory window of type 2");
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info.mr = mr;
	wr.bind_mw.bind_info.addr = (uintptr_t)mem;
	wr.bind_mw.bind_info.length = 4096;
	wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
	CHECK(!ibv_post_send(b.qp, &wr, &bad), "bind");
	poll_good(b.scq);
	return wr.bind_mw.rkey;
}
static void se_send_inv(void)
{
	uint32_t first, second;

	open_rc();
	first = bound_window();
	second = bound_window();
	flag_travels(IBV_WR_SEND_WITH_INV, first, second);
}
static void se_ignored(void)
{
	open_rc();
	arm(b.rcq, 1);
	arm(a.scq, 1);
	post(a.qp, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, mr->rkey);
	poll_good(a.scq);
	post(a.qp, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, mr->rkey);
	poll_good(a.scq);
	message(0);
	expect_quiet(b.rch, "write and read do not solicit");
	expect_quiet(a.sch, "nor at the sender");
}

// ---- CQN-10
static void foreign_handle(void)
{
	// The program copies the public struct of the CQ between zeroes. If the library reads
	// beyond the struct, the library finds zeroes, and not another object.
	static struct {
		uint8_t before[4096];
		struct ibv_cq cq;
		uint8_t after[4096];
	} fake;
	int r;

	open_rc();
	fake.cq = *b.rcq;
	r = ibv_req_notify_cq(&fake.cq, 0);
	CHECK(r == EINVAL, "a foreign handle gave %d", r);
	r = ibv_req_notify_cq(&fake.cq, 1);
	CHECK(r == EINVAL, "a foreign handle gave %d", r);
	message(IBV_SEND_SOLICITED);
	expect_quiet(b.rch, "nothing was armed");
	CHECK(ibv_req_notify_cq(b.rcq, 0) == 0, "the true handle");
}
static void destroyed_handle(void)
{
	struct ibv_cq *cq;
	int (*req)(struct ibv_cq *, int);
	int r;

	open_rc();
	cq = cq_new(&port, 8, b.rch, NULL);
	req = port.ctx->ops.req_notify_cq;
	CHECK(req(cq, 0) == 0, "alive");
	CHECK(ibv_destroy_cq(cq) == 0, "destroy");
	r = req(cq, 0);
	CHECK(r == EINVAL, "a destroyed handle gave %d", r);
}

// ---- CQN-11
static void no_channel(void)
{
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *x, *y;

	open_memory();
	end_open(&a, IBV_QPT_RC, 0); // the channels of `a` must stay quiet
	scq = cq_new(&port, DEPTH, NULL, NULL);
	rcq = cq_new(&port, DEPTH, NULL, NULL);
	x = qp_new(&port, IBV_QPT_RC, scq, rcq, DEPTH);
	y = qp_new(&port, IBV_QPT_RC, scq, rcq, DEPTH);
	qp_pair(&port, x, y);
	arm(rcq, 0);
	arm(scq, 0);
	arm(rcq, 1);
	recv_on(y, 1);
	post(x, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, 0);
	poll_good(scq);
	poll_good(rcq);
	arm(rcq, 0);
	expect_quiet(a.sch, "another CQ's channel");
	expect_quiet(a.rch, "another CQ's channel");
}

// ---- CQN-12
#define RACE_MESSAGES 20000
static void *race_sender(void *arg)
{
	uint64_t x = 88172645463325252ull;
	int i;

	(void)arg;
	for (i = 0; i < RACE_MESSAGES; i++) {
		post(a.qp, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
		poll_good(a.scq);
		// The pauses have many lengths. So the sends fall on every point of the receiver's
		// cycle.
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		for (volatile int k = x % 2000; k > 0; k--)
			;
	}
	return NULL;
}
static void race(void)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	pthread_t t;
	void *c;
	int got = 0, n;

	open_rc();
	recv_on(b.qp, DEPTH);
	arm(b.rcq, 0);
	CHECK(!pthread_create(&t, NULL, race_sender, NULL), "thread");
	while (got < RACE_MESSAGES) {
		CHECK(readable(b.rch->fd, COMES_MS), "lost wake-up after %d messages", got);
		CHECK(!ibv_get_cq_event(b.rch, &cq, &c), "get");
		ibv_ack_cq_events(cq, 1);
		arm(cq, 0);
		while ((n = ibv_poll_cq(cq, 1, &wc)) > 0) {
			CHECK(wc.status == IBV_WC_SUCCESS, "status %d", wc.status);
			got++;
			recv_on(b.qp, 1);
		}
		CHECK(n == 0, "poll");
	}
	pthread_join(t, NULL);
}

// ---- CHN-1
struct waiter {
	struct ibv_comp_channel *ch;
	volatile int inside, done, result, error;
	struct ibv_cq *cq;
	void *context;
};
static void *wait_event(void *arg)
{
	struct waiter *w = arg;

	w->inside = 1;
	errno = 0;
	w->result = ibv_get_cq_event(w->ch, &w->cq, &w->context);
	w->error = errno;
	__atomic_store_n(&w->done, 1, __ATOMIC_RELEASE);
	return NULL;
}
static int became(volatile int *flag, int ms)
{
	double end = now() + ms / 1000.0;

	while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE) && now() < end)
		usleep(1000);
	return *flag;
}
static void get_blocks(void)
{
	struct waiter w = {0};
	pthread_t t;

	open_rc();
	arm(b.rcq, 0);
	w.ch = b.rch;
	CHECK(!pthread_create(&t, NULL, wait_event, &w), "thread");
	CHECK(became(&w.inside, COMES_MS), "started");
	CHECK(!became(&w.done, 300), "returned without an event");
	recv_on(b.qp, 1);
	post(a.qp, IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	CHECK(became(&w.done, COMES_MS), "did not wake up");
	pthread_join(t, NULL);
	CHECK(w.result == 0, "result %d errno %d", w.result, w.error);
	CHECK(w.cq == b.rcq && w.context == &ctx_tag[3], "CQ or cq_context");
	ibv_ack_cq_events(w.cq, 1);
	poll_good(b.rcq);
}

// ---- CHN-2
static void set_nonblock(struct ibv_comp_channel *ch)
{
	int flags = fcntl(ch->fd, F_GETFL);

	CHECK(flags >= 0 && !fcntl(ch->fd, F_SETFL, flags | O_NONBLOCK), "fcntl");
}
static void expect_again(struct ibv_comp_channel *ch)
{
	struct ibv_cq *cq;
	void *c;
	int r;

	errno = 0;
	r = ibv_get_cq_event(ch, &cq, &c);
	CHECK(r == -1 && errno == EAGAIN, "get on an empty channel gave %d", r);
}
static void nonblocking(void)
{
	open_rc();
	set_nonblock(b.rch);
	expect_again(b.rch);
	arm(b.rcq, 0);
	expect_again(b.rch);
	message(0);
	expect_event(b.rch, b.rcq, "non-blocking get");
	expect_again(b.rch);
}
static int selected(int fd, int ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return select(fd + 1, &set, NULL, NULL, &tv) == 1;
}
static int watch(int fd, uint32_t mode)
{
	struct epoll_event e = {.events = EPOLLIN | mode};
	int ep = epoll_create1(0);

	CHECK(ep >= 0 && !epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e), "epoll");
	return ep;
}
static int epolled(int ep, int ms)
{
	struct epoll_event e;

	return epoll_wait(ep, &e, 1, ms) == 1;
}
static void pollable_fd(void)
{
	int level, edge, round;

	open_rc();
	level = watch(b.rch->fd, 0);
	edge = watch(b.rch->fd, EPOLLET);
	for (round = 0; round < 3; round++) {
		CHECK(!readable(b.rch->fd, 0) && !selected(b.rch->fd, 0), "readable without an event");
		CHECK(!epolled(level, 20) && !epolled(edge, 20), "epoll without an event");
		arm(b.rcq, 0);
		CHECK(!readable(b.rch->fd, 20) && !epolled(level, 0), "readable by the arm alone");
		message(0);
		CHECK(readable(b.rch->fd, COMES_MS), "poll");
		CHECK(selected(b.rch->fd, 0), "select");
		CHECK(epolled(level, 0) && epolled(level, 0), "epoll, level: as long as the event waits");
		CHECK(epolled(edge, 0), "epoll, edge");
		CHECK(!epolled(edge, 20), "epoll, edge: once");
		expect_event(b.rch, b.rcq, "read");
	}
	for (round = 0; round < 2; round++) {
		arm(b.rcq, 0);
		message(0);
	}
	expect_event(b.rch, b.rcq, "first of two");
	CHECK(readable(b.rch->fd, 0) && epolled(level, 0), "readable while the second event waits");
	expect_event(b.rch, b.rcq, "second of two");
	CHECK(!readable(b.rch->fd, 20) && !selected(b.rch->fd, 0) && !epolled(level, 0), "readable after the read");
}

// ---- CHN-3: receive CQs of SHARERS pairs share one channel.
#define SHARERS 4
static struct ibv_comp_channel *shared;
static struct ibv_cq *cqs[SHARERS];
static struct ibv_qp *froms[SHARERS], *tos[SHARERS];
static struct ibv_cq *send_cq;

static void open_shared(void)
{
	int i;

	open_memory();
	shared = channel();
	send_cq = cq_new(&port, 4 * DEPTH, NULL, NULL);
	for (i = 0; i < SHARERS; i++) {
		cqs[i] = cq_new(&port, DEPTH, shared, &ctx_tag[i]);
		froms[i] = qp_new(&port, IBV_QPT_RC, send_cq, send_cq, DEPTH);
		tos[i] = qp_new(&port, IBV_QPT_RC, send_cq, cqs[i], DEPTH);
		qp_pair(&port, froms[i], tos[i]);
	}
}
static void message_to(int i)
{
	recv_on(tos[i], 1);
	post(froms[i], IBV_WR_SEND, IBV_SEND_SIGNALED, 0);
	poll_good(send_cq);
	poll_good(cqs[i]);
}
static void destroy_pair(int i)
{
	CHECK(!ibv_destroy_qp(froms[i]) && !ibv_destroy_qp(tos[i]), "destroy qp");
}
static void in_order(void)
{
	static const int orders[][SHARERS] = {{2, 0, 3, 1}, {0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}};
	size_t o;
	int i;

	open_shared();
	for (o = 0; o < ARRAY_LEN(orders); o++) {
		for (i = 0; i < SHARERS; i++)
			arm(cqs[i], 0);
		for (i = 0; i < SHARERS; i++) {
			message_to(orders[o][i]);
			usleep(20000); // the event is made before the next message is sent
		}
		for (i = 0; i < SHARERS; i++)
			expect_event(shared, cqs[orders[o][i]], "order of generation");
		expect_quiet(shared, "all read");
	}
}
#define TAKER_ROUNDS 500
static volatile int stopping, taken[SHARERS], leaving;
static void *taker(void *arg)
{
	struct ibv_cq *cq;
	void *c;

	(void)arg;
	for (;;) {
		CHECK(!ibv_get_cq_event(shared, &cq, &c), "get");
		int last = __atomic_load_n(&stopping, __ATOMIC_ACQUIRE);
		int *tag = c;
		CHECK(tag >= ctx_tag && tag < ctx_tag + SHARERS && cqs[tag - ctx_tag] == cq, "CQ and context");
		ibv_ack_cq_events(cq, 1);
		__atomic_add_fetch(&taken[tag - ctx_tag], 1, __ATOMIC_ACQ_REL);
		if (last) {
			__atomic_add_fetch(&leaving, 1, __ATOMIC_ACQ_REL);
			return NULL;
		}
	}
}
static void each_once(void)
{
	pthread_t t[SHARERS];
	int i, r;

	open_shared();
	for (i = 0; i < SHARERS; i++)
		CHECK(!pthread_create(&t[i], NULL, taker, NULL), "thread");
	for (r = 1; r <= TAKER_ROUNDS; r++) {
		for (i = 0; i < SHARERS; i++) {
			arm(cqs[i], 0);
			message_to(i);
		}
		// The threads take every event of the round before the next round arms again.
		for (i = 0; i < SHARERS; i++) {
			double end = now() + COMES_MS / 1000;

			while (__atomic_load_n(&taken[i], __ATOMIC_ACQUIRE) < r && now() < end)
				usleep(50);
			CHECK(taken[i] == r, "CQ %d: %d events taken in %d rounds", i, taken[i], r);
		}
	}
	usleep(QUIET_MS * 1000);
	for (i = 0; i < SHARERS; i++)
		CHECK(taken[i] == TAKER_ROUNDS, "CQ %d: %d events taken of %d", i, taken[i], TAKER_ROUNDS);
	__atomic_store_n(&stopping, 1, __ATOMIC_RELEASE);
	// Each thread must get exactly one of these events, and then ends. If two threads got the
	// same event, one thread would wait forever or one event would be left over.
	for (i = 0; i < SHARERS; i++) {
		arm(cqs[i], 0);
		message_to(i);
	}
	for (i = 0; i < SHARERS; i++)
		pthread_join(t[i], NULL);
	CHECK(leaving == SHARERS, "%d threads left", leaving);
	expect_quiet(shared, "nothing over");
}

// ---- CHN-4
static volatile int destroyed, destroy_result;
static void *destroyer(void *arg)
{
	destroy_result = ibv_destroy_cq(arg);
	__atomic_store_n(&destroyed, 1, __ATOMIC_RELEASE);
	return NULL;
}
static void destroy_waits(void)
{
	struct ibv_cq *cq;
	pthread_t t;
	void *c;
	int i;

	open_shared();
	for (i = 0; i < 3; i++) {
		arm(cqs[0], 0);
		message_to(0);
		CHECK(!ibv_get_cq_event(shared, &cq, &c) && cq == cqs[0], "get");
	}
	destroy_pair(0);
	CHECK(!pthread_create(&t, NULL, destroyer, cqs[0]), "thread");
	CHECK(!became(&destroyed, 300), "destroyed with three events not acknowledged");
	ibv_ack_cq_events(cqs[0], 2);
	CHECK(!became(&destroyed, 300), "destroyed with one event not acknowledged");
	ibv_ack_cq_events(cqs[0], 1);
	CHECK(became(&destroyed, COMES_MS), "still waiting after the last acknowledgement");
	pthread_join(t, NULL);
	CHECK(destroy_result == 0, "result %d", destroy_result);
}
static void ack_many_at_once(void)
{
	struct ibv_cq *cq;
	void *c;
	int i;

	open_shared();
	for (i = 0; i < 10; i++) {
		arm(cqs[0], 0);
		message_to(0);
		CHECK(!ibv_get_cq_event(shared, &cq, &c), "get");
	}
	ibv_ack_cq_events(cqs[0], 10);
	destroy_pair(0);
	CHECK(!pthread_create(&(pthread_t){0}, NULL, destroyer, cqs[0]), "thread");
	CHECK(became(&destroyed, COMES_MS) && destroy_result == 0, "destroy after ten acknowledged at once");
}

// ---- CHN-5
static void destroyed_events_gone(void)
{
	open_shared();
	set_nonblock(shared);
	arm(cqs[0], 0);
	message_to(0);
	usleep(20000);
	arm(cqs[1], 0);
	message_to(1);
	CHECK(readable(shared->fd, COMES_MS), "two events wait");
	usleep(20000);
	destroy_pair(0);
	CHECK(!pthread_create(&(pthread_t){0}, NULL, destroyer, cqs[0]), "thread");
	CHECK(became(&destroyed, COMES_MS) && destroy_result == 0, "an event nobody read needs no acknowledgement");
	expect_event(shared, cqs[1], "of the CQ that is left");
	expect_again(shared);
	CHECK(!readable(shared->fd, QUIET_MS), "readable with nothing to read");
	arm(cqs[2], 0);
	message_to(2);
	expect_event(shared, cqs[2], "the channel works on");
	// Now the destroyed CQ has the only event of the channel. After the destroy, the descriptor
	// must not be readable.
	arm(cqs[2], 0);
	message_to(2);
	CHECK(readable(shared->fd, COMES_MS), "an event waits");
	destroy_pair(2);
	CHECK(!ibv_destroy_cq(cqs[2]), "destroy");
	expect_again(shared);
	CHECK(!readable(shared->fd, QUIET_MS), "readable with nothing to read");
}

// ---- CHN-6
static void busy_channel(void)
{
	int i, r;

	open_shared();
	r = ibv_destroy_comp_channel(shared);
	CHECK(r == EBUSY, "destroying a channel in use gave %d", r);
	arm(cqs[0], 0);
	message_to(0);
	expect_event(shared, cqs[0], "the channel works on");
	for (i = 0; i < SHARERS; i++) {
		destroy_pair(i);
		CHECK(ibv_destroy_comp_channel(shared) == EBUSY, "%d CQs left", SHARERS - i);
		CHECK(!ibv_destroy_cq(cqs[i]), "destroy cq");
	}
	r = ibv_destroy_comp_channel(shared);
	CHECK(r == 0, "destroying a channel without users gave %d", r);
}

// ---- CHN-7
static volatile int signals;
static void on_signal(int sig)
{
	(void)sig;
	signals++;
}
static void interrupted(void)
{
	struct sigaction sa = {.sa_handler = on_signal}; // without SA_RESTART
	double end = now() + COMES_MS / 1000;
	struct waiter w = {0};
	pthread_t t;

	open_rc();
	CHECK(!sigaction(SIGUSR1, &sa, NULL), "sigaction");
	arm(b.rcq, 0);
	w.ch = b.rch;
	CHECK(!pthread_create(&t, NULL, wait_event, &w), "thread");
	CHECK(became(&w.inside, COMES_MS), "started");
	usleep(200000);
	CHECK(!w.done, "returned too early");
	// A signal that arrives before the thread has entered ibv_get_cq_event interrupts nothing.
	// So the loop repeats the signal.
	do
		CHECK(now() < end && !pthread_kill(t, SIGUSR1), "the signal did not end the wait");
	while (!became(&w.done, 1000));
	pthread_join(t, NULL);
	CHECK(signals >= 1 && w.result == -1 && w.error == EINTR, "result %d errno %d", w.result, w.error);
	message(0);
	expect_event(b.rch, b.rcq, "the arm is untouched");
}

static void restarted(void)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	double end = now() + COMES_MS / 1000;
	struct waiter w = {0};
	pthread_t t;
	int i;

	open_rc();
	CHECK(!sigaction(SIGUSR1, &sa, NULL), "sigaction");
	arm(b.rcq, 0);
	w.ch = b.rch;
	CHECK(!pthread_create(&t, NULL, wait_event, &w), "thread");
	CHECK(became(&w.inside, COMES_MS), "started");
	for (i = 1; i <= 3; i++) {
		usleep(100000);
		CHECK(!pthread_kill(t, SIGUSR1), "kill");
		// The loop waits for the handler, because two pending signals would be delivered as
		// a single signal.
		while (signals < i)
			CHECK(now() < end && !usleep(1000), "%d signals of %d", signals, i);
	}
	usleep(200000);
	CHECK(!w.done, "a signal whose calls start again ended the wait");
	message(0);
	CHECK(became(&w.done, COMES_MS), "the event did not end the wait");
	pthread_join(t, NULL);
	CHECK(w.result == 0 && w.cq == b.rcq, "result %d errno %d", w.result, w.error);
	ibv_ack_cq_events(b.rcq, 1);
}

static const struct {
	const char *id, *name;
	void (*run)(void);
} cases[] = {
	{"CQN-1", "next_fires_on_a_successful_send", next_send},
	{"CQN-1", "next_fires_on_a_successful_receive", next_recv},
	{"CQN-1", "next_fires_on_a_failed_send", next_failed_send},
	{"CQN-1", "next_fires_on_a_flushed_receive", next_flushed_recv},
	{"CQN-1", "next_fires_on_a_failed_ud_send", next_ud_failed_send},
	{"CQN-2", "solicited_fires_on_a_solicited_receive_only", solicited_recv},
	{"CQN-2", "a_successful_send_is_never_solicited", solicited_send_never},
	{"CQN-2", "a_flushed_receive_counts_as_solicited", solicited_failed_recv},
	{"CQN-2", "a_flushed_send_counts_as_solicited", solicited_flushed_send},
	{"CQN-2", "a_failed_ud_send_counts_as_solicited", solicited_ud_failed_send},
	{"CQN-2", "a_solicited_datagram_fires", solicited_ud_recv},
	{"CQN-3", "a_completion_already_there_does_not_fire_next", present_next},
	{"CQN-3", "a_completion_already_there_does_not_fire_solicited", present_solicited},
	{"CQN-4", "next_is_one_shot", one_shot_next},
	{"CQN-4", "solicited_is_one_shot", one_shot_solicited},
	{"CQN-5", "next_armed_again_is_one_arm", twice_next},
	{"CQN-5", "solicited_armed_again_is_one_arm", twice_solicited},
	{"CQN-6", "next_after_solicited_wins", solicited_then_next},
	{"CQN-6", "next_before_solicited_wins", next_then_solicited},
	{"CQN-7", "the_completion_is_pollable_when_its_event_is_read", pollable_first},
	{"CQN-8", "polling_leaves_the_event", polling_leaves_event},
	{"CQN-8", "reading_the_event_leaves_the_completions", events_leave_completions},
	{"CQN-8", "extended_polling_leaves_what_made_an_event_for_it", extended_leaves_for_event},
	{"CQN-9", "the_flag_travels_with_send", se_send},
	{"CQN-9", "the_flag_travels_with_send_immediate", se_send_imm},
	{"CQN-9", "the_flag_travels_with_send_invalidate", se_send_inv},
	{"CQN-9", "the_flag_travels_with_write_immediate", se_write_imm},
	{"CQN-9", "the_flag_is_ignored_on_write_and_read", se_ignored},
	{"CQN-10", "a_foreign_handle_is_einval_and_arms_nothing", foreign_handle},
	{"CQN-10", "a_destroyed_handle_is_einval", destroyed_handle},
	{"CQN-11", "a_cq_without_a_channel_can_be_armed", no_channel},
	{"CQN-12", "no_wakeup_is_lost_in_a_race", race},
	{"CHN-1", "get_blocks_and_returns_cq_and_context", get_blocks},
	{"CHN-2", "nonblocking_get_is_eagain", nonblocking},
	{"CHN-2", "the_descriptor_is_readable_exactly_while_an_event_waits", pollable_fd},
	{"CHN-3", "events_come_in_the_order_of_generation", in_order},
	{"CHN-3", "each_event_goes_to_one_thread", each_once},
	{"CHN-4", "destroy_waits_for_acknowledgements", destroy_waits},
	{"CHN-4", "many_are_acknowledged_at_once", ack_many_at_once},
	{"CHN-5", "unread_events_of_a_destroyed_cq_are_gone", destroyed_events_gone},
	{"CHN-6", "a_channel_in_use_is_ebusy", busy_channel},
	{"CHN-7", "a_signal_interrupts_get", interrupted},
	{"CHN-7", "a_signal_whose_calls_start_again_does_not", restarted},
};

int main(int argc, char **argv)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(cases); i++) {
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			printf("ok %s %s\n", cases[i].id, cases[i].name);
			fflush(stdout);
			_exit(0); // threads may still wait; other programs test the shutdown
		}
	}
	fprintf(stderr, "no such case\n");
	return 2;
}
