// Requests on registered memory that the program has unmapped, protected or truncated, and requests
// with a key that does not allow them. Each request must end with the status that a NIC gives, and
// no process may crash. Also a peer that is stopped in the middle of its WRITE.
#include "scenarios.h"
#include <sys/mman.h>

#define PAGES 8ul
#define LEN (PAGES * PAGE)

enum vanished { UNMAPPED, NO_ACCESS, READ_ONLY, TRUNCATED };
static const char *const vanished_names[] = {"unmapped", "PROT_NONE", "PROT_READ", "truncated"};

// The requests. The peer's requests (PEER_*) reach the memory from the peer, and PEER_SENDS fills a
// receive in the memory. In our requests (WE_*), the memory is the local buffer.
enum attempt { PEER_WRITES, PEER_READS, PEER_ADDS, PEER_SENDS, WE_WRITE, WE_READ, WE_SEND, ATTEMPTS };
static const char *const attempt_names[] = {"remote WRITE", "remote READ", "remote FETCH_ADD", "receive",
					    "own WRITE from there", "own READ into it", "own SEND from there"};

static struct link peer;
static struct ibv_cq *cq;

static struct ibv_wc wait_wc(const char *what)
{
	double end = now() + HANG_LIMIT;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc))) {
		CHECK(now() < end, "%s: no completion", what);
		usleep(50);
	}
	CHECK(n == 1, "poll");
	return wc;
}

