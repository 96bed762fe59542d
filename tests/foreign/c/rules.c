// Tests rules of the verbs on which programs depend: windows of type 2, refused requests and their
// effect on receives, states of event descriptors, regions without bytes, CQs that ignore overrun.
// Each case runs in a process of its own.
// usage: rules CASE; the table of cases is at the end. Prints "ok CASE" and ends with status 0, or
// prints FAIL with the file and line of the failed check.
#define _GNU_SOURCE
#include "rig.h"
#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define DEPTH 64
#define SIZE 4096
#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND)
#ifndef EPOLLEXCLUSIVE
#define EPOLLEXCLUSIVE (1u << 28)
#endif

static struct port port;
static struct ibv_cq *acq, *bcq;
static struct ibv_qp *a, *b;
static struct ibv_mr *mr;
// The memory of both queue pairs. `a` uses the first half, `b` the second half. Both queue pairs
// can access all of the memory.
static uint8_t *mem;

static void open_pair(struct ibv_qp *(*make)(struct ibv_cq *))
{
	struct timers quick = {8, 2, 2};

	port_open(&port);
	CHECK(!posix_memalign((void **)&mem, 4096, 2 * SIZE), "memory");
	memset(mem, 0, 2 * SIZE);
	mr = ibv_reg_mr(port.pd, mem, 2 * SIZE, ALL);
	CHECK(mr, "mr");
	acq = cq_new(&port, DEPTH, NULL, NULL);
	bcq = cq_new(&port, DEPTH, NULL, NULL);
	a = make ? make(acq) : qp_new(&port, IBV_QPT_RC, acq, acq, DEPTH);
	b = make ? make(bcq) : qp_new(&port, IBV_QPT_RC, bcq, bcq, DEPTH);
	qp_init(&port, a);
	qp_init(&port, b);
	qp_join(&port, a, 100, b->qp_num, 200, port.gid, quick);
	qp_join(&port, b, 200, a->qp_num, 100, port.gid, quick);
}

static void recv_b(uint64_t id)
{
	struct ibv_sge s = {(uintptr_t)mem + SIZE, SIZE, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(b, &wr, &bad), "receive");
}

// Posts a request on `a` with `len` bytes from the start of the first half.
static int post_a(enum ibv_wr_opcode op, uint32_t len, uint64_t to, uint32_t key)
{
	struct ibv_sge s = {(uintptr_t)mem, len, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = op, .sg_list = &s, .num_sge = 1, .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;

	if (op == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = key;
	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = key;
	return ibv_post_send(a, &wr, &bad);
}

static void done(struct ibv_cq *cq, enum ibv_wc_status status, const char *what)
{
	struct ibv_wc wc = poll_one(cq);

	CHECK(wc.status == status, "%s: %s, not %s", what, ibv_wc_status_str(wc.status),
	      ibv_wc_status_str(status));
}

static void write_a(uint32_t key, enum ibv_wc_status status, const char *what)
{
	static uint8_t byte;

	mem[0] = ++byte;
	mem[SIZE + 64] = 0;
	CHECK(!post_a(IBV_WR_RDMA_WRITE, 1, (uintptr_t)mem + SIZE + 64, key), "%s", what);
	done(acq, status, what);
	CHECK((mem[SIZE + 64] == byte) == (status == IBV_WC_SUCCESS), "%s: byte", what);
}

static struct ibv_mw *window(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(port.pd, IBV_MW_TYPE_2);

	CHECK(mw, "window");
	return mw;
}

static struct ibv_mw_bind_info of_b(uint64_t length)
{
	struct ibv_mw_bind_info info = {mr, (uintptr_t)mem + SIZE, length, IBV_ACCESS_REMOTE_WRITE};

	return info;
}

static void bind_b(struct ibv_mw *mw, uint32_t key, uint64_t length)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = key;
	wr.bind_mw.bind_info = of_b(length);
	CHECK(!ibv_post_send(b, &wr, &bad), "bind");
}

static void invalidate_b(uint32_t key)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED}, *bad;

	wr.invalidate_rkey = key;
	CHECK(!ibv_post_send(b, &wr, &bad), "invalidate");
	done(bcq, IBV_WC_SUCCESS, "invalidate");
}

