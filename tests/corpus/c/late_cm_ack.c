// A server over librdmacm serves several clients in turn. The wrong server destroys the id of a
// connection before the server acknowledges the DISCONNECTED event of this id. rdma_destroy_id then
// waits for the acknowledgement for ever.
#include "corpus.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#define ROUNDS 3

static struct rdma_event_channel *calls, *answers;
static struct sockaddr_in at = {.sin_family = AF_INET};

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

static struct ibv_cq *open_queue(struct rdma_cm_id *id)
{
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
	struct ibv_qp_init_attr q = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
				     .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};

	CHECK(cq, "cq");
	CHECK(!rdma_create_qp(id, NULL, &q), "qp");
	return cq;
}

static void await_one(struct ibv_cq *of)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(of, 1, &wc))
		sched_yield();
	CHECK(!wc.status, "%s", ibv_wc_status_str(wc.status));
}

static void *client(void *arg)
{
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct rdma_cm_id *me;
	struct ibv_cq *cq;

	CHECK(!rdma_create_id(answers, &me, NULL, RDMA_PS_TCP), "id");
	CHECK(!rdma_resolve_addr(me, NULL, (struct sockaddr *)&at, 2000), "address");
	pass(answers, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(me, 2000), "route");
	pass(answers, RDMA_CM_EVENT_ROUTE_RESOLVED);
	cq = open_queue(me);
	CHECK(!rdma_connect(me, &param), "connect");
	pass(answers, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!ibv_post_send(me->qp, &wr, &bad), "post send");
	await_one(cq);
	CHECK(!rdma_disconnect(me), "disconnect");
	pass(answers, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(me);
	CHECK(!ibv_destroy_cq(cq), "destroy cq");
	CHECK(!rdma_destroy_id(me), "destroy id");
	return arg;
}

static void serve(void)
{
	struct rdma_conn_param param = {.rnr_retry_count = 7};
	struct ibv_recv_wr wr = {.num_sge = 0}, *bad;
	struct rdma_cm_event *e = next(calls, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = e->id;
	struct ibv_cq *cq;

	CHECK(!rdma_ack_cm_event(e), "ack");
	cq = open_queue(id);
	CHECK(!ibv_post_recv(id->qp, &wr, &bad), "post recv");
	CHECK(!rdma_accept(id, &param), "accept");
	pass(calls, RDMA_CM_EVENT_ESTABLISHED);
	await_one(cq);
	e = next(calls, RDMA_CM_EVENT_DISCONNECTED);
#if !WRONG
	CHECK(!rdma_ack_cm_event(e), "ack");
#endif
	rdma_destroy_qp(id);
	CHECK(!ibv_destroy_cq(cq), "destroy cq");
	CHECK(!rdma_destroy_id(id), "destroy the id of the connection");
#if WRONG
	CHECK(!rdma_ack_cm_event(e), "ack too late");
#endif
}

int main(void)
{
	const char *seconds = getenv("CORPUS_SECONDS");
	struct rdma_cm_id *listener;
	pthread_t t;
	int i;

	alarm(seconds ? atoi(seconds) : 20);
	CHECK(inet_pton(AF_INET, "127.0.0.1", &at.sin_addr) == 1, "address");
	calls = rdma_create_event_channel();
	answers = rdma_create_event_channel();
	CHECK(calls && answers, "channels");
	CHECK(!rdma_create_id(calls, &listener, NULL, RDMA_PS_TCP), "listener");
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&at), "bind");
	CHECK(!rdma_listen(listener, 4), "listen");
	at.sin_port = rdma_get_src_port(listener);
	for (i = 0; i < ROUNDS; i++) {
		thread(&t, client, NULL);
		serve();
		CHECK(!pthread_join(t, NULL), "join");
	}
	CHECK(!rdma_destroy_id(listener), "destroy listener");
	rdma_destroy_event_channel(calls);
	rdma_destroy_event_channel(answers);
	printf("ok late_cm_ack\n");
	return 0;
}
