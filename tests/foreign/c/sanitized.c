// This program is built with sanitizers. A server and a client send each other messages in turns.
// In each process, one thread posts requests, and another thread takes the completions.
// usage: sanitized -p PORT [HOST]
#include "rig.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define ROUNDS 400
#define SIZE 3000
#define BIG (1 << 20)

struct card {
	uint32_t qpn, psn, rkey;
	uint64_t addr;
	union ibv_gid gid;
};

// One end of the connection. Only posts and completions order the accesses of the two threads to
// the buffers. The lock protects only the counts of messages.
static struct {
	struct port port;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *in, *out;
	uint8_t *inbox, *outbox;
	pthread_mutex_t lock;
	pthread_cond_t turned;
	int received, sent;
} end = {.lock = PTHREAD_MUTEX_INITIALIZER, .turned = PTHREAD_COND_INITIALIZER};

static int tcp(const char *host, int port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
	int s = socket(AF_INET, SOCK_STREAM, 0), one = 1, c;

	at.sin_addr.s_addr = htonl(host ? INADDR_LOOPBACK : INADDR_ANY);
	if (host) {
		CHECK(!connect(s, (struct sockaddr *)&at, sizeof(at)), "connect");
		return s;
	}
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	CHECK(!bind(s, (struct sockaddr *)&at, sizeof(at)) && !listen(s, 1), "listen");
	c = accept(s, NULL, NULL);
	CHECK(c >= 0, "accept");
	close(s);
	return c;
}

static void post_recv(void)
{
	struct ibv_sge s = {(uintptr_t)end.inbox, SIZE, end.in->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(end.qp, &wr, &bad), "post recv");
}

static void post_send(uint64_t side, int round)
{
	struct ibv_sge s = {(uintptr_t)end.outbox, SIZE, end.out->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;

	fill(end.outbox, SIZE, side, round);
	CHECK(!ibv_post_send(end.qp, &wr, &bad), "post send");
}

// Takes completions, checks each message as soon as its completion arrives, and wakes the other
// thread.
static void *taker(void *arg)
{
	uint64_t other = (uintptr_t)arg;
	uint8_t wanted[SIZE];
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;
	int in = 0, out = 0, n;

	while (in < ROUNDS || out < ROUNDS) {
		CHECK(!ibv_get_cq_event(end.channel, &cq, &context), "event");
		ibv_ack_cq_events(cq, 1);
		CHECK(!ibv_req_notify_cq(cq, 0), "arm");
		while ((n = ibv_poll_cq(cq, 1, &wc)) == 1) {
			CHECK(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
			if (wc.wr_id == 1) {
				fill(wanted, SIZE, other, in);
				CHECK(!memcmp(wanted, end.inbox, SIZE), "message %d differs", in);
				in++;
			} else {
				// The completion returns the memory to the program, so the thread
				// that has polled the completion may write there.
				memset(end.outbox, out, SIZE);
				out++;
			}
			pthread_mutex_lock(&end.lock);
			end.received = in;
			end.sent = out;
			pthread_cond_signal(&end.turned);
			pthread_mutex_unlock(&end.lock);
		}
		CHECK(n == 0, "poll %d", n);
	}
	return NULL;
}

static void until(int received, int sent)
{
	pthread_mutex_lock(&end.lock);
	while (end.received < received || end.sent < sent)
		pthread_cond_wait(&end.turned, &end.lock);
	pthread_mutex_unlock(&end.lock);
}

// Writes to the memory of the other end, and reads the bytes back. Meanwhile the other end waits at
// the socket and does not access this memory.
static void one_sided(struct card *other)
{
	struct ibv_cq *cq = end.cq;
	uint8_t *big = malloc(BIG);
	struct ibv_mr *mr = ibv_reg_mr(end.port.pd, big, BIG, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge s = {(uintptr_t)big, BIG, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;

	fill(big, BIG, 3, 0);
	wr.wr.rdma.remote_addr = other->addr;
	wr.wr.rdma.rkey = other->rkey;
	CHECK(!ibv_post_send(end.qp, &wr, &bad), "write");
	poll_good(cq);
	memset(big, 0, BIG);
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK(!ibv_post_send(end.qp, &wr, &bad), "read");
	poll_good(cq);
	uint8_t *wanted = malloc(BIG);

	fill(wanted, BIG, 3, 0);
	CHECK(!memcmp(wanted, big, BIG), "what was written is not what is read");
	CHECK(!ibv_dereg_mr(mr), "dereg");
	free(wanted);
	free(big);
}

// Starts a shell, a program without sanitizers. The start must also work from this process.
static void child(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		execlp("sh", "sh", "-c", "cat /dev/null && echo child", NULL);
		_exit(1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child ended with %d", status);
}

int main(int argc, char **argv)
{
	struct timers t = {14, 7, 7};
	struct card mine = {0}, other;
	const char *host;
	int tport = 18515, c, i, sock;
	uint64_t side;
	pthread_t thread;

	while ((c = getopt(argc, argv, "p:")) == 'p')
		tport = atoi(optarg);
	host = optind < argc ? argv[optind] : NULL;
	side = host ? 1 : 2;
	alarm(120);
	child();
	port_open(&end.port);
	end.channel = ibv_create_comp_channel(end.port.ctx);
	CHECK(end.channel, "channel");
	end.cq = cq_new(&end.port, 64, end.channel, NULL);
	end.qp = qp_new(&end.port, IBV_QPT_RC, end.cq, end.cq, 16);
	end.inbox = malloc(BIG);
	CHECK(!posix_memalign((void **)&end.outbox, 4096, BIG), "memalign");
	end.in = ibv_reg_mr(end.port.pd, end.inbox, BIG,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	end.out = ibv_reg_mr(end.port.pd, end.outbox, BIG, 0);
	CHECK(end.in && end.out, "mr");
	qp_init(&end.port, end.qp);
	CHECK(!ibv_req_notify_cq(end.cq, 0), "arm");
	post_recv();
	sock = tcp(host, tport);
	mine = (struct card){end.qp->qp_num, getpid() & 0xffffff, end.in->rkey, (uintptr_t)end.inbox, end.port.gid};
	CHECK(write(sock, &mine, sizeof(mine)) == sizeof(mine), "exchange");
	CHECK(read(sock, &other, sizeof(other)) == sizeof(other), "exchange");
	qp_join(&end.port, end.qp, mine.psn, other.qpn, other.psn, other.gid, t);
	CHECK(write(sock, "r", 1) == 1 && read(sock, &c, 1) == 1, "exchange");
	CHECK(!pthread_create(&thread, NULL, taker, (void *)(uintptr_t)(3 - side)), "thread");
	for (i = 0; i < ROUNDS; i++) {
		if (host)
			post_send(side, i);
		until(i + 1, host ? i + 1 : i);
		// The other thread has checked the message, so the buffer is free for the next
		// message.
		if (i + 1 < ROUNDS)
			post_recv();
		if (!host)
			post_send(side, i);
	}
	until(ROUNDS, ROUNDS);
	pthread_join(thread, NULL);
	if (host)
		one_sided(&other);
	CHECK(write(sock, "r", 1) == 1 && read(sock, &c, 1) == 1, "exchange");
	close(sock);
	CHECK(!ibv_destroy_qp(end.qp) && !ibv_destroy_cq(end.cq), "destroy");
	CHECK(!ibv_destroy_comp_channel(end.channel), "destroy channel");
	CHECK(!ibv_dereg_mr(end.in) && !ibv_dereg_mr(end.out), "dereg");
	free(end.inbox);
	free(end.outbox);
	port_close(&end.port);
	printf("END\n");
	return 0;
}
