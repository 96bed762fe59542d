// A program sleeps until three messages come. With an argument, one thing is wrong.
#include "sleep.h"
#include <unistd.h>

enum { MESSAGES = 3 };

int main(int argc, char **argv)
{
	const char *wrong = word(argc, argv, 1, "arm-late one-poll solicited no-ack");
#define IS(name) (!strcmp(wrong, name))
	int arm_for_solicited = IS("solicited"), got = 0;
	struct ibv_wc wc;

	prepare(MESSAGES);
	if (IS("arm-late"))
		send_messages(MESSAGES);
	// Arm, then poll until empty, then sleep.
	MUST(!ibv_req_notify_cq(b.cq, arm_for_solicited));
	if (!IS("arm-late"))
		send_messages(MESSAGES);
	while (got < MESSAGES) {
		struct ibv_cq *cq = next_event();

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
	// With no-ack, ibv_destroy_cq waits for the ack forever. The alarm ends the program.
	alarm(3);
	MUST(!ibv_destroy_qp(b.qp));
	MUST(!ibv_destroy_cq(b.cq));
	return 0;
}
