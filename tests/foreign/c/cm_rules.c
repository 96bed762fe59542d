// Tests rules from the manual pages of librdmacm, on which programs depend. All ids belong to one
// process. `cm_rules NAME` runs a single case of the table at the end.
#include "cm_rig.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>

static void nothing_waits(void)
{
	struct rdma_event_channel *channel = channel_open();
	struct rdma_cm_event *event;
	struct pollfd at = {.fd = channel->fd, .events = POLLIN | POLLOUT};

	CHECK(poll(&at, 1, 50) == 0, "an empty channel is ready: %#x", at.revents);
	FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
	rdma_destroy_event_channel(channel);
}

static void wrong_arguments(void)
{
	struct rdma_event_channel *channel = channel_open();
	struct rdma_cm_join_mc_attr_ex join = {0};
	struct sockaddr_storage none = {0};
	struct sockaddr_in group = ipv4("239.1.2.3", 0);
	struct rdma_addrinfo *found;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id, *other;
	struct ibv_ece ece = {0};
	uint8_t big = 200;

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), "create");
	FAILS(rdma_create_id(channel, &other, NULL, 0x77), EINVAL);
	FAILS(rdma_bind_addr(id, (struct sockaddr *)&none), EINVAL);
	FAILS(rdma_bind_addr(id, NULL), EINVAL);
	FAILS(rdma_resolve_addr(id, NULL, NULL, 100), EINVAL);
	FAILS(rdma_resolve_addr(id, NULL, (struct sockaddr *)&none, 100), EINVAL);
	FAILS(rdma_resolve_route(id, 100), EINVAL);
	FAILS(rdma_connect(id, NULL), EINVAL);
	FAILS(rdma_accept(id, NULL), EINVAL);
	FAILS(rdma_disconnect(id), EINVAL);
	FAILS(rdma_get_request(id, &other), EINVAL);
	FAILS(rdma_get_cm_event(channel, NULL), EINVAL);
	FAILS(rdma_ack_cm_event(NULL), EINVAL);
	FAILS(rdma_getaddrinfo(NULL, NULL, NULL, &found), EINVAL);
	CHECK(rdma_getaddrinfo("no such name.invalid", "7471", NULL, &found) != 0, "a name that nobody has");
	FAILS(rdma_set_local_ece(id, &ece), EINVAL);
	FAILS(rdma_set_local_ece(id, NULL), EINVAL);
	FAILS(rdma_get_remote_ece(id, NULL), EINVAL);
	FAILS(rdma_leave_multicast(id, (struct sockaddr *)&group), EADDRNOTAVAIL);
	FAILS(rdma_join_multicast_ex(id, &join, NULL), EINVAL);
	join.comp_mask = RDMA_CM_JOIN_MC_ATTR_RESERVED;
	FAILS(rdma_join_multicast_ex(id, &join, NULL), ENOTSUP);
	join.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	join.addr = (struct sockaddr *)&group;
	join.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	FAILS(rdma_join_multicast_ex(id, &join, NULL), EINVAL);
	FAILS(rdma_set_option(id, 7, 7, &big, sizeof(big)), ENOSYS);
	CHECK(!rdma_destroy_id(id), "destroy");
	// An id without a channel is synchronous. The id can never move to a channel.
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), "create");
	FAILS(rdma_migrate_id(id, NULL), EINVAL);
	FAILS(rdma_get_cm_event(NULL, &event), EINVAL);
	CHECK(!rdma_destroy_id(id), "destroy");
	rdma_destroy_event_channel(channel);
}