// Returns the key that a window has after a bind with the key `given`. The upper 24 bits belong to
// the window, and the low 8 bits come from `given`. Providers compute the key in the same way.
static uint32_t key_of(uint32_t before, uint32_t given)
{
	return (before & 0xffffff00) | (given & 0xff);
}

// A bind uses the low eight bits of its key and ignores the other bits. Programs read the new key
// from mw->rkey (as with irdma) or compute the key (as with mlx5).
static void windows(void)
{
	struct ibv_mw *mw;
	uint32_t before, key, given;
	int i;

	open_pair(NULL);
	mw = window();
	for (i = 0; i < 4; i++) {
		before = mw->rkey;
		given = i % 2 ? ibv_inc_rkey(mw->rkey) : mr->rkey + 12 + i;
		bind_b(mw, given, SIZE);
		key = mw->rkey;
		CHECK(key == key_of(before, given), "%#x of %#x with %#x", key, before, given);
		done(bcq, IBV_WC_SUCCESS, "bind");
		CHECK(mw->rkey == key, "the completion changes nothing");
		write_a(key, IBV_WC_SUCCESS, "through the window");
		// Programs that count the low bits themselves write the key to mw->rkey.
		mw->rkey = key_of(before, given);
		invalidate_b(key);
	}
	// A bind of length zero unbinds the window, and also changes the low bits of the key.
	bind_b(mw, 7, SIZE);
	done(bcq, IBV_WC_SUCCESS, "bind");
	write_a(mw->rkey, IBV_WC_SUCCESS, "through the window");
	bind_b(mw, 0xabcdef09, 0);
	CHECK((mw->rkey & 0xff) == 9, "unbound with another tag");
	done(bcq, IBV_WC_SUCCESS, "unbind");
	write_a(mw->rkey, IBV_WC_REM_ACCESS_ERR, "through what is not bound");
}

static struct ibv_qp *extended(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = port.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(port.ctx, &attr);

	CHECK(qp, "extended queue pair");
	return qp;
}

static void windows_extended(void)
{
	struct ibv_mw_bind_info info;
	struct ibv_qp_ex *ex;
	struct ibv_mw *mw, *other;
	uint32_t before;

	open_pair(extended);
	mw = window();
	other = window();
	info = of_b(SIZE);
	ex = ibv_qp_to_qp_ex(b);
	CHECK(ex, "extended");
	ex->wr_flags = IBV_SEND_SIGNALED;
	before = mw->rkey;
	ibv_wr_start(ex);
	ibv_wr_bind_mw(ex, mw, mr->rkey + 12, &info);
	ibv_wr_abort(ex);
	CHECK(mw->rkey == before, "nothing was posted");
	ibv_wr_start(ex);
	ibv_wr_bind_mw(ex, mw, mr->rkey + 12, &info);
	ibv_wr_bind_mw(ex, other, other->rkey + 1, &info);
	CHECK(!ibv_wr_complete(ex), "post");
	CHECK(mw->rkey == key_of(before, mr->rkey + 12), "key %#x", mw->rkey);
	done(bcq, IBV_WC_SUCCESS, "bind");
	done(bcq, IBV_WC_SUCCESS, "the other bind");
	write_a(mw->rkey, IBV_WC_SUCCESS, "through the window");
	write_a(other->rkey, IBV_WC_SUCCESS, "through the other window");
}

// A WRITE with immediate data has a wrong key. By IBTA 11.6.2, the receive for the immediate data
// completes with a local access error.
static void write_imm(void)
{
	open_pair(NULL);
	recv_b(1);
	recv_b(2);
	CHECK(!post_a(IBV_WR_RDMA_WRITE_WITH_IMM, 8, (uintptr_t)mem + SIZE, mr->rkey ^ 0x100), "post");
	done(acq, IBV_WC_REM_ACCESS_ERR, "write");
	done(bcq, IBV_WC_LOC_ACCESS_ERR, "its receive");
	done(bcq, IBV_WC_WR_FLUSH_ERR, "the receive behind");
}

