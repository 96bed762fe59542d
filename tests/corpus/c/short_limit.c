// A receiver gives up after two seconds without a message. The timeout of poll() is in
// milliseconds. The wrong program passes 2.
// From disni #11 and libfabric #3460.
#include "corpus.h"
#define MESSAGES 60
#if WRONG
#define LIMIT 2
#else
#define LIMIT 2000
#endif

static struct duo d;
static int received;

static void wait_for_event(void)
{
	struct pollfd fd = {.fd = d.b.ch->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;

	CHECK(poll(&fd, 1, LIMIT) == 1, "no message within two seconds"); // the limit
	CHECK(!ibv_get_cq_event(d.b.ch, &cq, &context), "get event");
	ibv_ack_cq_events(cq, 1);
}

int main(void)
{
	struct ibv_wc wc;
	int i;

	start();
	duo_open(&d, 16);
	give(d.b.qp, INBOX);
	CHECK(!ibv_req_notify_cq(d.b.rcq, 0), "arm");
	for (i = 0; i < MESSAGES; i++) {
		CHECK(!put(d.a.qp, 0, 64, IBV_SEND_SIGNALED), "send");
		while (received <= i) {
			wait_for_event();
			CHECK(!ibv_req_notify_cq(d.b.rcq, 0), "arm");
			while (ibv_poll_cq(d.b.rcq, 1, &wc) > 0) {
				CHECK(!wc.status, "receive: %s", ibv_wc_status_str(wc.status));
				give(d.b.qp, INBOX);
				received++;
			}
		}
		poll_good(d.a.scq);
		work(20);
	}
	duo_close(&d);
	return finish("short_limit");
}
