// Tests tag matching on SRQs: eager messages, rendezvous, unexpected messages, the matching list.
// Each case runs in a process of its own.
// usage: tags CASE; the table of cases is at the end. Prints "ok CASE" and ends with status 0, or
// prints FAIL with the file and line of the failed check.
#define _GNU_SOURCE
#include "rig.h"
#include <endian.h>
#include <infiniband/tm_types.h>

#define DEPTH 256
#define SIZE (256 << 10)
#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define ADDED(id, flags) expect(id, IBV_WC_SUCCESS, IBV_WC_TM_ADD, flags, 0, 0, -1, "added")

static struct port port;
static struct ibv_cq *acq;
static struct ibv_cq_ex *tcq;
static struct ibv_srq *srq;
// `a` sends; `b` receives by tags.
static struct ibv_qp *a, *b;
static struct ibv_mr *mr;
// The memory has three parts. `a` sends from the first part. The second part (`tagged`) receives
// data with a matching tag, the third part (`other`) unexpected messages.
static uint8_t *mem, *tagged, *other;

static struct ibv_qp *tag_qp(struct ibv_cq *own)
{
	struct ibv_qp_init_attr at = {.send_cq = own, .recv_cq = own, .srq = srq, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(port.pd, &at);

	CHECK(qp, "qp on a tag matching SRQ");
	return qp;
}

static struct ibv_qp *inline_qp(void)
{
	struct ibv_qp_init_attr at = {
		.send_cq = acq,
		.recv_cq = acq,
		.qp_type = IBV_QPT_RC,
		.cap = {DEPTH, DEPTH, 1, 1, 64},
	};
	struct ibv_qp *qp = ibv_create_qp(port.pd, &at);

	CHECK(qp, "qp");
	return qp;
}

static void open_all(uint32_t max_tags)
{
	struct ibv_cq_init_attr_ex ca = {.cqe = DEPTH, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO};
	struct ibv_srq_init_attr_ex sa = {
		.attr = {.max_wr = DEPTH, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
		.tm_cap = {.max_num_tags = max_tags, .max_ops = 16},
	};

	port_open(&port);
	CHECK(!posix_memalign((void **)&mem, 4096, 3 * SIZE), "memory");
	memset(mem, 0, 3 * SIZE);
	tagged = mem + SIZE;
	other = mem + 2 * SIZE;
	mr = ibv_reg_mr(port.pd, mem, 3 * SIZE, ALL);
	CHECK(mr, "mr");
	acq = cq_new(&port, DEPTH, NULL, NULL);
	tcq = ibv_create_cq_ex(port.ctx, &ca);
	CHECK(tcq, "cq with tag information");
	sa.pd = port.pd;
	sa.cq = ibv_cq_ex_to_cq(tcq);
	srq = ibv_create_srq_ex(port.ctx, &sa);
	CHECK(srq, "tag matching SRQ");
	a = inline_qp();
	b = tag_qp(ibv_cq_ex_to_cq(tcq));
	qp_pair(&port, a, b);
}

static void close_all(void)
{
	CHECK(ibv_destroy_srq(srq) == EBUSY, "in use");
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(tcq)) == EBUSY, "in use");
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b), "qp");
	CHECK(!ibv_destroy_srq(srq), "srq");
	CHECK(!ibv_destroy_cq(acq) && !ibv_destroy_cq(ibv_cq_ex_to_cq(tcq)), "cq");
	CHECK(!ibv_dereg_mr(mr), "mr");
	port_close(&port);
}

