// A server and a client in two processes meet at an address, and sleep until completions come.
//     two server ADDRESS [crash]     answers each message; with `crash`, a signal ends it
//     two client ADDRESS             sends three messages and prints the answers
#include <ctype.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <unistd.h>
#include "word.h"

#define MUST(what)                                                                                                     \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			perror(#what);                                                                                 \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

enum { PORT = 7471, MESSAGES = 3, ROOM = 64, TRIES = 100, RECV = 1, SEND = 2 };

// The objects of a connection.
struct end {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	int done[SEND + 1]; // completions not yet returned by wait_for, by wr_id
	char in[ROOM], out[ROOM];
};

// Takes the next event of a connection. Returns its type, and gives the id of a new connection.
static enum rdma_cm_event_type next_event(struct rdma_event_channel *events, struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;

	MUST(!rdma_get_cm_event(events, &event));
	enum rdma_cm_event_type type = event->event;
	if (id)
		*id = event->id;
	rdma_ack_cm_event(event);
	return type;
}

static void expect(struct rdma_event_channel *events, enum rdma_cm_event_type type)
{
	enum rdma_cm_event_type came = next_event(events, NULL);

	if (came != type) {
		fprintf(stderr, "%s in place of %s\n", rdma_event_str(came), rdma_event_str(type));
		exit(1);
	}
}

static void receive(struct end *end)
{
	struct ibv_sge sge = {(uintptr_t)end->in, ROOM, end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = RECV, .sg_list = &sge, .num_sge = 1}, *bad;

	MUST(!ibv_post_recv(end->id->qp, &wr, &bad));
}

static void transmit(struct end *end)
{
	struct ibv_sge sge = {(uintptr_t)end->out, ROOM, end->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = SEND, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;

	MUST(!ibv_post_send(end->id->qp, &wr, &bad));
}

// Makes a queue pair, and a channel through which completions wake the process. Posts a receive
// before the peer can send.
static void prepare(struct end *end, struct rdma_cm_id *id)
{
	end->id = id;
	MUST(end->pd = ibv_alloc_pd(id->verbs));
	MUST(end->channel = ibv_create_comp_channel(id->verbs));
	MUST(end->cq = ibv_create_cq(id->verbs, 16, NULL, end->channel, 0));
	MUST(end->mr = ibv_reg_mr(end->pd, end->in, sizeof end->in + sizeof end->out, IBV_ACCESS_LOCAL_WRITE));
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};
	MUST(!rdma_create_qp(id, end->pd, &init));
	receive(end);
}

static void release(struct end *end)
{
	rdma_destroy_qp(end->id);
	MUST(!ibv_dereg_mr(end->mr) && !ibv_destroy_cq(end->cq) && !ibv_destroy_comp_channel(end->channel));
	MUST(!ibv_dealloc_pd(end->pd) && !rdma_destroy_id(end->id));
}

// Waits for a completion of this kind. A send and a receive may complete in any order. The process
// sleeps only if the queue was armed and then found empty. The process also watches the connection,
// because a peer that has ended may cause no completion.
static void wait_for(struct end *end, uint64_t kind)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	int armed = 0, n;

	while (!end->done[kind]) {
		MUST((n = ibv_poll_cq(end->cq, 1, &wc)) >= 0);
		if (n && wc.status != IBV_WC_SUCCESS) {
			printf("lost the peer\n");
			exit(1);
		}
		if (n) {
			end->done[wc.wr_id]++;
		} else if (!armed) {
			MUST(!ibv_req_notify_cq(end->cq, 0));
			armed = 1;
		} else {
			struct pollfd at[] = {{.fd = end->channel->fd, .events = POLLIN},
					      {.fd = end->id->channel->fd, .events = POLLIN}};
			MUST(poll(at, 2, -1) > 0);
			if (at[0].revents) {
				MUST(!ibv_get_cq_event(end->channel, &cq, &context));
				ibv_ack_cq_events(cq, 1);
				armed = 0;
			} else {
				// Puts the queue pair into ERR, so that pending requests complete.
				expect(end->id->channel, RDMA_CM_EVENT_DISCONNECTED);
				rdma_disconnect(end->id);
			}
		}
	}
	end->done[kind]--;
}

