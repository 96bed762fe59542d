// Performs a known number of operations for the test of `adverb run --trace`, and prints the
// numbers. One process sends messages. The other process sleeps on its completion channel for each
// message. With the argument "killed", the receiver ends itself by SIGKILL.
#include "rig.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#define MESSAGES 20
#define BYTES 5000

struct name {
	uint32_t qpn, psn;
	union ibv_gid gid;
};
static struct port port;
static uint8_t *mem;
static struct ibv_mr *mr;
static struct ibv_comp_channel *ch;
static struct ibv_cq *scq, *rcq;
static struct ibv_qp *qp;

static void begin(int out, int in, uint32_t psn)
{
	struct timers t = {14, 7, 7};
	struct name me = {.psn = psn}, peer;

	port_open(&port);
	CHECK(!posix_memalign((void **)&mem, 4096, 2 * 8192), "memory");
	memset(mem, psn, 2 * 8192);
	mr = ibv_reg_mr(port.pd, mem, 2 * 8192, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr, "reg mr");
	ch = ibv_create_comp_channel(port.ctx);
	CHECK(ch, "channel");
	scq = cq_new(&port, 64, NULL, NULL);
	rcq = cq_new(&port, 64, ch, NULL);
	qp = qp_new(&port, IBV_QPT_RC, scq, rcq, 32);
	qp_init(&port, qp);
	me.qpn = qp->qp_num;
	me.gid = port.gid;
	CHECK(write(out, &me, sizeof(me)) == sizeof(me), "write");
	CHECK(read(in, &peer, sizeof(peer)) == sizeof(peer), "read");
	qp_join(&port, qp, psn, peer.qpn, peer.psn, peer.gid, t);
}

static void end(void)
{
	CHECK(!ibv_destroy_qp(qp), "destroy qp");
	CHECK(!ibv_destroy_cq(scq), "destroy cq");
	CHECK(!ibv_destroy_cq(rcq), "destroy cq");
	CHECK(!ibv_destroy_comp_channel(ch), "destroy channel");
	CHECK(!ibv_dereg_mr(mr), "dereg");
	port_close(&port);
}

static void post_receive(uint64_t id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)mem, .length = 8192, .lkey = mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(qp, &wr, &bad), "post recv");
}

static void post_send(uint64_t id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)mem + 8192, .length = BYTES, .lkey = mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	CHECK(!ibv_post_send(qp, &wr, &bad), "post send");
}

// Tells the sender for each message when the receive is posted and the queue is armed.
static void receiver(int out, int in, int killed)
{
	struct ibv_wc wc;
	int i, got;

	begin(out, in, 3000);
	for (i = 0; i < MESSAGES; i++) {
		struct ibv_cq *cq;
		void *context;

		post_receive(1000 + i);
		CHECK(!ibv_req_notify_cq(rcq, 0), "arm");
		CHECK(write(out, "g", 1) == 1, "write");
		CHECK(!ibv_get_cq_event(ch, &cq, &context), "event");
		ibv_ack_cq_events(cq, 1);
		wc = poll_good(rcq);
		CHECK(wc.wr_id == 1000u + i, "wr_id");
		got = ibv_poll_cq(rcq, 1, &wc);
		CHECK(!got, "one too many");
	}
	// The library writes the trace records to the file within a few milliseconds. So a kill
	// after this sleep must lose no record.
	usleep(300000);
	CHECK(write(out, "d", 1) == 1, "write");
	if (killed)
		raise(SIGKILL);
	end();
}

static void sender(int out, int in)
{
	char word;
	int i;

	begin(out, in, 100);
	for (i = 0; i < MESSAGES; i++) {
		CHECK(read(in, &word, 1) == 1 && word == 'g', "word");
		post_send(i);
		CHECK(poll_good(scq).wr_id == (uint64_t)i, "wr_id");
	}
	CHECK(read(in, &word, 1) == 1 && word == 'd', "word");
	end();
}

int main(int argc, char **argv)
{
	int there[2], back[2], status;
	pid_t child;

	CHECK(!pipe(there) && !pipe(back), "pipe");
	child = fork();
	CHECK(child >= 0, "fork");
	if (!child) {
		receiver(back[1], there[0], argc > 1 && !strcmp(argv[1], "killed"));
		exit(0);
	}
	sender(there[1], back[0]);
	CHECK(waitpid(child, &status, 0) == child, "wait");
	printf("sender %d receiver %d messages %d bytes %d\n", getpid(), child, MESSAGES, BYTES);
	return 0;
}