static void addresses(void)
{
	struct rdma_event_channel *channel = channel_open();
	struct sockaddr_in any = ipv4("127.0.0.1", 0), taken, foreign = ipv4("192.0.2.1", 0);
	struct rdma_cm_id *id, *other;
	int yes = 1;

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "create");
	CHECK(!rdma_create_id(channel, &other, NULL, RDMA_PS_TCP), "create");
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&any), "bind");
	CHECK(rdma_get_src_port(id), "a port was chosen");
	CHECK(id->verbs && id->pd && id->port_num == 1, "the device of the address");
	CHECK(!memcmp(&id->route.addr.addr.ibaddr.sgid.raw[12], &any.sin_addr, 4), "its GID");
	taken = ipv4("127.0.0.1", ntohs(rdma_get_src_port(id)));
	FAILS(rdma_bind_addr(other, (struct sockaddr *)&taken), EADDRINUSE);
	CHECK(!rdma_listen(id, 1), "listen");
	FAILS(rdma_bind_addr(other, (struct sockaddr *)&foreign), EADDRNOTAVAIL);
	FAILS(rdma_bind_addr(id, (struct sockaddr *)&any), EINVAL);
	CHECK(!rdma_destroy_id(other) && !rdma_destroy_id(id), "destroy");
	// Two ids may share an address if both ids set RDMA_OPTION_ID_REUSEADDR.
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "create");
	CHECK(!rdma_create_id(channel, &other, NULL, RDMA_PS_TCP), "create");
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof(yes)), "reuse");
	CHECK(!rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof(yes)), "reuse");
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&taken), "bind");
	CHECK(!rdma_bind_addr(other, (struct sockaddr *)&taken), "bind");
	CHECK(!rdma_destroy_id(other) && !rdma_destroy_id(id), "destroy");
	rdma_destroy_event_channel(channel);
}

static void synchronous_loopback(void)
{
	struct ibv_qp_init_attr attr = plain_attr();
	struct sockaddr_in any = ipv4("127.0.0.1", 0);
	struct rdma_cm_id *id;

	// A synchronous id at a loopback address gets no device from the bind, as in Linux. If such
	// an id had a device, libfabric would use only this device.
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), "create");
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&any) && rdma_get_src_port(id), "bind");
	CHECK(!id->verbs && !id->pd, "no device yet");
	CHECK(!rdma_listen(id, 1) && id->verbs && id->pd, "a device once it listens");
	CHECK(!rdma_destroy_id(id), "destroy");
	attr.qp_type = IBV_QPT_UD;
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP), "create");
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&any) && !id->verbs, "bind");
	CHECK(!rdma_create_qp(id, NULL, &attr) && id->verbs && state(id) == IBV_QPS_RTS, "a device for a queue pair");
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id), "destroy");
}

static void names(void)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_UDP}, *found;

	CHECK(!rdma_getaddrinfo("127.0.0.1", "7471", NULL, &found), "getaddrinfo");
	CHECK(found->ai_family == AF_INET && !found->ai_src_len && found->ai_dst_len == sizeof(struct sockaddr_in), "dst");
	CHECK(((struct sockaddr_in *)found->ai_dst_addr)->sin_port == htons(7471), "port");
	CHECK(found->ai_qp_type == IBV_QPT_RC && found->ai_port_space == RDMA_PS_TCP, "what TCP is");
	rdma_freeaddrinfo(found);
	CHECK(!rdma_getaddrinfo(NULL, "7471", &hints, &found), "getaddrinfo");
	CHECK(found->ai_flags == RAI_PASSIVE && found->ai_src_len && !found->ai_dst_len, "src");
	CHECK(found->ai_qp_type == IBV_QPT_UD && found->ai_port_space == RDMA_PS_UDP, "what UDP is");
	rdma_freeaddrinfo(found);
	hints = (struct rdma_addrinfo){.ai_flags = RAI_NUMERICHOST};
	CHECK(rdma_getaddrinfo("localhost", "7471", &hints, &found) == EAI_NONAME, "a name is no number");
	rdma_freeaddrinfo(NULL);
}

