// One end of a connection between two machines: the options, the choice of the device by its
// address, a queue pair, and work requests to the other end. The ends exchange the data of their
// queue pairs over TCP. Only peer.c includes this file.
#ifndef ENDS_H
#define ENDS_H
#include "../../foreign/c/rig.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum op { SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM, READ, CAS, FADD, OPS };
static const char *const OP_NAME[OPS] = {"send", "send_imm", "send_inv", "write", "write_imm", "read", "cas", "fadd"};
static const enum ibv_wr_opcode OPCODE[OPS] = {
	IBV_WR_SEND,		     IBV_WR_SEND_WITH_IMM,	 IBV_WR_SEND_WITH_INV,
	IBV_WR_RDMA_WRITE,	     IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_CMP_AND_SWP,   IBV_WR_ATOMIC_FETCH_AND_ADD,
};
// The space before the bytes of a UD message: a GRH, or an IPv4 header in the last 20 bytes.
#define GRH 40
#define QKEY 0x11111111
#define SECONDS_OF_PATIENCE 60
#define MAX_WINDOW 16

struct options {
	const char *local, *host, *port, *fault;
	enum ibv_qp_type type;
	int mtu, window, nsizes, nops, late_ms;
	uint32_t sizes[64];
	enum op ops[OPS];
	int timeout, retry_cnt, rnr_retry, min_rnr_timer;
};

// The data that each end sends to the other before the queue pairs are connected.
struct card {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t qpn, psn, rkey, pad;
};

struct end {
	struct options o;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	union ibv_gid gid;
	int gid_index, sock;
	uint8_t *mem;
	size_t len;
	struct card mine, theirs;
};

static inline int takes_receive(enum op op)
{
	return op <= SEND_INV || op == WRITE_IMM;
}

static int number_of(const char *name)
{
	int i = 0;

	while (i < OPS && strcmp(name, OP_NAME[i]))
		i++;
	CHECK(i < OPS, "%s is no operation", name);
	return i;
}

static struct options parse(int argc, char **argv)
{
	struct options o = {
		.port = "18515", .type = IBV_QPT_RC, .mtu = 1024, .window = 1, .late_ms = 300,
		.timeout = 17, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 12,
	};
	char *word;
	int c;

	while ((c = getopt(argc, argv, "a:p:q:m:w:s:o:x:t:R:n:N:l:")) != -1) {
		switch (c) {
		case 'a':
			o.local = optarg;
			break;
		case 'p':
			o.port = optarg;
			break;
		case 'q':
			o.type = !strcmp(optarg, "uc") ? IBV_QPT_UC : !strcmp(optarg, "ud") ? IBV_QPT_UD : IBV_QPT_RC;
			break;
		case 'm':
			o.mtu = atoi(optarg);
			break;
		case 'w':
			o.window = atoi(optarg);
			break;
		case 's':
			for (word = strtok(optarg, ","); word && o.nsizes < 64; word = strtok(NULL, ","))
				o.sizes[o.nsizes++] = atoi(word);
			break;
		case 'o':
			for (word = strtok(optarg, ","); word && o.nops < OPS; word = strtok(NULL, ","))
				o.ops[o.nops++] = number_of(word);
			break;
		case 'x':
			o.fault = optarg;
			break;
		case 't':
			o.timeout = atoi(optarg);
			break;
		case 'R':
			o.retry_cnt = atoi(optarg);
			break;
		case 'n':
			o.min_rnr_timer = atoi(optarg);
			break;
		case 'N':
			o.rnr_retry = atoi(optarg);
			break;
		case 'l':
			o.late_ms = atoi(optarg);
			break;
		default:
			exit(2);
		}
	}
	o.host = optind < argc ? argv[optind] : NULL;
	CHECK(o.local && o.window >= 1 && o.window <= MAX_WINDOW, "usage: peer -a ADDRESS [OPTIONS] [HOST]");
	return o;
}

static void send_all(struct end *e, const void *from, size_t n)
{
	CHECK(write(e->sock, from, n) == (ssize_t)n, "the other end went away");
}

static void receive_all(struct end *e, void *to, size_t n)
{
	CHECK(recv(e->sock, to, n, MSG_WAITALL) == (ssize_t)n, "the other end went away");
}

static int tcp(const char *host, const char *port)
{
	struct addrinfo hint = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *at;
	int listener, sock, one = 1;

	if (!host)
		hint.ai_flags = AI_PASSIVE, hint.ai_family = AF_INET;
	CHECK(!getaddrinfo(host, port, &hint, &at), "address %s", host);
	sock = socket(at->ai_family, SOCK_STREAM, 0);
	if (host) {
		CHECK(!connect(sock, at->ai_addr, at->ai_addrlen), "connect to %s", host);
	} else {
		listener = sock;
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		CHECK(!bind(listener, at->ai_addr, at->ai_addrlen) && !listen(listener, 1), "listen");
		sock = accept(listener, NULL, NULL);
		CHECK(sock >= 0, "accept");
		close(listener);
	}
	freeaddrinfo(at);
	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return sock;
}

