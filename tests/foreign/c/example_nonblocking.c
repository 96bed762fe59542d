// The example of non-blocking completion events in the manual page ibv_get_cq_event(3), as a whole
// program. The program sets O_NONBLOCK on the descriptor and watches the descriptor with poll(),
// until every message has arrived.
#include "rig.h"

#define MESSAGES 100

int main(void)
{
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq, *send_cq, *ev_cq;
	struct ibv_qp *from, *to;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	struct port port;
	static char in[64], out[64];
	static int my_context;
	void *ev_ctx;
	int ne, i, sent = 0, received = 0, events = 0, rounds = 0, flags, rc;

	alarm(60);
	port_open(&port);
	channel = ibv_create_comp_channel(port.ctx);
	CHECK(channel, "channel");
	flags = fcntl(channel->fd, F_GETFL);
	CHECK(flags >= 0 && fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) == 0, "fcntl");
	cq = ibv_create_cq(port.ctx, MESSAGES, &my_context, channel, 0);
	CHECK(cq, "cq");
	send_cq = cq_new(&port, MESSAGES, NULL, NULL);
	from = qp_new(&port, IBV_QPT_RC, send_cq, send_cq, MESSAGES);
	to = qp_new(&port, IBV_QPT_RC, send_cq, cq, MESSAGES);
	mr = ibv_reg_mr(port.pd, in, sizeof(in), IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr, "mr");
	struct ibv_mr *mr_out = ibv_reg_mr(port.pd, out, sizeof(out), 0);
	CHECK(mr_out, "mr");
	qp_pair(&port, from, to);

	// Arm the CQ before the first completion is possible.
	CHECK(!ibv_req_notify_cq(cq, 0), "req_notify");
	for (i = 0; i < MESSAGES; i++) {
		struct ibv_sge s = {(uintptr_t)in, sizeof(in), mr->lkey};
		struct ibv_recv_wr wr = {.sg_list = &s, .num_sge = 1}, *bad;

		CHECK(!ibv_post_recv(to, &wr, &bad), "post recv");
	}
	while (received < MESSAGES) {
		if (sent == received) {
			struct ibv_sge s = {(uintptr_t)out, sizeof(out), mr_out->lkey};
			struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND,
						 .send_flags = IBV_SEND_SIGNALED}, *bad;

			fill(out, sizeof(out), 1, sent++);
			CHECK(!ibv_post_send(from, &wr, &bad), "post send");
		}
		struct pollfd watched = {.fd = channel->fd, .events = POLLIN};

		do {
			rc = poll(&watched, 1, 10);
			rounds++;
		} while (rc == 0);
		CHECK(rc == 1 && (watched.revents & POLLIN), "poll %d", rc);
		CHECK(!ibv_get_cq_event(channel, &ev_cq, &ev_ctx), "get");
		CHECK(ev_cq == cq && ev_ctx == &my_context, "event of something else");
		ibv_ack_cq_events(ev_cq, 1);
		events++;
		CHECK(!ibv_req_notify_cq(ev_cq, 0), "req_notify");
		// An event can arrive after an earlier round has already polled its completion.
		// Then this loop finds the CQ empty.
		do {
			ne = ibv_poll_cq(cq, 1, &wc);
			CHECK(ne >= 0, "poll");
			if (ne == 0)
				continue;
			CHECK(wc.status == IBV_WC_SUCCESS, "status %d", wc.status);
			CHECK(!memcmp(in, out, sizeof(in)), "wrong bytes in message %d", received);
			received++;
			poll_good(send_cq);
		} while (ne);
	}
	// All messages have arrived. The channel holds at most one more event.
	for (i = 0; !ibv_get_cq_event(channel, &ev_cq, &ev_ctx); i++)
		ibv_ack_cq_events(ev_cq, 1);
	CHECK(errno == EAGAIN && i <= 1, "%d events left", i);
	CHECK(events >= 1 && events <= MESSAGES + 1, "%d events", events);
	CHECK(!ibv_destroy_qp(from) && !ibv_destroy_qp(to), "qp");
	CHECK(!ibv_dereg_mr(mr) && !ibv_dereg_mr(mr_out), "mr");
	CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_cq(send_cq), "cq");
	CHECK(!ibv_destroy_comp_channel(channel), "channel");
	port_close(&port);
	printf("ok non-blocking: %d messages, %d events, %d polls\n", received, events, rounds);
	return 0;
}
