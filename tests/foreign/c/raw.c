// Tests raw packet queue pairs on the loopback device through the C ABI: frames, flows, receive
// side scaling and refused calls. No case needs a privilege.
// usage: raw CASE | raw in MAC | raw out MAC | raw no_right; the last three use the interface of
// RIG_DEV. The table of cases is at the end. Prints "ok CASE" and ends with status 0, or prints
// FAIL with the file and line of the failed check.
#define _GNU_SOURCE
#include "rig.h"
#include <arpa/inet.h>
#include <sys/wait.h>

#define DEPTH 32
#define SIZE 2048
#define TCP 6
#define UDP 17

static struct port port;

struct end {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *mem;
};

static void to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = {.qp_state = state, .port_num = 1};

	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0)), "to state %d", state);
	CHECK(qp->state == state, "state %d", qp->state);
}

static void memory_new(struct end *e)
{
	CHECK(!posix_memalign((void **)&e->mem, 4096, DEPTH * SIZE), "memory");
	memset(e->mem, 0, DEPTH * SIZE);
	e->mr = ibv_reg_mr(port.pd, e->mem, DEPTH * SIZE, IBV_ACCESS_LOCAL_WRITE);
	CHECK(e->mr, "mr");
}

static struct end end_new(void)
{
	struct end e = {0};
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RAW_PACKET, .cap = {DEPTH, DEPTH, 2, 2, 512}};

	e.cq = cq_new(&port, 2 * DEPTH, NULL, NULL);
	a.send_cq = a.recv_cq = e.cq;
	e.qp = ibv_create_qp(port.pd, &a);
	CHECK(e.qp, "create");
	memory_new(&e);
	to_state(e.qp, IBV_QPS_INIT);
	to_state(e.qp, IBV_QPS_RTR);
	to_state(e.qp, IBV_QPS_RTS);
	return e;
}

static void end_free(struct end *e)
{
	if (e->qp)
		CHECK(!ibv_destroy_qp(e->qp), "destroy");
	CHECK(!ibv_destroy_cq(e->cq) && !ibv_dereg_mr(e->mr), "destroy");
	free(e->mem);
}

static void recv_at(struct end *e, int slot)
{
	struct ibv_sge s[2] = {{(uintptr_t)e->mem + slot * SIZE, 20, e->mr->lkey},
			       {(uintptr_t)e->mem + slot * SIZE + 20, SIZE - 20, e->mr->lkey}};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = s, .num_sge = 2}, *bad;

	CHECK(!ibv_post_recv(e->qp, &wr, &bad), "receive");
}

static void sent(struct end *e)
{
	struct ibv_wc wc = poll_good(e->cq);

	CHECK(wc.opcode == IBV_WC_SEND, "opcode %d", wc.opcode);
}

static void post(struct end *e, const void *frame, size_t len, unsigned flags)
{
	struct ibv_sge s = {(uintptr_t)frame, len, e->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 77, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | flags}, *bad;

	CHECK(!ibv_post_send(e->qp, &wr, &bad), "send");
}

static void got(struct end *e, int slot, const void *frame, size_t len, const char *who)
{
	struct ibv_wc wc = poll_good(e->cq);

	CHECK(wc.opcode == IBV_WC_RECV && wc.wr_id == (uint64_t)slot, "%s: id %lu", who, (long)wc.wr_id);
	CHECK(wc.byte_len == len && !(wc.wc_flags & IBV_WC_GRH), "%s: %u bytes", who, wc.byte_len);
	CHECK(wc.qp_num == e->qp->qp_num, "%s: queue pair %#x", who, wc.qp_num);
	CHECK(!memcmp(e->mem + slot * SIZE, frame, len), "%s: bytes", who);
}

static void nothing(struct end *e, const char *who)
{
	struct ibv_wc wc;
	double until = now() + 0.2;

	while (now() < until)
		CHECK(!ibv_poll_cq(e->cq, 1, &wc), "%s: a completion", who);
}