// Checks the next completion of the SRQ. `tag` and `word` (the context of the application) are the
// expected values from the message's header. `len` -1 stands for any length.
static void expect(uint64_t id, int status, int opcode, unsigned flags, uint64_t tag, uint32_t word, int len, const char *what)
{
	struct ibv_poll_cq_attr none = {};
	struct ibv_wc_tm_info info;
	double end = now() + 30;
	int rc;

	while ((rc = ibv_start_poll(tcq, &none)) == ENOENT)
		CHECK(now() < end, "%s: no completion", what);
	CHECK(!rc, "%s: poll %d", what, rc);
	CHECK((int)tcq->status == status, "%s: %s", what, ibv_wc_status_str(tcq->status));
	CHECK(tcq->wr_id == id, "%s: id %ju, not %ju", what, (uintmax_t)tcq->wr_id, (uintmax_t)id);
	CHECK((int)ibv_wc_read_opcode(tcq) == opcode, "%s: opcode %d, not %d", what, ibv_wc_read_opcode(tcq), opcode);
	if (status == IBV_WC_SUCCESS)
		CHECK(ibv_wc_read_wc_flags(tcq) == flags, "%s: flags %#x, not %#x", what, ibv_wc_read_wc_flags(tcq), flags);
	ibv_wc_read_tm_info(tcq, &info);
	CHECK(info.tag == tag && info.priv == word, "%s: tag %#jx, %u", what, (uintmax_t)info.tag, info.priv);
	CHECK(len < 0 || ibv_wc_read_byte_len(tcq) == (uint32_t)len, "%s: %u bytes", what, ibv_wc_read_byte_len(tcq));
	ibv_end_poll(tcq);
}

static void nothing_more(const char *what)
{
	struct ibv_poll_cq_attr none = {};
	double end = now() + 0.05;

	while (now() < end)
		CHECK(ibv_start_poll(tcq, &none) == ENOENT, "%s: a completion", what);
}

static int list_op(struct ibv_ops_wr *wr)
{
	struct ibv_ops_wr *bad = NULL;
	int rc = ibv_post_srq_ops(srq, wr, &bad);

	CHECK(!rc == !bad, "bad_wr");
	return rc;
}

static uint32_t add_at(uint64_t id, uint64_t tag, uint64_t mask, void *at, uint32_t len, uint32_t known, int flags)
{
	struct ibv_sge s = {(uintptr_t)at, len, mr->lkey};
	struct ibv_ops_wr wr = {.wr_id = id + 1000, .opcode = IBV_WR_TAG_ADD, .flags = flags};

	wr.tm.unexpected_cnt = known;
	wr.tm.add.recv_wr_id = id;
	wr.tm.add.sg_list = &s;
	wr.tm.add.num_sge = 1;
	wr.tm.add.tag = tag;
	wr.tm.add.mask = mask;
	CHECK(!list_op(&wr), "add");
	return wr.tm.handle;
}

static void add(uint64_t id, uint64_t tag, void *at, uint32_t len)
{
	add_at(id, tag, UINT64_MAX, at, len, 0, IBV_OPS_SIGNALED);
	ADDED(id + 1000, 0);
}

static void sync_to(uint32_t known, unsigned flags)
{
	struct ibv_ops_wr wr = {.wr_id = 77, .opcode = IBV_WR_TAG_SYNC, .flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC};

	wr.tm.unexpected_cnt = known;
	CHECK(!list_op(&wr), "sync");
	expect(77, IBV_WC_SUCCESS, IBV_WC_TM_SYNC, flags, 0, 0, -1, "sync");
}

static int del(uint32_t handle, int flags)
{
	struct ibv_ops_wr wr = {.wr_id = 88, .opcode = IBV_WR_TAG_DEL, .flags = flags};

	wr.tm.handle = handle;
	return list_op(&wr);
}

static void post_plain(int n)
{
	static uint64_t id = 500;
	struct ibv_sge s = {(uintptr_t)other, SIZE, mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &s, .num_sge = 1}, *bad;

	for (wr.wr_id = id = 500; n--; wr.wr_id++)
		CHECK(!ibv_post_srq_recv(srq, &wr, &bad), "receive");
}