// Opens the device that has the local address as a GID.
static void open_device(struct end *e)
{
	struct ibv_device **list;
	union ibv_gid want = {0}, gid;
	int n = 0, d, i;

	if (inet_pton(AF_INET, e->o.local, want.raw + 12) == 1)
		want.raw[10] = want.raw[11] = 0xff;
	else
		CHECK(inet_pton(AF_INET6, e->o.local, want.raw) == 1, "%s is no address", e->o.local);
	list = ibv_get_device_list(&n);
	CHECK(list, "device list");
	for (d = 0; d < n && !e->ctx; d++) {
		struct ibv_context *ctx = ibv_open_device(list[d]);

		CHECK(ctx, "open %s", ibv_get_device_name(list[d]));
		for (i = 0; !e->ctx && !ibv_query_gid(ctx, 1, i, &gid); i++)
			if (!memcmp(&gid, &want, sizeof(gid)))
				e->ctx = ctx, e->gid = gid, e->gid_index = i;
		if (!e->ctx)
			ibv_close_device(ctx);
	}
	CHECK(e->ctx, "no device of %d has the GID of %s", n, e->o.local);
	ibv_free_device_list(list);
	e->pd = ibv_alloc_pd(e->ctx);
	CHECK(e->pd, "pd");
}

// Makes memory and a queue pair. `access` contains the rights that the queue pair gives to the
// other end.
static void make_end(struct end *e, size_t len, int depth, int access)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY, .qp_access_flags = access};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	struct ibv_qp_init_attr i = {
		.qp_type = e->o.type,
		.cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1},
	};

	e->len = len;
	e->mem = aligned_alloc(4096, (len + 4095) & ~(size_t)4095);
	CHECK(e->mem, "%zu bytes", len);
	e->mr = ibv_reg_mr(e->pd, e->mem, len,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
	CHECK(e->mr, "register");
	e->scq = i.send_cq = ibv_create_cq(e->ctx, 2 * depth, NULL, NULL, 0);
	e->rcq = i.recv_cq = ibv_create_cq(e->ctx, 2 * depth, NULL, NULL, 0);
	CHECK(e->scq && e->rcq, "create cq");
	e->qp = ibv_create_qp(e->pd, &i);
	CHECK(e->qp, "create qp");
	mask |= e->o.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	CHECK(!ibv_modify_qp(e->qp, &a, mask), "to INIT");
}

static struct ibv_ah_attr address_of_theirs(struct end *e)
{
	return (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = e->theirs.gid, .sgid_index = e->gid_index, .hop_limit = 64},
	};
}

static void to_rtr(struct end *e)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .max_dest_rd_atomic = 4};
	int mask = IBV_QP_STATE;

	if (e->o.type != IBV_QPT_UD) {
		a.path_mtu = e->o.mtu >= 4096 ? IBV_MTU_4096 : e->o.mtu >= 2048 ? IBV_MTU_2048 : e->o.mtu >= 1024 ?
			     IBV_MTU_1024 : e->o.mtu >= 512 ? IBV_MTU_512 : IBV_MTU_256;
		a.dest_qp_num = e->theirs.qpn;
		a.rq_psn = e->theirs.psn;
		a.ah_attr = address_of_theirs(e);
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (e->o.type == IBV_QPT_RC) {
		a.min_rnr_timer = e->o.min_rnr_timer;
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	CHECK(!ibv_modify_qp(e->qp, &a, mask), "to RTR");
}

static void to_rts(struct end *e)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS, .sq_psn = e->mine.psn, .timeout = e->o.timeout, .retry_cnt = e->o.retry_cnt,
		.rnr_retry = e->o.rnr_retry, .max_rd_atomic = 4,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (e->o.type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK(!ibv_modify_qp(e->qp, &a, mask), "to RTS");
}

// Exchanges cards and moves the queue pair to RTS. The other end may access `target`.
static void join(struct end *e, void *target, uint32_t rkey)
{
	e->sock = tcp(e->o.host, e->o.port);
	e->mine = (struct card){
		.gid = e->gid,
		.addr = (uintptr_t)target,
		.qpn = e->qp->qp_num,
		// Close to 2^24, so that the PSN wraps after a few packets.
		.psn = 0xfffff0 + (getpid() & 7),
		.rkey = rkey,
	};
	send_all(e, &e->mine, sizeof(e->mine));
	receive_all(e, &e->theirs, sizeof(e->theirs));
	to_rtr(e);
	to_rts(e);
	if (e->o.type == IBV_QPT_UD) {
		struct ibv_ah_attr to = address_of_theirs(e);

		e->ah = ibv_create_ah(e->pd, &to);
		CHECK(e->ah, "create ah");
	}
}

// Returns a signaled request for the local bytes `from`. The caller sets the remaining fields, such
// as wr_id.
static struct ibv_send_wr request(struct end *e, enum op op, struct ibv_sge *from, uint64_t remote)
{
	struct ibv_send_wr wr = {
		.opcode = OPCODE[op], .send_flags = IBV_SEND_SIGNALED, .sg_list = from, .num_sge = from->length > 0,
	};

	if (e->o.type == IBV_QPT_UD) {
		wr.wr.ud.ah = e->ah;
		wr.wr.ud.remote_qpn = e->theirs.qpn;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (op == CAS || op == FADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = e->theirs.rkey;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = e->theirs.rkey;
	}
	return wr;
}

static void post(struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int err = ibv_post_send(e->qp, wr, &bad);

	CHECK(!err, "post send: %d", err);
}

static void post_receive(struct end *e, uint64_t id, void *to, uint32_t len, uint32_t lkey)
{
	struct ibv_sge s = {(uintptr_t)to, len, lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &s, .num_sge = len > 0}, *bad;
	int err = ibv_post_recv(e->qp, &wr, &bad);

	CHECK(!err, "post receive: %d", err);
}

// Polls until a completion comes. Returns 0 if no completion comes in time.
static int poll_within(struct ibv_cq *cq, struct ibv_wc *wc, double seconds)
{
	double end = now() + seconds;
	int n;

	do {
		n = ibv_poll_cq(cq, 1, wc);
		CHECK(n >= 0, "poll");
		if (n == 0 && now() < end)
			usleep(100);
	} while (n == 0 && now() < end);
	return n;
}
#endif
