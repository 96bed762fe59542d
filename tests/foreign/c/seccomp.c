// Two processes in which a seccomp filter makes the system call CALL fail.
// usage: seccomp CALL talk|open
//   talk: a message between the two must arrive all the same.
//   open: the processes only open the device. The log must name CALL.
#include "rig.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const struct {
	const char *name;
	int number, error;
} calls[] = {
	{"mincore", SYS_mincore, EPERM}, {"getsockopt", SYS_getsockopt, EPERM}, {"accept4", SYS_accept4, EPERM},
	{"connect", SYS_connect, EPERM}, {"getrandom", SYS_getrandom, ENOMEM},
};

static void refuse(const char *name)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(calls) && strcmp(name, calls[i].name); i++)
		;
	CHECK(i < ARRAY_LEN(calls), "no call %s", name);
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | calls[i].error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {ARRAY_LEN(filter), filter};

	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program),
	      "filter");
}

struct end {
	uint32_t qpn;
	union ibv_gid gid;
};

static void exchange(int fd, const struct end *mine, struct end *theirs)
{
	CHECK(write(fd, mine, sizeof(*mine)) == sizeof(*mine), "write");
	CHECK(read(fd, theirs, sizeof(*theirs)) == sizeof(*theirs), "read");
}

static void talk(struct port *port, int fd, int sends)
{
	static char memory[64];
	struct ibv_cq *cq = cq_new(port, 4, NULL, NULL);
	struct ibv_qp *qp = qp_new(port, IBV_QPT_RC, cq, cq, 4);
	struct ibv_mr *mr = ibv_reg_mr(port->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 8};
	struct ibv_recv_wr r = {.sg_list = &sge, .num_sge = 1}, *rbad;
	struct ibv_send_wr w = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	struct timers t = {14, 7, 7};
	struct end mine = {qp->qp_num, port->gid}, theirs;

	CHECK(mr, "mr");
	sge.lkey = mr->lkey;
	exchange(fd, &mine, &theirs);
	qp_init(port, qp);
	if (!sends)
		CHECK(!ibv_post_recv(qp, &r, &rbad), "post recv");
	qp_join(port, qp, 100, theirs.qpn, 100, theirs.gid, t);
	exchange(fd, &mine, &theirs);
	if (sends)
		CHECK(!ibv_post_send(qp, &w, &bad), "post send");
	poll_good(cq);
	// Both processes stay until both have their completions.
	exchange(fd, &mine, &theirs);
}

int main(int argc, char **argv)
{
	struct port port;
	int fds[2], status;
	pid_t child;

	CHECK(argc == 3, "usage: seccomp CALL talk|open");
	alarm(100);
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds), "sockets");
	refuse(argv[1]);
	child = fork();
	CHECK(child >= 0, "fork");
	port_open(&port);
	if (!strcmp(argv[2], "talk"))
		talk(&port, fds[child == 0], child == 0);
	if (child == 0)
		return 0;
	CHECK(waitpid(child, &status, 0) == child && status == 0, "the other process: %x", status);
	printf("ok seccomp\n");
	return 0;
}