static void send_bytes(uint32_t len)
{
	struct ibv_sge s = {(uintptr_t)mem, len, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	CHECK(!ibv_post_send(a, &wr, &bad), "send");
}

static void sent(void)
{
	struct ibv_wc wc = poll_good(acq);

	CHECK(wc.opcode == IBV_WC_SEND, "opcode %d", wc.opcode);
}

static struct ibv_tmh *header(int opcode, uint64_t tag, uint32_t word)
{
	struct ibv_tmh *h = (void *)mem;

	memset(h, 0, sizeof(*h));
	h->opcode = opcode;
	h->tag = htobe64(tag);
	h->app_ctx = htobe32(word);
	return h;
}

static void eager(uint64_t tag, uint32_t word, uint32_t len)
{
	fill(mem + 16, len, tag, len);
	header(IBV_TMH_EAGER, tag, word);
	send_bytes(16 + len);
}

// Sends a rendezvous request. Its data begins at byte 1024 of the part of `a`.
static void request(uint64_t tag, uint32_t word, uint32_t len, uint32_t rkey)
{
	struct ibv_rvh *r = (void *)(header(IBV_TMH_RNDV, tag, word) + 1);

	fill(mem + 1024, len, tag, len);
	r->va = htobe64((uintptr_t)mem + 1024);
	r->rkey = htobe32(rkey);
	r->len = htobe32(len);
	memset(mem + 32, 0xee, 16);
	send_bytes(48);
}

static void caps(void)
{
	struct ibv_device_attr_ex at;
	struct ibv_cq *cq;
	struct ibv_srq_init_attr_ex sa = {
		.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM,
	};
	struct ibv_qp_init_attr qa = {.cap = {.max_send_wr = 1, .max_send_sge = 1}, .qp_type = IBV_QPT_UD};
	struct ibv_ops_wr wr = {.opcode = IBV_WR_TAG_SYNC}, *bad;

	port_open(&port);
	CHECK(!ibv_query_device_ex(port.ctx, NULL, &at), "query");
	CHECK(at.tm_caps.flags == IBV_TM_CAP_RC && at.tm_caps.max_num_tags >= 127 && at.tm_caps.max_ops >= 16, "caps");
	CHECK(at.tm_caps.max_rndv_hdr_size >= 32 && at.tm_caps.max_sge >= 1, "caps");
	cq = cq_new(&port, 8, NULL, NULL);
	sa.pd = port.pd;
	sa.cq = cq;
	CHECK(!ibv_create_srq_ex(port.ctx, &sa) && errno == EINVAL, "no tags");
	sa.tm_cap.max_num_tags = at.tm_caps.max_num_tags + 1;
	CHECK(!ibv_create_srq_ex(port.ctx, &sa) && errno == EINVAL, "too many tags");
	sa.tm_cap.max_num_tags = at.tm_caps.max_num_tags;
	sa.tm_cap.max_ops = at.tm_caps.max_ops + 1;
	CHECK(!ibv_create_srq_ex(port.ctx, &sa) && errno == EINVAL, "too many operations");
	sa.tm_cap.max_ops = at.tm_caps.max_ops;
	sa.comp_mask &= ~IBV_SRQ_INIT_ATTR_TM;
	CHECK(!ibv_create_srq_ex(port.ctx, &sa) && errno == EINVAL, "no tm_cap");
	sa.comp_mask |= IBV_SRQ_INIT_ATTR_TM;
	srq = ibv_create_srq_ex(port.ctx, &sa);
	CHECK(srq, "srq");
	qa.send_cq = qa.recv_cq = cq;
	qa.srq = srq;
	CHECK(!ibv_create_qp(port.pd, &qa) && errno == EINVAL, "UD");
	wr.opcode = 9;
	CHECK(ibv_post_srq_ops(srq, &wr, &bad) == EINVAL && bad == &wr, "opcode");
	wr.opcode = IBV_WR_TAG_SYNC;
	wr.flags = 1 << 7;
	CHECK(ibv_post_srq_ops(srq, &wr, &bad) == EINVAL, "flags");
	CHECK(ibv_destroy_cq(cq) == EBUSY, "in use");
	CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cq), "destroy");
	struct ibv_srq_init_attr pa = {.attr = {.max_wr = 4, .max_sge = 1}};
	srq = ibv_create_srq(port.pd, &pa);
	wr.flags = 0;
	CHECK(srq && ibv_post_srq_ops(srq, &wr, &bad) == EINVAL, "a plain SRQ has no list");
	CHECK(!ibv_destroy_srq(srq), "destroy");
	port_close(&port);
}

