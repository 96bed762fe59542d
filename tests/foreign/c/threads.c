// Eight threads post and poll, and check every byte. First each thread uses queue pairs and CQs of
// its own, then all threads share queue pairs and CQs. usage: threads SECONDS
#include "rig.h"

#define THREADS 8
#define OWN_DEPTH 16
#define OWN_SIZE 9000

static struct port port;
static double until;

struct own {
	pthread_t thread;
	int id;
	uint64_t messages, bytes;
};

// Performs SENDs, WRITEs and READs in batches, and atomics, on two queue pairs that only this
// thread uses. Each message has different data, so the checks would find a wrong order.
static void *own_run(void *arg)
{
	struct own *me = arg;
	uint8_t *src = calloc(OWN_DEPTH, OWN_SIZE), *dst = calloc(OWN_DEPTH, OWN_SIZE), *want = malloc(OWN_SIZE);
	uint64_t *word = aligned_alloc(64, 64), seq = 0, total = 0;
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_mr *ms = ibv_reg_mr(port.pd, src, OWN_DEPTH * OWN_SIZE, access);
	struct ibv_mr *md = ibv_reg_mr(port.pd, dst, OWN_DEPTH * OWN_SIZE, access);
	struct ibv_mr *mw = ibv_reg_mr(port.pd, word, 64, access);
	struct ibv_cq *scq = cq_new(&port, OWN_DEPTH * 2, NULL, NULL), *rcq = cq_new(&port, OWN_DEPTH * 2, NULL, NULL);
	struct ibv_qp *x = qp_new(&port, IBV_QPT_RC, scq, scq, OWN_DEPTH * 2);
	struct ibv_qp *y = qp_new(&port, IBV_QPT_RC, rcq, rcq, OWN_DEPTH * 2);
	size_t lens[OWN_DEPTH];
	int i, kind;

	CHECK(ms && md && mw, "mr");
	memset(word, 0, 64);
	qp_pair(&port, x, y);
	while (now() < until) {
		kind = seq / OWN_DEPTH % 3;
		for (i = 0; i < OWN_DEPTH; i++) {
			uint8_t *from = src + i * OWN_SIZE, *to = dst + i * OWN_SIZE;
			struct ibv_sge ls = {(uintptr_t)from, 0, ms->lkey}, ld = {(uintptr_t)to, OWN_SIZE, md->lkey};
			struct ibv_recv_wr r = {.wr_id = i, .sg_list = &ld, .num_sge = 1}, *rbad;
			struct ibv_send_wr w = {.wr_id = i, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED}, *bad;

			lens[i] = 1 + (seq + i) * 2654435761u % OWN_SIZE;
			fill(from, lens[i], me->id, seq + i);
			memset(to, 0, lens[i]);
			ls.length = ld.length = lens[i];
			w.sg_list = &ls;
			w.wr.rdma.remote_addr = (uintptr_t)to;
			w.wr.rdma.rkey = md->rkey;
			if (kind == 0) {
				w.opcode = IBV_WR_SEND;
				CHECK(!ibv_post_recv(y, &r, &rbad), "post recv");
			} else if (kind == 1) {
				w.opcode = IBV_WR_RDMA_WRITE;
			} else {
				w.opcode = IBV_WR_RDMA_READ;
				w.sg_list = &ld;
				w.wr.rdma.remote_addr = (uintptr_t)from;
				w.wr.rdma.rkey = ms->rkey;
			}
			CHECK(!ibv_post_send(x, &w, &bad), "post send");
		}
		for (i = 0; i < OWN_DEPTH; i++) {
			struct ibv_wc wc = poll_good(scq);

			CHECK(wc.wr_id == (uint64_t)i, "completion %d is of request %d", i, (int)wc.wr_id);
			if (kind == 0) {
				wc = poll_good(rcq);
				CHECK(wc.wr_id == (uint64_t)i && wc.byte_len == lens[i], "receive");
			}
		}
		for (i = 0; i < OWN_DEPTH; i++) {
			fill(want, lens[i], me->id, seq + i);
			CHECK(!memcmp(want, dst + i * OWN_SIZE, lens[i]), "thread %d message %d kind %d: bytes", me->id,
			      (int)seq + i, kind);
			me->bytes += lens[i];
		}
		struct ibv_sge la = {(uintptr_t)(word + 1), 8, mw->lkey};
		struct ibv_send_wr at = {.sg_list = &la, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
					 .send_flags = IBV_SEND_SIGNALED}, *bad;

		at.wr.atomic.remote_addr = (uintptr_t)word;
		at.wr.atomic.rkey = mw->rkey;
		at.wr.atomic.compare_add = 3;
		CHECK(!ibv_post_send(x, &at, &bad), "atomic");
		poll_good(scq);
		CHECK(word[1] == total && word[0] == total + 3, "fetch and add");
		total += 3;
		seq += OWN_DEPTH;
	}
	me->messages = seq;
	CHECK(!ibv_destroy_qp(x) && !ibv_destroy_qp(y) && !ibv_destroy_cq(scq) && !ibv_destroy_cq(rcq), "destroy");
	CHECK(!ibv_dereg_mr(ms) && !ibv_dereg_mr(md) && !ibv_dereg_mr(mw), "dereg");
	return NULL;
}