// Builds a frame of `len` bytes and returns `len`. `station` is the last byte of the destination
// MAC address. The frame has an IPv4 or IPv6 header, and the ports of TCP or UDP.
static size_t frame_to(uint8_t *f, size_t len, int station, int v6, const char *src, const char *dst, int proto,
		       int sport, int dport)
{
	uint8_t *ip = f + 14, *l4 = ip + (v6 ? 40 : 20);

	fill(f, len, 9, station);
	memcpy(f, (uint8_t[12]){2, 0, 0, 0, 0, station, 2, 0, 0, 0, 1, 0}, 12);
	f[12] = v6 ? 0x86 : 8;
	f[13] = v6 ? 0xdd : 0;
	if (v6) {
		memset(ip, 0, 8);
		ip[0] = 0x60;
		ip[6] = proto;
		ip[7] = 9;
		CHECK(inet_pton(AF_INET6, src, ip + 8) == 1 && inet_pton(AF_INET6, dst, ip + 24) == 1, "address");
	} else {
		memset(ip, 0, 20);
		ip[0] = 0x45;
		ip[8] = 9;
		ip[9] = proto;
		CHECK(inet_pton(AF_INET, src, ip + 12) == 1 && inet_pton(AF_INET, dst, ip + 16) == 1, "address");
	}
	memcpy(l4, (uint8_t[4]){sport >> 8, sport, dport >> 8, dport}, 4);
	return len;
}

struct rule {
	struct ibv_flow_attr attr;
	uint8_t specs[256];
};

// Appends a specification to the rule.
static void with(struct rule *r, const void *spec, size_t size)
{
	memcpy((uint8_t *)r + r->attr.size, spec, size);
	r->attr.size += size;
	r->attr.num_of_specs++;
}

static struct rule rule_of(int type, int priority, unsigned flags)
{
	struct rule r = {.attr = {.type = type, .size = sizeof(struct ibv_flow_attr), .priority = priority, .port = 1,
				  .flags = flags}};

	return r;
}

static struct rule to_station(int station, int priority, unsigned flags)
{
	struct rule r = rule_of(IBV_FLOW_ATTR_NORMAL, priority, flags);
	struct ibv_flow_spec_eth s = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(s),
				      .val = {.dst_mac = {2, 0, 0, 0, 0, station}}};

	memset(s.mask.dst_mac, 0xff, 6);
	with(&r, &s, sizeof(s));
	return r;
}

static struct ibv_flow *flow(struct end *e, struct rule *r)
{
	struct ibv_flow *f = ibv_create_flow(e->qp, &r->attr);

	CHECK(f, "flow");
	return f;
}

// Frames must reach the queue pairs of another process unchanged, if a flow matches. Other queue
// pairs must not get the frames.
static void between_processes(void)
{
	uint8_t frame[3][1500];
	int up[2], i, status;
	struct end a, b;
	struct rule r;
	pid_t child;
	char byte;

	for (i = 0; i < 3; i++)
		frame_to(frame[i], sizeof(frame[i]), 1 + i % 2, 0, "10.0.0.1", "10.0.0.2", UDP, 1, 2);
	frame[2][200] ^= 1;
	CHECK(!pipe(up), "pipe");
	child = fork();
	CHECK(child >= 0, "fork");
	port_open(&port);
	a = end_new();
	b = end_new();
	if (!child) {
		struct ibv_flow *f[2];

		r = to_station(1, 0, 0);
		f[0] = flow(&a, &r);
		r = to_station(2, 0, 0);
		f[1] = flow(&b, &r);
		for (i = 0; i < 3; i++)
			recv_at(&a, i), recv_at(&b, i);
		CHECK(write(up[1], "x", 1) == 1, "write");
		got(&a, 0, frame[0], 1500, "by a list");
		got(&b, 0, frame[1], 300, "inline");
		got(&a, 1, frame[2], 1500, "by the extended interface");
		nothing(&a, "the first");
		nothing(&b, "the second");
		CHECK(!ibv_destroy_flow(f[0]) && !ibv_destroy_flow(f[1]), "flows");
		end_free(&a);
		end_free(&b);
		port_close(&port);
		_exit(0);
	}
	CHECK(read(up[0], &byte, 1) == 1, "the other process");
	memcpy(a.mem, frame[0], 1500);
	post(&a, a.mem, 1500, 0);
	sent(&a);
	post(&a, frame[1], 300, IBV_SEND_INLINE);
	sent(&a);
	{
		struct ibv_qp_init_attr_ex x = {.qp_type = IBV_QPT_RAW_PACKET, .send_cq = a.cq, .recv_cq = a.cq, .pd = port.pd,
						.cap = {DEPTH, DEPTH, 2, 2, 0},
						.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
						.send_ops_flags = IBV_QP_EX_WITH_SEND};
		struct ibv_qp *qp = ibv_create_qp_ex(port.ctx, &x);
		struct ibv_qp_ex *ex = qp ? ibv_qp_to_qp_ex(qp) : NULL;

		CHECK(ex, "extended");
		for (i = IBV_QPS_INIT; i <= IBV_QPS_RTS; i++)
			to_state(qp, i);
		memcpy(a.mem, frame[2], 1500);
		ibv_wr_start(ex);
		ex->wr_id = 5;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, a.mr->lkey, (uintptr_t)a.mem, 1500);
		CHECK(!ibv_wr_complete(ex), "complete");
		sent(&a);
		CHECK(!ibv_destroy_qp(qp), "destroy");
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0, "child %#x", status);
	end_free(&a);
	end_free(&b);
	port_close(&port);
}