static void eager_messages(void)
{
	static const uint32_t sizes[] = {0, 1, 100, 1000, 4096, 20000, 200000};
	unsigned whole = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID;
	size_t i;

	open_all(16);
	post_plain(2);
	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		uint32_t len = sizes[i];
		int one = len <= 1000;

		memset(tagged, 0xaa, SIZE);
		add(i, 0xabc0 + i, tagged, len + 8);
		eager(0xabc0 + i, 7 + i, len);
		sent();
		// A longer message may arrive in several packets, depending on the path. Then the
		// match and the data may have a completion each.
		if (!one) {
			struct ibv_poll_cq_attr none = {};
			struct ibv_wc_tm_info info;
			double end = now() + 30;
			unsigned seen = 0;

			while (!(seen & IBV_WC_TM_DATA_VALID)) {
				CHECK(now() < end, "%u bytes", len);
				if (ibv_start_poll(tcq, &none))
					continue;
				CHECK(tcq->status == IBV_WC_SUCCESS && tcq->wr_id == i, "%u bytes", len);
				CHECK(ibv_wc_read_opcode(tcq) == IBV_WC_TM_RECV, "%u bytes", len);
				CHECK(!(seen & ibv_wc_read_wc_flags(tcq)), "twice");
				ibv_wc_read_tm_info(tcq, &info);
				CHECK(info.tag == 0xabc0 + i && info.priv == 7 + i, "tag");
				seen |= ibv_wc_read_wc_flags(tcq);
				CHECK(seen & IBV_WC_TM_MATCH, "the match comes first");
				ibv_end_poll(tcq);
			}
			CHECK(seen == whole, "flags %#x", seen);
		} else {
			expect(i, IBV_WC_SUCCESS, IBV_WC_TM_RECV, whole, 0xabc0 + i, 7 + i, len, "eager");
		}
		CHECK(!memcmp(tagged, mem + 16, len), "%u bytes", len);
		CHECK(tagged[len] == 0xaa, "%u bytes and no more", len);
	}
	nothing_more("eager");
	close_all();
}

static void order_and_masks(void)
{
	unsigned whole = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID;

	open_all(16);
	post_plain(2);
	add_at(1, 0x10, 0xf0, tagged, 64, 0, 0);
	add_at(2, 0x1234, UINT64_MAX, tagged + 64, 64, 0, 0);
	add_at(3, 0, 0, tagged + 128, 64, 0, 0);
	nothing_more("operations that are not signaled");
	eager(0x1234, 1, 32);
	sent();
	expect(2, IBV_WC_SUCCESS, IBV_WC_TM_RECV, whole, 0x1234, 1, 32, "exact");
	CHECK(!memcmp(tagged + 64, mem + 16, 32), "bytes");
	eager(0xffff15, 2, 32);
	sent();
	expect(1, IBV_WC_SUCCESS, IBV_WC_TM_RECV, whole, 0xffff15, 2, 32, "mask");
	eager(UINT64_MAX, UINT32_MAX, 32);
	sent();
	expect(3, IBV_WC_SUCCESS, IBV_WC_TM_RECV, whole, UINT64_MAX, UINT32_MAX, 32, "any");
	close_all();
}

static void unexpected_messages(void)
{
	struct ibv_tmh *h;

	open_all(16);
	h = (void *)other;
	post_plain(4);
	add(1, 0x1, tagged, 64);
	eager(0x99, 5, 40);
	sent();
	expect(500, IBV_WC_SUCCESS, IBV_WC_TM_RECV, 0, 0, 0, 56, "unexpected");
	CHECK(h->opcode == IBV_TMH_EAGER && be64toh(h->tag) == 0x99 && be32toh(h->app_ctx) == 5, "with its header");
	CHECK(!memcmp(other + 16, mem + 16, 40), "bytes");
	// The program adds an entry before it reports the unexpected message to the SRQ (TAG_SYNC).
	// Until the report, the entry must match nothing.
	add_at(2, 0x99, UINT64_MAX, tagged, 64, 0, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC);
	ADDED(1002, IBV_WC_TM_SYNC_REQ);
	eager(0x99, 6, 40);
	sent();
	expect(501, IBV_WC_SUCCESS, IBV_WC_TM_RECV, 0, 0, 0, 56, "unexpected again");
	sync_to(1, IBV_WC_TM_SYNC_REQ);
	sync_to(2, 0);
	eager(0x99, 7, 40);
	sent();
	expect(2, IBV_WC_SUCCESS, IBV_WC_TM_RECV, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID, 0x99, 7, 40, "expected");
	// A message without a tag must not count as unexpected.
	fill(mem, 20, 4, 4);
	mem[0] = IBV_TMH_NO_TAG;
	send_bytes(20);
	sent();
	expect(502, IBV_WC_SUCCESS, IBV_WC_TM_NO_TAG, 0, 0, 0, 20, "no tag");
	CHECK(!memcmp(other, mem, 20), "bytes");
	sync_to(2, 0);
	// A message may have one byte.
	send_bytes(1);
	sent();
	expect(503, IBV_WC_SUCCESS, IBV_WC_TM_NO_TAG, 0, 0, 0, 1, "one byte");
	close_all();
}