// ---- Shared: all threads post on the same queue pairs and poll the same two CQs.
#define PAIRS 2
#define SLOTS 16
#define MSG 2048
#define RECVS 256
#define HEAD 24
struct head {
	uint64_t thread, seq, len;
};
static struct ibv_cq *all_send, *all_recv;
static struct ibv_qp *from[PAIRS], *to[PAIRS];
static uint8_t *out, *in;
static struct ibv_mr *mr_out, *mr_in;
static volatile int busy[THREADS * SLOTS];
static uint64_t sent[THREADS], got[THREADS], sent_sum[THREADS], got_sum[THREADS], shared_bytes;

static uint64_t mix(uint64_t seq)
{
	return (seq + 1) * 0x9E3779B97F4A7C15ull ^ seq << 7;
}

static void post_slot(int slot)
{
	struct ibv_sge s = {(uintptr_t)in + (size_t)slot * MSG, MSG, mr_in->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(to[slot / RECVS], &wr, &bad), "post recv");
}

static void shared_poll(uint8_t *want)
{
	struct ibv_wc wc[4];
	int n, i;

	n = ibv_poll_cq(all_send, 4, wc);
	CHECK(n >= 0, "poll");
	for (i = 0; i < n; i++) {
		CHECK(wc[i].status == IBV_WC_SUCCESS, "send: %s", ibv_wc_status_str(wc[i].status));
		CHECK(__atomic_exchange_n(&busy[wc[i].wr_id], 0, __ATOMIC_ACQ_REL) == 1, "completed twice");
	}
	n = ibv_poll_cq(all_recv, 4, wc);
	CHECK(n >= 0, "poll");
	for (i = 0; i < n; i++) {
		uint8_t *at = in + wc[i].wr_id * MSG;
		struct head h;

		CHECK(wc[i].status == IBV_WC_SUCCESS, "receive: %s", ibv_wc_status_str(wc[i].status));
		memcpy(&h, at, sizeof(h));
		CHECK(h.thread < THREADS && h.len == wc[i].byte_len && h.len >= HEAD && h.len <= MSG, "header");
		fill(want, h.len - HEAD, h.thread, h.seq);
		CHECK(!memcmp(want, at + HEAD, h.len - HEAD), "bytes of thread %d message %d", (int)h.thread, (int)h.seq);
		CHECK(wc[i].qp_num == to[wc[i].wr_id / RECVS]->qp_num, "queue pair");
		__atomic_add_fetch(&got[h.thread], 1, __ATOMIC_RELAXED);
		__atomic_add_fetch(&got_sum[h.thread], mix(h.seq), __ATOMIC_RELAXED);
		__atomic_add_fetch(&shared_bytes, h.len, __ATOMIC_RELAXED);
		post_slot(wc[i].wr_id);
	}
}