// A SEND with Invalidate has a key that cannot be invalidated. By IBTA 9.9.6.3, class J, the
// receiver takes and acknowledges the message. Then the receive and the connection end in error.
static void send_inv(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	open_pair(NULL);
	recv_b(1);
	recv_b(2);
	memset(mem, 0x5a, 8);
	CHECK(!post_a(IBV_WR_SEND_WITH_INV, 8, 0, mr->rkey), "post");
	done(bcq, IBV_WC_REM_INV_REQ_ERR, "its receive");
	done(bcq, IBV_WC_WR_FLUSH_ERR, "the receive behind");
	done(acq, IBV_WC_SUCCESS, "the send");
	CHECK(!ibv_query_qp(b, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR, "state");
	CHECK(!memcmp(mem, mem + SIZE, 8), "the message was placed");
	CHECK(!post_a(IBV_WR_SEND, 8, 0, 0), "post");
	done(acq, IBV_WC_RETRY_EXC_ERR, "what follows hears nothing");
}

static short polled(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT | POLLPRI};

	CHECK(poll(&p, 1, 0) >= 0, "poll");
	return p.revents;
}

static int selected(int fd)
{
	struct timeval none = {0, 0};
	fd_set in, out;
	int n;

	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(fd, &in);
	FD_SET(fd, &out);
	n = select(fd + 1, &in, &out, NULL, &none);
	CHECK(n >= 0, "select");
	return n ? (FD_ISSET(fd, &in) ? POLLIN : 0) | (FD_ISSET(fd, &out) ? POLLOUT : 0) : 0;
}

static int watching(int fd, uint32_t mode)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | mode};
	int ep = epoll_create1(0);

	CHECK(ep >= 0 && !epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e), "epoll");
	return ep;
}

static uint32_t epolled(int ep)
{
	struct epoll_event e;
	int n = epoll_wait(ep, &e, 1, 0);

	CHECK(n >= 0, "epoll_wait");
	return n ? e.events : 0;
}

static struct ibv_comp_channel *channel;
static struct ibv_cq *armed;
static struct ibv_qp *idle;

// Raises an event of the CQ `armed`: the queue pair `idle` goes to ERR with a posted receive.
static void event(void)
{
	struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct ibv_wc wc;

	CHECK(!ibv_modify_qp(idle, &attr, IBV_QP_STATE), "to RESET");
	qp_init(&port, idle);
	while (ibv_poll_cq(armed, 1, &wc) > 0)
		;
	CHECK(!ibv_req_notify_cq(armed, 0), "arm");
	CHECK(!ibv_post_recv(idle, &wr, &bad), "receive");
	qp_to_err(idle);
}

static void take_event(void)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_get_cq_event(channel, &cq, &context) && cq == armed, "get");
	ibv_ack_cq_events(cq, 1);
}

static void open_channel(void)
{
	port_open(&port);
	channel = ibv_create_comp_channel(port.ctx);
	CHECK(channel, "channel");
	armed = cq_new(&port, DEPTH, channel, NULL);
	idle = qp_new(&port, IBV_QPT_RC, armed, armed, 4);
}

// The event descriptors of verbs are readable while an event is unread, and are never writable.
static void never_writable(void)
{
	int level, edge, only, round;

	open_channel();
	level = watching(channel->fd, 0);
	edge = watching(channel->fd, EPOLLET);
	only = watching(channel->fd, EPOLLEXCLUSIVE);
	for (round = 0; round < 3; round++) {
		CHECK(!polled(channel->fd) && !selected(channel->fd), "without an event");
		CHECK(!epolled(level) && !epolled(edge) && !epolled(only), "epoll without an event");
		event();
		CHECK(polled(channel->fd) == POLLIN, "poll: %#x", polled(channel->fd));
		CHECK(selected(channel->fd) == POLLIN, "select");
		CHECK(epolled(level) == EPOLLIN && epolled(only) == EPOLLIN, "epoll");
		CHECK(epolled(edge) == EPOLLIN && !epolled(edge), "epoll, edge");
		// The first event is unread. The second event raises an edge of its own.
		event();
		CHECK(epolled(edge) == EPOLLIN && !epolled(edge), "epoll, the second edge");
		take_event();
		CHECK(polled(channel->fd) == POLLIN && epolled(level) == EPOLLIN, "one is left");
		take_event();
		// Reading an event may raise an edge, which is harmless. This call takes the edge.
		epolled(edge);
	}
	CHECK(!polled(channel->fd), "all read");
}