static void the_list(void)
{
	struct ibv_ops_wr wr = {.opcode = IBV_WR_TAG_ADD}, second = {.wr_id = 5, .opcode = IBV_WR_TAG_SYNC}, *bad = NULL;
	struct ibv_sge s = {(uintptr_t)tagged, 8, 0};
	uint32_t h, i;

	open_all(3);
	post_plain(1);
	h = add_at(1, 1, UINT64_MAX, tagged, 64, 0, 0);
	for (i = 2; i <= 3; i++)
		CHECK(add_at(i, i, UINT64_MAX, tagged, 64, 0, 0) != h, "handles differ");
	wr.tm.add.sg_list = &s;
	wr.tm.add.num_sge = 1;
	second.flags = IBV_OPS_SIGNALED;
	second.next = &wr;
	CHECK(ibv_post_srq_ops(srq, &second, &bad) == ENOMEM && bad == &wr, "full");
	expect(5, IBV_WC_SUCCESS, IBV_WC_TM_SYNC, 0, 0, 0, -1, "before it");
	CHECK(!del(h, IBV_OPS_SIGNALED), "remove");
	expect(88, IBV_WC_SUCCESS, IBV_WC_TM_DEL, 0, 0, 0, -1, "removed");
	CHECK(!del(h, 0), "remove again");
	expect(88, IBV_WC_TM_ERR, IBV_WC_TM_DEL, 0, 0, 0, -1, "gone");
	h = add_at(4, 4, UINT64_MAX, tagged, 64, 0, 0);
	eager(4, 0, 8);
	sent();
	expect(4, IBV_WC_SUCCESS, IBV_WC_TM_RECV, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID, 4, 0, 8, "matched");
	CHECK(!del(h, IBV_OPS_SIGNALED), "remove");
	expect(88, IBV_WC_TM_ERR, IBV_WC_TM_DEL, 0, 0, 0, -1, "taken by a message");
	eager(1, 0, 8);
	sent();
	expect(500, IBV_WC_SUCCESS, IBV_WC_TM_RECV, 0, 0, 0, -1, "unexpected");
	// No receive is posted, so the message waits.
	sync_to(1, 0);
	eager(1, 0, 8);
	nothing_more("no receive");
	sync_to(1, 0);
	post_plain(1);
	expect(500, IBV_WC_SUCCESS, IBV_WC_TM_RECV, 0, 0, 0, -1, "unexpected");
	sent();
	close_all();
}

