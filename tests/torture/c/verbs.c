// Registrations, and operations on the memory: between two queue pairs of this process, by the
// peer, and by the foreigner, a process without RDMA.
#include "torture.h"
#include <sched.h>

#define LOCAL IBV_ACCESS_LOCAL_WRITE
#define ALL_ACCESS (LOCAL | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

// Opens the device with the GID of 127.0.0.1.
void device_open(struct port *p)
{
	static const uint8_t want[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
	struct ibv_device **list;
	int n = 0, i, j;

	list = ibv_get_device_list(&n);
	CHECK(list && n > 0, "no device");
	for (i = 0; i < n; i++) {
		p->ctx = ibv_open_device(list[i]);
		CHECK(p->ctx && !ibv_query_port(p->ctx, 1, &p->attr), "open device %d", i);
		for (j = 0; j < p->attr.gid_tbl_len; j++)
			if (!ibv_query_gid(p->ctx, 1, j, &p->gid) && !memcmp(&p->gid, want, 16))
				break;
		if (j < p->attr.gid_tbl_len)
			break;
		ibv_close_device(p->ctx);
	}
	CHECK(i < n, "no device has the GID of 127.0.0.1");
	p->gid_index = j;
	ibv_free_device_list(list);
	p->pd = ibv_alloc_pd(p->ctx);
	CHECK(p->pd, "pd");
}

void verbs_thread(struct thread *t)
{
	t->cq = cq_new(&port, 256, NULL, NULL);
	t->own[0] = qp_new(&port, IBV_QPT_RC, t->cq, t->cq, 16);
	t->own[1] = qp_new(&port, IBV_QPT_RC, t->cq, t->cq, 16);
	qp_pair(&port, t->own[0], t->own[1]);
	link_open(&t->peer, t->cq);
}

// ---- Registrations.
static int any_access(struct thread *t)
{
	static const int sets[] = {
		0, LOCAL, LOCAL, IBV_ACCESS_REMOTE_READ, LOCAL | IBV_ACCESS_REMOTE_WRITE,
		LOCAL | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, ALL_ACCESS, ALL_ACCESS, ALL_ACCESS,
	};

	return sets[rng_below(&t->rng, ARRAY_LEN(sets))];
}

void register_part(struct thread *t, struct block *b, size_t from, size_t to)
{
	struct region *r;
	int i;

	for (i = 0; i < MRS && t->region[i].mr; i++)
		;
	if (i == MRS)
		return;
	r = &t->region[i];
	r->access = any_access(t);
	r->block = b - t->block;
	r->off = from;
	r->len = to - from;
	r->used = 0;
	r->mr = ibv_reg_mr(port.pd, b->mem + from, to - from, r->access);
	note(t, b, "ibv_reg_mr(%zu..%zu, access %x) = key %x", from, to, r->access, r->mr ? r->mr->rkey : 0);
	if (!r->mr)
		fail(t, b, "ibv_reg_mr");
}

void step_register(struct thread *t)
{
	struct block *b = any_block(t, 1 << HEAP | 1 << MAPPED | 1 << SHARED, 0);
	size_t from, to;

	// A registration needs memory with read and write access.
	if (!b || b->prot != (PROT_READ | PROT_WRITE))
		return;
	switch (rng_below(&t->rng, 4)) {
	case 0:
		from = 0;
		to = b->len;
		break;
	case 1:
		if (inner_part(t, b, &from, &to))
			break;
		// fallthrough
	default:
		from = rng_below(&t->rng, b->len);
		to = from + 1 + rng_below(&t->rng, b->len - from);
	}
	// A registration may write to pages after MADV_FREE. Such a page then has either its old
	// bytes or zeroes, and the check accepts both.
	register_part(t, b, from, to);
	check(t, b, 0, b->len, "ibv_reg_mr");
}

void deregister(struct thread *t, struct region *r)
{
	struct block *b = r->block < 0 ? NULL : &t->block[r->block];
	uint32_t key = r->mr->rkey;
	int e = ibv_dereg_mr(r->mr);

	note(t, b, "ibv_dereg_mr(key %x)", key);
	if (e)
		fail(t, b, "ibv_dereg_mr gave %d", e);
	r->mr = NULL;
	if (b)
		check(t, b, 0, b->len, "ibv_dereg_mr");
}

void step_deregister(struct thread *t)
{
	int i, n = 0, pick;

	for (i = 0; i < MRS; i++)
		n += t->region[i].mr && !t->region[i].used;
	// Makes room for new regions. The fuller the table of regions, the likelier is a
	// deregistration.
	if (!n || (int)rng_below(&t->rng, MRS) > n + 8)
		return;
	pick = rng_below(&t->rng, n);
	for (i = 0;; i++)
		if (t->region[i].mr && !t->region[i].used && !pick--)
			break;
	deregister(t, &t->region[i]);
}

void forget(struct thread *t, struct block *b, size_t from, size_t to)
{
	int i, properly = rng_chance(&t->rng, 60);

	for (i = 0; i < MRS; i++) {
		struct region *r = &t->region[i];

		if (!r->mr || r->block != b - t->block || r->off >= to || r->off + r->len <= from)
			continue;
		// The memory may already be unmapped. With -1, deregister() does not compare the
		// bytes.
		r->block = -1;
		if (properly)
			deregister(t, r);
	}
}

// ---- Completions.
static void drain(struct thread *t)
{
	struct ibv_wc wc[8];
	int n = ibv_poll_cq(t->cq, 8, wc), i;

	if (n < 0)
		fail(t, NULL, "ibv_poll_cq gave %d", n);
	for (i = 0; i < n; i++) {
		if (wc[i].wr_id >= TAGS)
			fail(t, NULL, "completion of a request %lu that was never posted", wc[i].wr_id);
		if (wc[i].status)
			fail(t, NULL, "request %lu: %s, vendor_err %#x", wc[i].wr_id, ibv_wc_status_str(wc[i].status),
			     wc[i].vendor_err);
		t->done[wc[i].wr_id]++;
	}
}

int wait_tag(struct thread *t, int tag)
{
	double end = now() + HANG_LIMIT;
	int rounds = 0;

	while (!t->done[tag]) {
		drain(t);
		if (t->done[tag])
			break;
		sched_yield();
		if (++rounds > 1000) {
			if (now() > end)
				fail(t, NULL, "no completion of request %d within %d seconds", tag, HANG_LIMIT);
			usleep(50);
		}
	}
	t->done[tag] = 0;
	return 0;
}

// ---- Choosing ranges.
static int whole(struct block *b)
{
	return b->kind && !b->busy;
}

// Returns a random region with these rights and with at least `least` bytes, in a block without a
// pending operation. The block `besides` is excluded. Returns -1 if there is no such region.
static int any_region(struct thread *t, int access, int besides, size_t least)
{
	int i, n = 0, pick;

#define FITS(r)                                                                                              \
	((r).mr && (r).block >= 0 && ((r).access & access) == access && (r).block != besides && (r).len >= least && \
	 whole(&t->block[(r).block]))
	for (i = 0; i < MRS; i++)
		n += FITS(t->region[i]);
	if (!n)
		return -1;
	pick = rng_below(&t->rng, n);
	for (i = 0;; i++)
		if (FITS(t->region[i]) && !pick--)
			return i;
#undef FITS
}

static size_t any_len(struct thread *t, size_t most)
{
	if (most > OP_MAX)
		most = OP_MAX;
	if (rng_chance(&t->rng, 40) && most > 64)
		most = 64;
	return 1 + rng_below(&t->rng, most);
}

static void hold(struct thread *t, int i, size_t off, size_t len, int changes)
{
	struct region *r = &t->region[i];
	struct block *b = &t->block[r->block];

	settle(t, b);
	r->used++;
	b->busy++;
	b->busy_from = changes ? off : 0;
	b->busy_to = changes ? off + len : 0;
}

static void release(struct thread *t, int i)
{
	struct region *r = &t->region[i];
	struct block *b = &t->block[r->block];

	r->used--;
	b->busy--;
	b->busy_from = b->busy_to = 0;
}

// Chooses a random range of `len` bytes in region `i` for an operation, and returns its offset in
// the block. Counts the operation in the region and in its block until release(). If `changes` is
// set, the block also notes the range, because the operation writes there.
static size_t take_range(struct thread *t, int i, size_t len, size_t align, int changes)
{
	struct region *r = &t->region[i];
	size_t off = r->off + rng_below(&t->rng, r->len - len + 1);

	if (align > 1) {
		uintptr_t at = (uintptr_t)t->block[r->block].mem + r->off;

		off = r->off + (-at & (align - 1));
		off += rng_below(&t->rng, (r->off + r->len - off - len) / align + 1) * align;
	}
	hold(t, i, off, len, changes);
	return off;
}

// ---- Operations between two queue pairs of this process.
static struct ibv_sge sge(struct thread *t, int i, size_t off, size_t len)
{
	struct region *r = &t->region[i];

	return (struct ibv_sge){(uintptr_t)t->block[r->block].mem + off, len, r->mr->lkey};
}

static void post(struct thread *t, struct ibv_qp *qp, struct ibv_send_wr *w)
{
	struct ibv_send_wr *bad;
	int e;

	w->send_flags = IBV_SEND_SIGNALED;
	w->num_sge = 1;
	e = ibv_post_send(qp, w, &bad);
	if (e)
		fail(t, NULL, "ibv_post_send gave %d", e);
}

// Posts an operation that copies bytes from `from` to `to`. In a READ, `from` is remote and `to` is
// local. In a WRITE or SEND, `from` is local and `to` is remote. In an atomic, `to` is the remote
// word, and `from` gets the old value.
static void begin_own(struct thread *t, struct pending *p, enum op op)
{
	static const enum ibv_wr_opcode codes[] = {
		[OP_WRITE] = IBV_WR_RDMA_WRITE, [OP_READ] = IBV_WR_RDMA_READ, [OP_SEND] = IBV_WR_SEND,
		[OP_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD, [OP_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
	};
	int atomic = op == OP_ADD || op == OP_SWAP;
	int to_needs = op == OP_WRITE ? IBV_ACCESS_REMOTE_WRITE : atomic ? IBV_ACCESS_REMOTE_ATOMIC : LOCAL;
	int from_needs = op == OP_READ ? IBV_ACCESS_REMOTE_READ : atomic ? LOCAL : 0;
	struct ibv_send_wr w = {.wr_id = TAG_OWN, .opcode = codes[op]};
	struct ibv_recv_wr r = {.wr_id = TAG_OWN_RECV, .num_sge = 1}, *bad;
	struct ibv_sge local, far;
	struct region *remote;
	size_t most;

	p->to_mr = any_region(t, to_needs, -1, atomic ? 16 : 1);
	if (p->to_mr < 0)
		return;
	p->to = t->region[p->to_mr].block;
	p->from_mr = any_region(t, from_needs, p->to, atomic ? 8 : 1);
	if (p->from_mr < 0)
		return;
	p->from = t->region[p->from_mr].block;
	most = t->region[p->to_mr].len < t->region[p->from_mr].len ? t->region[p->to_mr].len : t->region[p->from_mr].len;
	p->len = atomic ? 8 : any_len(t, most);
	p->to_off = take_range(t, p->to_mr, p->len, atomic ? 8 : 1, 1);
	p->from_off = take_range(t, p->from_mr, p->len, 1, atomic);
	p->op = op;
	p->since = t->step;
	note(t, &t->block[p->to], "own op %d: %zu bytes to %zu, from block %u", op, p->len, p->to_off, t->block[p->from].id);
	note(t, &t->block[p->from], "own op %d: %zu bytes from %zu, to block %u", op, p->len, p->from_off, t->block[p->to].id);
	local = op == OP_READ ? sge(t, p->to_mr, p->to_off, p->len) : sge(t, p->from_mr, p->from_off, p->len);
	far = op == OP_READ ? sge(t, p->from_mr, p->from_off, p->len) : sge(t, p->to_mr, p->to_off, p->len);
	remote = &t->region[op == OP_READ ? p->from_mr : p->to_mr];
	w.sg_list = &local;
	if (op == OP_SEND) {
		r.sg_list = &far;
		if (ibv_post_recv(t->own[1], &r, &bad))
			fail(t, NULL, "ibv_post_recv");
	} else if (atomic) {
		p->add = rng_next(&t->rng);
		memcpy(&p->swap, t->block[p->to].model + p->to_off, 8);
		if (rng_chance(&t->rng, 30))
			p->swap++; // will not match
		w.wr.atomic.remote_addr = far.addr;
		w.wr.atomic.rkey = remote->mr->rkey;
		w.wr.atomic.compare_add = op == OP_ADD ? p->add : p->swap;
		w.wr.atomic.swap = p->add;
	} else {
		w.wr.rdma.remote_addr = far.addr;
		w.wr.rdma.rkey = remote->mr->rkey;
	}
	post(t, t->own[0], &w);
}

// Performs the atomic on the model and returns the old value.
static uint64_t model_atomic(struct thread *t, struct pending *p)
{
	uint8_t *word = t->block[p->to].model + p->to_off;
	uint64_t old, value;

	memcpy(&old, word, 8);
	value = p->op == OP_ADD ? old + p->add : old == p->swap ? p->add : old;
	memcpy(word, &value, 8);
	return old;
}

static void end_own(struct thread *t, struct pending *p)
{
	struct block *to = &t->block[p->to], *from = &t->block[p->from];
	uint64_t old;

	if (p->op == OP_ADD || p->op == OP_SWAP) {
		old = model_atomic(t, p);
		memcpy(from->model + p->from_off, &old, 8);
	} else {
		memcpy(to->model + p->to_off, from->model + p->from_off, p->len);
	}
	p->op = OP_NONE;
	release(t, p->to_mr);
	release(t, p->from_mr);
	note(t, to, "own operation is done");
	note(t, from, "own operation is done");
	check(t, to, 0, to->len, "target of an operation of the own process");
	check(t, from, 0, from->len, "source of an operation of the own process");
}

void step_own(struct thread *t)
{
	static const enum op ops[] = {OP_WRITE, OP_WRITE, OP_READ, OP_ADD, OP_SWAP, OP_SEND};
	struct pending *p = &t->pending[OWN];

	if (!p->op)
		begin_own(t, p, ops[rng_below(&t->rng, ARRAY_LEN(ops))]);
}

// ---- Operations of the peer, another process.
static void begin_peer(struct thread *t, struct pending *p, enum op op)
{
	static const int needs[] = {
		[OP_WRITE] = IBV_ACCESS_REMOTE_WRITE, [OP_READ] = IBV_ACCESS_REMOTE_READ, [OP_SEND] = LOCAL,
		[OP_ADD] = IBV_ACCESS_REMOTE_ATOMIC, [OP_SWAP] = IBV_ACCESS_REMOTE_ATOMIC,
	};
	int atomic = op == OP_ADD || op == OP_SWAP;
	struct ibv_recv_wr r = {.wr_id = TAG_PEER_RECV, .num_sge = 1}, *bad;
	struct ibv_sge s;
	struct order o = {.op = op};

	p->to_mr = any_region(t, needs[op], -1, atomic ? 16 : 1);
	if (p->to_mr < 0)
		return;
	p->to = t->region[p->to_mr].block;
	p->from = -1;
	p->len = atomic ? 8 : any_len(t, t->region[p->to_mr].len);
	p->to_off = take_range(t, p->to_mr, p->len, atomic ? 8 : 1, op != OP_READ);
	p->op = op;
	p->since = t->step;
	o.seed = p->seed = rng_next(&t->rng);
	o.add = p->add = rng_next(&t->rng);
	memcpy(&p->swap, t->block[p->to].model + p->to_off, p->len < 8 ? p->len : 8);
	o.swap = p->swap;
	s = sge(t, p->to_mr, p->to_off, p->len);
	o.addr = s.addr;
	o.len = s.length;
	o.rkey = t->region[p->to_mr].mr->rkey;
	note(t, &t->block[p->to], "peer's op %d on %zu bytes at %zu", op, p->len, p->to_off);
	if (op == OP_SEND) {
		r.sg_list = &s;
		if (ibv_post_recv(t->peer.qp, &r, &bad))
			fail(t, NULL, "ibv_post_recv");
	}
	tell(t->peer.fd, &o, sizeof(o));
}

static void end_peer(struct thread *t, struct pending *p)
{
	struct block *b = &t->block[p->to];
	struct answer a;
	uint64_t old;

	hear(t->peer.fd, &a, sizeof(a));
	if (a.status)
		fail(t, b, "peer's op %d on %zu..%zu: %s", p->op, p->to_off, p->to_off + p->len, ibv_wc_status_str(a.status));
	if (p->op == OP_READ) {
		hear(t->peer.fd, t->scratch, p->len);
		check_copy(t, b, p->to_off, t->scratch, p->len, "what the peer read");
	} else if (p->op == OP_ADD || p->op == OP_SWAP) {
		old = model_atomic(t, p);
		if (old != a.value)
			fail(t, b, "the peer's atomic at %zu saw %#lx, not %#lx", p->to_off, a.value, old);
	} else {
		if (p->op == OP_SEND)
			wait_tag(t, TAG_PEER_RECV);
		pattern(b->model + p->to_off, p->len, p->seed);
	}
	p->op = OP_NONE;
	release(t, p->to_mr);
	note(t, b, "peer's operation is done");
	check(t, b, 0, b->len, "operation of the peer");
}

void step_peer(struct thread *t)
{
	static const enum op ops[] = {OP_WRITE, OP_WRITE, OP_READ, OP_READ, OP_ADD, OP_SWAP, OP_SEND};
	struct pending *p = &t->pending[PEER];

	if (!p->op)
		begin_peer(t, p, ops[rng_below(&t->rng, ARRAY_LEN(ops))]);
}

// Posts a request to the peer's memory and waits for its completion.
void step_out(struct thread *t)
{
	int reading = rng_chance(&t->rng, 50), i = any_region(t, reading ? LOCAL : 0, -1, 1);
	struct ibv_send_wr w = {.wr_id = TAG_OUT, .opcode = reading ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE};
	struct order o = {.op = reading ? OP_FILL : OP_DUMP, .seed = rng_next(&t->rng)};
	struct ibv_sge s;
	struct block *b;
	struct answer a;
	size_t off;

	// Each order gets an answer through the same socket. An operation of the peer is still
	// without its answer, so this step could read the wrong answer.
	if (i < 0 || t->pending[PEER].op)
		return;
	b = &t->block[t->region[i].block];
	o.len = any_len(t, t->region[i].len);
	o.addr = rng_below(&t->rng, PEER_LEN - o.len);
	off = take_range(t, i, o.len, 1, reading);
	note(t, b, "%s %lu bytes at %zu", reading ? "read from the peer" : "write to the peer", o.len, off);
	if (reading) {
		tell(t->peer.fd, &o, sizeof(o));
		hear(t->peer.fd, &a, sizeof(a));
	}
	s = sge(t, i, off, o.len);
	w.sg_list = &s;
	w.wr.rdma.remote_addr = t->peer.peer_addr + o.addr;
	w.wr.rdma.rkey = t->peer.peer_rkey;
	post(t, t->peer.qp, &w);
	wait_tag(t, TAG_OUT);
	if (reading) {
		pattern(b->model + off, o.len, o.seed);
	} else {
		tell(t->peer.fd, &o, sizeof(o));
		hear(t->peer.fd, &a, sizeof(a));
		hear(t->peer.fd, t->scratch, o.len);
		check_copy(t, b, off, t->scratch, o.len, "what the peer got");
	}
	release(t, i);
	check(t, b, 0, b->len, "operation with the peer's memory");
}

// ---- Operations of the foreigner, a process that accesses our memory without RDMA and without the
// library.
void step_foreign(struct thread *t)
{
	struct pending *p = &t->pending[FOREIGN];
	struct block *b = any_block(t, 1 << HEAP | 1 << MAPPED | 1 << SHARED, 1);
	struct order o = {.op = rng_chance(&t->rng, 50) ? OP_WRITE : OP_READ};

	if (p->op || !b)
		return;
	if (rng_chance(&t->rng, 30))
		o.op = o.op == OP_WRITE ? OP_MEM_WRITE : OP_MEM_READ;
	settle(t, b);
	p->op = o.op == OP_READ || o.op == OP_MEM_READ ? OP_READ : OP_WRITE;
	p->to = b - t->block;
	p->len = o.len = any_len(t, b->len);
	p->to_off = rng_below(&t->rng, b->len - p->len + 1);
	p->seed = o.seed = rng_next(&t->rng);
	p->since = t->step;
	o.addr = (uintptr_t)b->mem + p->to_off;
	b->busy++;
	b->busy_from = p->op == OP_WRITE ? p->to_off : 0;
	b->busy_to = p->op == OP_WRITE ? p->to_off + p->len : 0;
	note(t, b, "foreign op %d on %zu bytes at %zu", o.op, p->len, p->to_off);
	tell(t->foreigner, &o, sizeof(o));
}

static void end_foreign(struct thread *t, struct pending *p)
{
	struct block *b = &t->block[p->to];
	struct answer a;

	hear(t->foreigner, &a, sizeof(a));
	if (a.status)
		fail(t, b, "foreign op %d at %zu: errno %d", p->op, p->to_off, a.status);
	if (p->op == OP_READ) {
		hear(t->foreigner, t->scratch, p->len);
		check_copy(t, b, p->to_off, t->scratch, p->len, "what a foreigner read");
	} else {
		pattern(b->model + p->to_off, p->len, p->seed);
	}
	p->op = OP_NONE;
	b->busy--;
	b->busy_from = b->busy_to = 0;
	note(t, b, "foreign operation is done");
	check(t, b, 0, b->len, "foreign operation");
}

static int readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

void take_finished(struct thread *t, int wait)
{
	struct pending *p = t->pending;

	if (t->cq)
		drain(t);
	// Waits for an operation that has been pending for more than eight steps, because other
	// steps cannot use its blocks.
	if (p[OWN].op) {
		int both = p[OWN].op == OP_SEND;

		if (wait || t->step > p[OWN].since + 8 || (t->done[TAG_OWN] && (!both || t->done[TAG_OWN_RECV]))) {
			wait_tag(t, TAG_OWN);
			if (both)
				wait_tag(t, TAG_OWN_RECV);
			end_own(t, &p[OWN]);
		}
	}
	if (p[PEER].op && (wait || t->step > p[PEER].since + 8 || readable(t->peer.fd)))
		end_peer(t, &p[PEER]);
	if (p[FOREIGN].op && (wait || t->step > p[FOREIGN].since + 8 || readable(t->foreigner)))
		end_foreign(t, &p[FOREIGN]);
}