static void never_writable_async(void)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_init_attr qa = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_send_sge = 1}};
	struct ibv_async_event e;
	struct ibv_qp *qp;
	int edge, fd;

	port_open(&port);
	fd = port.ctx->async_fd;
	edge = watching(fd, EPOLLET);
	CHECK(!polled(fd) && !selected(fd) && !epolled(edge), "without an event");
	qa.send_cq = qa.recv_cq = cq_new(&port, 4, NULL, NULL);
	qa.srq = ibv_create_srq(port.pd, &sa);
	CHECK(qa.srq, "srq");
	qp = ibv_create_qp(port.pd, &qa);
	CHECK(qp, "qp");
	qp_init(&port, qp);
	qp_to_err(qp);
	CHECK(polled(fd) == POLLIN && selected(fd) == POLLIN && epolled(edge) == EPOLLIN, "last WQE reached");
	CHECK(!ibv_get_async_event(port.ctx, &e) && e.event_type == IBV_EVENT_QP_LAST_WQE_REACHED, "event");
	CHECK(!polled(fd), "read");
	ibv_ack_async_event(&e);
}

static volatile sig_atomic_t signals;

static void on_signal(int s)
{
	(void)s;
	signals++;
}

// The program may set and clear O_NONBLOCK. With O_ASYNC, an event sends SIGIO to the program.
static void flags(void)
{
	struct ibv_cq *cq;
	void *context;
	double end = now() + 30;
	int plain;

	open_channel();
	signal(SIGIO, on_signal);
	plain = fcntl(channel->fd, F_GETFL);
	CHECK(plain >= 0 && !(plain & (O_NONBLOCK | O_ASYNC)), "as it comes: %#x", plain);
	CHECK((plain & O_ACCMODE) == O_RDONLY, "only to be read");
	CHECK(!fcntl(channel->fd, F_SETOWN, getpid()), "owner");
	CHECK(!fcntl(channel->fd, F_SETFL, plain | O_NONBLOCK | O_ASYNC), "flags");
	CHECK(ibv_get_cq_event(channel, &cq, &context) == -1 && errno == EAGAIN, "nothing is there");
	CHECK(!signals, "no event, no signal");
	event();
	while (!signals)
		CHECK(now() < end, "no signal");
	take_event();
	CHECK(!fcntl(channel->fd, F_SETFL, plain), "flags");
	event();
	take_event();
	// A duplicate of the descriptor shows the same events.
	plain = dup(channel->fd);
	event();
	CHECK(polled(plain) == POLLIN, "a duplicate");
	close(plain);
	take_event();
}

// A child inherits the descriptors of its parent. The child must see the events. If the child
// closes the descriptor, nothing may change for the parent.
static void forked(void)
{
	int status, ready[2];
	char byte;
	pid_t child;

	open_channel();
	CHECK(!pipe(ready), "pipe");
	child = fork();
	CHECK(child >= 0, "fork");
	if (!child) {
		struct pollfd p = {.fd = channel->fd, .events = POLLIN | POLLOUT};

		if (write(ready[1], "", 1) != 1 || poll(&p, 1, 30000) != 1 || p.revents != POLLIN)
			_exit(1);
		close(channel->fd);
		_exit(0);
	}
	CHECK(read(ready[0], &byte, 1) == 1, "the child began");
	event();
	CHECK(waitpid(child, &status, 0) == child && status == 0, "child: %#x", status);
	CHECK(polled(channel->fd) == POLLIN, "still there");
	take_event();
	CHECK(!polled(channel->fd), "read");
}