static void rendezvous(void)
{
	static const uint32_t sizes[] = {0, 1, 1000, 4096, 200000};
	static uint8_t room[64];
	struct ibv_mr *own;
	struct ibv_sge s = {(uintptr_t)room, sizeof(room), 0};
	struct ibv_recv_wr wr = {.wr_id = 9, .sg_list = &s, .num_sge = 1}, *bad;
	struct ibv_wc wc;
	size_t i;
	int j;

	open_all(64);
	own = ibv_reg_mr(port.pd, room, sizeof(room), IBV_ACCESS_LOCAL_WRITE);
	s.lkey = own->lkey;
	post_plain(2);
	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		CHECK(!ibv_post_recv(a, &wr, &bad), "receive");
		memset(tagged, 0xaa, SIZE);
		add(i, 0x70 + i, tagged, SIZE);
		request(0x70 + i, 3, sizes[i], mr->rkey);
		expect(i, IBV_WC_SUCCESS, IBV_WC_TM_RECV, IBV_WC_TM_MATCH, 0x70 + i, 3, -1, "matched");
		expect(i, IBV_WC_SUCCESS, IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID, 0, 0, sizes[i], "data");
		CHECK(!memcmp(tagged, mem + 1024, sizes[i]) && tagged[sizes[i]] == 0xaa, "%u bytes", sizes[i]);
		// The FIN message may arrive before the completion of the request's SEND.
		for (j = 0; j < 2; j++) {
			wc = poll_good(acq);
			CHECK(wc.opcode == IBV_WC_SEND || wc.byte_len == 32, "end: %d, %u bytes", wc.opcode, wc.byte_len);
		}
		CHECK(room[0] == IBV_TMH_FIN && !memcmp(room + 1, mem + 1, 31), "both headers, but for the opcode");
	}
	// Sends more rendezvous requests at once than the queue pair performs at a time.
	for (j = 0; j < 60; j++) {
		CHECK(!ibv_post_recv(a, &wr, &bad), "receive");
		add(j, 0x100 + j, tagged + 64 * j, 64);
	}
	for (j = 0; j < 60; j++) {
		struct ibv_rvh *r = (void *)(mem + 16);
		struct ibv_sge q = {(uintptr_t)mem, 32, mr->lkey};
		struct ibv_send_wr sw = {.sg_list = &q, .num_sge = 1, .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}, *no;

		header(IBV_TMH_RNDV, 0x100 + j, 3);
		*r = (struct ibv_rvh){htobe64((uintptr_t)mem + 1024), htobe32(mr->rkey), htobe32(64)};
		CHECK(!ibv_post_send(a, &sw, &no), "send");
	}
	// Each request has four completions: SEND and FIN at `a`, match and data at `b`.
	for (j = 0; j < 240;) {
		struct ibv_poll_cq_attr none = {};
		double end = now() + 30;

		while (ibv_start_poll(tcq, &none))
			if (ibv_poll_cq(acq, 1, &wc) == 1) {
				CHECK(wc.status == IBV_WC_SUCCESS, "end");
				if (++j == 240)
					goto all;
			} else {
				CHECK(now() < end, "%d came", j);
			}
		CHECK(tcq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(tcq) == IBV_WC_TM_RECV, "one of many");
		ibv_end_poll(tcq);
		j++;
	}
all:
	nothing_more("many");
	CHECK(!ibv_dereg_mr(own), "mr");
	close_all();
}

static void rendezvous_that_do_not_go(void)
{
	struct ibv_tmh *h;

	open_all(8);
	h = (void *)other;
	post_plain(2);
	// An unexpected request must arrive whole, with both headers and the program's own bytes.
	request(0x55, 3, 100, mr->rkey);
	sent();
	expect(500, IBV_WC_SUCCESS, IBV_WC_TM_RECV, 0, 0, 0, 48, "unexpected");
	CHECK(h->opcode == IBV_TMH_RNDV && !memcmp(other, mem, 48), "headers");
	sync_to(1, 0);
	// The buffer of the entry is too short for the data. So the program gets only both headers,
	// and would have to perform the READ itself.
	memset(tagged, 0xaa, 128);
	add(1, 0x56, tagged, 99);
	request(0x56, 3, 100, mr->rkey);
	sent();
	expect(1, IBV_WC_TM_RNDV_INCOMPLETE, IBV_WC_TM_RECV, 0, 0, 0, -1, "too short");
	CHECK(!memcmp(tagged, mem, 32) && tagged[32] == 0xaa, "headers alone");
	// The key in the request is invalid. The READ must fail, and its completion must report the
	// error.
	add(2, 0x57, tagged, 128);
	request(0x57, 3, 100, mr->rkey ^ 0xff00);
	sent();
	expect(2, IBV_WC_SUCCESS, IBV_WC_TM_RECV, IBV_WC_TM_MATCH, 0x57, 3, -1, "matched");
	expect(2, IBV_WC_REM_ACCESS_ERR, IBV_WC_TM_RECV, 0, 0, 0, -1, "read");
	nothing_more("failed");
	close_all();
}

static const struct {
	const char *id, *name;
	void (*run)(void);
} cases[] = {
	{"TM-4", "caps", caps},
	{"TM-1", "eager_messages", eager_messages},
	{"TM-2", "order_and_masks", order_and_masks},
	{"TM-3", "unexpected_messages", unexpected_messages},
	{"TM-2", "the_list", the_list},
	{"TM-5", "rendezvous", rendezvous},
	{"TM-5", "rendezvous_that_do_not_go", rendezvous_that_do_not_go},
};

int main(int argc, char **argv)
{
	size_t i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (i = 0; i < ARRAY_LEN(cases); i++)
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			printf("ok %s\n", argv[1]);
			return 0;
		}
	printf("FAIL no case %s\n", argc == 2 ? argv[1] : "");
	return 1;
}
