// Two worlds of descriptors. In the world REAL the device makes the events. In the world TWIN the
// test itself writes each event into a pipe, so the kernel alone decides the result of a wait.
// waits.c makes every call in both worlds.
#ifndef WAITS_H
#define WAITS_H
#include "cm_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

// The time limit of a wait or a step, in seconds. A longer wait means that an event was lost.
#define PATIENCE 60
#define DEPTH 64
#define PEERS 5
// Like CHECK, but also prints the seed and the step.
#define RULE(cond, format, ...) \
	CHECK(cond, "seed %llu step %u: %s: " format, (unsigned long long)seed, step, doing, ##__VA_ARGS__)

enum { REAL, TWIN, WORLDS };
// Each item is a descriptor. An epoll set may contain the item, and a call may wait for the item.
// The first items belong to the device. PAIR, PEER, WRITES and DATAGRAM are completion channels:
// for messages within this process, messages from the peer process, WRITEs to the peer, and
// datagrams. ASYNC is the descriptor of asynchronous events, MANAGER the descriptor of rdma_cm
// events. The program's own items begin at OWN.
enum { PAIR, PEER, WRITES, DATAGRAM, ASYNC, MANAGER, OWN };
// The other items: descriptors of the program, epoll sets, and duplicates of items.
enum { PIPE = OWN, EVENTFD, TIMER, SOCKET, SETS, DUPS = SETS + 5, ITEMS = DUPS + 6 };

struct item {
	// The test makes the item readable through the descriptor `feed`.
	int fd[WORLDS], feed[WORLDS];
};

// A completion queue with a channel and queue pairs.
struct lane {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *from, *to;
	// `armed`: 0 for no arm, 1 for solicited completions, 2 for all completions. `due`: the
	// number of completions that are still to come.
	int armed, due;
};

enum { ORDER_STOP = PEERS };
struct order {
	uint8_t what, solicited;
	uint16_t delay;
};
struct hello {
	uint32_t qpn[PEERS], rkey;
	uint64_t address;
	union ibv_gid gid;
};

static struct item items[ITEMS];
static struct lane lanes[PEERS];
static struct port port;
static struct ibv_mr *mr;
static struct ibv_srq *srq;
static struct ibv_cq *send_cq;
static struct ibv_ah *ah;
static struct hello theirs;
static struct listener listener;
static struct rdma_cm_id *clients[DEPTH];
static int verbose, first_client, next_client, peer_socket, sends_due;
static uint64_t seed = 1, dice, memory[8];
static volatile unsigned step;
static char doing[256] = "start";

static uint32_t draw(uint32_t n)
{
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return (dice * 0x2545F4914F6CDD1Dull >> 33) % n;
}

static int chance(int percent)
{
	return (int)draw(100) < percent;
}

static void nap(int us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000L};

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

// Begins a new step. The watchdog then starts to count the seconds again.
static void next_step(const char *format, ...)
{
	va_list rest;

	va_start(rest, format);
	vsnprintf(doing, sizeof(doing), format, rest);
	va_end(rest);
	step++;
	if (verbose)
		printf("%u %s\n", step, doing);
}

static void *watchdog(void *unused)
{
	unsigned last = ~0u, seconds;

	for (seconds = 0; seconds < PATIENCE; seconds++) {
		if (last != step)
			seconds = 0;
		last = step;
		sleep(1);
	}
	RULE(0, "no end within %d seconds", PATIENCE);
	return unused;
}

// ---- The peer process.
static void post_recv(struct ibv_qp *qp)
{
	struct ibv_sge s = {(uintptr_t)memory, sizeof(memory), mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &s, .num_sge = 1}, *bad;

	CHECK(qp ? !ibv_post_recv(qp, &wr, &bad) : !ibv_post_srq_recv(srq, &wr, &bad), "post recv");
}

static void post_send(struct ibv_qp *qp, int write, int solicited, uint32_t qpn)
{
	struct ibv_sge s = {(uintptr_t)memory, 8, mr->lkey};
	struct ibv_send_wr wr = {.opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	if (write)
		wr.sg_list = &s, wr.num_sge = 1, wr.wr.rdma.remote_addr = theirs.address, wr.wr.rdma.rkey = theirs.rkey;
	if (qpn)
		wr.wr.ud.ah = ah, wr.wr.ud.remote_qpn = qpn, wr.wr.ud.remote_qkey = 0x11111111;
	if (solicited)
		wr.send_flags |= IBV_SEND_SOLICITED;
	CHECK(!ibv_post_send(qp, &wr, &bad), "post send");
}

// Exchanges the queue pair numbers with the other process, and connects the queue pairs.
static void join_peer(struct ibv_qp **qp, int n)
{
	struct hello mine = {.rkey = mr->rkey, .address = (uintptr_t)memory, .gid = port.gid};
	struct timers t = {14, 7, 7};
	int i;

	for (i = 0; i < n; i++)
		mine.qpn[i] = qp[i]->qp_num;
	CHECK(write(peer_socket, &mine, sizeof(mine)) == sizeof(mine), "hello");
	CHECK(recv(peer_socket, &theirs, sizeof(theirs), MSG_WAITALL) == sizeof(theirs), "hello of the peer");
	for (i = 0; i < n; i++) {
		qp_init(&port, qp[i]);
		qp_join(&port, qp[i], 100, theirs.qpn[i], 100, theirs.gid, t);
	}
	// No process sends a message before both processes have connected their queue pairs.
	CHECK(write(peer_socket, "", 1) == 1 && read(peer_socket, &i, 1) == 1, "joined");
}

static void open_port(void)
{
	port_open(&port);
	mr = ibv_reg_mr(port.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr, "mr");
	send_cq = cq_new(&port, 4 * DEPTH, NULL, NULL);
}

static char state_of(const char *path)
{
	char text[512] = "";
	int fd = open(path, O_RDONLY), n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	char *end = n > 0 ? strrchr(text, ')') : NULL;

	close(fd);
	return end ? end[2] : '?';
}

static void stop_parent(void)
{
	char path[64];
	int tries;

	snprintf(path, sizeof(path), "/proc/%d/stat", getppid());
	kill(getppid(), SIGSTOP);
	for (tries = 0; tries < 10000 && state_of(path) != 'T'; tries++)
		nap(100);
	kill(getppid(), SIGCONT);
}

static void peer(int n)
{
	struct ibv_qp *qp[PEERS];
	struct order order;
	struct ibv_wc wc;
	int i;

	open_port();
	for (i = 0; i < n; i++)
		qp[i] = qp_new(&port, IBV_QPT_RC, send_cq, send_cq, DEPTH);
	join_peer(qp, n);
	while (recv(peer_socket, &order, sizeof(order), MSG_WAITALL) == sizeof(order)) {
		nap(order.delay);
		if (order.what == ORDER_STOP)
			stop_parent(), (void)!write(peer_socket, "", 1);
		else
			post_send(qp[order.what], 0, order.solicited, 0);
		while (ibv_poll_cq(send_cq, 1, &wc) == 1)
			CHECK(wc.status == IBV_WC_SUCCESS, "peer: %s", ibv_wc_status_str(wc.status));
	}
	_exit(0);
}

// Starts the peer process. The call must come before this process opens a device.
static void start_peer(int n)
{
	int ends[2];

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	if (!fork()) {
		close(ends[0]);
		peer_socket = ends[1];
		peer(n);
	}
	close(ends[1]);
	peer_socket = ends[0];
}

static void tell_peer(int what, int solicited, int delay)
{
	struct order order = {what, solicited, delay};

	CHECK(write(peer_socket, &order, sizeof(order)) == sizeof(order), "order");
}

// ---- The device of the world REAL.
static void lane_channel(struct lane *l)
{
	l->channel = ibv_create_comp_channel(port.ctx);
	CHECK(l->channel, "channel");
	l->cq = cq_new(&port, 2 * DEPTH, l->channel, NULL);
}

static void fill_receives(struct lane *l)
{
	int i;

	for (i = 0; i < DEPTH; i++)
		post_recv(l->to);
}

// Opens a lane between two queue pairs of this process.
static void open_pair(struct lane *l)
{
	lane_channel(l);
	l->from = qp_new(&port, IBV_QPT_RC, send_cq, send_cq, DEPTH);
	l->to = qp_new(&port, IBV_QPT_RC, send_cq, l->cq, DEPTH);
	qp_pair(&port, l->from, l->to);
	fill_receives(l);
}

static void open_lanes(void)
{
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {4, 0, 1, 0, 0}};
	struct ibv_qp *joined[2];
	int i;

	open_port();
	open_pair(&lanes[PAIR]);
	for (i = PEER; i <= DATAGRAM; i++)
		lane_channel(&lanes[i]);
	lanes[ASYNC].cq = cq_new(&port, 2 * DEPTH, NULL, NULL);
	srq = ibv_create_srq(port.pd, &shared);
	lanes[DATAGRAM].from = lanes[DATAGRAM].to = qp_new(&port, IBV_QPT_UD, send_cq, lanes[DATAGRAM].cq, DEPTH);
	lanes[PEER].to = lanes[WRITES].from = qp_new(&port, IBV_QPT_RC, lanes[WRITES].cq, lanes[PEER].cq, DEPTH);
	attr.srq = srq;
	attr.send_cq = attr.recv_cq = lanes[ASYNC].cq;
	joined[0] = lanes[PEER].to;
	joined[1] = ibv_create_qp(port.pd, &attr);
	CHECK(srq && joined[1], "srq");
	qp_init(&port, lanes[DATAGRAM].to);
	qp_join(&port, lanes[DATAGRAM].to, 1, 0, 0, port.gid, (struct timers){0});
	to.grh.dgid = port.gid;
	to.grh.sgid_index = port.gid_index;
	to.grh.hop_limit = 64;
	ah = ibv_create_ah(port.pd, &to);
	CHECK(ah, "ah");
	join_peer(joined, 2);
	for (i = PEER; i <= ASYNC; i++)
		if (i != WRITES)
			fill_receives(&lanes[i]);
	listener_open(&listener, RDMA_PS_TCP);
}

static void arm(int i, int solicited)
{
	struct ibv_srq_attr limit = {.srq_limit = DEPTH};

	if (i == ASYNC)
		CHECK(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), "limit");
	else if (i != MANAGER)
		CHECK(!ibv_req_notify_cq(lanes[i].cq, solicited), "arm");
	if (i != MANAGER && lanes[i].armed < 2)
		lanes[i].armed = solicited && i != ASYNC ? 1 : 2;
}

