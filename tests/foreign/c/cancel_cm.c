// The test cancels threads that wait for an event of rdma_cm. The event channel must work
// afterwards.
// usage: cancel_cm ROUNDS
#include "rig.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

static struct rdma_event_channel *channel;

static void *waits(void *arg)
{
	struct rdma_cm_event *event;

	CHECK(!rdma_get_cm_event(channel, &event), "get event");
	CHECK(0, "event %d", event->event);
	return arg;
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7471), .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int rounds = argc > 1 ? atoi(argv[1]) : 100, i;

	for (i = 0; i < rounds; i++) {
		struct rdma_cm_event *event;
		struct rdma_cm_id *id;
		pthread_t t;
		void *result;

		alarm(20);
		channel = rdma_create_event_channel();
		CHECK(channel, "channel");
		CHECK(!pthread_create(&t, NULL, waits, NULL), "thread");
		usleep(i % 2 * 500);
		CHECK(!pthread_cancel(t), "cancel");
		CHECK(!pthread_join(t, &result) && result == PTHREAD_CANCELED, "join");
		CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "id");
		CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), "resolve");
		CHECK(!rdma_get_cm_event(channel, &event), "get event");
		CHECK(event->event == RDMA_CM_EVENT_ADDR_RESOLVED && !event->status, "event %d", event->event);
		CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(id), "destroy");
		rdma_destroy_event_channel(channel);
	}
	printf("ok cancel cm\n");
	return 0;
}
