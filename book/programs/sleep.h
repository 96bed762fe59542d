// Sends messages from `a` to `b`, and sleeps until an event comes.
#include "pair.h"
#include <poll.h>

static struct end a, b;

// Sends messages. Returns when the sends have completed, so that the messages have arrived.
static inline void send_messages(int count)
{
	for (int i = 0; i < count; i++)
		MUST(!transmit(&a, "wake up", &b, 0));
	for (int i = 0; i < count; i++)
		MUST(completion(&a).status == IBV_WC_SUCCESS);
}

// Connects two ends. The second end has receives for all messages.
static inline void prepare(int messages)
{
	open_device("adverb0");
	open_end(&a, messages, IBV_ACCESS_LOCAL_WRITE);
	open_end(&b, messages, IBV_ACCESS_LOCAL_WRITE);
	connect_to(&a, &b);
	connect_to(&b, &a);
	for (int i = 0; i < messages; i++)
		MUST(!receive(&b, sizeof b.memory));
}

// Sleeps until an event comes, and takes the event. Gives up after a second.
static inline struct ibv_cq *next_event(void)
{
	struct pollfd fd = {.fd = b.channel->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *cq_context;

	if (poll(&fd, 1, 1000) == 0) {
		printf("nobody wakes us\n");
		exit(1);
	}
	MUST(!ibv_get_cq_event(b.channel, &cq, &cq_context));
	return cq;
}
