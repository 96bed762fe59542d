// Shared code of the C programs over librdmacm: channels with a limited wait, a listener, a client,
// and a connected pair.
#ifndef CM_RIG_H
#define CM_RIG_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>

#include "rig.h"

#define FAILS(call, code)                                                                               \
	do {                                                                                            \
		errno = 0;                                                                              \
		CHECK((call) == -1 && errno == (code), "it was to fail with %s", strerror(code));       \
	} while (0)

static UNUSED struct sockaddr_in ipv4(const char *host, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

	CHECK(inet_pton(AF_INET, host, &a.sin_addr) == 1, "%s", host);
	return a;
}

// Opens a non-blocking event channel.
static UNUSED struct rdma_event_channel *channel_open(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	CHECK(channel, "channel");
	CHECK(!fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), "fcntl");
	return channel;
}

// Returns the next event, which must be of this kind and must arrive within 30 seconds.
static UNUSED struct rdma_cm_event *expect(struct rdma_event_channel *channel, unsigned int kind)
{
	struct pollfd at = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	CHECK(poll(&at, 1, 30000) == 1, "no %s came", rdma_event_str(kind));
	CHECK(!rdma_get_cm_event(channel, &event), "get_cm_event");
	CHECK(event->event == kind, "%s (%d) instead of %s", rdma_event_str(event->event), event->status,
	      rdma_event_str(kind));
	return event;
}

static UNUSED void drop(struct rdma_event_channel *channel, unsigned int kind)
{
	struct rdma_cm_event *event = expect(channel, kind);

	CHECK(!event->status, "%s with status %d", rdma_event_str(kind), event->status);
	CHECK(!rdma_ack_cm_event(event), "ack");
}

static UNUSED struct ibv_qp_init_attr plain_attr(void)
{
	return (struct ibv_qp_init_attr){
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};
}

static UNUSED enum ibv_qp_state state(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(!ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init), "query_qp");
	return attr.qp_state;
}

struct listener {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	int port;
};

static UNUSED void listener_open(struct listener *l, enum rdma_port_space ps)
{
	struct sockaddr_in any = ipv4("127.0.0.1", 0);

	l->channel = channel_open();
	CHECK(!rdma_create_id(l->channel, &l->id, l, ps), "create");
	CHECK(!rdma_bind_addr(l->id, (struct sockaddr *)&any), "bind");
	CHECK(!rdma_listen(l->id, 4), "listen");
	l->port = ntohs(rdma_get_src_port(l->id));
}

static UNUSED void listener_close(struct listener *l)
{
	CHECK(!rdma_destroy_id(l->id), "destroy");
	rdma_destroy_event_channel(l->channel);
}

// Returns an id with a resolved route to the listener.
static UNUSED struct rdma_cm_id *resolve_to(struct listener *l, enum rdma_port_space ps)
{
	struct rdma_event_channel *channel = channel_open();
	struct sockaddr_in to = ipv4("127.0.0.1", l->port);
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, ps), "create");
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000), "resolve_addr");
	drop(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs && id->pd, "the device is known");
	CHECK(!rdma_resolve_route(id, 2000), "resolve_route");
	drop(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(id->route.num_paths == 1 && id->route.path_rec->mtu >= 1 && id->route.path_rec->mtu <= 5, "its path");
	return id;
}

static UNUSED struct rdma_cm_id *client_open(struct listener *l, enum rdma_port_space ps)
{
	struct rdma_cm_id *id = resolve_to(l, ps);
	struct ibv_qp_init_attr attr = plain_attr();

	CHECK(!rdma_create_qp(id, NULL, &attr), "create_qp");
	CHECK(state(id) == IBV_QPS_INIT, "initialised");
	return id;
}

static UNUSED void client_connect(struct rdma_cm_id *id, const char *words)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};

	param.private_data = words;
	param.private_data_len = words ? strlen(words) : 0;
	CHECK(!rdma_connect(id, &param), "connect");
}

static UNUSED void client_close(struct rdma_cm_id *id)
{
	struct rdma_event_channel *channel = id->channel;

	if (id->qp)
		rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id), "destroy");
	rdma_destroy_event_channel(channel);
}

static UNUSED void accept_request(struct rdma_cm_id *id, const char *words)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7};
	struct ibv_qp_init_attr attr = plain_attr();

	param.private_data = words;
	param.private_data_len = words ? strlen(words) : 0;
	CHECK(!rdma_create_qp(id, NULL, &attr), "create_qp");
	CHECK(!rdma_accept(id, &param), "accept");
}

struct pair {
	struct listener l;
	struct rdma_cm_id *client, *server;
};

// Opens a connected client and server. Each end has received the private data of the other end.
static UNUSED void pair_open(struct pair *p, const char *client, const char *server)
{
	struct rdma_cm_event *event;

	listener_open(&p->l, RDMA_PS_TCP);
	p->client = client_open(&p->l, RDMA_PS_TCP);
	client_connect(p->client, client);
	event = expect(p->l.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	p->server = event->id;
	CHECK(p->server->context == p->l.id->context, "the listener's context");
	if (client)
		CHECK(!memcmp(event->param.conn.private_data, client, strlen(client)), "the client's words");
	CHECK(!rdma_ack_cm_event(event), "ack");
	accept_request(p->server, server);
	event = expect(p->client->channel, RDMA_CM_EVENT_ESTABLISHED);
	if (server)
		CHECK(!memcmp(event->param.conn.private_data, server, strlen(server)), "the server's words");
	CHECK(!rdma_ack_cm_event(event), "ack");
	drop(p->l.channel, RDMA_CM_EVENT_ESTABLISHED);
}

static UNUSED void pair_free(struct pair *p)
{
	CHECK(!rdma_disconnect(p->server), "disconnect");
	rdma_destroy_qp(p->server);
	CHECK(!rdma_destroy_id(p->server), "destroy");
	client_close(p->client);
	listener_close(&p->l);
}

static UNUSED void pair_close(struct pair *p)
{
	CHECK(!rdma_disconnect(p->client), "disconnect");
	drop(p->l.channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(p->server), "answer");
	drop(p->client->channel, RDMA_CM_EVENT_DISCONNECTED);
	pair_free(p);
}
#endif
