// One end of a connection. The test runs two ends, kills one, and checks the events of the other.
// usage: cm_end SIDE STAGE ROLE ADDRESS PORT. SIDE is `server` or `client`. Both ends bring the
// connection to STAGE and print READY. An end with the ROLE `dies` stops there until the test kills
// the process. An end with the ROLE `hears` survives, and prints each event with its status. In
// some stages the surviving end has a call to make, such as rdma_accept. The end makes this call
// after a SIGUSR1 from the test. The last SIGUSR1 says that the other end is dead.
#include "cm_rig.h"
#include <sys/signalfd.h>

// Limits of the wait for an event, in milliseconds after the death. AT_ONCE is shorter than the CM
// protocol's wait before a retransmission (4.8 s). LATER is for stages in which no process can
// report the death.
enum { AT_ONCE = 4000, LATER = 100000 };

enum stage { RESOLVED, ASKED, LOOKUP, ANSWERED, ESTABLISHED, DISCONNECTING };

static const char *const STAGES[] = {"resolved", "asked", "lookup", "answered", "established", "disconnecting"};

static enum stage stage;
static int dies, limit = AT_ONCE, signalled;

static void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

// Prints that this end has reached the stage. If `waits` is set, the end then waits for SIGUSR1.
// The test sends this signal after it has stopped or killed the other end.
static void ready(int waits)
{
	sigset_t set;
	int got;

	say("READY");
	while (dies)
		pause();
	if (!waits)
		return;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(!sigwait(&set, &got), "sigwait");
	signalled = 1;
}

// Waits for an event or for the signal about the death. After the signal, waits for an event for at
// most `limit` milliseconds.
static int comes(struct rdma_event_channel *channel)
{
	struct pollfd at[2] = {{.fd = channel->fd, .events = POLLIN}, {.events = POLLIN}};
	struct signalfd_siginfo info;
	sigset_t set;
	int come;

	if (!signalled) {
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		at[1].fd = signalfd(-1, &set, SFD_CLOEXEC);
		CHECK(at[1].fd >= 0, "signalfd");
		CHECK(poll(at, 2, LATER) > 0, "neither an event nor a signal came");
		signalled = at[1].revents && read(at[1].fd, &info, sizeof(info)) == sizeof(info);
		close(at[1].fd);
	}
	come = poll(at, 1, limit);
	CHECK(come >= 0, "poll");
	return come;
}

// Waits for an event, and leaves the event in the channel.
static void unread(struct rdma_event_channel *channel)
{
	struct pollfd at = {.fd = channel->fd, .events = POLLIN};

	CHECK(poll(&at, 1, 60000) == 1, "no event came");
}

static void heard(struct rdma_event_channel *channel)
{
	enum rdma_cm_event_type kind;
	struct rdma_cm_event *event;

	// The client may establish a connection that is already over, because the news of the death
	// has not arrived. So ESTABLISHED does not end the loop.
	do {
		if (!comes(channel)) {
			say("HEARD nothing");
			return;
		}
		CHECK(!rdma_get_cm_event(channel, &event), "get_cm_event");
		kind = event->event;
		printf("HEARD %s %d\n", rdma_event_str(kind), event->status);
		fflush(stdout);
		CHECK(!rdma_ack_cm_event(event), "ack");
	} while (kind == RDMA_CM_EVENT_ESTABLISHED);
}

static void established(struct rdma_event_channel *channel, struct rdma_cm_id *id)
{
	ready(stage == DISCONNECTING);
	if (stage == DISCONNECTING) {
		CHECK(!rdma_disconnect(id), "disconnect");
		signalled = 0;
		say("DISCONNECTING");
	}
	heard(channel);
}

static void lookup(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = {.qp_num = 1};

	CHECK(!rdma_connect(id, &param), "connect");
	ready(0);
	limit = LATER;
	heard(id->channel);
}

static void serve(const char *address, int port, enum rdma_port_space ps)
{
	struct listener l = {.channel = channel_open()};
	struct sockaddr_in at = ipv4(address, port);
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct ibv_qp_init_attr attr = plain_attr();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(l.channel, &l.id, &l, ps), "create");
	CHECK(!rdma_bind_addr(l.id, (struct sockaddr *)&at), "bind");
	CHECK(!rdma_listen(l.id, 4), "listen");
	say("LISTENING");
	if (stage == RESOLVED)
		ready(0);
	unread(l.channel);
	if (stage == ASKED || stage == LOOKUP)
		ready(1);
	event = expect(l.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = event->id;
	CHECK(!rdma_ack_cm_event(event), "ack");
	if (rdma_create_qp(id, NULL, &attr)) {
		printf("HEARD create_qp %d\n", errno);
		fflush(stdout);
		return;
	}
	if (rdma_accept(id, &param)) {
		printf("HEARD accept %d\n", errno);
		fflush(stdout);
		return;
	}
	if (stage == ANSWERED)
		ready(0);
	if (stage >= ESTABLISHED) {
		drop(l.channel, RDMA_CM_EVENT_ESTABLISHED);
		established(l.channel, id);
	} else {
		heard(l.channel);
	}
}

static void ask(const char *address, int port, enum rdma_port_space ps)
{
	struct rdma_event_channel *channel = channel_open();
	struct sockaddr_in to = ipv4(address, port);
	struct ibv_qp_init_attr attr = plain_attr();
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, ps), "create");
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000), "resolve_addr");
	drop(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(id, 5000), "resolve_route");
	drop(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	if (stage == LOOKUP) {
		lookup(id);
		return;
	}
	CHECK(!rdma_create_qp(id, NULL, &attr), "create_qp");
	if (stage == RESOLVED) {
		ready(1);
		// A request that reaches a dying process is lost. The CM sends the request again
		// after the timeout.
		limit = LATER;
	}
	client_connect(id, NULL);
	if (stage == ASKED)
		ready(0);
	if (stage == ANSWERED) {
		unread(channel);
		ready(1);
	}
	if (stage >= ESTABLISHED) {
		drop(channel, RDMA_CM_EVENT_ESTABLISHED);
		established(channel, id);
	} else {
		heard(channel);
	}
}

int main(int argc, char **argv)
{
	enum rdma_port_space ps = RDMA_PS_TCP;
	sigset_t set;

	CHECK(argc == 6, "SIDE STAGE ROLE ADDRESS PORT");
	while (strcmp(argv[2], STAGES[stage]))
		CHECK(++stage < ARRAY_LEN(STAGES), "no stage %s", argv[2]);
	if (stage == LOOKUP)
		ps = RDMA_PS_UDP;
	dies = !strcmp(argv[3], "dies");
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(!sigprocmask(SIG_BLOCK, &set, NULL), "sigprocmask");
	if (!strcmp(argv[1], "server"))
		serve(argv[4], atoi(argv[5]), ps);
	else
		ask(argv[4], atoi(argv[5]), ps);
	return 0;
}