// Does in the world TWIN what a message does in the world REAL. The function writes an event to the
// pipe if the CQ is armed for this message.
static void expect_message(int i, int solicited)
{
	int fires = i == MANAGER;

	if (i != MANAGER) {
		fires = lanes[i].armed == 2 || (lanes[i].armed && solicited && i != WRITES);
		lanes[i].armed = fires ? 0 : lanes[i].armed;
		lanes[i].due++;
	}
	sends_due += i == PAIR || i == DATAGRAM;
	if (fires)
		CHECK(write(items[i].feed[TWIN], "", 1) == 1, "twin");
}

// Sends the message in the world REAL; any thread may call this function.
static void send_message(int i, int solicited, int delay)
{
	if (i == PEER || i == ASYNC) {
		tell_peer(i == ASYNC, solicited, delay);
	} else if (i == MANAGER) {
		struct rdma_cm_id *id = client_open(&listener, RDMA_PS_TCP);

		clients[next_client++ % DEPTH] = id;
		client_connect(id, NULL);
	} else {
		post_send(lanes[i].from, i == WRITES, solicited, i == DATAGRAM ? lanes[i].to->qp_num : 0);
	}
}

static int unread(int fd)
{
	int n = 0;

	CHECK(!ioctl(fd, FIONREAD, &n), "FIONREAD of %d", fd);
	return n;
}

