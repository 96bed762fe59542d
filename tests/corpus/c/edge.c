// The receive queues of two connections share a completion channel. The program watches the channel
// with an edge-triggered epoll. The wrong program reads a single event per wake-up. If two events
// were queued before the read, no edge reports the second event.
// From rust-rdma-io (tokio's AsyncFd) and libvalkey #301.
#include "corpus.h"
#include <sys/epoll.h>
#define TOTAL 40
#define WINDOW 4

struct link {
	struct duo d;
	int handled;
};
static struct link links[2];
static struct ibv_comp_channel *channel;

static void drain(struct link *l)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(l->d.b.rcq, 1, &wc) > 0) {
		CHECK(wc.status == IBV_WC_SUCCESS, "receive: %s", ibv_wc_status_str(wc.status));
		give(l->d.b.qp, wc.wr_id);
		add(&l->handled, 1);
	}
}

static bool take_event(void)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(channel, &cq, &context))
		return false;
	ibv_ack_cq_events(cq, 1);
	CHECK(!ibv_req_notify_cq(cq, 0), "arm");
	drain(context);
	return true;
}

static void open_link(struct link *l)
{
	int i;

	end_open(&l->d.a, IBV_QPT_RC, 16);
	l->d.b.ch = channel;
	l->d.b.scq = cq_new(&port, 32, NULL, NULL);
	l->d.b.rcq = cq_new(&port, 32, channel, l);
	l->d.b.qp = qp_new(&port, IBV_QPT_RC, l->d.b.scq, l->d.b.rcq, 16);
	qp_pair(&port, l->d.a.qp, l->d.b.qp);
	for (i = 0; i < WINDOW; i++)
		give(l->d.b.qp, INBOX + 16 * (l - links) + i);
	CHECK(!ibv_req_notify_cq(l->d.b.rcq, 0), "arm");
}

static void close_link(struct link *l)
{
	end_close(&l->d.a);
	CHECK(!ibv_destroy_qp(l->d.b.qp), "destroy qp");
	CHECK(!ibv_destroy_cq(l->d.b.scq) && !ibv_destroy_cq(l->d.b.rcq), "destroy cq");
}

int main(void)
{
	struct bursts s[2] = {{&links[0].d, TOTAL, 1, WINDOW, 1000, &links[0].handled},
			      {&links[1].d, TOTAL, 1, WINDOW, 1000, &links[1].handled}};
	struct epoll_event e = {.events = EPOLLIN | EPOLLET};
	int poller = epoll_create1(0), i;
	pthread_t t[2];

	start();
	channel = ibv_create_comp_channel(port.ctx);
	CHECK(channel, "channel");
	CHECK(!fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), "non-blocking");
	for (i = 0; i < 2; i++)
		open_link(&links[i]);
	CHECK(!epoll_ctl(poller, EPOLL_CTL_ADD, channel->fd, &e), "epoll");
	for (i = 0; i < 2; i++)
		thread(&t[i], sender, &s[i]);
	while (links[0].handled < TOTAL || links[1].handled < TOTAL) {
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
	// Takes the events that came after the last wake-up.
	while (take_event())
		;
	for (i = 0; i < 2; i++)
		close_link(&links[i]);
	CHECK(!ibv_destroy_comp_channel(channel), "destroy channel");
	close(poller);
	return finish("edge");
}