static void *shared_run(void *arg)
{
	int id = (int)(intptr_t)arg, i;
	uint8_t *want = malloc(MSG);
	uint64_t seq = 0;

	while (now() < until) {
		for (i = 0; i < SLOTS; i++) {
			int slot = id * SLOTS + i;
			uint8_t *at = out + (size_t)slot * MSG;
			struct head h = {id, seq, HEAD + mix(seq) % (MSG - HEAD)};
			struct ibv_sge s = {(uintptr_t)at, h.len, mr_out->lkey};
			struct ibv_send_wr w = {.wr_id = slot, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND,
						.send_flags = IBV_SEND_SIGNALED}, *bad;

			if (__atomic_load_n(&busy[slot], __ATOMIC_ACQUIRE))
				continue;
			memcpy(at, &h, sizeof(h));
			fill(at + HEAD, h.len - HEAD, id, seq);
			busy[slot] = 1;
			CHECK(!ibv_post_send(from[seq % PAIRS], &w, &bad), "post send");
			sent_sum[id] += mix(seq);
			sent[id] = ++seq;
		}
		shared_poll(want);
	}
	free(want);
	return NULL;
}

static void shared_open(void)
{
	int i, k;

	all_send = cq_new(&port, THREADS * SLOTS * 2, NULL, NULL);
	all_recv = cq_new(&port, PAIRS * RECVS * 2, NULL, NULL);
	out = calloc(THREADS * SLOTS, MSG);
	in = calloc(PAIRS * RECVS, MSG);
	mr_out = ibv_reg_mr(port.pd, out, THREADS * SLOTS * MSG, 0);
	mr_in = ibv_reg_mr(port.pd, in, PAIRS * RECVS * MSG, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr_out && mr_in, "mr");
	for (i = 0; i < PAIRS; i++) {
		from[i] = qp_new(&port, IBV_QPT_RC, all_send, all_send, RECVS);
		to[i] = qp_new(&port, IBV_QPT_RC, all_recv, all_recv, RECVS);
		qp_pair(&port, from[i], to[i]);
		for (k = 0; k < RECVS; k++)
			post_slot(i * RECVS + k);
	}
}

static void shared_drain(void)
{
	uint8_t *want = malloc(MSG);
	double end = now() + 20;
	int i, left;

	do {
		shared_poll(want);
		for (left = i = 0; i < THREADS; i++)
			left += got[i] < sent[i];
		for (i = 0; i < THREADS * SLOTS; i++)
			left += busy[i];
	} while (left && now() < end);
	CHECK(!left, "messages or completions are missing");
	for (i = 0; i < THREADS; i++)
		CHECK(sent[i] == got[i] && sent_sum[i] == got_sum[i] && sent[i] > 0, "thread %d: %d sent, %d received", i,
		      (int)sent[i], (int)got[i]);
	free(want);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 5;
	struct own own[THREADS] = {0};
	pthread_t t[THREADS];
	uint64_t messages = 0, bytes = 0;
	int i;

	port_open(&port);
	until = now() + seconds / 2;
	for (i = 0; i < THREADS; i++) {
		own[i].id = i;
		CHECK(!pthread_create(&own[i].thread, NULL, own_run, &own[i]), "thread");
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(own[i].thread, NULL);
		CHECK(own[i].messages > 0, "thread %d did nothing", i);
		messages += own[i].messages;
		bytes += own[i].bytes;
	}
	printf("own: %llu messages, %llu bytes checked\n", (unsigned long long)messages, (unsigned long long)bytes);
	fflush(stdout);
	shared_open();
	until = now() + seconds / 2;
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, shared_run, (void *)(intptr_t)i), "thread");
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	shared_drain();
	for (messages = i = 0; i < THREADS; i++)
		messages += sent[i];
	printf("shared: %llu messages, %llu bytes checked\n", (unsigned long long)messages,
	       (unsigned long long)shared_bytes);
	for (i = 0; i < PAIRS; i++)
		CHECK(!ibv_destroy_qp(from[i]) && !ibv_destroy_qp(to[i]), "destroy qp");
	CHECK(!ibv_destroy_cq(all_send) && !ibv_destroy_cq(all_recv), "destroy cq");
	CHECK(!ibv_dereg_mr(mr_out) && !ibv_dereg_mr(mr_in), "dereg");
	port_close(&port);
	printf("ok threads\n");
	return 0;
}
