// Three messages to a program that sleeps until they come. With an argument one thing is wrong.
#include "pair.h"
#include <poll.h>
#include <unistd.h>

enum { MESSAGES = 3 };
static struct end a, b;

static void send_all(void)
{
	for (int i = 0; i < MESSAGES; i++)
		MUST(!transmit(&a, "wake up", &b, 0));
	// They have arrived: their sends have completed.
	for (int i = 0; i < MESSAGES; i++)
		MUST(completion(&a).status == IBV_WC_SUCCESS);
}

// Sleeps until an event comes; gives up after a second.
static void sleep_on_channel(void)
{
	struct pollfd fd = {.fd = b.channel->fd, .events = POLLIN};

	if (poll(&fd, 1, 1000) == 0) {
		printf("nobody wakes us\n");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	const char *wrong = argc > 1 ? argv[1] : "";
#define IS(name) (!strcmp(wrong, name))
	int arm_for_solicited = IS("solicited"), got = 0;
	struct ibv_wc wc;

	open_device("adverb_lo");
	open_end(&a, MESSAGES, IBV_ACCESS_LOCAL_WRITE);
	open_end(&b, MESSAGES, IBV_ACCESS_LOCAL_WRITE);
	connect_to(&a, &b);
	connect_to(&b, &a);
	for (int i = 0; i < MESSAGES; i++)
		MUST(!receive(&b, sizeof b.memory));

	if (IS("arm-late"))
		send_all();
	// Arm, then poll until empty, then sleep.
	MUST(!ibv_req_notify_cq(b.cq, arm_for_solicited));
	if (!IS("arm-late"))
		send_all();
	while (got < MESSAGES) {
		struct ibv_cq *cq;
		void *cq_context;

		sleep_on_channel();
		MUST(!ibv_get_cq_event(b.channel, &cq, &cq_context));
		if (!IS("no-ack"))
			ibv_ack_cq_events(cq, 1);
		MUST(!ibv_req_notify_cq(cq, arm_for_solicited));
		while (ibv_poll_cq(cq, 1, &wc) > 0) {
			got++;
			if (IS("one-poll"))
				break;
		}
	}
	printf("%d messages\n", got);
	fflush(stdout);
	// A destroy that waits does so for ever; this program does not.
	alarm(3);
	MUST(!ibv_destroy_qp(b.qp));
	MUST(!ibv_destroy_cq(b.cq));
	return 0;
}
