// The program has a timer. The signal of the timer may interrupt the wait for an event with EINTR,
// which is not a failure. The right program waits again.
// From ib #3 (jsgilmore) and libfabric #4829.
#include "corpus.h"
#include <sys/time.h>
#define MESSAGES 60

static struct duo d;
static int received;

static void tick(int signal)
{
	(void)signal;
}

static void wait_for_event(void)
{
	struct ibv_cq *cq;
	void *context;
	int r;

#if WRONG
	r = ibv_get_cq_event(d.b.ch, &cq, &context); // the only try
#else
	while ((r = ibv_get_cq_event(d.b.ch, &cq, &context)) && errno == EINTR)
		;
#endif
	CHECK(!r, "get event");
	ibv_ack_cq_events(cq, 1);
}

static void receive_all(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(d.b.rcq, 1, &wc) > 0) {
		CHECK(!wc.status, "receive: %s", ibv_wc_status_str(wc.status));
		give(d.b.qp, wc.wr_id);
		add(&received, 1);
	}
}

int main(void)
{
	struct sigaction action = {.sa_handler = tick};
	struct itimerval each = {{0, 300000}, {0, 300000}};
	struct bursts b = {&d, MESSAGES, 4, 8, 300, &received};
	pthread_t t;
	sigset_t none, alarms;
	int i;

	start();
	duo_open(&d, 16);
	for (i = 0; i < 16; i++)
		give(d.b.qp, INBOX + i);
	// Only the main thread receives the signals: the sender thread inherits a mask that blocks
	// both.
	sigemptyset(&none);
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGVTALRM);
	sigaddset(&alarms, SIGUSR1);
	CHECK(!sigaction(SIGUSR1, &action, NULL) && !sigaction(SIGVTALRM, &action, NULL), "handler");
	CHECK(!setitimer(ITIMER_VIRTUAL, &each, NULL), "timer");
	pthread_sigmask(SIG_BLOCK, &alarms, NULL);
	CHECK(!ibv_req_notify_cq(d.b.rcq, 0), "arm");
	thread(&t, sender, &b);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	while (get(&received) < MESSAGES) {
		wait_for_event();
		CHECK(!ibv_req_notify_cq(d.b.rcq, 0), "arm");
		receive_all();
	}
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("interrupted");
}
