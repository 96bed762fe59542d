// Two processes with RC traffic. The test kills one process from outside. The other process prints
// the results of its work requests.
// usage: peer -p PORT [-t TIMEOUT] [-r RETRY_CNT] [-o send|write|read] [HOST]; the process with
// HOST is the reporting side.
#include "rig.h"
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define DEPTH 32
#define SIZE 65536

struct card {
	uint32_t qpn, psn, rkey;
	uint64_t addr;
	union ibv_gid gid;
};

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

int main(int argc, char **argv)
{
	int tport = 18515, c, i, n, sock, posted = 0, good = 0, flushed = 0, told = 0;
	struct timers t = {14, 7, 7};
	enum ibv_wr_opcode op = IBV_WR_RDMA_WRITE;
	enum ibv_wc_status first = IBV_WC_SUCCESS;
	double last_good, first_bad = 0, quiet;
	struct card mine = {0}, other;
	struct ibv_wc wc;
	struct port port;
	const char *host;

	while ((c = getopt(argc, argv, "p:t:r:o:")) != -1) {
		switch (c) {
		case 'p':
			tport = atoi(optarg);
			break;
		case 't':
			t.timeout = atoi(optarg);
			break;
		case 'r':
			t.retry_cnt = atoi(optarg);
			break;
		case 'o':
			op = !strcmp(optarg, "send")   ? IBV_WR_SEND
			     : !strcmp(optarg, "read") ? IBV_WR_RDMA_READ
						       : IBV_WR_RDMA_WRITE;
			break;
		default:
			return 2;
		}
	}
	host = optind < argc ? argv[optind] : NULL;
	alarm(120);
	port_open(&port);
	struct ibv_cq *scq = cq_new(&port, 4 * DEPTH, NULL, NULL), *rcq = cq_new(&port, 4 * DEPTH, NULL, NULL);
	struct ibv_qp *qp = qp_new(&port, IBV_QPT_RC, scq, rcq, DEPTH);
	void *buf = malloc(SIZE);
	struct ibv_mr *mr = ibv_reg_mr(port.pd, buf, SIZE,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(mr, "mr");
	struct ibv_sge s = {(uintptr_t)buf, SIZE, mr->lkey};
	struct ibv_recv_wr rwr = {.sg_list = &s, .num_sge = 1}, *rbad;

	qp_init(&port, qp);
	for (i = 0; i < DEPTH; i++)
		CHECK(!ibv_post_recv(qp, &rwr, &rbad), "post recv");
	sock = tcp(host, tport);
	mine.qpn = qp->qp_num;
	mine.psn = getpid() & 0xffffff;
	mine.rkey = mr->rkey;
	mine.addr = (uintptr_t)buf;
	mine.gid = port.gid;
	CHECK(write(sock, &mine, sizeof(mine)) == sizeof(mine), "exchange");
	CHECK(read(sock, &other, sizeof(other)) == sizeof(other), "exchange");
	qp_join(&port, qp, mine.psn, other.qpn, other.psn, other.gid, t);
	// Both processes are ready before the first request goes out.
	CHECK(write(sock, "r", 1) == 1 && read(sock, &c, 1) == 1, "exchange");
	if (!host) {
		printf("SERVING\n");
		fflush(stdout);
		for (;;) {
			n = ibv_poll_cq(rcq, 1, &wc);
			CHECK(n >= 0 && (!n || wc.status == IBV_WC_SUCCESS), "receive");
			if (n)
				CHECK(!ibv_post_recv(qp, &rwr, &rbad), "post recv");
		}
	}
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED}, *bad;

	wr.wr.rdma.remote_addr = other.addr;
	wr.wr.rdma.rkey = other.rkey;
	last_good = quiet = now();
	for (;;) {
		while (first == IBV_WC_SUCCESS && posted - good < DEPTH) {
			wr.wr_id = posted;
			CHECK(!ibv_post_send(qp, &wr, &bad), "post");
			posted++;
		}
		n = ibv_poll_cq(scq, 1, &wc);
		CHECK(n >= 0, "poll");
		if (n == 0) {
			// If every request has a completion, the program waits half a second
			// longer, in case the library delivers one completion too many.
			if (first != IBV_WC_SUCCESS && now() - quiet > (posted == good + 1 + flushed ? 0.5 : 30))
				break;
			CHECK(now() - quiet < 60, "no completion for a minute");
			continue;
		}
		quiet = now();
		CHECK(wc.wr_id == (uint64_t)(good + flushed + (first != IBV_WC_SUCCESS)), "out of order");
		if (wc.status == IBV_WC_SUCCESS) {
			CHECK(first == IBV_WC_SUCCESS, "success after an error");
			last_good = now();
			if (++good == 200 && !told++) {
				printf("RUNNING\n");
				fflush(stdout);
			}
		} else if (first == IBV_WC_SUCCESS) {
			first = wc.status;
			first_bad = now();
		} else {
			CHECK(wc.status == IBV_WC_WR_FLUSH_ERR, "after the first error: %d", wc.status);
			flushed++;
		}
	}
	// The posted receives must be flushed as well.
	for (i = 0; (n = ibv_poll_cq(rcq, 1, &wc)) == 1; i++)
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR, "receive ended with %d", wc.status);
	struct ibv_qp_attr qa;
	struct ibv_qp_init_attr qi;

	CHECK(!ibv_query_qp(qp, &qa, IBV_QP_STATE, &qi), "query qp");
	printf("END status=%d after=%.3f posted=%d good=%d flushed=%d recv_flushed=%d state=%d\n", first,
	       first_bad - last_good, posted, good, flushed, i, qa.qp_state);
	return 0;
}
