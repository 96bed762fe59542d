// Two processes open a device as root and change their user: before the first queue pair, after the
// first queue pair, or after the connection.
// usage: users CASE. Prints a line for each process, or ends with status 77 if the program is not
// root.
#define _GNU_SOURCE
#include "rig.h"
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define USER 2001
#define LEN 65536
#define ROUNDS 20

struct side {
	struct port p;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buf;
	int fd;
	const char *name;
};

struct word {
	uint32_t qpn, rkey;
	uint64_t addr;
};

static void make_qp(struct side *s)
{
	s->cq = cq_new(&s->p, 64, NULL, NULL);
	s->qp = qp_new(&s->p, IBV_QPT_RC, s->cq, s->cq, 32);
	s->buf = aligned_alloc(4096, LEN);
	CHECK(s->buf, "memory");
	s->mr = ibv_reg_mr(s->p.pd, s->buf, LEN,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(s->mr, "a region");
	qp_init(&s->p, s->qp);
}

static struct word exchange(struct side *s)
{
	struct word mine = {s->qp->qp_num, s->mr->rkey, (uintptr_t)s->buf}, theirs;

	CHECK(write(s->fd, &mine, sizeof(mine)) == sizeof(mine), "write");
	CHECK(read(s->fd, &theirs, sizeof(theirs)) == sizeof(theirs), "read");
	return theirs;
}

static void wait_for_other(struct side *s)
{
	char c = 0;

	CHECK(write(s->fd, &c, 1) == 1 && read(s->fd, &c, 1) == 1, "the other process");
}

// Returns the errno of the transition to RTR.
static int to_rtr(struct side *s, uint32_t qpn)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn};

	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = 1;
	a.ah_attr.grh.dgid = s->p.gid;
	a.ah_attr.grh.sgid_index = s->p.gid_index;
	a.ah_attr.grh.hop_limit = 64;
	a.max_dest_rd_atomic = 4;
	a.min_rnr_timer = 12;
	return ibv_modify_qp(s->qp, &a,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static void to_rts(struct side *s)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};

	CHECK(!ibv_modify_qp(s->qp, &a,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_MAX_QP_RD_ATOMIC),
	      "to RTS");
}

static void work(struct side *s, struct word it)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_sge sge = {(uintptr_t)s->buf, LEN / 2, s->mr->lkey};
		struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED}, *bad;

		wr.opcode = i & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = it.addr + LEN / 2;
		wr.wr.rdma.rkey = it.rkey;
		CHECK(!ibv_post_send(s->qp, &wr, &bad), "post");
		poll_good(s->cq);
	}
	printf("%s: %d operations as %d\n", s->name, ROUNDS, geteuid());
	wait_for_other(s);
}

static void become(int how)
{
	CHECK(!(how ? seteuid(USER) : setresuid(USER, USER, USER)), "become user %d", USER);
}

static void before_the_first(struct side *s)
{
	become(0);
	make_qp(s);
	struct word it = exchange(s);
	CHECK(!to_rtr(s, it.qpn), "to RTR");
	to_rts(s);
	wait_for_other(s);
	work(s, it);
}

static void after_the_connection(struct side *s)
{
	make_qp(s);
	struct word it = exchange(s);
	CHECK(!to_rtr(s, it.qpn), "to RTR");
	to_rts(s);
	wait_for_other(s);
	become(0);
	wait_for_other(s);
	work(s, it);
}

static void refused(struct side *s, struct word it)
{
	int error = to_rtr(s, it.qpn);

	CHECK(error == EPERM, "RTR answers %d", error);
	printf("%s: refused\n", s->name);
	fflush(stdout);
	wait_for_other(s);
}

static void after_the_first(struct side *s)
{
	make_qp(s);
	struct word it = exchange(s);
	become(0);
	wait_for_other(s);
	refused(s, it);
}

// Changes only the effective user, so the move to RTR must fail. After the change back to root, the
// connection must work.
static void for_a_while(struct side *s)
{
	make_qp(s);
	struct word it = exchange(s);
	become(1);
	wait_for_other(s);
	refused(s, it);
	CHECK(!seteuid(0), "root again");
	wait_for_other(s);
	CHECK(!to_rtr(s, it.qpn), "to RTR as root");
	to_rts(s);
	wait_for_other(s);
	work(s, it);
}

struct tried {
	struct side *side;
	struct word it;
};

static void *as_another_thread(void *arg)
{
	struct tried *t = arg;

	CHECK(!syscall(SYS_setresuid, -1, USER, -1), "this thread alone");
	int error = to_rtr(t->side, t->it.qpn);
	CHECK(error == EPERM, "RTR answers %d", error);
	printf("%s: refused\n", t->side->name);
	return NULL;
}

// A single thread changes its user by the system call, so its move to RTR must fail. The other
// threads keep their user, so the connection must work there.
static void in_a_thread(struct side *s)
{
	pthread_t thread;

	make_qp(s);
	struct tried t = {s, exchange(s)};
	CHECK(!pthread_create(&thread, NULL, as_another_thread, &t) && !pthread_join(thread, NULL), "a thread");
	wait_for_other(s);
	CHECK(!to_rtr(s, t.it.qpn), "to RTR as root");
	to_rts(s);
	wait_for_other(s);
	work(s, t.it);
}

// The second process changes its user. Then the first process must also get EPERM, although it is
// still root.
static void of_the_peer(struct side *s)
{
	make_qp(s);
	struct word it = exchange(s);
	if (!strcmp(s->name, "second"))
		become(0);
	wait_for_other(s);
	if (!strcmp(s->name, "first"))
		refused(s, it);
	else
		wait_for_other(s);
}

static const struct {
	const char *id, *name;
	void (*run)(struct side *);
} cases[] = {
	{"TRU-1", "before_the_first", before_the_first},
	{"TRU-1", "after_the_connection", after_the_connection},
	{"TRU-1", "after_the_first", after_the_first},
	{"TRU-1", "for_a_while", for_a_while},
	{"TRU-1", "in_a_thread", in_a_thread},
	{"TRU-1", "of_the_peer", of_the_peer},
};

int main(int argc, char **argv)
{
	struct side s = {0};
	int pair[2], status = 0;

	if (geteuid() != 0) {
		printf("skip it changes its user, which only root can\n");
		return 77;
	}
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (argc < 2 || strcmp(argv[1], cases[i].name))
			continue;
		CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "a pair");
		pid_t child = fork();
		s.fd = pair[!child];
		close(pair[!!child]);
		s.name = child ? "first" : "second";
		port_open(&s.p);
		cases[i].run(&s);
		fflush(stdout);
		if (!child)
			_exit(0);
		CHECK(waitpid(child, &status, 0) == child && !status, "the other ends with %#x", status);
		printf("ok %s\n", cases[i].name);
		return 0;
	}
	printf("no such case\n");
	return 1;
}
