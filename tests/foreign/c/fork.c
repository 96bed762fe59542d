// A process with open objects and running traffic forks. Each child opens a context and exchanges
// messages between two queue pairs, while the traffic of the parent continues.
// usage: fork plain|init (with init, the program calls ibv_fork_init first)
#include "rig.h"
#include <sys/mman.h>
#include <sys/wait.h>

#define CHILDREN 4
#define MESSAGES 2000
#define SIZE 5000

static volatile int stop;

// Returns whole pages outside of the heap. After ibv_fork_init a child does not get the registered
// pages of its parent. A child needs the heap, so no page of the heap may be registered.
static void *pages(void)
{
	void *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED, "mmap");
	return p;
}

// Sends messages from one queue pair to the other and checks every byte. If `flag` is NULL, the
// function sends MESSAGES messages. Otherwise the function sends until `*flag` is set.
static uint64_t traffic(struct port *p, int who, volatile int *flag)
{
	struct ibv_cq *scq = cq_new(p, 8, NULL, NULL), *rcq = cq_new(p, 8, NULL, NULL);
	struct ibv_qp *x = qp_new(p, IBV_QPT_RC, scq, scq, 8), *y = qp_new(p, IBV_QPT_RC, rcq, rcq, 8);
	uint8_t *out = pages(), *in = pages();
	struct ibv_mr *mo = ibv_reg_mr(p->pd, out, SIZE, 0);
	struct ibv_mr *mi = ibv_reg_mr(p->pd, in, SIZE, IBV_ACCESS_LOCAL_WRITE);
	uint64_t n;

	CHECK(mo && mi, "mr");
	qp_pair(p, x, y);
	for (n = 0; flag ? !*flag : n < MESSAGES; n++) {
		struct ibv_sge so = {(uintptr_t)out, SIZE, mo->lkey}, si = {(uintptr_t)in, SIZE, mi->lkey};
		struct ibv_recv_wr r = {.sg_list = &si, .num_sge = 1}, *rbad;
		struct ibv_send_wr w = {.sg_list = &so, .num_sge = 1, .opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED}, *bad;

		fill(out, SIZE, who, n);
		memset(in, 0, SIZE);
		CHECK(!ibv_post_recv(y, &r, &rbad) && !ibv_post_send(x, &w, &bad), "post");
		poll_good(scq);
		poll_good(rcq);
		CHECK(!memcmp(in, out, SIZE), "process %d message %d: bytes", who, (int)n);
	}
	CHECK(!ibv_destroy_qp(x) && !ibv_destroy_qp(y) && !ibv_destroy_cq(scq) && !ibv_destroy_cq(rcq), "destroy");
	CHECK(!ibv_dereg_mr(mo) && !ibv_dereg_mr(mi), "dereg");
	return n;
}

static void *parent_traffic(void *arg)
{
	return (void *)(uintptr_t)traffic(arg, 100, &stop);
}

int main(int argc, char **argv)
{
	struct port port;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	pthread_t t;
	pid_t pids[CHILDREN];
	void *count;
	int i, status;

	if (argc > 1 && !strcmp(argv[1], "init"))
		CHECK(!ibv_fork_init(), "ibv_fork_init");
	alarm(120);
	port_open(&port);
	traffic(&port, 99, NULL); // the device has carried traffic before the fork
	CHECK(!pthread_create(&t, NULL, parent_traffic, &port), "thread");
	for (i = 0; i < CHILDREN; i++) {
		pids[i] = fork();
		CHECK(pids[i] >= 0, "fork");
		if (!pids[i]) {
			struct port own;

			alarm(60);
			port_open(&own);
			CHECK(traffic(&own, i, NULL) == MESSAGES, "count");
			port_close(&own);
			_exit(0);
		}
		usleep(20000);
	}
	for (i = 0; i < CHILDREN; i++) {
		CHECK(waitpid(pids[i], &status, 0) == pids[i], "waitpid");
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child %d ended with %x", i, status);
	}
	stop = 1;
	pthread_join(t, &count);
	CHECK((uintptr_t)count > 0, "the parent did nothing");
	// A child may exit at once, or may first clean up inherited objects. In both cases the
	// objects of the parent must still work.
	pids[0] = fork();
	if (!pids[0])
		exit(0);
	CHECK(waitpid(pids[0], &status, 0) == pids[0] && status == 0, "idle child");
	cq = cq_new(&port, 8, NULL, NULL);
	mr = ibv_reg_mr(port.pd, pages(), SIZE, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr, "mr");
	pids[0] = fork();
	if (!pids[0]) {
		alarm(60);
		CHECK(ibv_poll_cq(cq, 1, &wc) <= 0, "a completion out of nothing");
		ibv_dereg_mr(mr);
		ibv_destroy_cq(cq);
		exit(0);
	}
	CHECK(waitpid(pids[0], &status, 0) == pids[0] && status == 0, "child that cleans up");
	CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq), "the parent's own");
	traffic(&port, 98, NULL);
	port_close(&port);
	printf("ok fork: %d children with %d messages each, parent %llu beside them\n", CHILDREN, MESSAGES,
	       (unsigned long long)(uintptr_t)count);
	return 0;
}
