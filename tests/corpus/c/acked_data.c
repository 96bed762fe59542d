// A server over librdmacm reads the name of its client from the private data of the connection
// request. rdma_ack_cm_event frees the event together with this data. The wrong program reads the
// name after the acknowledgement. The right program copies the name first.
#include "corpus.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#define ROUNDS 5

static struct rdma_event_channel *calls, *answers;
static struct rdma_cm_id *listener;
static const char name[] = "a client with a name of some length";

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

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr qa = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};

	CHECK(!rdma_create_qp(id, NULL, &qa), "qp");
}

static void *client(void *arg)
{
	struct rdma_conn_param param = {.private_data = name, .private_data_len = sizeof name, .retry_count = 7};
	struct rdma_cm_id *me;

	CHECK(!rdma_create_id(answers, &me, NULL, RDMA_PS_TCP), "id");
	CHECK(!rdma_resolve_addr(me, NULL, arg, 2000), "address");
	pass(answers, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(me, 2000), "route");
	pass(answers, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(me);
	CHECK(!rdma_connect(me, &param), "connect");
	pass(answers, RDMA_CM_EVENT_ESTABLISHED);
	pass(answers, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(me);
	CHECK(!rdma_destroy_id(me), "destroy id");
	return NULL;
}

static void serve(void)
{
	struct rdma_conn_param param = {.retry_count = 7};
	struct rdma_cm_event *e = next(calls, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = e->id;
	const char *from = e->param.conn.private_data;
	char copy[sizeof name];

	memcpy(copy, from, sizeof copy);
#if !WRONG
	from = copy;
#endif
	CHECK(!rdma_ack_cm_event(e), "ack the request");
	make_qp(id);
	CHECK(!rdma_accept(id, &param), "accept");
	pass(calls, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!memcmp(from, name, sizeof name), "the client has another name"); // freed with the event
	CHECK(!rdma_disconnect(id), "disconnect");
	pass(calls, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id), "destroy id");
}

int main(void)
{
	const char *seconds = getenv("CORPUS_SECONDS");
	struct sockaddr_in at = {.sin_family = AF_INET};
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
		thread(&t, client, &at);
		serve();
		CHECK(!pthread_join(t, NULL), "join");
	}
	CHECK(!rdma_destroy_id(listener), "destroy listener");
	rdma_destroy_event_channel(calls);
	rdma_destroy_event_channel(answers);
	printf("ok acked_data\n");
	return 0;
}
