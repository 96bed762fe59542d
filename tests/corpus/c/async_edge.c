// The program watches the asynchronous events of a context with an edge-triggered epoll. Two shared
// receive queues fall below their limits. The wrong program reads a single event per wake-up. If
// two events were queued, the program waits for the second event for ever.
// From Mooncake #3236, where a burst of harmless events hid the important event.
#include "corpus.h"
#include <sys/epoll.h>
#define RECEIVES 8
#define LIMIT 4

struct link {
	struct end a, b;
	struct ibv_srq *srq;
	bool low;
};
static struct link links[2];

static void open_link(struct link *l)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_srq_attr limit = {.srq_limit = LIMIT};
	struct ibv_qp_init_attr qa = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 16, .max_send_sge = 1}};
	struct ibv_recv_wr *bad;
	int i;

	end_open(&l->a, IBV_QPT_RC, 16);
	l->srq = ibv_create_srq(port.pd, &sa);
	CHECK(l->srq, "srq");
	l->b.scq = l->b.rcq = cq_new(&port, 32, NULL, NULL);
	qa.srq = l->srq;
	qa.send_cq = qa.recv_cq = l->b.rcq;
	l->b.qp = ibv_create_qp(port.pd, &qa);
	CHECK(l->b.qp, "qp");
	qp_pair(&port, l->a.qp, l->b.qp);
	for (i = 0; i < RECEIVES; i++) {
		struct ibv_sge s = piece(INBOX + 16 * (l - links) + i, SLOT);
		struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &s, .num_sge = 1};

		CHECK(!ibv_post_srq_recv(l->srq, &wr, &bad), "post srq recv");
	}
	CHECK(!ibv_modify_srq(l->srq, &limit, IBV_SRQ_LIMIT), "limit");
}

static void *send_some(void *arg)
{
	struct link *l = arg;
	int i;

	for (i = 0; i < RECEIVES; i++) {
		work(400);
		CHECK(!put(l->a.qp, i, 16, IBV_SEND_SIGNALED), "post send");
		poll_good(l->a.scq);
	}
	return NULL;
}

static bool take_event(void)
{
	struct ibv_async_event e;
	int i;

	if (ibv_get_async_event(port.ctx, &e))
		return false;
	for (i = 0; i < 2; i++)
		if (e.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && e.element.srq == links[i].srq)
			links[i].low = true;
	ibv_ack_async_event(&e);
	return true;
}

int main(void)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLET};
	int poller = epoll_create1(0), i;
	pthread_t t[2];

	start();
	CHECK(!fcntl(port.ctx->async_fd, F_SETFL, fcntl(port.ctx->async_fd, F_GETFL) | O_NONBLOCK), "non-blocking");
	CHECK(!epoll_ctl(poller, EPOLL_CTL_ADD, port.ctx->async_fd, &e), "epoll");
	for (i = 0; i < 2; i++)
		open_link(&links[i]);
	for (i = 0; i < 2; i++)
		thread(&t[i], send_some, &links[i]);
	while (!links[0].low || !links[1].low) {
		CHECK(epoll_wait(poller, &e, 1, -1) == 1, "epoll_wait");
#if WRONG
		take_event(); // one event a wake-up
#else
		while (take_event())
			;
#endif
	}
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	while (take_event())
		;
	for (i = 0; i < 2; i++) {
		end_close(&links[i].a);
		CHECK(!ibv_destroy_qp(links[i].b.qp), "destroy qp");
		CHECK(!ibv_destroy_srq(links[i].srq), "destroy srq");
		CHECK(!ibv_destroy_cq(links[i].b.rcq), "destroy cq");
	}
	close(poller);
	return finish("async_edge");
}