static void devices(void)
{
	struct rdma_event_channel *channel;
	struct ibv_context **list;
	struct rdma_cm_id *id;
	struct sockaddr_in any = ipv4("127.0.0.1", 0);
	int n = -1, i, seen = 0;

	list = rdma_get_devices(&n);
	CHECK(list && n > 0 && !list[n], "%d devices before any id exists", n);
	channel = channel_open();
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "create");
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&any), "bind");
	for (i = 0; i < n; i++)
		seen += list[i] == id->verbs;
	CHECK(seen == 1, "contexts are shared");
	rdma_free_devices(list);
	CHECK(!rdma_destroy_id(id), "destroy");
	rdma_destroy_event_channel(channel);
}

static void connected(void)
{
	struct pair p;
	struct ibv_wc wc;
	struct ibv_mr *from, *to;
	char out[64] = "sixty-four bytes over a connection by address", in[64] = "";

	pair_open(&p, "client's words", "server's words");
	CHECK(state(p.client) == IBV_QPS_RTS && state(p.server) == IBV_QPS_RTS, "ready to send");
	from = rdma_reg_msgs(p.client, out, sizeof(out));
	to = rdma_reg_msgs(p.server, in, sizeof(in));
	CHECK(from && to, "regions");
	CHECK(!rdma_post_recv(p.server, NULL, in, sizeof(in), to), "receive");
	CHECK(!rdma_post_send(p.client, NULL, out, sizeof(out), from, IBV_SEND_SIGNALED), "send");
	CHECK(rdma_get_send_comp(p.client, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "sent");
	CHECK(rdma_get_recv_comp(p.server, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "received");
	CHECK(!memcmp(in, out, sizeof(in)), "the bytes");
	CHECK(rdma_get_dst_port(p.client) == rdma_get_src_port(p.server), "ports");
	CHECK(!rdma_dereg_mr(from) && !rdma_dereg_mr(to), "regions");
	pair_close(&p);
}

static void two_queue_pairs(void)
{
	struct pair p;
	struct ibv_qp_init_attr attr = plain_attr();

	pair_open(&p, NULL, NULL);
	FAILS(rdma_create_qp(p.client, NULL, &attr), EINVAL);
	FAILS(rdma_establish(p.client), EINVAL);
	pair_close(&p);
}

static void rejected(void)
{
	struct listener l;
	struct rdma_cm_id *client, *server;
	struct rdma_cm_event *event;

	listener_open(&l, RDMA_PS_TCP);
	client = client_open(&l, RDMA_PS_TCP);
	client_connect(client, "please");
	event = expect(l.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = event->id;
	CHECK(event->listen_id == l.id && server != l.id, "whose request");
	CHECK(event->param.conn.private_data_len >= 6 && !memcmp(event->param.conn.private_data, "please", 6), "its data");
	CHECK(!rdma_reject(server, "no", 2), "reject");
	CHECK(!rdma_ack_cm_event(event), "ack");
	event = expect(client->channel, RDMA_CM_EVENT_REJECTED);
	// Reject reason 28 of IBTA: consumer reject.
	CHECK(event->status == 28, "status %d", event->status);
	CHECK(event->param.conn.private_data_len >= 2 && !memcmp(event->param.conn.private_data, "no", 2), "its data");
	CHECK(!rdma_ack_cm_event(event), "ack");
	CHECK(state(client) == IBV_QPS_ERR, "the queue pair is in the error state");
	CHECK(!rdma_destroy_id(server), "destroy");
	client_close(client);
	listener_close(&l);
}

static void nobody_listens(void)
{
	struct listener l;
	struct rdma_cm_id *client;
	struct rdma_cm_event *event;

	listener_open(&l, RDMA_PS_TCP);
	client = client_open(&l, RDMA_PS_TCP);
	listener_close(&l);
	client_connect(client, NULL);
	event = expect(client->channel, RDMA_CM_EVENT_REJECTED);
	// Reject reason 8 of IBTA: invalid service ID.
	CHECK(event->status == 8, "status %d", event->status);
	CHECK(!rdma_ack_cm_event(event), "ack");
	client_close(client);
}

static void refused_in_synchronous_mode(void)
{
	struct rdma_addrinfo *found;
	struct ibv_qp_init_attr attr = plain_attr();
	struct rdma_cm_id *id;

	CHECK(!rdma_getaddrinfo("127.0.0.1", "7", NULL, &found), "getaddrinfo");
	CHECK(!rdma_create_ep(&id, found, NULL, &attr), "create_ep");
	rdma_freeaddrinfo(found);
	CHECK(id->qp && state(id) == IBV_QPS_INIT, "its queue pair is initialised");
	FAILS(rdma_connect(id, NULL), ECONNREFUSED);
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_REJECTED, "the event is kept at the id");
	rdma_destroy_ep(id);
}

static void *accept_one(void *of)
{
	struct rdma_cm_id *listener = of, *id;

	CHECK(!rdma_get_request(listener, &id), "get_request");
	CHECK(id->qp && id->event && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST, "with its queue pair");
	CHECK(!rdma_accept(id, NULL), "accept");
	return id;
}

static void *disconnect(void *id)
{
	CHECK(!rdma_disconnect(id), "disconnect");
	return NULL;
}

static void synchronous(void)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *found;
	struct ibv_qp_init_attr attr = plain_attr();
	struct rdma_cm_id *listener, *client;
	char port[8];
	pthread_t thread;
	void *server;

	CHECK(!rdma_getaddrinfo("127.0.0.1", "0", &hints, &found), "getaddrinfo");
	CHECK(!rdma_create_ep(&listener, found, NULL, &attr), "create_ep");
	rdma_freeaddrinfo(found);
	CHECK(!listener->qp && !rdma_listen(listener, 0), "listen");
	snprintf(port, sizeof(port), "%u", ntohs(rdma_get_src_port(listener)));
	CHECK(!pthread_create(&thread, NULL, accept_one, listener), "thread");
	CHECK(!rdma_getaddrinfo("127.0.0.1", port, NULL, &found), "getaddrinfo");
	CHECK(!rdma_create_ep(&client, found, NULL, &attr), "create_ep");
	rdma_freeaddrinfo(found);
	CHECK(!rdma_connect(client, NULL), "connect");
	CHECK(client->event && client->event->event == RDMA_CM_EVENT_ESTABLISHED, "the event is kept at the id");
	CHECK(!pthread_join(thread, &server), "join");
	CHECK(state(client) == IBV_QPS_RTS && state(server) == IBV_QPS_RTS, "ready to send");
	// Each rdma_disconnect waits for an event that the rdma_disconnect of the other end causes.
	// So the server's call runs in a thread of its own.
	CHECK(!pthread_create(&thread, NULL, disconnect, server), "thread");
	CHECK(!rdma_disconnect(client) && state(client) == IBV_QPS_ERR, "disconnect");
	CHECK(!pthread_join(thread, NULL) && state(server) == IBV_QPS_ERR, "the other end");
	rdma_destroy_ep(client);
	rdma_destroy_ep(server);
	rdma_destroy_ep(listener);
}

static void own_queue_pair(void)
{
	struct listener l;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
	struct ibv_qp_init_attr attr = plain_attr();
	struct ibv_qp_attr to = {0};
	struct rdma_cm_id *client, *server;
	struct rdma_cm_event *event;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	int mask, i;
	static const enum ibv_qp_state states[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};

	listener_open(&l, RDMA_PS_TCP);
	client = resolve_to(&l, RDMA_PS_TCP);
	FAILS(rdma_connect(client, NULL), EINVAL);
	cq = ibv_create_cq(client->verbs, 4, NULL, NULL, 0);
	attr.send_cq = attr.recv_cq = cq;
	qp = ibv_create_qp(client->pd, &attr);
	CHECK(cq && qp, "queue pair");
	param.qp_num = qp->qp_num;
	CHECK(!rdma_connect(client, &param), "connect");
	event = expect(l.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = event->id;
	CHECK(event->param.conn.qp_num == qp->qp_num, "the number of the queue pair");
	CHECK(!rdma_ack_cm_event(event), "ack");
	accept_request(server, NULL);
	event = expect(client->channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
	CHECK(event->param.conn.qp_num == server->qp->qp_num, "the peer's number");
	CHECK(!rdma_ack_cm_event(event), "ack");
	for (i = 0; i < 3; i++) {
		to.qp_state = states[i];
		CHECK(!rdma_init_qp_attr(client, &to, &mask), "attributes of %d", states[i]);
		CHECK(to.qp_state == states[i] && mask & IBV_QP_STATE, "state %d, mask %#x", to.qp_state, mask);
		CHECK(!ibv_modify_qp(qp, &to, mask), "to state %d", states[i]);
	}
	CHECK(!rdma_establish(client), "establish");
	drop(l.channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!rdma_disconnect(client), "disconnect");
	drop(l.channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq), "destroy");
	CHECK(!rdma_disconnect(server), "disconnect");
	rdma_destroy_qp(server);
	CHECK(!rdma_destroy_id(server), "destroy");
	client_close(client);
	listener_close(&l);
}

static void none_comes(struct rdma_event_channel *channel, const char *which)
{
	struct pollfd at = {.fd = channel->fd, .events = POLLIN};

	CHECK(!poll(&at, 1, 1000), "an event came %s", which);
}

// After a disconnect by the client, the program of the server decides when the client gets the
// event. The server's library does not answer for the program.
static void answered_by_the_program(void)
{
	struct pair p;

	pair_open(&p, NULL, NULL);
	CHECK(!rdma_disconnect(p.client), "disconnect");
	drop(p.l.channel, RDMA_CM_EVENT_DISCONNECTED);
	none_comes(p.client->channel, "without an answer of the server");
	none_comes(p.l.channel, "for a time-wait that has not begun");
	CHECK(!rdma_disconnect(p.server), "answer");
	drop(p.client->channel, RDMA_CM_EVENT_DISCONNECTED);
	drop(p.client->channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	drop(p.l.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	pair_free(&p);
	// If the server only destroys its id, this is also an answer.
	pair_open(&p, NULL, NULL);
	CHECK(!rdma_disconnect(p.client), "disconnect");
	drop(p.l.channel, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(p.server);
	CHECK(!rdma_destroy_id(p.server), "destroy");
	drop(p.client->channel, RDMA_CM_EVENT_DISCONNECTED);
	client_close(p.client);
	listener_close(&p.l);
}

static void moved(void)
{
	struct rdma_event_channel *other = channel_open();
	struct pair p;

	pair_open(&p, NULL, NULL);
	CHECK(!rdma_migrate_id(p.server, other) && p.server->channel == other, "migrate");
	CHECK(!rdma_disconnect(p.client), "disconnect");
	drop(other, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_migrate_id(p.server, p.l.channel), "and back");
	pair_free(&p);
	rdma_destroy_event_channel(other);
}

static int acknowledging;
static void *acknowledge_later(void *event)
{
	usleep(300 * 1000);
	__atomic_store_n(&acknowledging, 1, __ATOMIC_RELEASE);
	CHECK(!rdma_ack_cm_event(event), "ack");
	return NULL;
}

static void destroy_waits(void)
{
	struct listener l;
	struct rdma_cm_id *client;
	struct rdma_cm_event *event;
	struct rdma_event_channel *channel;
	struct sockaddr_in to;
	pthread_t thread;

	listener_open(&l, RDMA_PS_TCP);
	channel = channel_open();
	to = ipv4("127.0.0.1", l.port);
	CHECK(!rdma_create_id(channel, &client, NULL, RDMA_PS_TCP), "create");
	CHECK(!rdma_resolve_addr(client, NULL, (struct sockaddr *)&to, 2000), "resolve");
	event = expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!pthread_create(&thread, NULL, acknowledge_later, event), "thread");
	CHECK(!rdma_destroy_id(client), "destroy");
	CHECK(__atomic_load_n(&acknowledging, __ATOMIC_ACQUIRE), "it came back before the acknowledgement");
	pthread_join(thread, NULL);
	rdma_destroy_event_channel(channel);
	listener_close(&l);
}

// Functions of rdma-core 60. The headers of this machine may be older, so the test looks the
// functions up by name.
static int (*resolve_addrinfo)(struct rdma_cm_id *, const char *, const char *, const struct rdma_addrinfo *);
static int (*query_addrinfo)(struct rdma_cm_id *, struct rdma_addrinfo **);
static int (*write_cm_event)(struct rdma_cm_id *, unsigned int, int, uint64_t);

static void newer(void)
{
	*(void **)&resolve_addrinfo = dlvsym(RTLD_DEFAULT, "rdma_resolve_addrinfo", "RDMACM_1.4");
	*(void **)&query_addrinfo = dlvsym(RTLD_DEFAULT, "rdma_query_addrinfo", "RDMACM_1.4");
	*(void **)&write_cm_event = dlvsym(RTLD_DEFAULT, "rdma_write_cm_event", "RDMACM_1.4");
	CHECK(resolve_addrinfo && query_addrinfo && write_cm_event, "names of RDMACM_1.4");
}

static void own_events(void)
{
	struct rdma_event_channel *channel = channel_open();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	uint64_t arg;

	newer();
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "create");
	FAILS(write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL);
	CHECK(!write_cm_event(id, 18, -5, 0x123456789abcdef0), "write");
	event = expect(channel, 18);
	memcpy(&arg, &event->param, sizeof(arg));
	CHECK(event->id == id && event->status == -5 && arg == 0x123456789abcdef0, "status %d, %#lx", event->status, arg);
	CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(id), "destroy");
	rdma_destroy_event_channel(channel);
}

static void names_as_events(void)
{
	struct rdma_event_channel *channel = channel_open();
	struct rdma_addrinfo *found;
	struct rdma_cm_id *id;

	newer();
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "create");
	FAILS(query_addrinfo(id, &found), ENOENT);
	CHECK(!resolve_addrinfo(id, "127.0.0.1", "7471", NULL), "resolve");
	FAILS(resolve_addrinfo(id, "127.0.0.1", "7471", NULL), EBUSY);
	drop(channel, 16);
	CHECK(!query_addrinfo(id, &found), "query");
	CHECK(((struct sockaddr_in *)found->ai_dst_addr)->sin_port == htons(7471), "port");
	rdma_freeaddrinfo(found);
	FAILS(query_addrinfo(id, &found), ENOENT);
	CHECK(!rdma_destroy_id(id), "destroy");
	rdma_destroy_event_channel(channel);
}

static void datagrams(void)
{
	struct rdma_event_channel *channel = channel_open();
	struct ibv_qp_init_attr attr = plain_attr();
	struct sockaddr_in any = ipv4("127.0.0.1", 0);
	struct rdma_cm_id *id;

	attr.qp_type = IBV_QPT_UD;
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), "create");
	CHECK(id->qp_type == IBV_QPT_UD, "the kind of queue pair");
	FAILS(rdma_create_qp(id, NULL, &attr), EINVAL);
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&any), "bind");
	CHECK(!rdma_create_qp(id, NULL, &attr), "create_qp");
	CHECK(state(id) == IBV_QPS_RTS, "datagrams can be sent at once");
	CHECK(id->send_cq && id->recv_cq && id->send_cq_channel && id->send_cq->cq_context == id, "its own queues");
	rdma_destroy_qp(id);
	CHECK(!id->qp && !id->send_cq && !id->recv_cq && !id->send_cq_channel, "all gone");
	CHECK(!rdma_destroy_id(id), "destroy");
	rdma_destroy_event_channel(channel);
}

