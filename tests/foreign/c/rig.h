// Shared code of the C programs: a device chosen by RIG_DEV and RIG_GID, connected queue pairs
// within a process, and checks with file and line. Every wait has a limit.
#ifndef RIG_H
#define RIG_H
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))
#ifndef POLL_SECONDS
#define POLL_SECONDS 30
#endif
#define ARRAY_LEN(a) (sizeof(a) / sizeof(*(a)))
// If the condition is false, prints the file, the line and the message, and ends the program.
#define CHECK(cond, ...)                                                                   \
	do {                                                                               \
		if (!(cond)) {                                                             \
			int e_ = errno;                                                    \
			fprintf(stdout, "FAIL %s:%d: %s: ", __FILE__, __LINE__, #cond);    \
			fprintf(stdout, __VA_ARGS__);                                      \
			fprintf(stdout, " (errno %d %s)\n", e_, strerror(e_));             \
			fflush(stdout);                                                    \
			_exit(1);                                                          \
		}                                                                          \
	} while (0)

static UNUSED double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

struct port {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_port_attr attr;
	union ibv_gid gid;
	int gid_index;
};

// Opens the device RIG_DEV (default: the first device) with the GID index RIG_GID (default: 0).
static UNUSED void port_open(struct port *p)
{
	const char *dev = getenv("RIG_DEV"), *gid = getenv("RIG_GID");
	struct ibv_device **list;
	int n = 0, i;

	memset(p, 0, sizeof(*p));
	list = ibv_get_device_list(&n);
	CHECK(list && n > 0, "no device");
	for (i = 0; i < n; i++)
		if (!dev || !strcmp(dev, ibv_get_device_name(list[i])))
			break;
	CHECK(i < n, "no device %s", dev);
	p->ctx = ibv_open_device(list[i]);
	CHECK(p->ctx, "open");
	ibv_free_device_list(list);
	p->pd = ibv_alloc_pd(p->ctx);
	CHECK(p->pd, "pd");
	CHECK(!ibv_query_port(p->ctx, 1, &p->attr), "query port");
	p->gid_index = gid ? atoi(gid) : 0;
	CHECK(!ibv_query_gid(p->ctx, 1, p->gid_index, &p->gid), "query gid");
}

static UNUSED void port_close(struct port *p)
{
	CHECK(!ibv_dealloc_pd(p->pd), "dealloc pd");
	CHECK(!ibv_close_device(p->ctx), "close");
}

static UNUSED struct ibv_cq *cq_new(struct port *p, int depth, struct ibv_comp_channel *ch, void *context)
{
	struct ibv_cq *cq = ibv_create_cq(p->ctx, depth, context, ch, 0);

	CHECK(cq, "create cq of %d", depth);
	return cq;
}

static UNUSED struct ibv_qp *qp_new(struct port *p, enum ibv_qp_type type, struct ibv_cq *scq, struct ibv_cq *rcq,
				    int depth)
{
	struct ibv_qp_init_attr a = {
		.send_cq = scq,
		.recv_cq = rcq,
		.qp_type = type,
		.cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct ibv_qp *qp = ibv_create_qp(p->pd, &a);

	CHECK(qp, "create qp");
	return qp;
}

struct timers {
	int timeout, retry_cnt, rnr_retry;
};

static UNUSED void qp_init(struct port *p, struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11111111};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	(void)p;
	a.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			    IBV_ACCESS_REMOTE_ATOMIC;
	mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	CHECK(!ibv_modify_qp(qp, &a, mask), "to INIT");
}

// Moves a queue pair to RTR and RTS. `qpn`, `psn` and `gid` describe the remote queue pair. For UD
// only `my_psn` matters.
static UNUSED void qp_join(struct port *p, struct ibv_qp *qp, uint32_t my_psn, uint32_t qpn, uint32_t psn,
			   union ibv_gid gid, struct timers t)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR};
	int mask = IBV_QP_STATE;

	if (qp->qp_type != IBV_QPT_UD) {
		a.path_mtu = p->attr.active_mtu;
		a.dest_qp_num = qpn;
		a.rq_psn = psn;
		a.ah_attr.is_global = 1;
		a.ah_attr.port_num = 1;
		a.ah_attr.grh.dgid = gid;
		a.ah_attr.grh.sgid_index = p->gid_index;
		a.ah_attr.grh.hop_limit = 64;
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (qp->qp_type == IBV_QPT_RC) {
		a.max_dest_rd_atomic = 4;
		a.min_rnr_timer = 12;
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	CHECK(!ibv_modify_qp(qp, &a, mask), "to RTR");
	memset(&a, 0, sizeof(a));
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = my_psn;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC) {
		a.timeout = t.timeout;
		a.retry_cnt = t.retry_cnt;
		a.rnr_retry = t.rnr_retry;
		a.max_rd_atomic = 4;
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	CHECK(!ibv_modify_qp(qp, &a, mask), "to RTS");
}

// Connects two queue pairs of this process.
static UNUSED void qp_pair(struct port *p, struct ibv_qp *a, struct ibv_qp *b)
{
	struct timers t = {14, 7, 7};

	qp_init(p, a);
	qp_init(p, b);
	qp_join(p, a, 100, b->qp_num, 200, p->gid, t);
	qp_join(p, b, 200, a->qp_num, 100, p->gid, t);
}

static UNUSED void qp_to_err(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE), "to ERR");
}

// Polls until a completion arrives, for at most POLL_SECONDS. Only a hang takes so long.
static UNUSED struct ibv_wc poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	double end = now() + POLL_SECONDS;
	int n;

	do {
		n = ibv_poll_cq(cq, 1, &wc);
		CHECK(n >= 0, "poll %d", n);
		if (n)
			return wc;
	} while (now() < end);
	CHECK(0, "no completion within %d seconds", POLL_SECONDS);
	return wc;
}

static UNUSED struct ibv_wc poll_good(struct ibv_cq *cq)
{
	struct ibv_wc wc = poll_one(cq);

	CHECK(wc.status == IBV_WC_SUCCESS, "completion %d: %s", wc.status, ibv_wc_status_str(wc.status));
	return wc;
}

// Fills the memory with the pattern of message `seq` of thread `t`. The 64-bit words of the pattern
// differ for each message and each position.
static UNUSED void fill(void *buf, size_t len, uint64_t t, uint64_t seq)
{
	uint8_t *b = buf;
	uint64_t x = t * 0x9E3779B97F4A7C15ull ^ seq * 0xBF58476D1CE4E5B9ull, w;
	size_t i, n;

	for (i = 0; i < len; i += 8) {
		x += 0x9E3779B97F4A7C15ull;
		w = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
		w ^= w >> 27;
		n = len - i < 8 ? len - i : 8;
		memcpy(b + i, &w, n);
	}
}
#endif