// A registration of length zero grants access to no byte. A request of length zero needs no access.
static void no_bytes(void)
{
	struct ibv_mr *none, *odd, *nowhere;

	open_pair(NULL);
	none = ibv_reg_mr(port.pd, mem, 0, ALL);
	odd = ibv_reg_mr_iova(port.pd, mem + 3, 0, 0x7003, ALL);
	nowhere = ibv_reg_mr(port.pd, NULL, 0, 0);
	CHECK(none && odd && nowhere, "register");
	CHECK(none->length == 0 && none->addr == mem, "as asked for");
	recv_b(1);
	mem[0] = 0;
	CHECK(!post_a(IBV_WR_RDMA_WRITE, 0, (uintptr_t)mem, none->rkey), "write");
	done(acq, IBV_WC_SUCCESS, "no byte");
	CHECK(!post_a(IBV_WR_RDMA_WRITE, 1, (uintptr_t)mem, none->rkey), "write");
	done(acq, IBV_WC_REM_ACCESS_ERR, "one byte");
	CHECK(!ibv_dereg_mr(none) && !ibv_dereg_mr(odd) && !ibv_dereg_mr(nowhere), "end");
}

static void null_region(void)
{
	struct ibv_pd *pd;
	struct ibv_mr *null;

	port_open(&port);
	pd = ibv_alloc_pd(port.ctx);
	CHECK(pd, "domain");
	null = ibv_alloc_null_mr(pd);
	CHECK(null, "null region");
	CHECK(!ibv_dealloc_pd(pd), "its domain is free");
	CHECK(!ibv_dereg_mr(null), "end");
	CHECK(ibv_dereg_mr(null) == EINVAL, "once");
	port_close(&port);
}

// Moves `a` to SQD, waits until all begun requests have completed (IBV_EVENT_SQ_DRAINED), and moves
// `a` back to RTS.
static void drained(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct ibv_async_event e;
	double end = now() + 30;
	struct ibv_wc wc;

	CHECK(!ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), "to SQD");
	while (!polled(port.ctx->async_fd))
		CHECK(ibv_poll_cq(acq, 1, &wc) == 0 && now() < end, "not drained");
	CHECK(!ibv_get_async_event(port.ctx, &e), "event");
	CHECK(e.event_type == IBV_EVENT_SQ_DRAINED && e.element.qp == a, "event %d", e.event_type);
	ibv_ack_async_event(&e);
	CHECK(!polled(port.ctx->async_fd), "no other event");
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(a, &attr, IBV_QP_STATE), "to RTS");
}

// A CQ that ignores overrun never fails. If the CQ is full, a new completion replaces the oldest
// completion.
static void overrun(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 4,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
	};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_cq_ex *ex;
	struct ibv_wc wc[DEPTH];
	struct ibv_cq *cq;
	int i, round, cqe;

	open_pair(NULL);
	ex = ibv_create_cq_ex(port.ctx, &attr);
	CHECK(ex, "create");
	cq = ibv_cq_ex_to_cq(ex);
	cqe = cq->cqe;
	CHECK(cqe >= 4 && cqe < DEPTH / 3, "%d entries", cqe);
	a = qp_new(&port, IBV_QPT_RC, cq, acq, DEPTH);
	b = qp_new(&port, IBV_QPT_RC, bcq, bcq, DEPTH);
	qp_pair(&port, a, b);
	for (round = 0; round < 3; round++) {
		struct ibv_recv_wr recv = {.wr_id = 99}, *bad_recv;
		double end = now() + 30;

		CHECK(!ibv_post_recv(b, &recv, &bad_recv), "receive");
		for (i = 0; i < 3 * cqe; i++) {
			wr.wr_id = i;
			wr.opcode = i == 3 * cqe - 1 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
			CHECK(!ibv_post_send(a, &wr, &bad), "post %d", i);
		}
		// In SQD, the device completes the requests that have begun, and does not begin the
		// others. So the test first waits for the message of the last request.
		while (!ibv_poll_cq(bcq, 1, wc))
			CHECK(now() < end, "the last did not come");
		CHECK(wc[0].status == IBV_WC_SUCCESS, "status %d", wc[0].status);
		drained();
		CHECK(ibv_poll_cq(cq, DEPTH, wc) == cqe, "as many as it holds");
		for (i = 0; i < cqe; i++)
			CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == (uint64_t)2 * cqe + i,
			      "completion %d is of %lu", i, (unsigned long)wc[i].wr_id);
		CHECK(ibv_poll_cq(cq, DEPTH, wc) == 0, "no other");
	}
}

