// The two helper processes. The peer opens a device and connects to our queue pairs. The foreigner
// does not use RDMA. It accesses our memory by process_vm_readv, process_vm_writev and
// /proc/PID/mem.
#include "torture.h"
#include <sys/prctl.h>
#include <sys/socket.h>

void tell(int fd, const void *what, size_t len)
{
	const char *p = what;
	ssize_t n;

	while (len) {
		n = send(fd, p, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		CHECK(n > 0, "the process beside has gone");
		p += n;
		len -= n;
	}
}

void hear(int fd, void *what, size_t len)
{
	char *p = what;
	ssize_t n;

	while (len) {
		n = recv(fd, p, len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		CHECK(n > 0, "the process beside has gone");
		p += n;
		len -= n;
	}
}

static void sockets(int fd[2])
{
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), "socketpair");
}

// ---- The foreigner. Its buffer comes from a raw system call, so the library does not know the
// buffer.
static int reach(int mem, pid_t pid, const struct order *o, uint8_t *buf)
{
	struct iovec mine = {buf, o->len}, theirs = {(void *)o->addr, o->len};
	ssize_t n;

	if (o->op == OP_WRITE || o->op == OP_MEM_WRITE)
		pattern(buf, o->len, o->seed);
	if (o->op == OP_WRITE)
		n = process_vm_writev(pid, &mine, 1, &theirs, 1, 0);
	else if (o->op == OP_READ)
		n = process_vm_readv(pid, &mine, 1, &theirs, 1, 0);
	else if (o->op == OP_MEM_WRITE)
		n = pwrite(mem, buf, o->len, o->addr);
	else
		n = pread(mem, buf, o->len, o->addr);
	return n == (ssize_t)o->len ? 0 : n < 0 ? errno : ENODATA;
}

static void foreigner(int fd, pid_t pid)
{
	uint8_t *buf = raw_map(OP_MAX);
	struct answer a;
	struct order o;
	char path[64];
	int mem;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	mem = open(path, O_RDWR | O_CLOEXEC);
	CHECK(mem >= 0, "%s", path);
	for (;;) {
		// When our process ends, its end of the socket closes. This process must then end
		// too.
		if (recv(fd, &o, sizeof(o), MSG_WAITALL) != sizeof(o))
			_exit(0);
		memset(&a, 0, sizeof(a));
		a.status = reach(mem, pid, &o, buf);
		tell(fd, &a, sizeof(a));
		if (!a.status && (o.op == OP_READ || o.op == OP_MEM_READ))
			tell(fd, buf, o.len);
	}
}

int start_foreigner(void)
{
	pid_t parent = getpid(), pid;
	int fd[2];

	sockets(fd);
	// The security module Yama may let a process access only its descendants. The child must
	// access its parent, so the parent allows the access here.
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	pid = fork();
	CHECK(pid >= 0, "fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(0);
		close(fd[0]);
		foreigner(fd[1], parent);
	}
	close(fd[1]);
	return fd[0];
}

// ---- The peer. For each thread of our process, the peer has a thread with a queue pair and
// memory.
struct side {
	int fd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr, *big_mr;
	uint8_t *mem, *big;
	size_t big_len;
};

static struct port peer_port;
// On a busy machine a peer may answer late. With these timers, a request without an answer fails
// after two seconds instead of half a second.
static const struct timers timers = {16, 7, 7};

// Performs the RDMA request that our process has ordered, and returns the completion.
static struct ibv_wc perform(struct side *s, const struct order *o)
{
	struct ibv_sge sge = {(uintptr_t)s->mem, o->len, s->mr->lkey};
	struct ibv_send_wr w = {.sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_wc wc = {0};
	double end = now() + HANG_LIMIT;
	int n;

