// Two programs on two machines check every byte of every operation, or cause a fault and print its
// results. The program with a HOST is the requester, the other program the responder. Both get the
// same options:
//     peer -a ADDRESS -p PORT [-q rc|uc|ud] [-m MTU] [-s SIZES] [-o OPERATIONS] [-w WINDOW] [HOST]
//     peer -a ADDRESS -p PORT -x FAULT [-t TIMEOUT] [-R RETRIES] [-n RNR_TIMER] [-N RNR_RETRIES]
//         [-l LATE_MS] [HOST]
// ADDRESS is the address of the end itself, and selects the device and the GID. For each size,
// WINDOW messages are outstanding at the same time. Message i of the run has operation i modulo the
// number of operations. The program prints "OK" if all checks passed.
#define _GNU_SOURCE // strerrorname_np
#include "ends.h"
#include "faults.h"

// Guard bytes around each message, which no operation may change. For UD the GRH lies in the guard
// before the message.
#define GUARD 64
#define GUARD_BYTE 0xA5
#define EMPTY_BYTE 0xEE

// The end that wrote the bytes of a pattern.
enum { OF_REQUESTER = 1, OF_RESPONDER = 2 };

struct message {
	uint64_t seq;
	enum op op;
	uint32_t len;
	uint8_t *at;	 // the local bytes
	uint64_t remote; // the remote address
	struct ibv_mw *window;
};

// The responder sends this structure when it has posted the receives and bound the windows of a
// round.
struct ready {
	uint32_t rkey[MAX_WINDOW];
};

static size_t stride;
static uint8_t *scratch;

static uint64_t word(uint64_t seq)
{
	return (seq + 1) * 0x9E3779B97F4A7C15ull;
}

static uint32_t immediate(uint64_t seq)
{
	return htonl((uint32_t)(seq * 2654435761u) | 1);
}

static int matches(const struct message *m, int whose)
{
	fill(scratch, m->len, whose, m->seq);
	return !memcmp(scratch, m->at, m->len);
}

static void check_guards(struct end *e, const struct message *m)
{
	int i, before = e->o.type == IBV_QPT_UD ? GUARD - GRH : GUARD;

	for (i = 0; i < before; i++)
		CHECK(m->at[i - GUARD] == GUARD_BYTE, "byte %d before message %lu", GUARD - i, m->seq);
	for (i = 0; i < GUARD; i++)
		CHECK(m->at[m->len + i] == GUARD_BYTE, "byte %d after message %lu", i, m->seq);
}

// Plans the messages of a round. Both ends make the same plan.
static void plan(struct end *e, struct message *all, uint64_t first, uint32_t size)
{
	for (int i = 0; i < e->o.window; i++) {
		struct message *m = &all[i];

		m->seq = first + i;
		m->op = e->o.ops[m->seq % e->o.nops];
		m->len = m->op == CAS || m->op == FADD ? 8 : size;
		m->at = e->mem + i * stride + GUARD;
		m->remote = e->theirs.addr + i * stride + GUARD;
		memset(m->at - GUARD, GUARD_BYTE, stride);
	}
}

// Returns the value in memory after an atomic. Every second compare-and-swap compares with a wrong
// value, so the memory does not change.
static uint64_t atomic_result(const struct message *m)
{
	if (m->op == FADD)
		return word(m->seq) + m->seq;
	return m->seq % 2 ? word(m->seq) : ~word(m->seq);
}

// ---- the responder

static uint32_t bind_window(struct end *e, struct message *m)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc;

	wr.bind_mw.mw = m->window;
	wr.bind_mw.rkey = ibv_inc_rkey(m->window->rkey);
	wr.bind_mw.bind_info.mr = e->mr;
	wr.bind_mw.bind_info.addr = (uintptr_t)m->at;
	wr.bind_mw.bind_info.length = GUARD;
	wr.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
	post(e, &wr);
	CHECK(poll_within(e->scq, &wc, SECONDS_OF_PATIENCE), "bind");
	CHECK(wc.status == IBV_WC_SUCCESS, "bind: %s", ibv_wc_status_str(wc.status));
	m->window->rkey = wr.bind_mw.rkey;
	return wr.bind_mw.rkey;
}

