// Threads wait for events of channels and contexts. Meanwhile the main thread destroys the channels
// and closes the contexts. This is a mistake of the program, but the threads must keep waiting and
// must not crash.
#include "rig.h"
#include <malloc.h>

#define WAITERS 8

static void *waits(void *arg)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_get_cq_event(arg, &cq, &context), "get");
	CHECK(0, "an event out of nowhere");
	return NULL;
}

static void *waits_async(void *arg)
{
	struct ibv_async_event event;

	CHECK(!ibv_get_async_event(arg, &event), "get");
	CHECK(0, "event %d out of nowhere", event.event_type);
	return NULL;
}

int main(void)
{
	struct ibv_comp_channel *channels[WAITERS];
	struct port port, other[WAITERS];
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *x, *y;
	pthread_t t[2 * WAITERS];
	int i;

	mallopt(M_PERTURB, 0xa5);
	alarm(60);
	port_open(&port);
	scq = cq_new(&port, 16, NULL, NULL);
	rcq = cq_new(&port, 16, NULL, NULL);
	x = qp_new(&port, IBV_QPT_RC, scq, scq, 16);
	y = qp_new(&port, IBV_QPT_RC, rcq, rcq, 16);
	qp_pair(&port, x, y);
	for (i = 0; i < WAITERS; i++) {
		port_open(&other[i]);
		channels[i] = ibv_create_comp_channel(port.ctx);
		CHECK(channels[i], "channel");
		CHECK(!pthread_create(&t[2 * i], NULL, waits, channels[i]), "thread");
		CHECK(!pthread_create(&t[2 * i + 1], NULL, waits_async, other[i].ctx), "thread");
	}
	usleep(200000);
	for (i = 0; i < WAITERS; i++) {
		CHECK(!ibv_destroy_comp_channel(channels[i]), "destroy");
		port_close(&other[i]);
	}
	// Each packet wakes the waiting threads within the library. If the library then read a
	// freed channel or context, the library would find the filler bytes of M_PERTURB.
	for (i = 0; i < 1000; i++) {
		struct ibv_recv_wr r = {.wr_id = i}, *rbad;
		struct ibv_send_wr w = {.wr_id = i, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

		CHECK(!ibv_post_recv(y, &r, &rbad) && !ibv_post_send(x, &w, &bad), "post");
		poll_good(scq);
		poll_good(rcq);
		usleep(100);
	}
	for (i = 0; i < 2 * WAITERS; i++) {
		CHECK(!pthread_cancel(t[i]), "cancel");
		CHECK(!pthread_join(t[i], NULL), "join");
	}
	CHECK(!ibv_destroy_qp(x) && !ibv_destroy_qp(y) && !ibv_destroy_cq(scq) && !ibv_destroy_cq(rcq), "destroy");
	port_close(&port);
	printf("ok orphans\n");
	return 0;
}