// A program waits for a completion event of a queue pair. A frame from another queue pair of the
// same program must wake the program.
static void an_event_for_a_frame(void)
{
	struct ibv_comp_channel *ch;
	struct pollfd p;
	struct ibv_cq *cq;
	struct end a, b;
	struct rule r = to_station(4, 0, 0);
	struct ibv_flow *f;
	void *context;
	uint8_t frame[100];

	port_open(&port);
	ch = ibv_create_comp_channel(port.ctx);
	CHECK(ch, "channel");
	a = end_new();
	b = end_new();
	CHECK(!ibv_destroy_qp(b.qp) && !ibv_destroy_cq(b.cq), "anew");
	b.cq = cq_new(&port, DEPTH, ch, &b);
	b.qp = qp_new(&port, IBV_QPT_RAW_PACKET, b.cq, b.cq, DEPTH);
	to_state(b.qp, IBV_QPS_INIT);
	to_state(b.qp, IBV_QPS_RTR);
	f = flow(&b, &r);
	// The test makes many rounds, because a lost frame would depend on timing. While the
	// program waits in poll, only the background thread of the device can receive the frame,
	// and this thread may be about to sleep.
	for (int i = 0; i < 500; i++) {
		struct ibv_sge s = {(uintptr_t)b.mem, SIZE, b.mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = 0, .sg_list = &s, .num_sge = 1}, *bad;
		struct ibv_wc wc;

		CHECK(!ibv_post_recv(b.qp, &wr, &bad), "receive");
		CHECK(!ibv_req_notify_cq(b.cq, 0), "arm");
		frame_to(frame, sizeof(frame), 4, 0, "10.0.0.1", "10.0.0.2", UDP, 1, 2);
		post(&a, frame, sizeof(frame), IBV_SEND_INLINE);
		p = (struct pollfd){ch->fd, POLLIN, 0};
		CHECK(poll(&p, 1, 30000) == 1, "no event, round %d", i);
		CHECK(!ibv_get_cq_event(ch, &cq, &context) && context == &b, "event");
		ibv_ack_cq_events(cq, 1);
		got(&b, 0, frame, sizeof(frame), "after its event");
		while (ibv_poll_cq(a.cq, 1, &wc) > 0)
			CHECK(wc.status == IBV_WC_SUCCESS, "sent: %d", wc.status);
	}
	CHECK(!ibv_destroy_flow(f), "flow");
	end_free(&a);
	end_free(&b);
	CHECK(!ibv_destroy_comp_channel(ch), "channel");
	port_close(&port);
}

static struct end tx, rx[4];
static uint8_t frame[512];

// Sends `frame` and returns which of the queue pairs `rx` receive the frame, a bit for each. Waits
// up to 30 seconds for the queue pairs in `wanted`, and 50 ms for others.
static unsigned who(size_t len, unsigned wanted)
{
	double until, end = now() + 30;
	unsigned mask = 0;
	struct ibv_wc wc;
	size_t i;

	post(&tx, frame, len, IBV_SEND_INLINE);
	sent(&tx);
	until = now() + 0.05;
	do {
		for (i = 0; i < ARRAY_LEN(rx); i++)
			if (rx[i].qp && ibv_poll_cq(rx[i].cq, 1, &wc)) {
				CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == len, "%zu: status %d", i, wc.status);
				CHECK(!memcmp(rx[i].mem, frame, len), "%zu: bytes", i);
				CHECK(!(mask & 1u << i), "%zu: twice", i);
				mask |= 1u << i;
				recv_at(&rx[i], 0);
				until = now() + 0.05;
			}
	} while (now() < until || ((mask & wanted) != wanted && now() < end));
	return mask;
}

static void players(void)
{
	size_t i;

	port_open(&port);
	tx = end_new();
	for (i = 0; i < ARRAY_LEN(rx); i++) {
		rx[i] = end_new();
		recv_at(&rx[i], 0);
	}
}

static void players_free(void)
{
	size_t i;

	end_free(&tx);
	for (i = 0; i < ARRAY_LEN(rx); i++)
		end_free(&rx[i]);
	port_close(&port);
}