static uint8_t *victim(enum vanished v, int *fd, const uint8_t *bytes)
{
	uint8_t *p;

	*fd = -1;
	if (v == TRUNCATED) {
		char path[] = "/tmp/torture-XXXXXX";

		*fd = mkstemp(path);
		CHECK(*fd >= 0 && !unlink(path) && !ftruncate(*fd, LEN), "file");
		p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	} else {
		p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	CHECK(p != MAP_FAILED, "mmap");
	memcpy(p, bytes, LEN);
	return p;
}

// Unmaps, protects or truncates the second half of the memory.
static void vanish(enum vanished v, uint8_t *p, int fd, enum way w)
{
	switch (v) {
	case UNMAPPED:
		CHECK(!way_munmap(w, p + LEN / 2, LEN / 2), "munmap");
		break;
	case NO_ACCESS:
	case READ_ONLY:
		if (w == BY_LIBC)
			CHECK(!mprotect(p + LEN / 2, LEN / 2, v == READ_ONLY ? PROT_READ : PROT_NONE), "mprotect");
		else
			CHECK(!raw_call(SYS_mprotect, (long)p + LEN / 2, LEN / 2, v == READ_ONLY ? PROT_READ : PROT_NONE, 0, 0,
					0), "mprotect");
		break;
	case TRUNCATED:
		CHECK(!ftruncate(fd, LEN / 2), "ftruncate");
	}
}

static void post_own(enum attempt a, uint8_t *at, size_t len, struct ibv_mr *mr)
{
	static const enum ibv_wr_opcode codes[] = {
		[WE_WRITE] = IBV_WR_RDMA_WRITE, [WE_READ] = IBV_WR_RDMA_READ, [WE_SEND] = IBV_WR_SEND};
	struct ibv_sge s = {(uintptr_t)at, len, mr->lkey};
	struct ibv_send_wr w = {.sg_list = &s, .num_sge = 1, .opcode = codes[a], .send_flags = IBV_SEND_SIGNALED}, *bad;

	w.wr.rdma.remote_addr = peer.peer_addr;
	w.wr.rdma.rkey = peer.peer_rkey;
	CHECK(!ibv_post_send(peer.qp, &w, &bad), "post");
}

static int one_of(int status, int a, int b)
{
	return status == a || status == b;
}

// Makes a request on a range that begins in the first half of the memory and ends in the second
// half. The word of an atomic is in the second half. Checks the status of the request.
static void attempt(enum vanished v, enum attempt a, uint8_t *p, struct ibv_mr *mr, const uint8_t *bytes, const char *what)
{
	size_t len = LEN / 2;
	uint8_t *at = p + LEN / 4, *got = raw_map(LEN);
	int readable = v == READ_ONLY, status, expected = 0;
	struct ibv_sge s = {(uintptr_t)at, len, mr->lkey};
	struct ibv_recv_wr r = {.sg_list = &s, .num_sge = 1}, *bad;
	struct answer answer = {0};

	switch (a) {
	case PEER_WRITES:
	case PEER_READS:
		answer = ask(&peer, a == PEER_WRITES ? OP_WRITE : OP_READ, at, len, mr->rkey, 1);
		status = answer.status;
		if (a == PEER_READS && !status) {
			hear(peer.fd, got, len);
			if (readable)
				expect_bytes(got, bytes + LEN / 4, len, what);
		}
		expected = a == PEER_READS && readable ? status == IBV_WC_SUCCESS
						      : one_of(status, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR);
		break;
	case PEER_ADDS:
		status = ask(&peer, OP_ADD, p + LEN / 2 + PAGE, 8, mr->rkey, 1).status;
		expected = one_of(status, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR);
		break;
	case PEER_SENDS:
		CHECK(!ibv_post_recv(peer.qp, &r, &bad), "post receive");
		answer = ask(&peer, OP_SEND, NULL, len, 0, 1);
		if (!one_of(answer.status, IBV_WC_REM_OP_ERR, IBV_WC_REM_INV_REQ_ERR))
			wrong("%s: the sender saw %s", what, ibv_wc_status_str(answer.status));
		status = wait_wc(what).status;
		expected = status == IBV_WC_LOC_PROT_ERR;
		break;
	default:
		post_own(a, at, len, mr);
		status = wait_wc(what).status;
		// The peer has posted no receive, so a SEND would wait. But the bytes of this SEND
		// are not readable, so it must fail before that.
		expected = a == WE_WRITE && readable ? status == IBV_WC_SUCCESS : status == IBV_WC_LOC_PROT_ERR;
	}
	if (!expected)
		wrong("%s: %s", what, ibv_wc_status_str(status));
	raw_call(SYS_munmap, (long)got, LEN, 0, 0, 0, 0);
}

static void one_case(enum vanished v, enum attempt a, enum way w, int warm, const uint8_t *bytes)
{
	char what[128];
	struct ibv_mr *mr;
	uint8_t *p;
	int fd;

	snprintf(what, sizeof(what), "%s, %s by %s%s", attempt_names[a], vanished_names[v], way_name(w),
		 warm ? ", used before" : "");
	p = victim(v, &fd, bytes);
	mr = registered(p, LEN, ALL_ACCESS);
	if (warm) {
		struct answer r = ask(&peer, OP_WRITE, p + LEN - 8, 8, mr->rkey, 3);

		CHECK(!r.status, "%s: while all is there: %s", what, ibv_wc_status_str(r.status));
	}
	vanish(v, p, fd, w);
	attempt(v, a, p, mr, bytes, what);
	// The bytes before the range must be unchanged.
	expect_bytes(p, bytes, LEN / 4, what);
	if (v == READ_ONLY)
		expect_bytes(p + LEN / 2, bytes + LEN / 2, LEN / 2 - 8, what);
	deregistered(mr);
	CHECK(!munmap(p, v == UNMAPPED ? LEN / 2 : LEN), "munmap");
	if (fd >= 0)
		close(fd);
	link_open(&peer, cq);
	while (ibv_poll_cq(cq, 1, &(struct ibv_wc){0}))
		;
}

static void go_through(enum vanished v)
{
	uint8_t *bytes = raw_map(LEN);
	int a, w, warm;

	pattern(bytes, LEN, 4);
	with_peer(&peer, &cq);
	for (a = 0; a < ATTEMPTS; a++) {
		// The peer posts no receive. A SEND with readable bytes would wait for ever.
		if (a == WE_SEND && v == READ_ONLY)
			continue;
		for (w = BY_LIBC; w <= BY_ASM; w += BY_ASM - BY_LIBC)
			for (warm = 0; warm < 2; warm++)
				one_case(v, a, w, warm, bytes);
	}
}

void vanish_unmapped(void)
{
	go_through(UNMAPPED);
}
void vanish_no_access(void)
{
	go_through(NO_ACCESS);
}
void vanish_read_only(void)
{
	go_through(READ_ONLY);
}
void vanish_truncated(void)
{
	go_through(TRUNCATED);
}

// A key must give access to the bytes of its region and to no other byte, and only with the rights
// of the region.
void bounds_and_rights(void)
{
	uint8_t *want = raw_map(4 * PAGE), *p;
	int s, rights[] = {0, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, ALL_ACCESS};
	size_t i, off = PAGE + 100, len = PAGE + 1001;
	struct ibv_mr *mr;

	with_peer(&peer, &cq);
	for (s = 0; s < SOURCES; s++)
		for (i = 0; i < ARRAY_LEN(rights); i++) {
			struct {
				long at;
				size_t len;
				enum op op;
				int need;
			} tries[] = {
				{-1, 8, OP_WRITE, -1}, {len - 7, 8, OP_WRITE, -1}, {len, 1, OP_WRITE, -1}, {-1, 1, OP_READ, -1},
				{len - 7, 8, OP_READ, -1}, {-4, len + 8, OP_WRITE, -1}, {0, len, OP_WRITE, IBV_ACCESS_REMOTE_WRITE},
				{0, len, OP_READ, IBV_ACCESS_REMOTE_READ}, {4, 8, OP_ADD, IBV_ACCESS_REMOTE_ATOMIC},
			};
			size_t k;

			p = make_memory(s, 4 * PAGE);
			pattern(want, 4 * PAGE, s * 10 + i);
			memcpy(p, want, 4 * PAGE);
			// The atomic at offset 4 of the region needs an aligned word.
			off = PAGE + 100 - (((uintptr_t)p + PAGE + 104) & 7);
			mr = registered(p + off, len, rights[i]);
			for (k = 0; k < ARRAY_LEN(tries); k++) {
				int may = tries[k].need > 0 && (rights[i] & tries[k].need);
				uint8_t *at = p + off + tries[k].at;
				struct answer a = ask(&peer, tries[k].op, at, tries[k].len, mr->rkey, k);
				static uint8_t got[4 * PAGE];

				if (!a.status && tries[k].op == OP_READ)
					hear(peer.fd, got, tries[k].len);
				if (may ? a.status != IBV_WC_SUCCESS : a.status != IBV_WC_REM_ACCESS_ERR)
					wrong("try %zu with access %x: %s", k, rights[i], ibv_wc_status_str(a.status));
				if (may && tries[k].op == OP_WRITE)
					pattern(want + off + tries[k].at, tries[k].len, k);
				if (may && tries[k].op == OP_ADD)
					++*(uint64_t *)(want + off + tries[k].at);
				expect_bytes(p, want, 4 * PAGE, "memory beside or under a key");
				if (a.status)
					link_open(&peer, cq);
			}
			deregistered(mr);
			end_memory(s, p, 4 * PAGE);
		}
}

// ---- The peer is stopped (SIGSTOP) in the middle of a WRITE to our memory. Then our process ends
// the peer's access. Afterwards the peer must not change the memory any more.
#define BIG (256ul << 20)

static volatile int over, waited;

// The calls that end the peer's access to the memory. Such a call may wait for the peer. In this
// case the peer stays stopped for `tenths` tenths of a second, and then continues.
static void by_deregistration(struct ibv_mr *mr)
{
	deregistered(mr);
}

static void by_destruction(struct ibv_mr *mr)
{
	(void)mr;
	CHECK(!ibv_destroy_qp(peer.qp), "destroy qp");
	peer.qp = NULL;
}

static void by_error(struct ibv_mr *mr)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	(void)mr;
	CHECK(!ibv_modify_qp(peer.qp, &attr, IBV_QP_STATE), "to ERR");
}