static uint32_t prepare_response(struct end *e, struct message *m, int slot)
{
	uint64_t old = word(m->seq);
	int grh = e->o.type == IBV_QPT_UD ? GRH : 0;

	if (m->op == READ)
		fill(m->at, m->len, OF_RESPONDER, m->seq);
	else if (m->op == CAS || m->op == FADD)
		memcpy(m->at, &old, sizeof(old));
	else
		memset(m->at, EMPTY_BYTE, m->len);
	if (takes_receive(m->op))
		post_receive(e, slot, m->at - grh, m->op == WRITE_IMM ? 0 : m->len + grh, e->mr->lkey);
	return m->op == SEND_INV ? bind_window(e, m) : 0;
}

// Checks the addresses in the header before a UD message.
static void check_grh(struct end *e, const struct message *m)
{
	const uint8_t *grh = m->at - GRH, *from = e->theirs.gid.raw, *to = e->gid.raw;

	if (strchr(e->o.local, ':'))
		CHECK(!memcmp(grh + 8, from, 16) && !memcmp(grh + 24, to, 16), "IPv6 addresses of message %lu", m->seq);
	else
		CHECK(!memcmp(grh + 32, from + 12, 4) && !memcmp(grh + 36, to + 12, 4), "IPv4 addresses of message %lu",
		      m->seq);
}

// Returns the completion flag that reports an invalidation. rxe of Linux 6.1 passes on the kernel's
// value of this flag. In user space, the same value means IBV_WC_IP_CSUM_OK.
static int invalidation_flag(struct end *e)
{
	return strncmp(ibv_get_device_name(e->ctx->device), "rxe", 3) ? IBV_WC_WITH_INV : IBV_WC_IP_CSUM_OK;
}

static void check_receive(struct end *e, const struct message *m, int slot, uint32_t rkey)
{
	int ud = e->o.type == IBV_QPT_UD, imm = m->op == SEND_IMM || m->op == WRITE_IMM;
	struct ibv_wc wc;

	CHECK(poll_within(e->rcq, &wc, SECONDS_OF_PATIENCE), "no receive completion of message %lu", m->seq);
	CHECK(wc.status == IBV_WC_SUCCESS, "message %lu: %s", m->seq, ibv_wc_status_str(wc.status));
	CHECK(wc.wr_id == (uint64_t)slot && wc.qp_num == e->qp->qp_num, "message %lu went to %lu", m->seq, wc.wr_id);
	CHECK(wc.opcode == (m->op == WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV), "message %lu: opcode %d", m->seq,
	      wc.opcode);
	CHECK(wc.byte_len == m->len + (ud ? GRH : 0), "message %lu of %u bytes came with %u", m->seq, m->len, wc.byte_len);
	CHECK(!(wc.wc_flags & IBV_WC_WITH_IMM) == !imm && (!imm || wc.imm_data == immediate(m->seq)),
	      "immediate of message %lu: flags %x, %x", m->seq, wc.wc_flags, wc.imm_data);
	CHECK(!(wc.wc_flags & invalidation_flag(e)) == (m->op != SEND_INV) && (m->op != SEND_INV || wc.invalidated_rkey == rkey),
	      "invalidation by message %lu: flags %x, %x", m->seq, wc.wc_flags, wc.invalidated_rkey);
	if (ud) {
		CHECK(wc.wc_flags & IBV_WC_GRH && wc.src_qp == e->theirs.qpn, "source of message %lu", m->seq);
		check_grh(e, m);
	}
}

// UC has no acknowledgements, so a WRITE may arrive after the requester has said over TCP that all
// requests have completed. The check then waits up to 60 s.
static void check_arrival(struct end *e, const struct message *m)
{
	double end = now() + (e->o.type == IBV_QPT_RC ? 0 : 60);
	uint64_t value;

	if (m->op == CAS || m->op == FADD) {
		memcpy(&value, m->at, sizeof(value));
		CHECK(value == atomic_result(m), "memory of atomic %lu", m->seq);
	} else if (m->op != READ) {
		while (!matches(m, OF_REQUESTER))
			CHECK(now() < end, "bytes of message %lu", m->seq);
	}
	check_guards(e, m);
}

static void respond(struct end *e, struct message *all)
{
	struct ready ready = {0};
	char done;
	int i;

	for (i = 0; i < e->o.window; i++)
		ready.rkey[i] = prepare_response(e, &all[i], i);
	send_all(e, &ready, sizeof(ready));
	receive_all(e, &done, 1);
	for (i = 0; i < e->o.window; i++)
		if (takes_receive(all[i].op))
			check_receive(e, &all[i], i, ready.rkey[i]);
	for (i = 0; i < e->o.window; i++)
		check_arrival(e, &all[i]);
}

// ---- the requester