static void serve(struct rdma_event_channel *events, struct rdma_addrinfo *at, int crash)
{
	static struct end end;
	struct rdma_cm_id *listener, *id;
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};

	MUST(!rdma_create_id(events, &listener, NULL, RDMA_PS_TCP));
	MUST(!rdma_bind_addr(listener, at->ai_src_addr) && !rdma_listen(listener, 1));
	MUST(next_event(events, &id) == RDMA_CM_EVENT_CONNECT_REQUEST);
	prepare(&end, id);
	MUST(!rdma_accept(id, &param));
	expect(events, RDMA_CM_EVENT_ESTABLISHED);
	for (int i = 0; i < MESSAGES; i++) {
		wait_for(&end, RECV);
		printf("server: %s\n", end.in);
		if (crash)
			raise(SIGKILL);
		// `out` contains the last answer until its send has completed.
		if (i)
			wait_for(&end, SEND);
		for (int c = 0; c < ROOM; c++)
			end.out[c] = toupper(end.in[c]);
		// The client may send again right after the answer, so post the receive first.
		receive(&end);
		transmit(&end);
	}
	expect(events, RDMA_CM_EVENT_DISCONNECTED);
	printf("server: the client has disconnected\n");
	release(&end);
	rdma_destroy_id(listener);
}

// Connects to the server. Returns 0 if no server listens yet.
static int reach(struct rdma_event_channel *events, struct rdma_addrinfo *at, struct end *end)
{
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(events, &id, NULL, RDMA_PS_TCP));
	MUST(!rdma_resolve_addr(id, NULL, at->ai_dst_addr, 2000));
	expect(events, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(!rdma_resolve_route(id, 2000));
	expect(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
	prepare(end, id);
	MUST(!rdma_connect(id, &param));
	enum rdma_cm_event_type came = next_event(events, NULL);
	if (came == RDMA_CM_EVENT_ESTABLISHED)
		return 1;
	MUST(came == RDMA_CM_EVENT_REJECTED);
	release(end);
	return 0;
}

static void ask(struct rdma_event_channel *events, struct rdma_addrinfo *at)
{
	static struct end end;
	int tries = 1;

	while (!reach(events, at, &end)) {
		if (tries++ == TRIES) {
			fprintf(stderr, "no server listens\n");
			exit(1);
		}
		usleep(100000);
	}
	for (int i = 0; i < MESSAGES; i++) {
		snprintf(end.out, ROOM, "message %d", i + 1);
		transmit(&end);
		wait_for(&end, SEND);
		wait_for(&end, RECV);
		printf("client: %s\n", end.in);
		receive(&end);
	}
	MUST(!rdma_disconnect(end.id));
	expect(events, RDMA_CM_EVENT_DISCONNECTED);
	release(&end);
}

int main(int argc, char **argv)
{
	int server = !strcmp(word(argc, argv, 1, "server client"), "server");
	int crash = !strcmp(word(argc, argv, 3, "crash"), "crash");
	struct rdma_addrinfo *at, hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST};
	struct rdma_event_channel *events = rdma_create_event_channel();
	char port[8];

	MUST(events);
	setlinebuf(stdout);
	snprintf(port, sizeof port, "%d", PORT);
	if (server)
		hints.ai_flags |= RAI_PASSIVE;
	MUST(!rdma_getaddrinfo(argc > 2 ? argv[2] : "127.0.0.1", port, &hints, &at));
	if (server)
		serve(events, at, crash);
	else
		ask(events, at);
	rdma_freeaddrinfo(at);
	rdma_destroy_event_channel(events);
	return 0;
}