// For each kind of specification, a flow must take the frames that match, and no other frames.
static void specifications(void)
{
	struct ibv_flow_spec_ipv4 v4 = {.type = IBV_FLOW_SPEC_IPV4, .size = sizeof(v4),
					.val = {.dst_ip = htonl(0x0a000200)}, .mask = {.dst_ip = htonl(0xffffff00)}};
	struct ibv_flow_spec_ipv4_ext ext = {.type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof(ext),
					     .val = {.proto = UDP, .ttl = 9}, .mask = {.proto = 0xff, .ttl = 0xff}};
	struct ibv_flow_spec_ipv6 v6 = {.type = IBV_FLOW_SPEC_IPV6, .size = sizeof(v6)};
	struct ibv_flow_spec_tcp_udp tcp = {.type = IBV_FLOW_SPEC_TCP, .size = sizeof(tcp),
					    .val = {.dst_port = htons(80)}, .mask = {.dst_port = 0xffff}};
	struct rule r[4];
	struct ibv_flow *f[4];
	size_t i;

	players();
	inet_pton(AF_INET6, "2001:db8::2", v6.val.dst_ip);
	memset(v6.mask.dst_ip, 0xff, 16);
	for (i = 0; i < 4; i++)
		r[i] = rule_of(IBV_FLOW_ATTR_NORMAL, i, 0);
	with(&r[0], &v4, sizeof(v4));
	with(&r[0], &tcp, sizeof(tcp));
	with(&r[1], &v4, sizeof(v4));
	with(&r[2], &ext, sizeof(ext));
	with(&r[3], &v6, sizeof(v6));
	for (i = 0; i < 4; i++)
		f[i] = flow(&rx[i], &r[i]);
	frame_to(frame, 300, 7, 0, "10.0.0.1", "10.0.2.9", TCP, 99, 80);
	CHECK(who(300, 1) == 1, "IPv4, TCP");
	frame_to(frame, 300, 7, 0, "10.0.0.1", "10.0.2.9", TCP, 99, 81);
	CHECK(who(300, 2) == 2, "IPv4, another port");
	frame_to(frame, 300, 7, 0, "10.0.0.1", "10.0.3.9", UDP, 99, 80);
	CHECK(who(300, 4) == 4, "protocol and hops");
	frame_to(frame, 300, 7, 1, "2001:db8::1", "2001:db8::2", UDP, 99, 80);
	CHECK(who(300, 8) == 8, "IPv6");
	frame_to(frame, 300, 7, 1, "2001:db8::1", "2001:db8::3", TCP, 99, 80);
	CHECK(who(300, 0) == 0, "nobody's");
	for (i = 0; i < 4; i++)
		CHECK(!ibv_destroy_flow(f[i]), "flow");
	CHECK(who(300, 0) == 0, "without flows");
	players_free();
}

// Tests which flows receive a packet: flows of different priorities, a flow that does not trap, a
// flow that drops, and the types of flows that have no priority (ALL_DEFAULT, MC_DEFAULT, SNIFFER).
static void priorities_and_kinds(void)
{
	struct ibv_flow_spec_action_drop drop = {.type = IBV_FLOW_SPEC_ACTION_DROP, .size = sizeof(drop)};
	struct rule late = to_station(1, 5, 0), early = to_station(1, 1, 0), passing, none, all, groups, nose;
	struct ibv_flow *f[8];
	size_t i;

	players();
	all = rule_of(IBV_FLOW_ATTR_ALL_DEFAULT, 0, 0);
	groups = rule_of(IBV_FLOW_ATTR_MC_DEFAULT, 0, 0);
	nose = rule_of(IBV_FLOW_ATTR_SNIFFER, 0, 0);
	passing = to_station(1, 0, IBV_FLOW_ATTR_FLAGS_DONT_TRAP);
	none = to_station(1, 0, 0);
	with(&none, &drop, sizeof(drop));
	frame_to(frame, 300, 1, 0, "10.0.0.1", "10.0.0.2", UDP, 1, 2);
	f[0] = flow(&rx[3], &all);
	CHECK(who(300, 8) == 8, "all");
	f[1] = flow(&rx[0], &late);
	CHECK(who(300, 1) == 1, "late");
	f[2] = flow(&rx[1], &early);
	CHECK(who(300, 2) == 2, "early");
	f[3] = flow(&rx[0], &early);
	CHECK(who(300, 3) == 3, "two of one priority");
	f[4] = flow(&rx[2], &passing);
	CHECK(who(300, 7) == 7, "one that does not trap");
	CHECK(!ibv_destroy_flow(f[4]), "flow");
	f[4] = flow(&rx[2], &none);
	CHECK(who(300, 0) == 0, "dropped");
	f[5] = flow(&rx[2], &nose);
	CHECK(who(300, 4) == 4, "a sniffer has what is dropped");
	f[6] = flow(&rx[0], &groups);
	frame[0] = 3;
	CHECK(who(300, 13) == 13, "to a group");
	frame[0] = 2;
	frame[5] = 9;
	CHECK(who(300, 12) == 12, "to another station");
	for (i = 0; i < 7; i++)
		CHECK(!ibv_destroy_flow(f[i]), "flow %zu", i);
	players_free();
}