static void rsockets(void)
{
	struct pollfd at = {.fd = 0, .events = POLLIN};
	char c;

	FAILS(rsocket(AF_INET, SOCK_STREAM, 0), EOPNOTSUPP);
	FAILS(rconnect(5, NULL, 0), EBADF);
	FAILS(rsend(5, &c, 1, 0), EBADF);
	FAILS(rwrite(5, &c, 1), EBADF);
	FAILS(rclose(5), EBADF);
	CHECK(rpoll(&at, 0, 10) == 0, "rpoll of nothing");
}

// Calls with a destroyed id, a destroyed channel or an acknowledged event. The calls must fail with
// EINVAL. Functions without a return value must do nothing.
static void destroyed(void)
{
	struct sockaddr_in to = ipv4("127.0.0.1", 1);
	struct rdma_event_channel *channel = channel_open();
	struct rdma_conn_param param = {0};
	struct ibv_qp_init_attr attr = {0};
	struct rdma_cm_event *event;
	struct rdma_cm_id *id, *other;
	struct ibv_qp_attr state = {0};
	int i, mask;

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "create");
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000), "resolve");
	event = expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_ack_cm_event(event), "ack");
	FAILS(rdma_ack_cm_event(event), EINVAL);
	CHECK(!rdma_destroy_id(id), "destroy");
	for (i = 0; i < 2; i++) {
		FAILS(rdma_destroy_id(id), EINVAL);
		FAILS(rdma_bind_addr(id, (struct sockaddr *)&to), EINVAL);
		FAILS(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 100), EINVAL);
		FAILS(rdma_resolve_route(id, 100), EINVAL);
		FAILS(rdma_listen(id, 1), EINVAL);
		FAILS(rdma_connect(id, &param), EINVAL);
		FAILS(rdma_accept(id, &param), EINVAL);
		FAILS(rdma_reject(id, NULL, 0), EINVAL);
		FAILS(rdma_disconnect(id), EINVAL);
		FAILS(rdma_establish(id), EINVAL);
		FAILS(rdma_create_qp(id, NULL, &attr), EINVAL);
		FAILS(rdma_init_qp_attr(id, &state, &mask), EINVAL);
		FAILS(rdma_migrate_id(id, NULL), EINVAL);
		FAILS(rdma_get_request(id, &other), EINVAL);
		FAILS(rdma_join_multicast(id, (struct sockaddr *)&to, NULL), EINVAL);
		FAILS(rdma_leave_multicast(id, (struct sockaddr *)&to), EINVAL);
		FAILS(rdma_set_option(id, 0, 0, &i, sizeof(i)), EINVAL);
		rdma_destroy_qp(id);
		rdma_destroy_srq(id);
		rdma_destroy_ep(id);
		rdma_destroy_event_channel(channel);
		FAILS(rdma_get_cm_event(channel, &event), EINVAL);
		FAILS(rdma_create_id(channel, &other, NULL, RDMA_PS_TCP), EINVAL);
	}
}