	w.wr.rdma.remote_addr = o->addr;
	w.wr.rdma.rkey = o->rkey;
	switch (o->op) {
	case OP_BIG_WRITE:
		sge.addr = (uintptr_t)s->big;
		sge.lkey = s->big_mr->lkey;
		w.opcode = IBV_WR_RDMA_WRITE;
		break;
	case OP_WRITE:
	case OP_SEND:
		pattern(s->mem, o->len, o->seed);
		w.opcode = o->op == OP_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_SEND;
		break;
	case OP_READ:
		memset(s->mem, 0x55, o->len);
		w.opcode = IBV_WR_RDMA_READ;
		break;
	default:
		w.opcode = o->op == OP_ADD ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
		w.wr.atomic.remote_addr = o->addr;
		w.wr.atomic.rkey = o->rkey;
		w.wr.atomic.compare_add = o->op == OP_ADD ? o->add : o->swap;
		w.wr.atomic.swap = o->add;
	}
	CHECK(!ibv_post_send(s->qp, &w, &bad), "peer: post");
	while (!(n = ibv_poll_cq(s->cq, 1, &wc))) {
		CHECK(now() < end, "peer: no completion");
		usleep(20);
	}
	CHECK(n == 1, "peer: poll");
	return wc;
}

// Makes a new queue pair for each connection. A test may have failed a request on purpose, and the
// old queue pair is then in the error state.
static void connect_peer(struct side *s, const struct order *o)
{
	struct answer a = {0};

	if (s->qp)
		CHECK(!ibv_destroy_qp(s->qp), "peer: destroy");
	s->qp = qp_new(&peer_port, IBV_QPT_RC, s->cq, s->cq, 16);
	qp_init(&peer_port, s->qp);
	qp_join(&peer_port, s->qp, 100, o->rkey, 100, peer_port.gid, timers);
	a.qpn = s->qp->qp_num;
	a.rkey = s->mr->rkey;
	a.addr = (uintptr_t)s->mem;
	tell(s->fd, &a, sizeof(a));
}

static void make_big(struct side *s, const struct order *o)
{
	if (s->big_len >= o->len)
		return;
	s->big = malloc(o->len);
	CHECK(s->big, "peer: %lu bytes", o->len);
	memset(s->big, 0xbb, o->len);
	s->big_len = o->len;
	s->big_mr = ibv_reg_mr(peer_port.pd, s->big, o->len, IBV_ACCESS_LOCAL_WRITE);
	CHECK(s->big_mr, "peer: mr");
}

static void *serve(void *arg)
{
	struct side *s = arg;
	struct answer a;
	struct order o;
	struct ibv_wc wc;

	for (;;) {
		// When our process ends, its end of the socket closes. This process must then end
		// too.
		if (recv(s->fd, &o, sizeof(o), MSG_WAITALL) != sizeof(o))
			_exit(0);
		memset(&a, 0, sizeof(a));
		switch (o.op) {
		case OP_CONNECT:
			connect_peer(s, &o);
			continue;
		case OP_FILL:
			if (o.len > PEER_LEN)
				make_big(s, &o);
			else
				pattern(s->mem + o.addr, o.len, o.seed);
			tell(s->fd, &a, sizeof(a));
			continue;
		case OP_DUMP:
			tell(s->fd, &a, sizeof(a));
			tell(s->fd, s->mem + o.addr, o.len);
			continue;
		}
		wc = perform(s, &o);
		a.status = wc.status;
		memcpy(&a.value, s->mem, 8);
		tell(s->fd, &a, sizeof(a));
		if (o.op == OP_READ && !wc.status)
			tell(s->fd, s->mem, o.len);
	}
	return NULL;
}

// The arguments are the descriptors of the sockets to our process, one for each thread.
int peer_main(int argc, char **argv)
{
	static struct side side[MAX_THREADS];
	pthread_t thread;
	int i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	device_open(&peer_port);
	for (i = 0; i < argc; i++) {
		struct side *s = &side[i];

		s->fd = atoi(argv[i]);
		s->cq = cq_new(&peer_port, 64, NULL, NULL);
		s->mem = malloc(PEER_LEN);
		CHECK(s->mem, "peer: memory");
		memset(s->mem, 0, PEER_LEN);
		s->mr = ibv_reg_mr(peer_port.pd, s->mem, PEER_LEN,
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					   IBV_ACCESS_REMOTE_ATOMIC);
		CHECK(s->mr && !pthread_create(&thread, NULL, serve, s), "peer: thread");
	}
	for (;;)
		pause();
}

pid_t peer_pid;

void start_peer(int *mine, int n)
{
	static char numbers[MAX_THREADS][12];
	char *argv[MAX_THREADS + 3] = {"torture-peer", "--peer"};
	int fd[MAX_THREADS][2], i;
	pid_t parent = getpid(), pid;

	for (i = 0; i < n; i++) {
		sockets(fd[i]);
		mine[i] = fd[i][0];
		snprintf(numbers[i], sizeof(numbers[i]), "%d", fd[i][1]);
		argv[i + 2] = numbers[i];
	}
	peer_pid = pid = fork();
	CHECK(pid >= 0, "fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(0);
		for (i = 0; i < n; i++)
			fcntl(fd[i][1], F_SETFD, 0);
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	for (i = 0; i < n; i++)
		close(fd[i][1]);
}

// Opens a new connection with the peer. Its completions go to `cq`.
void link_open(struct link *l, struct ibv_cq *cq)
{
	struct order o = {.op = OP_CONNECT};
	struct answer a;

	if (l->qp)
		CHECK(!ibv_destroy_qp(l->qp), "destroy qp");
	l->qp = qp_new(&port, IBV_QPT_RC, cq, cq, 16);
	qp_init(&port, l->qp);
	o.rkey = l->qp->qp_num;
	tell(l->fd, &o, sizeof(o));
	hear(l->fd, &a, sizeof(a));
	l->peer_addr = a.addr;
	l->peer_rkey = a.rkey;
	qp_join(&port, l->qp, 100, a.qpn, 100, port.gid, timers);
}