// The key of the test vectors that Microsoft publishes for the Toeplitz hash.
static const uint8_t key[40] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
				0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
				0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

struct spread {
	struct ibv_wq *wq[8];
	struct ibv_cq *cq[8];
	struct ibv_rwq_ind_table *table;
	struct ibv_qp *qp;
	struct end memory;
};

static struct ibv_wq *wq_new(struct ibv_cq *cq)
{
	struct ibv_wq_init_attr a = {.wq_type = IBV_WQT_RQ, .max_wr = DEPTH, .max_sge = 2, .pd = port.pd, .cq = cq};
	struct ibv_wq *wq = ibv_create_wq(port.ctx, &a);

	CHECK(wq && wq->state == IBV_WQS_RESET && wq->cq == cq && wq->pd == port.pd, "work queue");
	return wq;
}

static int wq_to(struct ibv_wq *wq, enum ibv_wq_state state)
{
	struct ibv_wq_attr a = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = state};

	return ibv_modify_wq(wq, &a);
}

static void wq_recv(struct spread *s, int n)
{
	struct ibv_sge sge = {(uintptr_t)s->memory.mem + n * SIZE, SIZE, s->memory.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(!ibv_post_wq_recv(s->wq[n], &wr, &bad), "receive");
}

static struct ibv_qp *spreading(struct ibv_rwq_ind_table *table, uint8_t function, uint8_t len, uint64_t fields)
{
	struct ibv_qp_init_attr_ex a = {
		.qp_type = IBV_QPT_RAW_PACKET, .pd = port.pd, .rwq_ind_tbl = table,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.rx_hash_conf = {function, len, (uint8_t *)key, fields},
	};

	return ibv_create_qp_ex(port.ctx, &a);
}

static struct spread spread_new(uint8_t function, uint64_t fields)
{
	struct ibv_rwq_ind_table_init_attr t = {.log_ind_tbl_size = 3};
	struct spread s = {0};
	int i;

	memory_new(&s.memory);
	for (i = 0; i < 8; i++) {
		s.cq[i] = cq_new(&port, DEPTH, NULL, NULL);
		s.wq[i] = wq_new(s.cq[i]);
		wq_recv(&s, i);
		CHECK(!wq_to(s.wq[i], IBV_WQS_RDY) && s.wq[i]->state == IBV_WQS_RDY, "ready");
	}
	t.ind_tbl = s.wq;
	s.table = ibv_create_rwq_ind_table(port.ctx, &t);
	CHECK(s.table, "table");
	s.qp = spreading(s.table, function, function == IBV_RX_HASH_FUNC_TOEPLITZ ? 40 : 0, fields);
	CHECK(s.qp, "spreading queue pair");
	return s;
}

static void spread_free(struct spread *s)
{
	int i;

	CHECK(!ibv_destroy_qp(s->qp) && !ibv_destroy_rwq_ind_table(s->table), "destroy");
	for (i = 0; i < 8; i++)
		CHECK(!ibv_destroy_wq(s->wq[i]) && !ibv_destroy_cq(s->cq[i]), "destroy");
	CHECK(!ibv_dereg_mr(s->memory.mr), "dereg");
	free(s->memory.mem);
}

// Sends `frame` and returns the index of the work queue that receives the frame, or -1.
static int queue_of(struct spread *s, size_t len)
{
	struct ibv_wc wc;
	double until;
	int i, found = -1;

	post(&tx, frame, len, IBV_SEND_INLINE);
	sent(&tx);
	until = now() + 30;
	while (found < 0 && now() < until)
		for (i = 0; i < 8; i++)
			if (ibv_poll_cq(s->cq[i], 1, &wc)) {
				CHECK(found < 0 && wc.status == IBV_WC_SUCCESS && wc.byte_len == len, "queue %d", i);
				CHECK(!memcmp(s->memory.mem + i * SIZE, frame, len), "bytes");
				CHECK(wc.qp_num == s->wq[i]->wq_num, "number %#x", wc.qp_num);
				found = i;
				wq_recv(s, i);
			}
	return found;
}

// The Toeplitz hash over the selected fields spreads the frames over the work queues. The hash
// values of the test frames are published with the key.
static void spread_by_toeplitz(void)
{
	static const struct {
		const char *dst, *src;
		int dport, sport, v6;
		uint32_t addresses, ports;
	} v[] = {
		{"161.142.100.80", "66.9.149.187", 1766, 2794, 0, 0x323e8fc2, 0x51ccc178},
		{"65.69.140.83", "199.92.111.2", 4739, 14230, 0, 0xd718262a, 0xc626b0ea},
		{"12.22.207.184", "24.19.198.95", 38024, 12898, 0, 0xd2d0a5de, 0x5c2b394a},
		{"202.188.127.2", "153.39.163.191", 1303, 44251, 0, 0x5d1809c5, 0x10e828a2},
		{"3ffe:2501:200:3::1", "3ffe:2501:200:1fff::7", 1766, 2794, 1, 0x2cc18cd5, 0x40207d3d},
		{"ff02::1", "3ffe:501:8::260:97ff:fe40:efab", 4739, 14230, 1, 0x0f0c461c, 0xdde51bbf},
	};
	uint64_t addresses = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6;
	struct rule all = rule_of(IBV_FLOW_ATTR_ALL_DEFAULT, 0, 0);
	struct ibv_flow *f;
	struct spread s;
	size_t i, round;

	port_open(&port);
	tx = end_new();
	for (round = 0; round < 2; round++) {
		s = spread_new(IBV_RX_HASH_FUNC_TOEPLITZ,
			       round ? addresses | IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP : addresses);
		f = ibv_create_flow(s.qp, &all.attr);
		CHECK(f, "flow");
		for (i = 0; i < ARRAY_LEN(v); i++) {
			frame_to(frame, 200, 3, v[i].v6, v[i].src, v[i].dst, TCP, v[i].sport, v[i].dport);
			CHECK(queue_of(&s, 200) == (int)((round ? v[i].ports : v[i].addresses) & 7), "%s", v[i].src);
		}
		CHECK(ibv_destroy_qp(s.qp) == EBUSY, "a queue pair with a flow");
		CHECK(!ibv_destroy_flow(f), "flow");
		spread_free(&s);
	}
	end_free(&tx);
	port_close(&port);
}

static void spread_by_xor(void)
{
	struct rule all = rule_of(IBV_FLOW_ATTR_ALL_DEFAULT, 0, 0);
	struct ibv_flow *f;
	struct spread s;
	char src[16];
	int i;

	port_open(&port);
	tx = end_new();
	s = spread_new(2, IBV_RX_HASH_SRC_IPV4);
	f = ibv_create_flow(s.qp, &all.attr);
	CHECK(f, "flow");
	for (i = 0; i < 16; i++) {
		snprintf(src, sizeof(src), "10.0.0.%d", i);
		frame_to(frame, 200, 3, 0, src, "10.9.9.9", UDP, i, i);
		CHECK(queue_of(&s, 200) == ((10 ^ i) & 7), "%s", src);
	}
	CHECK(!ibv_destroy_flow(f), "flow");
	spread_free(&s);
	end_free(&tx);
	port_close(&port);
}

// Tests work queues: states, flushed receives, and objects that cannot be destroyed while in use.
static void work_queues(void)
{
	struct ibv_wq_attr wrong = {.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE, .wq_state = IBV_WQS_RDY,
				    .curr_wq_state = IBV_WQS_ERR};
	struct ibv_wq_init_attr flags = {.wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1,
					 .comp_mask = IBV_WQ_INIT_ATTR_FLAGS, .create_flags = IBV_WQ_FLAGS_SCATTER_FCS};
	struct ibv_wq_init_attr many = {.wq_type = IBV_WQT_RQ, .max_wr = 1u << 30, .max_sge = 1};
	struct spread s;
	struct ibv_wc wc;

	port_open(&port);
	s = spread_new(IBV_RX_HASH_FUNC_TOEPLITZ, IBV_RX_HASH_SRC_IPV4);
	CHECK(ibv_destroy_wq(s.wq[0]) == EBUSY, "a work queue in a table");
	CHECK(ibv_destroy_rwq_ind_table(s.table) == EBUSY, "a table with a queue pair");
	CHECK(ibv_destroy_cq(s.cq[0]) == EBUSY, "a CQ with a work queue");
	CHECK(ibv_modify_wq(s.wq[0], &wrong) == EINVAL, "another state than it is in");
	CHECK(!wq_to(s.wq[0], IBV_WQS_ERR) && s.wq[0]->state == IBV_WQS_ERR, "to ERR");
	wc = poll_one(s.cq[0]);
	CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 0, "status %d", wc.status);
	CHECK(wq_to(s.wq[0], IBV_WQS_RDY) == EINVAL, "from ERR to RDY");
	CHECK(!wq_to(s.wq[0], IBV_WQS_RESET) && !wq_to(s.wq[0], IBV_WQS_RDY), "anew");
	flags.pd = many.pd = port.pd;
	flags.cq = many.cq = s.cq[0];
	CHECK(!ibv_create_wq(port.ctx, &flags) && errno == EOPNOTSUPP, "flags");
	CHECK(!ibv_create_wq(port.ctx, &many) && errno == EINVAL, "too many receives");
	CHECK(!spreading(s.table, IBV_RX_HASH_FUNC_TOEPLITZ, 39, 3) && errno == EINVAL, "a short key");
	CHECK(!spreading(s.table, 4, 40, 3) && errno == EOPNOTSUPP, "another function");
	CHECK(!spreading(s.table, IBV_RX_HASH_FUNC_TOEPLITZ, 40, IBV_RX_HASH_IPSEC_SPI) && errno == EOPNOTSUPP, "fields");
	spread_free(&s);
	port_close(&port);
}