// The number of times that the thread with the filter tried to copy memory through the kernel, with
// `process_vm_readv` or `process_vm_writev`.
static volatile sig_atomic_t copies;

// The handler of SIGSYS, the signal that the filter raises at a copy. Counts the copy, and makes
// the system call fail with EPERM.
static void on_copy(int number, siginfo_t *info, void *context)
{
	ucontext_t *at = context;

	(void)number;
	(void)info;
	copies++;
#ifdef __x86_64__
	at->uc_mcontext.gregs[REG_RAX] = -EPERM;
#else
	at->uc_mcontext.regs[0] = -EPERM;
#endif
}

static void stop_copies(void)
{
	struct sock_filter lines[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {ARRAY_LEN(lines), lines};
	struct sigaction counted = {.sa_sigaction = on_copy, .sa_flags = SA_SIGINFO};

	CHECK(!sigaction(SIGSYS, &counted, NULL), "sigaction");
	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), "filter");
}

// librdmacm passes typed requests to the device and gets typed answers. So no call needs to copy
// memory of this process through the kernel. Only a command in bytes is copied in this way.
static void no_copies(void)
{
	ssize_t (*bytes)(int, const void *, size_t) = dlsym(RTLD_DEFAULT, "adverb_ucma_write");
	struct sockaddr_in here = ipv4("127.0.0.1", 0), group = ipv4("239.1.2.3", 0);
	struct rdma_event_channel *channel = channel_open(), *other = channel_open();
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	struct pair p;
	uint8_t tos = 8;

	stop_copies();
	CHECK(bytes && bytes(channel->fd, "no command", 8) == -EINVAL && copies == 1, "bytes are copied: %d", (int)copies);
	pair_open(&p, "hello", "yes");
	FAILS(rdma_get_cm_event(p.l.channel, &event), EAGAIN);
	pair_close(&p);
	CHECK(copies == 1, "%d copies through the kernel", (int)copies - 1);
	listener_open(&p.l, RDMA_PS_TCP);
	p.client = client_open(&p.l, RDMA_PS_TCP);
	client_connect(p.client, NULL);
	event = expect(p.l.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = event->id;
	CHECK(!rdma_reject(id, "no", 2) && !rdma_ack_cm_event(event) && !rdma_destroy_id(id), "reject");
	event = expect(p.client->channel, RDMA_CM_EVENT_REJECTED);
	CHECK(!memcmp(event->param.conn.private_data, "no", 2) && !rdma_ack_cm_event(event), "refused");
	client_close(p.client);
	listener_close(&p.l);
	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), "create");
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), "option");
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 4), EINVAL);
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1), EFAULT);
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, 77, &tos, 1), ENOSYS);
	FAILS(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&here), "bind");
	CHECK(!rdma_migrate_id(id, other), "migrate");
	CHECK(!rdma_join_multicast(id, (struct sockaddr *)&group, NULL), "join");
	event = expect(other, RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(!rdma_ack_cm_event(event) && !rdma_leave_multicast(id, (struct sockaddr *)&group), "leave");
	CHECK(!rdma_destroy_id(id), "destroy");
	rdma_destroy_event_channel(channel);
	rdma_destroy_event_channel(other);
	CHECK(copies == 1, "%d copies through the kernel", (int)copies - 1);
}

