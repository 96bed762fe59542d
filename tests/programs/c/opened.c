// A library for LD_PRELOAD, for programs that know nothing of devices. In each process, the library
// opens a device and starts a thread, which sends a message over the device every 5 ms. OPENED
// names a file, to which each process writes a line. If OPENED_MIX is set, every epoll set, poll
// and select of the program also watches a completion channel without events. The program's results
// must stay the same.
#define _GNU_SOURCE
#include "../../foreign/c/rig.h"
#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/select.h>

static struct port port;
static struct ibv_comp_channel *channel, *idle;
static struct ibv_cq *cq;
static struct ibv_qp *from, *to;
static pid_t owner;
static int set;

// Sends a message and takes both completions by events of the channel.
static void message(void)
{
	struct ibv_recv_wr recv = {0}, *bad_recv;
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_send;
	struct epoll_event event;
	struct ibv_wc wc;
	void *context;
	int done = 0, n;

	CHECK(!ibv_req_notify_cq(cq, 0), "arm");
	CHECK(!ibv_post_recv(to, &recv, &bad_recv), "receive");
	CHECK(!ibv_post_send(from, &send, &bad_send), "send");
	while (done < 2) {
		CHECK(epoll_wait(set, &event, 1, POLL_SECONDS * 1000) == 1, "no event");
		CHECK(!ibv_get_cq_event(channel, &cq, &context), "event");
		ibv_ack_cq_events(cq, 1);
		CHECK(!ibv_req_notify_cq(cq, 0), "arm");
		while ((n = ibv_poll_cq(cq, 1, &wc)) > 0) {
			CHECK(wc.status == IBV_WC_SUCCESS, "completion: %s", ibv_wc_status_str(wc.status));
			done++;
		}
		CHECK(n == 0, "poll");
	}
}

static void *work(void *unused)
{
	for (;;) {
		usleep(5000);
		message();
	}
	return unused;
}

__attribute__((constructor)) static void open_device(void)
{
	const char *path = getenv("OPENED");
	sigset_t all, before;
	struct epoll_event event = {.events = EPOLLIN};
	pthread_t thread;
	char line[32];
	int file, length;

	CHECK(path, "OPENED is not set");
	// Blocks all signals, so that no signal handler of the program runs in the threads of this
	// library or of the device. These threads inherit the mask.
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	port_open(&port);
	CHECK(channel = ibv_create_comp_channel(port.ctx), "channel");
	cq = cq_new(&port, 16, channel, NULL);
	from = qp_new(&port, IBV_QPT_RC, cq, cq, 4);
	to = qp_new(&port, IBV_QPT_RC, cq, cq, 4);
	qp_pair(&port, from, to);
	set = epoll_create1(EPOLL_CLOEXEC);
	CHECK(!epoll_ctl(set, EPOLL_CTL_ADD, channel->fd, &event), "watch");
	message();
	CHECK(!pthread_create(&thread, NULL, work, NULL), "thread");
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (getenv("OPENED_MIX")) {
		CHECK(idle = ibv_create_comp_channel(port.ctx), "channel");
		cq_new(&port, 1, idle, NULL);
	}
	owner = getpid();
	length = snprintf(line, sizeof(line), "%d\n", owner);
	file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	CHECK(file >= 0 && write(file, line, length) == length, "%s", path);
	close(file);
}

#define NEXT(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

// Adds `idle`, the channel without events, to a new epoll set. In a forked child, adds nothing,
// because the program in the child may have closed the descriptor.
static int mixed(int made)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (made >= 0 && idle && owner == getpid())
		CHECK(!epoll_ctl(made, EPOLL_CTL_ADD, idle->fd, &event), "watch");
	return made;
}

int epoll_create(int size)
{
	return mixed(NEXT(epoll_create)(size));
}

int epoll_create1(int flags)
{
	return mixed(NEXT(epoll_create1)(flags));
}

int poll(struct pollfd *fds, nfds_t count, int limit)
{
	struct pollfd more[64];
	int ready;

	if (!idle || owner != getpid() || count >= ARRAY_LEN(more))
		return NEXT(poll)(fds, count, limit);
	memcpy(more, fds, count * sizeof(*fds));
	more[count] = (struct pollfd){.fd = idle->fd, .events = POLLIN};
	ready = NEXT(poll)(more, count + 1, limit);
	memcpy(fds, more, count * sizeof(*fds));
	return ready;
}

int __poll_chk(struct pollfd *fds, nfds_t count, int limit, UNUSED size_t room)
{
	return poll(fds, count, limit);
}

int select(int count, fd_set *in, fd_set *out, fd_set *except, struct timeval *limit)
{
	fd_set own;
	int ready;

	if (!idle || owner != getpid() || count < 0 || idle->fd >= FD_SETSIZE || (in && FD_ISSET(idle->fd, in)))
		return NEXT(select)(count, in, out, except, limit);
	if (!in) {
		FD_ZERO(&own);
		in = &own;
	}
	FD_SET(idle->fd, in);
	ready = NEXT(select)(count > idle->fd ? count : idle->fd + 1, in, out, except, limit);
	FD_CLR(idle->fd, in);
	return ready;
}
