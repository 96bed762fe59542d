// Arms a CQ that holds an unpolled completion. `behind COUNT` expects COUNT events at once from
// each such arm. COUNT is 1 if the device imitates a ConnectX, which announces such a completion at
// once. COUNT is 0 for other devices.
#include "rig.h"

static int comes(struct ibv_comp_channel *channel, int ms)
{
	struct pollfd at = {.fd = channel->fd, .events = POLLIN};
	int n = poll(&at, 1, ms);

	CHECK(n >= 0, "poll");
	return n;
}

static void take(struct ibv_comp_channel *channel, struct ibv_cq *cq)
{
	struct ibv_cq *of;
	void *context;

	CHECK(!ibv_get_cq_event(channel, &of, &context) && of == cq, "event");
	ibv_ack_cq_events(cq, 1);
}

int main(int argc, char **argv)
{
	struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
	struct ibv_comp_channel *channel;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct port p;
	int at_once, n;

	CHECK(argc == 2, "COUNT");
	at_once = atoi(argv[1]);
	port_open(&p);
	channel = ibv_create_comp_channel(p.ctx);
	CHECK(channel, "channel");
	cq = cq_new(&p, 16, channel, NULL);
	qp = qp_new(&p, IBV_QPT_RC, cq, cq, 4);
	qp_init(&p, qp);
	CHECK(!ibv_req_notify_cq(cq, 0), "arm an empty queue");
	CHECK(!comes(channel, 0), "an event of nothing");
	CHECK(!ibv_post_recv(qp, &wr, &bad), "post");
	qp_to_err(qp);
	// The receive is flushed. The test takes the event, leaves the completion in the CQ, and
	// arms three times.
	CHECK(comes(channel, 30000), "no event of the completion");
	take(channel, cq);
	for (n = 0; n < 3; n++) {
		CHECK(!ibv_req_notify_cq(cq, n % 2), "arm");
		CHECK(comes(channel, at_once ? 30000 : 150) == at_once, "%d: events at once", n);
		if (at_once)
			take(channel, cq);
	}
	CHECK(poll_one(cq).status == IBV_WC_WR_FLUSH_ERR, "flushed");
	CHECK(!ibv_req_notify_cq(cq, 0), "arm");
	CHECK(!comes(channel, 150), "an event of what was polled");
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel), "destroy");
	port_close(&p);
	puts("ok behind");
	return 0;
}
