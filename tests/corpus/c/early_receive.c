// A server over librdmacm has two threads. The first thread reads the events of the connection, and
// the second thread polls the receives. The first message of the peer may arrive before the server
// has read ESTABLISHED. The wrong program treats such a message as a mistake of the peer.
// From ucx #4719 and libfabric #12362, where programs relied on the order of these events.
#include "corpus.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#define MESSAGES 4
#define ROUNDS 10

static struct rdma_event_channel *calls, *answers;
static struct rdma_cm_id *listener, *id;
static struct ibv_cq *cq;
static struct ibv_mr *inbox;
static uint8_t *bytes;
static int established, early, ready, done;

static struct rdma_cm_event *next(struct rdma_event_channel *channel, enum rdma_cm_event_type kind)
{
	struct rdma_cm_event *e;

	CHECK(!rdma_get_cm_event(channel, &e), "get event");
	CHECK(e->event == kind, "%s instead of %s", rdma_event_str(e->event), rdma_event_str(kind));
	return e;
}

static void pass(struct rdma_event_channel *channel, enum rdma_cm_event_type kind)
{
	CHECK(!rdma_ack_cm_event(next(channel, kind)), "ack");
}

static struct ibv_qp_init_attr sizes(struct ibv_cq *of)
{
	return (struct ibv_qp_init_attr){
		.send_cq = of, .recv_cq = of, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
}

static void await_one(struct ibv_cq *of)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(of, 1, &wc))
		sched_yield();
	CHECK(!wc.status, "%s", ibv_wc_status_str(wc.status));
}

// The peer connects, sends at once, and disconnects when the server has taken all messages.
static void *client(void *arg)
{
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct ibv_qp_init_attr qa;
	struct rdma_cm_id *me;
	struct ibv_cq *own;
	int i;

	CHECK(!rdma_create_id(answers, &me, NULL, RDMA_PS_TCP), "id");
	CHECK(!rdma_resolve_addr(me, NULL, arg, 2000), "address");
	pass(answers, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(me, 2000), "route");
	pass(answers, RDMA_CM_EVENT_ROUTE_RESOLVED);
	own = ibv_create_cq(me->verbs, 8, NULL, NULL, 0);
	CHECK(own, "cq");
	qa = sizes(own);
	CHECK(!rdma_create_qp(me, NULL, &qa), "qp");
	CHECK(!rdma_connect(me, &param), "connect");
	pass(answers, RDMA_CM_EVENT_ESTABLISHED);
	for (i = 0; i < MESSAGES; i++) {
		struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

		CHECK(!ibv_post_send(me->qp, &wr, &bad), "post send");
		await_one(own);
	}
	until(&done, 1);
	CHECK(!rdma_disconnect(me), "disconnect");
	pass(answers, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(me);
	CHECK(!ibv_destroy_cq(own), "destroy cq");
	CHECK(!rdma_destroy_id(me), "destroy id");
	return NULL;
}

static void *receive(void *arg)
{
	int i;

	until(&ready, 1);
	for (i = 0; i < MESSAGES; i++) {
		await_one(cq);
#if WRONG
		CHECK(get(&established), "a message before the connection"); // taken for granted
#else
		early += !get(&established);
#endif
	}
	until(&established, 1);
	add(&done, 1);
	return arg;
}

static void serve(void)
{
	struct rdma_conn_param param = {.rnr_retry_count = 7};
	struct ibv_qp_init_attr qa;
	struct rdma_cm_event *e = next(calls, RDMA_CM_EVENT_CONNECT_REQUEST);
	int i;

	id = e->id;
	CHECK(!rdma_ack_cm_event(e), "ack");
	cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	CHECK(cq, "cq");
	qa = sizes(cq);
	CHECK(!rdma_create_qp(id, NULL, &qa), "qp");
	inbox = ibv_reg_mr(id->pd, bytes, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(inbox, "reg mr");
	for (i = 0; i < MESSAGES; i++) {
		struct ibv_sge s = {(uintptr_t)bytes + 64 * i, 64, inbox->lkey};
		struct ibv_recv_wr wr = {.sg_list = &s, .num_sge = 1}, *bad;

		CHECK(!ibv_post_recv(id->qp, &wr, &bad), "post recv");
	}
	add(&ready, 1);
	CHECK(!rdma_accept(id, &param), "accept");
	pass(calls, RDMA_CM_EVENT_ESTABLISHED);
	add(&established, 1);
	pass(calls, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(id);
	CHECK(!ibv_dereg_mr(inbox), "dereg");
	CHECK(!ibv_destroy_cq(cq), "destroy cq");
	CHECK(!rdma_destroy_id(id), "destroy id");
}

int main(void)
{
	const char *seconds = getenv("CORPUS_SECONDS");
	struct sockaddr_in at = {.sin_family = AF_INET};
	pthread_t threads[2];
	int i;

	alarm(seconds ? atoi(seconds) : 20);
	CHECK(inet_pton(AF_INET, "127.0.0.1", &at.sin_addr) == 1, "address");
	CHECK(!posix_memalign((void **)&bytes, 4096, 4096), "memory");
	calls = rdma_create_event_channel();
	answers = rdma_create_event_channel();
	CHECK(calls && answers, "channels");
	CHECK(!rdma_create_id(calls, &listener, NULL, RDMA_PS_TCP), "listener");
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&at), "bind");
	CHECK(!rdma_listen(listener, 4), "listen");
	at.sin_port = rdma_get_src_port(listener);
	for (i = 0; i < ROUNDS; i++) {
		established = ready = done = 0;
		thread(&threads[0], client, &at);
		thread(&threads[1], receive, NULL);
		serve();
		CHECK(!pthread_join(threads[0], NULL) && !pthread_join(threads[1], NULL), "join");
	}
	CHECK(!rdma_destroy_id(listener), "destroy listener");
	rdma_destroy_event_channel(calls);
	rdma_destroy_event_channel(answers);
	free(bytes);
	printf("ok early_receive, %d came early\n", early);
	return 0;
}