// Takes one event in both worlds.
static void take_event(int i)
{
	struct ibv_async_event event;
	struct rdma_cm_event *request;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	void *context;
	char byte;

	if (i == ASYNC) {
		CHECK(!ibv_get_async_event(port.ctx, &event), "get");
		RULE(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED, "event %d", event.event_type);
		ibv_ack_async_event(&event);
	} else if (i == MANAGER) {
		CHECK(!rdma_get_cm_event(listener.channel, &request), "get");
		RULE(request->event == RDMA_CM_EVENT_CONNECT_REQUEST, "%s", rdma_event_str(request->event));
		id = request->id;
		CHECK(!rdma_ack_cm_event(request) && !rdma_reject(id, NULL, 0) && !rdma_destroy_id(id), "reject");
		id = clients[first_client++ % DEPTH];
		request = expect(id->channel, RDMA_CM_EVENT_REJECTED);
		CHECK(!rdma_ack_cm_event(request), "ack");
		client_close(id);
	} else {
		CHECK(!ibv_get_cq_event(lanes[i].channel, &cq, &context), "get");
		RULE(cq == lanes[i].cq, "another queue");
		ibv_ack_cq_events(cq, 1);
	}
	CHECK(read(items[i].fd[TWIN], &byte, 1) == 1, "twin");
}

static int poll_good_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(cq, 1, &wc) != 1)
		return 0;
	RULE(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
	return 1;
}

// Returns when all messages have arrived. Then both worlds have the same unread events. During the
// naps, only the background thread of the library makes the device progress.
static void settle(int us)
{
	int i;

	for (i = PAIR; i <= ASYNC; i++)
		while (lanes[i].due) {
			if (!poll_good_one(lanes[i].cq))
				nap(us);
			else if (lanes[i].due-- && i != WRITES)
				post_recv(lanes[i].to);
		}
	for (; sends_due; nap(us))
		sends_due -= poll_good_one(send_cq);
	for (i = 0; i < OWN; i++)
		for (; unread(items[i].fd[REAL]) != unread(items[i].fd[TWIN]); nap(us))
			RULE(unread(items[i].fd[REAL]) <= unread(items[i].fd[TWIN]), "an event too many of item %d", i);
}
#endif