static int refused(struct end *e, struct rule *r)
{
	errno = 0;
	CHECK(!ibv_create_flow(e->qp, &r->attr), "a flow");
	return errno;
}

static void refusals(void)
{
	struct ibv_flow_spec_tunnel vxlan = {.type = IBV_FLOW_SPEC_VXLAN_TUNNEL, .size = sizeof(vxlan)};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_IP_CSUM | IBV_SEND_INLINE, .num_sge = 1}, *bad;
	struct ibv_sge s = {(uintptr_t)frame, 100, 0};
	struct ibv_device_attr_ex attr;
	struct rule r;
	struct ibv_flow *f;
	struct ibv_qp *ud;
	struct end a;
	struct ibv_wc wc;

	port_open(&port);
	CHECK(!ibv_query_device_ex(port.ctx, NULL, &attr), "query");
	CHECK(attr.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING, "flow steering");
	CHECK(!(attr.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM) && !attr.raw_packet_caps, "no checksums");
	CHECK(attr.orig_attr.max_raw_ethy_qp > 0 && attr.max_wq_type_rq > 0, "limits");
	CHECK(attr.rss_caps.supported_qpts == 1u << IBV_QPT_RAW_PACKET, "types");
	CHECK(attr.rss_caps.rx_hash_function & IBV_RX_HASH_FUNC_TOEPLITZ, "functions");
	CHECK(attr.rss_caps.max_rwq_indirection_tables > 0 && attr.rss_caps.max_rwq_indirection_table_size >= 128, "tables");
	a = end_new();
	ud = qp_new(&port, IBV_QPT_UD, a.cq, a.cq, 1);
	r = rule_of(IBV_FLOW_ATTR_ALL_DEFAULT, 0, 0);
	CHECK(!ibv_create_flow(ud, &r.attr) && errno == EINVAL, "a flow of a UD queue pair");
	CHECK(!ibv_destroy_qp(ud), "destroy");
	r.attr.port = 2;
	CHECK(refused(&a, &r) == EINVAL, "port");
	r = rule_of(9, 0, 0);
	CHECK(refused(&a, &r) == EINVAL, "type");
	r = rule_of(IBV_FLOW_ATTR_NORMAL, 0, IBV_FLOW_ATTR_FLAGS_EGRESS);
	CHECK(refused(&a, &r) == EOPNOTSUPP, "egress");
	r = rule_of(IBV_FLOW_ATTR_NORMAL, 0, 0);
	with(&r, &vxlan, sizeof(vxlan));
	CHECK(refused(&a, &r) == EOPNOTSUPP, "VXLAN");
	r = to_station(1, 0, 0);
	((struct ibv_flow_spec_eth *)r.specs)->size = 8;
	CHECK(refused(&a, &r) == EINVAL, "a specification that is cut short");
	r = to_station(1, 0, 0);
	f = flow(&a, &r);
	CHECK(ibv_destroy_qp(a.qp) == EBUSY, "a queue pair with a flow");
	CHECK(!ibv_destroy_flow(f), "flow");
	CHECK(ibv_destroy_flow(f) == EINVAL, "twice");
	wr.sg_list = &s;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL && bad == &wr, "checksums");
	wr.send_flags = IBV_SEND_INLINE;
	wr.opcode = IBV_WR_RDMA_WRITE;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL, "opcode");
	post(&a, frame, 13, IBV_SEND_INLINE);
	wc = poll_one(a.cq);
	CHECK(wc.status == IBV_WC_LOC_LEN_ERR, "thirteen bytes: %d", wc.status);
	end_free(&a);
	port_close(&port);
}

