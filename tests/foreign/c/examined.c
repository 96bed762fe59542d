// Ends in the way that the argument says, or sleeps. The check examines the process.
#include "rig.h"
#include <sys/wait.h>

static struct port port;

// An address that the compiler does not know.
static int *volatile nowhere = (int *)8;

static void fault(void)
{
	*nowhere = 1;
}

static void leave(int signal)
{
	_exit(signal);
}

static void *quit_twice(void *arg)
{
	int i;

	for (i = 0; i < 2; i++) {
		usleep(300000);
		kill(getpid(), SIGQUIT);
	}
	usleep(300000);
	_exit(0);
	return arg;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	struct ibv_comp_channel *channel;
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	pthread_t t;
	int status;

	port_open(&port);
	channel = ibv_create_comp_channel(port.ctx);
	CHECK(channel, "channel");
	cq = cq_new(&port, 16, channel, NULL);
	if (!strcmp(how, "call")) {
		struct ibv_qp_init_attr a = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};

		a.cap.max_send_wr = 1 << 30;
		return !ibv_create_qp(port.pd, &a);
	}
	if (!strcmp(how, "_exit"))
		_exit(3);
	if (!strcmp(how, "fault"))
		fault();
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "alarm")) {
		alarm(1);
		for (;;)
			ibv_poll_cq(cq, 1, &wc);
	}
	if (!strcmp(how, "handler")) {
		signal(SIGSEGV, leave);
		fault();
	}
	if (!strcmp(how, "fork")) {
		if (!fork()) {
			port_open(&port);
			cq_new(&port, 16, NULL, NULL);
			fault();
		}
		wait(&status);
		return !WIFSIGNALED(status);
	}
	// Sleeps for an event that never comes.
	CHECK(!ibv_req_notify_cq(cq, 0), "arm");
	if (!strcmp(how, "quit")) {
		CHECK(!pthread_create(&t, NULL, quit_twice, NULL), "thread");
	} else {
		signal(SIGALRM, leave);
		alarm(4);
	}
	CHECK(!ibv_get_cq_event(channel, &cq, &context), "get event");
	return 0;
}
