// Shared code of the corpus: two connected ends in a process, a block of registered memory cut into
// slots, and a time limit for the run. Built with WRONG=1, a program has its mistake. Built with
// WRONG=0, the program is the right twin, with the same text otherwise.
#ifndef CORPUS_H
#define CORPUS_H
// Shorter than the limit of the run, so that a program without an expected completion reports this
// failure.
#define POLL_SECONDS 10
#include "rig.h"
#include <sched.h>
#include <stdbool.h>
#ifndef WRONG
#define WRONG 0
#endif
#define SLOT 256
#define SLOTS 256
// Receives use the slots from this number on. Sends use the slots before.
#define INBOX 128

struct end {
	// The channel of the receive CQ. The send CQ has no channel.
	struct ibv_comp_channel *ch;
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp;
};
// End a sends and end b receives, unless a program says otherwise.
struct duo {
	struct end a, b;
};
static UNUSED struct port port;
static UNUSED uint8_t *mem;
static UNUSED struct ibv_mr *mr;

// Opens the device and registers the memory. SIGALRM ends the run after CORPUS_SECONDS seconds, by
// default 20.
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

// Posts a receive into slot `n`. wr_id is the number of the slot.
static UNUSED void give(struct ibv_qp *qp, int n)
{
	struct ibv_sge s = piece(n, SLOT);
	struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(qp, &wr, &bad), "post recv");
}

// Posts a send from slot `n`. wr_id is the number of the slot. Returns the result of ibv_post_send.
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

// Works for a random time of up to `us` microseconds.
static UNUSED void work(int us)
{
	double end = now() + us * 1e-6 * rand() / RAND_MAX;

	while (now() < end)
		;
}

// Waits until the counter reaches the value.
static UNUSED void until(int *p, int value)
{
	while (get(p) < value)
		sched_yield();
}

static UNUSED void thread(pthread_t *t, void *(*f)(void *), void *arg)
{
	CHECK(!pthread_create(t, NULL, f, arg), "thread");
}

// The parameters of `sender`. The thread sends `total` messages from end a. The first four bytes of
// a message contain its number, from 0. The messages come in bursts of up to `burst`. The fifth
// byte of a message is 1 in the last message of a burst. Between bursts the thread works for up to
// `pause_us` microseconds. The receiver counts the messages in `handled`. The sender is at most
// `window` messages ahead of this count.
struct bursts {
	struct duo *d;
	int total, burst, window, pause_us;
	int *handled;
};
static UNUSED void *sender(void *arg)
{
	struct bursts *s = arg;
	// Two senders use different slots.
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

// The parameters of `echo`. In this thread, end b answers each of `total` requests with the first
// 64 bytes of the request.
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