static void by_rights(struct ibv_mr *mr)
{
	struct ibv_qp_attr attr = {.qp_access_flags = 0};

	(void)mr;
	CHECK(!ibv_modify_qp(peer.qp, &attr, IBV_QP_ACCESS_FLAGS), "no rights");
}

struct end {
	void (*call)(struct ibv_mr *);
	int tenths;
};

static void *let_go_on(void *arg)
{
	const struct end *end = arg;
	int i;

	// If the call is still waiting for the peer after this time, the peer continues, so that
	// the call can return.
	for (i = 0; i < end->tenths && !over; i++)
		usleep(100000);
	if (!over) {
		waited = 1;
		kill(peer_pid, SIGCONT);
	}
	return NULL;
}

// Stops the peer in the middle of its WRITE, and ends the access by `how.call`. Checks that the
// memory does not change any more. Returns false if the WRITE had finished before the stop.
static int stop_in_the_middle(uint8_t *p, const uint8_t *model, struct end how)
{
	struct ibv_mr *mr = registered(p, BIG, ALL_ACCESS);
	struct order o = {.op = OP_BIG_WRITE, .len = BIG, .addr = (uintptr_t)p, .rkey = mr->rkey};
	volatile uint8_t *first = p + PAGE;
	double end = now() + HANG_LIMIT;
	pthread_t thread;
	struct answer a;

	over = waited = 0;
	tell(peer.fd, &o, sizeof(o));
	while (*first == 0xaa)
		CHECK(now() < end, "the peer does not write");
	CHECK(!kill(peer_pid, SIGSTOP), "stop");
	CHECK(!pthread_create(&thread, NULL, let_go_on, &how), "thread");
	how.call(mr);
	over = 1;
	pthread_join(thread, NULL);
	// The peer has no access any more, so the program may use the memory.
	memset(p, 0xdd, BIG);
	CHECK(!kill(peer_pid, SIGCONT), "continue");
	hear(peer.fd, &a, sizeof(a));
	expect_bytes(p, model, BIG, "memory that nobody may write to any more");
	if (how.call != by_deregistration)
		deregistered(mr);
	link_open(&peer, cq);
	// The peer was stopped in the middle of its WRITE if one of two things is true: how.call()
	// had to wait until the peer continued, or the peer's WRITE failed.
	return waited || a.status != IBV_WC_SUCCESS;
}

static void stopped_before(struct end how)
{
	uint8_t *p = make_memory(LIBC_MAP, BIG), *model = raw_map(BIG);
	struct order o = {.op = OP_FILL, .len = BIG};
	struct answer a;
	int tries = 0;

	with_peer(&peer, &cq);
	tell(peer.fd, &o, sizeof(o));
	hear(peer.fd, &a, sizeof(a));
	memset(model, 0xdd, BIG);
	do {
		CHECK(tries++ < 5, "the writer was never stopped in the middle");
		memset(p, 0xaa, BIG);
	} while (!stop_in_the_middle(p, model, how));
}

void stopped_writer(void)
{
	stopped_before((struct end){by_deregistration, 80});
}

// Six seconds, because an earlier version of the library waited for the peer for a shorter time at
// ibv_destroy_qp.
void stopped_writer_of_a_destroyed(void)
{
	stopped_before((struct end){by_destruction, 60});
}

void stopped_writer_of_one_in_error(void)
{
	stopped_before((struct end){by_error, 60});
}

void stopped_writer_without_rights(void)
{
	stopped_before((struct end){by_rights, 10});
}
