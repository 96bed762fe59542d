// The watching thread takes events, arms, and signals a condition variable. Another thread polls. A
// condition variable does not store a signal. The wrong poller waits without reading the flag
// `woken`, so a signal between the last poll and the wait is lost.
#include "corpus.h"
#define ROUNDS 60
#define RECEIVES 8

static struct duo d;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool woken;
static int handled;

static void *watch(void *arg)
{
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(d.b.ch, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		CHECK(!ibv_req_notify_cq(cq, 0), "arm");
		pthread_mutex_lock(&mutex);
		woken = true;
		pthread_cond_signal(&changed);
		pthread_mutex_unlock(&mutex);
		if (get(&handled) >= ROUNDS)
			break;
	}
	return arg;
}

static void *receive(void *arg)
{
	struct ibv_wc wc;

	while (get(&handled) < ROUNDS) {
		while (ibv_poll_cq(d.b.rcq, 1, &wc) > 0) {
			CHECK(!wc.status, "%s", ibv_wc_status_str(wc.status));
			give(d.b.qp, wc.wr_id);
			add(&handled, 1);
		}
		if (get(&handled) >= ROUNDS)
			break;
		pthread_mutex_lock(&mutex);
#if WRONG
		pthread_cond_wait(&changed, &mutex); // whatever was signaled before
#else
		while (!woken)
			pthread_cond_wait(&changed, &mutex);
		woken = false;
#endif
		pthread_mutex_unlock(&mutex);
	}
	return arg;
}

int main(void)
{
	pthread_t threads[2];
	int i;

	start();
	duo_open(&d, 16);
	for (i = 0; i < RECEIVES; i++)
		give(d.b.qp, INBOX + i);
	CHECK(!ibv_req_notify_cq(d.b.rcq, 0), "arm first");
	thread(&threads[0], receive, NULL);
	thread(&threads[1], watch, NULL);
	// The loop sends one message more than the poller must handle. This last message wakes the
	// watching thread, so that the thread ends.
	for (i = 0; i <= ROUNDS; i++) {
		until(&handled, i);
		usleep(500); // the poller usually sleeps by now
		CHECK(!put(d.a.qp, i % 64, 64, IBV_SEND_SIGNALED), "post send");
		poll_good(d.a.scq);
	}
	CHECK(!pthread_join(threads[0], NULL) && !pthread_join(threads[1], NULL), "join");
	duo_close(&d);
	return finish("lost_signal");
}
