// What the corpus's programs share: two joined ends in one process, one block of registered memory cut into slots, a bound on
// the run. Built with WRONG=1 a program has its mistake, with WRONG=0 it is the right twin: the same text but for that.
#ifndef CORPUS_H
#define CORPUS_H
// Less than the run's own bound, so that a program that waits for what does not come says so.
#define POLL_SECONDS 10
#include "rig.h"
#include <sched.h>
#include <stdbool.h>
#ifndef WRONG
#define WRONG 0
#endif
#define SLOT 256
#define SLOTS 256
// Slots from here on are received into; those before are sent from.
#define INBOX 128

struct end {
	// Of the receive CQ; the send CQ has none.
	struct ibv_comp_channel *ch;
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp;
};
// a sends, b receives, where a program does not say otherwise.
struct duo {
	struct end a, b;
};
static UNUSED struct port port;
static UNUSED uint8_t *mem;
static UNUSED struct ibv_mr *mr;

// Device and memory. The run ends with SIGALRM after CORPUS_SECONDS, or 20.
static UNUSED void start(void)
{
	const char *seconds = getenv("CORPUS_SECONDS");
	int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

	alarm(seconds ? atoi(seconds) : 20);
	srand(getpid() ^ (unsigned)(now() * 1e6));
	port_open(&port);
	CHECK(!posix_memalign((void **)&mem, 4096, SLOTS * SLOT), "memory");
	memset(mem, 0, SLOTS * SLOT);
	mr = ibv_reg_mr(port.pd, mem, SLOTS * SLOT, all);
	CHECK(mr, "reg mr");
}

static UNUSED int finish(const char *name)
{
	CHECK(!ibv_dereg_mr(mr), "dereg");
	port_close(&port);
	free(mem);
	printf("ok %s\n", name);
	return 0;
}

static UNUSED void end_open(struct end *e, enum ibv_qp_type type, int depth)
{
	e->ch = ibv_create_comp_channel(port.ctx);
	CHECK(e->ch, "channel");
	e->scq = cq_new(&port, 2 * depth, NULL, NULL);
	e->rcq = cq_new(&port, 2 * depth, e->ch, NULL);
	e->qp = qp_new(&port, type, e->scq, e->rcq, depth);
}

static UNUSED void duo_open(struct duo *d, int depth)
{
	end_open(&d->a, IBV_QPT_RC, depth);
	end_open(&d->b, IBV_QPT_RC, depth);
	qp_pair(&port, d->a.qp, d->b.qp);
}

static UNUSED void end_close(struct end *e)
{
	CHECK(!ibv_destroy_qp(e->qp), "destroy qp");
	CHECK(!ibv_destroy_cq(e->scq), "destroy send cq");
	CHECK(!ibv_destroy_cq(e->rcq), "destroy receive cq");
	CHECK(!ibv_destroy_comp_channel(e->ch), "destroy channel");
}

static UNUSED void duo_close(struct duo *d)
{
	end_close(&d->a);
	end_close(&d->b);
}

static UNUSED uint8_t *slot(int n)
{
	return mem + n * SLOT;
}

static UNUSED struct ibv_sge piece(int n, uint32_t len)
{
	return (struct ibv_sge){(uintptr_t)slot(n), len, mr->lkey};
}

// Posts a receive into a slot, whose number is the wr_id.
static UNUSED void give(struct ibv_qp *qp, int n)
{
	struct ibv_sge s = piece(n, SLOT);
	struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(qp, &wr, &bad), "post recv");
}

// Posts a send from a slot, whose number is the wr_id; returns what the call did.
static UNUSED int put(struct ibv_qp *qp, int n, uint32_t len, int flags)
{
	struct ibv_sge s = piece(n, len);
	struct ibv_send_wr wr = {.wr_id = n, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags}, *bad;

	return ibv_post_send(qp, &wr, &bad);
}

static UNUSED int get(int *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static UNUSED void add(int *p, int n)
{
	__atomic_add_fetch(p, n, __ATOMIC_ACQ_REL);
}

// Work of up to so many microseconds.
static UNUSED void work(int us)
{
	double end = now() + us * 1e-6 * rand() / RAND_MAX;

	while (now() < end)
		;
}

// Waits until the counter has the value.
static UNUSED void until(int *p, int value)
{
	while (get(p) < value)
		sched_yield();
}

static UNUSED void thread(pthread_t *t, void *(*f)(void *), void *arg)
{
	CHECK(!pthread_create(t, NULL, f, arg), "thread");
}

// What `sender` does: `total` messages from a, numbered from 0 in their first four bytes, in bursts of up to `burst`, whose
// last message has a 1 in the fifth byte. Between bursts it works for a while; never more than `window` are ahead of `handled`, which the receiver counts.
struct bursts {
	struct duo *d;
	int total, burst, window, pause_us;
	int *handled;
};
static UNUSED void *sender(void *arg)
{
	struct bursts *s = arg;
	// Two senders have slots of their own.
	static int senders;
	int base = 64 * (__atomic_fetch_add(&senders, 1, __ATOMIC_RELAXED) % 2);
	int i, n = 0, left = 0;

	for (i = 0; i < s->total; i++) {
		if (!left--) {
			left = rand() % s->burst;
			work(s->pause_us);
		}
		until(s->handled, i + 1 - s->window);
		n = base + i % 64;
		memcpy(slot(n), &i, 4);
		slot(n)[4] = !left;
		CHECK(!put(s->d->a.qp, n, 64, IBV_SEND_SIGNALED), "post send");
		poll_good(s->d->a.scq);
	}
	return NULL;
}

// b answers each of `total` requests with 64 bytes of what it got.
struct echoes {
	struct duo *d;
	int total, receives;
};
static UNUSED void *echo(void *arg)
{
	struct echoes *e = arg;
	int i, n;

	for (i = 0; i < e->total; i++) {
		n = poll_good(e->d->b.rcq).wr_id;
		work(20);
		CHECK(!put(e->d->b.qp, n, 64, IBV_SEND_SIGNALED), "answer");
		poll_good(e->d->b.scq);
		give(e->d->b.qp, n);
	}
	return NULL;
}
#endif