static const struct {
	const char *id, *name;
	void (*run)(void);
} cases[] = {
	{"RCM-9", "what_was_destroyed_is_refused", destroyed},
	{"RCM-3", "an_empty_channel_does_not_wait_if_told_so", nothing_waits},
	{"RCM-9", "wrong_arguments_are_refused", wrong_arguments},
	{"RCM-4", "addresses_are_bound_once", addresses},
	{"RCM-4", "a_synchronous_id_of_a_loopback_address_waits_for_its_device", synchronous_loopback},
	{"RCM-4", "names_become_addresses", names},
	{"RCM-4", "devices_are_there_before_any_id", devices},
	{"RCM-5", "connected_ids_send_and_say_goodbye", connected},
	{"RCM-5", "an_id_has_one_queue_pair", two_queue_pairs},
	{"RCM-5", "a_refusal_comes_with_its_words", rejected},
	{"RCM-5", "nobody_listens", nobody_listens},
	{"RCM-6", "synchronous_refusal_is_an_errno", refused_in_synchronous_mode},
	{"RCM-6", "synchronous_ends_connect", synchronous},
	{"RCM-5", "programs_may_have_their_own_queue_pair", own_queue_pair},
	{"RCM-14", "a_disconnect_is_answered_by_the_program", answered_by_the_program},
	{"RCM-3", "an_id_moves_to_another_channel", moved},
	{"RCM-3", "destroying_waits_for_acknowledgement", destroy_waits},
	{"RCM-3", "programs_write_events_of_their_own", own_events},
	{"RCM-4", "names_are_looked_up_as_events", names_as_events},
	{"RCM-5", "datagrams_can_be_sent_at_once", datagrams},
	{"RCM-13", "no_call_copies_through_the_kernel", no_copies},
	{"RCM-10", "rsockets_are_refused_by_name", rsockets},
};

int main(int argc, char **argv)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(cases); i++) {
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			printf("ok %s\n", cases[i].name);
			return 0;
		}
	}
	fprintf(stderr, "no such case\n");
	return 2;
}
