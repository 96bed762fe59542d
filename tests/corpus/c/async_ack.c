// A shared receive queue is refilled after each message. A limit event warns when the queue runs
// low, which is rare. The wrong program takes the event and does not acknowledge the event.
// Destroying the queue then waits for ever.
// From the manual page of ibv_ack_async_event, and rpma #905.
#include "corpus.h"
#define TOTAL 40
#define WINDOW 8
#define RECEIVES 12
#define LIMIT 5

static struct duo d;
static struct ibv_srq *srq;
static int handled;

static void refill(int n)
{
	struct ibv_sge s = piece(n, SLOT);
	struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_srq_recv(srq, &wr, &bad), "post srq recv");
}

static void look_for_warnings(void)
{
	struct pollfd p = {.fd = port.ctx->async_fd, .events = POLLIN};
	struct ibv_async_event e;

	while (poll(&p, 1, 0) == 1) {
		CHECK(!ibv_get_async_event(port.ctx, &e), "get async event");
		CHECK(e.event_type == IBV_EVENT_SRQ_LIMIT_REACHED, "event %d", e.event_type);
#if !WRONG
		ibv_ack_async_event(&e);
#endif
	}
}

int main(void)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_qp_init_attr qa = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 16, .max_send_sge = 1}};
	struct bursts s = {&d, TOTAL, WINDOW, WINDOW, 100, &handled};
	struct ibv_srq_attr limit = {.srq_limit = LIMIT};
	pthread_t t;
	int i;

	start();
	srq = ibv_create_srq(port.pd, &sa);
	CHECK(srq, "srq");
	end_open(&d.a, IBV_QPT_RC, 16);
	d.b.ch = ibv_create_comp_channel(port.ctx);
	d.b.scq = cq_new(&port, 32, NULL, NULL);
	d.b.rcq = cq_new(&port, 32, d.b.ch, NULL);
	qa.srq = srq;
	qa.send_cq = d.b.scq;
	qa.recv_cq = d.b.rcq;
	d.b.qp = ibv_create_qp(port.pd, &qa);
	CHECK(d.b.ch && d.b.qp, "qp");
	qp_pair(&port, d.a.qp, d.b.qp);
	for (i = 0; i < RECEIVES; i++)
		refill(INBOX + i);
	CHECK(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), "limit");
	thread(&t, sender, &s);
	while (handled < TOTAL) {
		i = poll_good(d.b.rcq).wr_id;
		refill(i);
		add(&handled, 1);
		look_for_warnings();
	}
	pthread_join(t, NULL);
	look_for_warnings();
	end_close(&d.a);
	CHECK(!ibv_destroy_qp(d.b.qp), "destroy qp");
	CHECK(!ibv_destroy_srq(srq), "destroy srq");
	CHECK(!ibv_destroy_cq(d.b.scq) && !ibv_destroy_cq(d.b.rcq), "destroy cq");
	CHECK(!ibv_destroy_comp_channel(d.b.ch), "destroy channel");
	return finish("async_ack");
}
