// Two processes, each with a spinning thread and a main thread, like the progress threads of UCX.
// In a loop, the spinning thread polls the CQ, arms the CQ, and polls the descriptor of the channel
// without waiting. The main thread reads the counts of the spinning thread, either every 100 us or
// all the time. The main threads send each other messages in turns.
// usage: spinners MESSAGES sleep|spin
#include "rig.h"
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define DEPTH 16
#define SIZE 64

struct end {
	uint32_t qpn;
	union ibv_gid gid;
};

static struct port port;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint8_t memory[DEPTH * SIZE];
static atomic_int taken, sent, over;

static void receive(uint64_t slot)
{
	struct ibv_sge sge = {(uintptr_t)memory + slot * SIZE, SIZE, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(qp, &wr, &bad), "post recv");
}

// Takes completions and returns their number.
static int take(void)
{
	struct ibv_wc wc[DEPTH];
	int n = ibv_poll_cq(cq, DEPTH, wc), i;

	CHECK(n >= 0, "poll %d", n);
	for (i = 0; i < n; i++) {
		CHECK(wc[i].status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc[i].status));
		if (wc[i].opcode == IBV_WC_SEND) {
			atomic_fetch_add(&sent, 1);
		} else {
			receive(wc[i].wr_id);
			atomic_fetch_add(&taken, 1);
		}
	}
	return n;
}

static void *spins(void *arg)
{
	struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
	struct ibv_cq *of;
	void *context;

	while (!atomic_load(&over)) {
		if (take())
			continue;
		CHECK(!ibv_req_notify_cq(cq, 0), "arm");
		if (poll(&fd, 1, 0) == 1) {
			CHECK(!ibv_get_cq_event(channel, &of, &context), "get event");
			ibv_ack_cq_events(of, 1);
		}
	}
	return arg;
}

static void send_one(void)
{
	uint8_t bytes[SIZE] = {0};
	struct ibv_sge sge = {(uintptr_t)bytes, sizeof(bytes), 0};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}, *bad;

	CHECK(!ibv_post_send(qp, &wr, &bad), "post send");
}

// Waits until `count` is at least `n`.
static void await(atomic_int *count, int n, int sleeps)
{
	struct timespec nap = {0, 100000};
	double end = now() + POLL_SECONDS;

	while (atomic_load(count) < n) {
		CHECK(now() < end, "%d of %d within %d seconds", atomic_load(count), n, POLL_SECONDS);
		if (sleeps)
			nanosleep(&nap, NULL);
	}
}

static void run(int to, int first, int messages, int sleeps)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC,
				     .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1,
					     .max_recv_sge = 1, .max_inline_data = SIZE}};
	struct timers t = {14, 7, 7};
	struct end mine, theirs;
	pthread_t thread;
	double began;
	int i;
	char byte = 0;

	port_open(&port);
	channel = ibv_create_comp_channel(port.ctx);
	CHECK(channel, "channel");
	a.send_cq = a.recv_cq = cq = cq_new(&port, 4 * DEPTH, channel, NULL);
	qp = ibv_create_qp(port.pd, &a);
	mr = ibv_reg_mr(port.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(qp && mr, "qp or mr");
	qp_init(&port, qp);
	for (i = 0; i < DEPTH; i++)
		receive(i);
	mine.qpn = qp->qp_num;
	mine.gid = port.gid;
	CHECK(write(to, &mine, sizeof(mine)) == sizeof(mine), "write");
	CHECK(read(to, &theirs, sizeof(theirs)) == sizeof(theirs), "read");
	qp_join(&port, qp, 1, theirs.qpn, 1, theirs.gid, t);
	CHECK(write(to, &byte, 1) == 1 && read(to, &byte, 1) == 1, "ready");
	CHECK(!pthread_create(&thread, NULL, spins, NULL), "thread");
	began = now();
	for (i = 1; i <= messages; i++) {
		if (first)
			send_one();
		await(&taken, i, sleeps);
		if (!first)
			send_one();
	}
	await(&sent, messages, sleeps);
	if (first)
		printf("ok spinners: a message and its answer in %.0f us\n", (now() - began) / messages * 1e6);
	CHECK(write(to, &byte, 1) == 1 && read(to, &byte, 1) == 1, "done");
	atomic_store(&over, 1);
	pthread_join(thread, NULL);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel), "destroy");
	CHECK(!ibv_dereg_mr(mr), "dereg");
	port_close(&port);
}

int main(int argc, char **argv)
{
	int messages = argc > 1 ? atoi(argv[1]) : 100, sleeps = argc < 3 || strcmp(argv[2], "spin");
	int pair[2], status;
	pid_t child;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
	child = fork();
	CHECK(child >= 0, "fork");
	run(pair[child == 0], child != 0, messages, sleeps);
	if (!child)
		return 0;
	CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %#x", status);
	return 0;
}