// dlsym finds names without a version, also private names.
static void names(void)
{
	static const char *const wanted[] = {"ibv_query_gid_type", "ibv_wr_opcode_str", "ibv_cmd_create_qp",
					     "verbs_register_driver_34", "ibv_reg_mr", "ibv_query_port"};
	int (*query)(struct ibv_context *, uint8_t, unsigned int, uint32_t *);
	uint32_t type = 9;
	size_t i;

	port_open(&port);
	for (i = 0; i < ARRAY_LEN(wanted); i++)
		CHECK(dlsym(RTLD_DEFAULT, wanted[i]), "%s", wanted[i]);
	*(void **)&query = dlsym(RTLD_DEFAULT, "ibv_query_gid_type");
	CHECK(!query(port.ctx, 1, port.gid_index, &type) && type == 1, "type %u", type);
}

// A short READ, followed directly by a WRITE, must return the value from before the WRITE.
static void write_after_read(void)
{
	uint64_t target = 0, *io = calloc(2, sizeof(*io)), i;
	struct ibv_mr *mr, *local;
	struct ibv_sge read = {.length = 8}, write = {.length = 8};
	struct ibv_send_wr second = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &write, .num_sge = 1,
				     .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_send_wr first = {.opcode = IBV_WR_RDMA_READ, .sg_list = &read, .num_sge = 1, .next = &second};

	open_pair(NULL);
	mr = ibv_reg_mr(port.pd, &target, 8,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	local = ibv_reg_mr(port.pd, io, 16, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && local, "register");
	read.addr = (uintptr_t)&io[0];
	write.addr = (uintptr_t)&io[1];
	read.lkey = write.lkey = local->lkey;
	first.wr.rdma.remote_addr = second.wr.rdma.remote_addr = (uintptr_t)&target;
	first.wr.rdma.rkey = second.wr.rdma.rkey = mr->rkey;
	for (i = 1; i <= 500; i++) {
		io[1] = i;
		CHECK(!ibv_post_send(a, &first, &bad), "post");
		poll_good(acq);
		CHECK(io[0] == i - 1, "read %lu, not %lu", (unsigned long)io[0], (unsigned long)i - 1);
		CHECK(target == i, "wrote %lu", (unsigned long)target);
	}
}

// A program, such as a daemon, closes all descriptors while no device is open, and reuses the
// numbers. A device that is opened later must work, and the library must not touch the program's
// descriptors.
static void closed_while_nothing_is_open(void)
{
	enum { ROUNDS = 3, OWN = 40 };
	static int own[ROUNDS][OWN][2];
	char byte;
	int i, n;

	for (n = 0; n < ROUNDS; n++) {
		open_pair(NULL);
		recv_b(1);
		CHECK(!post_a(IBV_WR_SEND, 8, 0, 0), "post");
		done(acq, IBV_WC_SUCCESS, "the send");
		done(bcq, IBV_WC_SUCCESS, "the receive");
		write_a(mr->rkey, IBV_WC_SUCCESS, "the write");
		CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b), "queue pairs");
		CHECK(!ibv_destroy_cq(acq) && !ibv_destroy_cq(bcq) && !ibv_dereg_mr(mr), "the rest");
		port_close(&port);
		// The program's descriptors of earlier rounds stay open.
		for (i = n ? own[n - 1][OWN - 1][1] + 1 : 3; i < 1024; i++)
			close(i);
		for (i = 0; i < OWN; i++) {
			CHECK(!socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, own[n][i]), "sockets");
			CHECK(write(own[n][i][0], "m", 1) == 1 && write(own[n][i][1], "m", 1) == 1, "write");
		}
	}
	for (n = 0; n < ROUNDS; n++)
		for (i = 0; i < 2 * OWN; i++)
			CHECK(read(own[n][i / 2][i % 2], &byte, 1) == 1, "round %d: the message of %d", n, i);
}

// The data with which the other process can connect to a queue pair.
struct end {
	uint32_t qpn;
	union ibv_gid gid;
};

