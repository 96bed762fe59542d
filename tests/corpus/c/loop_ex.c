// The loop of an extended CQ calls ibv_start_poll, ibv_next_poll until the CQ is empty, and
// ibv_end_poll. The wrong program polls before it arms. The program then sleeps although
// completions came in between.
// From libfabric #795 and #875, here with an extended CQ.
#include "corpus.h"
#define TOTAL 200
#define WINDOW 8

static struct duo d;
static struct ibv_cq_ex *ex;
static int handled;

static void poll_until_empty(void)
{
	struct ibv_poll_cq_attr attr = {0};
	int r = ibv_start_poll(ex, &attr);

	if (r == ENOENT)
		return;
	CHECK(!r, "start poll: %s", strerror(r));
	do {
		CHECK(ex->status == IBV_WC_SUCCESS, "receive: %s", ibv_wc_status_str(ex->status));
		give(d.b.qp, ex->wr_id);
		add(&handled, 1);
		r = ibv_next_poll(ex);
	} while (!r);
	CHECK(r == ENOENT, "next poll: %s", strerror(r));
	ibv_end_poll(ex);
}

static void wait_for_messages(void)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_get_cq_event(d.b.ch, &cq, &context), "get event");
	ibv_ack_cq_events(cq, 1);
#if WRONG
	poll_until_empty();
	CHECK(!ibv_req_notify_cq(cq, 0), "arm late");
#else
	CHECK(!ibv_req_notify_cq(cq, 0), "arm");
	poll_until_empty();
#endif
}

int main(void)
{
	struct bursts s = {&d, TOTAL, 4, WINDOW, 200, &handled};
	struct ibv_cq_init_attr_ex attr = {.cqe = 32};
	pthread_t t;
	int i;

	start();
	end_open(&d.a, IBV_QPT_RC, 16);
	d.b.ch = ibv_create_comp_channel(port.ctx);
	CHECK(d.b.ch, "channel");
	attr.channel = d.b.ch;
	ex = ibv_create_cq_ex(port.ctx, &attr);
	CHECK(ex, "create cq ex");
	d.b.rcq = ibv_cq_ex_to_cq(ex);
	d.b.scq = cq_new(&port, 32, NULL, NULL);
	d.b.qp = qp_new(&port, IBV_QPT_RC, d.b.scq, d.b.rcq, 16);
	qp_pair(&port, d.a.qp, d.b.qp);
	for (i = 0; i < WINDOW; i++)
		give(d.b.qp, INBOX + i);
	CHECK(!ibv_req_notify_cq(d.b.rcq, 0), "first arm");
	thread(&t, sender, &s);
	while (handled < TOTAL)
		wait_for_messages();
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("loop_ex");
}