// Builds frame `n` of the test between two network namespaces, and returns its length.
static size_t cable_frame(uint8_t *f, int n, const uint8_t *mac)
{
	static const size_t lens[] = {60, 1514, 300};

	fill(f, 1514, 4, n);
	memcpy(f, mac, 6);
	memcpy(f + 6, (uint8_t[6]){2, 0, 0, 0, 9, 9}, 6);
	// The EtherType for local experiments. The last frame has a VLAN tag before the EtherType.
	memcpy(f + 12, n == 2 ? (uint8_t[6]){0x81, 0, 0x20, 5, 0x88, 0xb5} : (uint8_t[2]){0x88, 0xb5}, n == 2 ? 6 : 2);
	return lens[n];
}

static void mac_of(const char *text, uint8_t *mac)
{
	unsigned m[6];
	int i;

	CHECK(sscanf(text, "%x:%x:%x:%x:%x:%x", m, m + 1, m + 2, m + 3, m + 4, m + 5) == 6, "%s", text);
	for (i = 0; i < 6; i++)
		mac[i] = m[i];
}

// Tests three frames over a cable. `raw out MAC` sends the frames of cable_frame to the station
// MAC. `raw in MAC` receives and compares these frames.
static void cable(const char *way, const char *station)
{
	struct ibv_flow_spec_eth s = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(s)};
	struct rule r = rule_of(IBV_FLOW_ATTR_NORMAL, 0, 0);
	uint8_t f[1600];
	struct ibv_flow *fl;
	struct end e;
	size_t len;
	int i;

	port_open(&port);
	e = end_new();
	mac_of(station, s.val.dst_mac);
	if (!strcmp(way, "out")) {
		for (i = 0; i < 3; i++) {
			len = cable_frame(e.mem, i, s.val.dst_mac);
			post(&e, e.mem, len, 0);
			sent(&e);
		}
	} else {
		memset(s.mask.dst_mac, 0xff, 6);
		s.val.ether_type = htons(0x88b5);
		s.mask.ether_type = 0xffff;
		with(&r, &s, sizeof(s));
		for (i = 0; i < 3; i++)
			recv_at(&e, i);
		fl = flow(&e, &r);
		printf("ready\n");
		for (i = 0; i < 3; i++) {
			len = cable_frame(f, i, s.val.dst_mac);
			got(&e, i, f, len, "over the cable");
		}
		nothing(&e, "over the cable");
		CHECK(!ibv_destroy_flow(fl), "flow");
	}
	end_free(&e);
	port_close(&port);
}