static void prepare_request(struct message *m)
{
	if (m->op >= READ)
		memset(m->at, EMPTY_BYTE, m->len);
	else
		fill(m->at, m->len, OF_REQUESTER, m->seq);
}

static void post_request(struct end *e, struct message *m, uint32_t rkey)
{
	struct ibv_sge from = {(uintptr_t)m->at, m->len, e->mr->lkey};
	struct ibv_send_wr wr = request(e, m->op, &from, m->remote);

	wr.wr_id = m->seq;
	if (m->op == SEND_IMM || m->op == WRITE_IMM)
		wr.imm_data = immediate(m->seq);
	if (m->op == SEND_INV)
		wr.invalidate_rkey = rkey;
	if (m->op == CAS) {
		wr.wr.atomic.compare_add = word(m->seq) + m->seq % 2;
		wr.wr.atomic.swap = ~word(m->seq);
	}
	if (m->op == FADD)
		wr.wr.atomic.compare_add = m->seq;
	post(e, &wr);
}

static void check_request(struct end *e, const struct message *m)
{
	static const enum ibv_wc_opcode opcode[OPS] = {
		IBV_WC_SEND,	   IBV_WC_SEND,	     IBV_WC_SEND,      IBV_WC_RDMA_WRITE,
		IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD,
	};
	struct ibv_wc wc;

	CHECK(poll_within(e->scq, &wc, SECONDS_OF_PATIENCE), "no completion of message %lu", m->seq);
	CHECK(wc.status == IBV_WC_SUCCESS, "message %lu, %s of %u bytes: %s", m->seq, OP_NAME[m->op], m->len,
	      ibv_wc_status_str(wc.status));
	CHECK(wc.wr_id == m->seq && wc.opcode == opcode[m->op], "message %lu: id %lu, opcode %d", m->seq, wc.wr_id, wc.opcode);
	CHECK(m->op != READ || wc.byte_len == m->len, "READ of %u bytes gave %u", m->len, wc.byte_len);
}

static void check_response(struct end *e, const struct message *m)
{
	uint64_t value;

	if (m->op == CAS || m->op == FADD) {
		memcpy(&value, m->at, sizeof(value));
		CHECK(value == word(m->seq), "answer to atomic %lu", m->seq);
	} else {
		CHECK(matches(m, m->op == READ ? OF_RESPONDER : OF_REQUESTER), "bytes of message %lu", m->seq);
	}
	check_guards(e, m);
}

static void ask(struct end *e, struct message *all)
{
	struct ready ready;
	int i;

	for (i = 0; i < e->o.window; i++)
		prepare_request(&all[i]);
	receive_all(e, &ready, sizeof(ready));
	for (i = 0; i < e->o.window; i++)
		post_request(e, &all[i], ready.rkey[i]);
	for (i = 0; i < e->o.window; i++)
		check_request(e, &all[i]);
	for (i = 0; i < e->o.window; i++)
		check_response(e, &all[i]);
	send_all(e, "d", 1);
}

static void run_all(struct end *e)
{
	struct message all[MAX_WINDOW] = {0};
	uint32_t max = 64;
	uint64_t seq = 0;
	int i, inv = 0;

	for (i = 0; i < e->o.nsizes; i++)
		max = e->o.sizes[i] > max ? e->o.sizes[i] : max;
	for (i = 0; i < e->o.nops; i++)
		inv |= e->o.ops[i] == SEND_INV;
	CHECK(e->o.nsizes && e->o.nops, "no sizes or no operations");
	stride = ((size_t)max + 2 * GUARD + 63) & ~(size_t)63;
	scratch = malloc(max);
	make_end(e, stride * e->o.window, 2 * MAX_WINDOW,
		 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	for (i = 0; inv && !e->o.host && i < e->o.window; i++) {
		all[i].window = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
		CHECK(all[i].window, "memory window");
	}
	join(e, e->mem, e->mr->rkey);
	// In this number of rounds for each size, each operation occurs at least once.
	int rounds = (e->o.nops + e->o.window - 1) / e->o.window;
	for (i = 0; i < e->o.nsizes * rounds; i++) {
		plan(e, all, seq, e->o.sizes[i / rounds]);
		if (e->o.host)
			ask(e, all);
		else
			respond(e, all);
		seq += e->o.window;
	}
	printf("OK %lu messages\n", seq);
}

int main(int argc, char **argv)
{
	struct end e = {.o = parse(argc, argv)};

	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(300);
	open_device(&e);
	if (e.o.fault)
		provoke(&e);
	else
		run_all(&e);
	return 0;
}
