// Tries the rule of arming that the argument names. Prints the numbers of events and completions.
#include "sleep.h"

// Takes all waiting events and returns their number.
static int events(void)
{
	struct pollfd fd = {.fd = b.channel->fd, .events = POLLIN};
	int n = 0;

	while (poll(&fd, 1, 100) > 0) {
		ibv_ack_cq_events(next_event(), 1);
		n++;
	}
	return n;
}

static int completions(void)
{
	struct ibv_wc wc;
	int n = 0;

	while (ibv_poll_cq(b.cq, 1, &wc) > 0)
		n++;
	return n;
}

int main(int argc, char **argv)
{
	const char *rule = word(argc, argv, 1, "twice stronger early-poll no-arm failure");
#define IS(name) (!strcmp(rule, name))

	prepare(4);
	if (IS("twice")) {
		MUST(!ibv_req_notify_cq(b.cq, 0));
		MUST(!ibv_req_notify_cq(b.cq, 0));
		send_messages(3);
	} else if (IS("stronger")) {
		MUST(!ibv_req_notify_cq(b.cq, 0));
		MUST(!ibv_req_notify_cq(b.cq, 1));
		send_messages(1);
	} else if (IS("early-poll")) {
		MUST(!ibv_req_notify_cq(b.cq, 0));
		send_messages(1);
		printf("polled before the event is read: %d\n", completions());
	} else if (IS("no-arm")) {
		MUST(!ibv_req_notify_cq(b.cq, 0));
		send_messages(1);
		ibv_ack_cq_events(next_event(), 1);
		printf("polled: %d\n", completions());
		send_messages(1);
	} else if (IS("failure")) {
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
		MUST(!ibv_req_notify_cq(b.cq, 1));
		MUST(!ibv_modify_qp(b.qp, &attr, IBV_QP_STATE));
	}
	int n = events();
	printf("events: %d, completions: %d\n", n, completions());
	return 0;
}