// Opens a queue pair with a single CQ. Connects the queue pair with the queue pair of the process
// at the other end of the socket.
static void open_end(int socket)
{
	struct timers patient = {18, 7, 7};
	struct end mine, theirs;

	port_open(&port);
	CHECK(!posix_memalign((void **)&mem, 4096, 2 * SIZE), "memory");
	mr = ibv_reg_mr(port.pd, mem, 2 * SIZE, ALL);
	CHECK(mr, "mr");
	acq = cq_new(&port, DEPTH, NULL, NULL);
	a = b = qp_new(&port, IBV_QPT_RC, acq, acq, DEPTH);
	qp_init(&port, a);
	recv_b(0);
	mine = (struct end){a->qp_num, port.gid};
	CHECK(write(socket, &mine, sizeof(mine)) == sizeof(mine), "to the other process: %m");
	CHECK(read(socket, &theirs, sizeof(theirs)) == sizeof(theirs), "from the other process: %m");
	qp_join(&port, a, 100, theirs.qpn, 100, theirs.gid, patient);
	// Both processes wait here until both can receive.
	CHECK(write(socket, "r", 1) == 1 && read(socket, mem, 1) == 1, "ready: %m");
}

// Two processes answer each other's messages. A NIC acknowledges a message on arrival, before a
// program can answer the message. So a send must complete before its answer is received.
static void answers(void)
{
	enum { ROUNDS = 3000 };
	const char *path = getenv("ADVERB_PATH");
	// On a network an ACK may be lost, or may arrive after later packets. So there the test
	// accepts a few late completions.
	int late = 0, most = path && !strcmp(path, "wire") ? ROUNDS / 50 : 0;
	int sockets[2], round, status;
	pid_t child;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), "socketpair: %m");
	child = fork();
	CHECK(child >= 0, "fork: %m");
	open_end(sockets[!child]);
	for (round = 0; round < ROUNDS; round++) {
		if (child)
			CHECK(!post_a(IBV_WR_SEND, 8, 0, 0), "send %d", round);
		// The asker gets the completion of its send and then the answer. The answerer gets
		// the question first.
		for (int n = 0; n < 2; n++) {
			struct ibv_wc wc = poll_one(acq);

			CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
			late += n == 0 && (wc.opcode == IBV_WC_RECV) == !!child;
			CHECK(late <= most, "round %d of %s: a receive before the send, %d times", round,
			      child ? "the asker" : "the answerer", late);
			if (wc.opcode == IBV_WC_RECV) {
				recv_b(0);
				if (!child)
					CHECK(!post_a(IBV_WR_SEND, 8, 0, 0), "answer %d", round);
			}
		}
	}
	CHECK(write(sockets[!child], "e", 1) == 1 && read(sockets[!child], mem, 1) == 1, "end: %m");
	if (!child)
		_exit(0);
	CHECK(waitpid(child, &status, 0) == child && !status, "the answerer ended with status %#x", status);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"a_bind_takes_the_low_bits_of_its_key", windows},
	{"a_bind_by_the_extended_interface_does", windows_extended},
	{"a_refused_write_with_immediate_ends_its_receive", write_imm},
	{"a_key_that_cannot_be_invalidated_ends_the_receiver", send_inv},
	{"a_channel_is_never_writable", never_writable},
	{"the_async_descriptor_is_never_writable", never_writable_async},
	{"the_flags_of_a_channel_are_the_programs", flags},
	{"a_child_may_close_what_it_inherits", forked},
	{"a_region_may_have_no_bytes", no_bytes},
	{"a_null_region_keeps_no_domain", null_region},
	{"a_queue_may_ignore_its_overrun", overrun},
	{"names_are_found_without_a_version", names},
	{"a_read_is_not_passed_by_a_write", write_after_read},
	{"descriptors_may_be_closed_while_nothing_is_open", closed_while_nothing_is_open},
	{"a_send_completes_before_its_answer_is_received", answers},
};

int main(int argc, char **argv)
{
	size_t i;

	if (argc == 1) {
		for (i = 0; i < ARRAY_LEN(cases); i++)
			printf("%s\n", cases[i].name);
		return 0;
	}
	for (i = 0; i < ARRAY_LEN(cases); i++) {
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			printf("ok %s\n", cases[i].name);
			return 0;
		}
	}
	fprintf(stderr, "no such case\n");
	return 2;
}