// This process has no right to open packet sockets on the interface, so it must not get a raw
// packet queue pair.
static void no_right(void)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RAW_PACKET, .cap = {1, 1, 1, 1, 0}};
	struct ibv_cq *cq;

	port_open(&port);
	cq = cq_new(&port, 1, NULL, NULL);
	a.send_cq = a.recv_cq = cq;
	CHECK(!ibv_create_qp(port.pd, &a) && errno == EPERM, "a queue pair");
	CHECK(!ibv_destroy_cq(cq), "cq");
	port_close(&port);
}

static const struct {
	const char *id, *name;
	void (*run)(void);
} cases[] = {
	{"RAW-1", "between_processes", between_processes},
	{"RAW-1", "an_event_for_a_frame", an_event_for_a_frame},
	{"RAW-3", "specifications", specifications},
	{"RAW-3", "priorities_and_kinds", priorities_and_kinds},
	{"RAW-4", "spread_by_toeplitz", spread_by_toeplitz},
	{"RAW-4", "spread_by_xor", spread_by_xor},
	{"RAW-4", "work_queues", work_queues},
	{"RAW-5", "refusals", refusals},
};

int main(int argc, char **argv)
{
	size_t i;

	setlinebuf(stdout);
	alarm(60);
	if (argc == 3) {
		cable(argv[1], argv[2]);
		printf("ok %s\n", argv[1]);
		return 0;
	}
	if (argc == 2 && !strcmp(argv[1], "no_right")) {
		no_right();
		printf("ok no_right\n");
		return 0;
	}
	for (i = 0; i < ARRAY_LEN(cases); i++) {
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			printf("ok %s\n", cases[i].name);
			return 0;
		}
	}
	printf("FAIL no such case\n");
	return 1;
}
