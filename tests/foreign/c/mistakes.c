// Makes common mistakes of beginners, each three times, and posts a request that a queue pair of
// another process refuses. The library's log on standard error must give the reasons.
// usage: mistakes
#include "rig.h"
#include <sys/socket.h>
#include <sys/wait.h>

// The data that a process sends to the other process.
struct end {
	uint32_t qpn;
	union ibv_gid gid;
};

static struct port port;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

static struct end open_end(void)
{
	struct end mine;

	port_open(&port);
	cq = cq_new(&port, 16, NULL, NULL);
	qp = qp_new(&port, IBV_QPT_RC, cq, cq, 2);
	mine.qpn = qp->qp_num;
	mine.gid = port.gid;
	return mine;
}

static void exchange(int fd, const struct end *mine, struct end *theirs)
{
	CHECK(write(fd, mine, sizeof(*mine)) == sizeof(*mine), "write");
	CHECK(read(fd, theirs, sizeof(*theirs)) == sizeof(*theirs), "read");
}

// Connects to the other process. Both queue pairs are in RTS afterwards.
static void join(int fd)
{
	struct end mine = open_end(), theirs, again;
	struct timers t = {14, 7, 7};

	exchange(fd, &mine, &theirs);
	qp_init(&port, qp);
	qp_join(&port, qp, 100, theirs.qpn, 100, theirs.gid, t);
	exchange(fd, &mine, &again);
}

static void mistakes(void)
{
	static char memory[4096];
	struct ibv_qp *other = qp_new(&port, IBV_QPT_RC, cq, cq, 2);
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS};
	struct ibv_send_wr w = {.opcode = IBV_WR_SEND}, *bad;
	int i;

	for (i = 0; i < 3; i++) {
		CHECK(ibv_modify_qp(other, &rts, IBV_QP_STATE) == EINVAL, "RESET to RTS");
		CHECK(ibv_post_send(other, &w, &bad) == EINVAL, "a post in RESET");
		CHECK(!ibv_reg_mr(port.pd, memory + i, 64, IBV_ACCESS_REMOTE_WRITE), "remote write without local write");
	}
	CHECK(!ibv_destroy_qp(other), "destroy");
}

// Correct programs also meet these failures: a full queue, and a feature that the device lacks.
static void no_mistakes(void)
{
	struct ibv_send_wr w = {.opcode = IBV_WR_SEND}, *bad;
	struct ibv_ece ece = {0};
	int code = 0, i;

	for (i = 0; i < 1000 && !code; i++)
		code = ibv_post_send(qp, &w, &bad);
	CHECK(code == ENOMEM, "a full queue: %d", code);
	CHECK(ibv_query_ece(qp, &ece) == EOPNOTSUPP, "query ece");
}

int main(void)
{
	static char memory[64];
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 8};
	struct ibv_send_wr w = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	int fds[2], status;
	char done = 0;
	pid_t child;

	alarm(60);
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds), "sockets");
	child = fork();
	CHECK(child >= 0, "fork");
	join(fds[child == 0]);
	if (child == 0) {
		// The child lives until the other process has a completion.
		CHECK(read(fds[1], &done, 1) == 1, "read");
		return 0;
	}
	mr = ibv_reg_mr(port.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr, "mr");
	sge.lkey = mr->lkey;
	w.wr.rdma.rkey = 0x1234500;
	w.wr.rdma.remote_addr = 4096;
	CHECK(!ibv_post_send(qp, &w, &bad), "post");
	wc = poll_one(cq);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR, "%s", ibv_wc_status_str(wc.status));
	mistakes();
	CHECK(write(fds[0], &done, 1) == 1, "write");
	CHECK(waitpid(child, &status, 0) == child && status == 0, "the other process: %x", status);
	qp_to_err(qp);
	CHECK(!ibv_destroy_qp(qp), "destroy");
	// This queue pair has no peer, so the requests stay in the queue.
	qp = qp_new(&port, IBV_QPT_RC, cq, cq, 2);
	qp_init(&port, qp);
	qp_join(&port, qp, 100, 0xffff0, 100, port.gid, (struct timers){20, 7, 7});
	no_mistakes();
	printf("ok mistakes\n");
	return 0;
}
