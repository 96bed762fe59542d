// The program has a pool of eight requests and a send queue that is sometimes full. If the post
// fails, the wrong program does not put the request back into the pool. After eight failures the
// pool is empty, and the program sends nothing more.
// From nbs #2690 and #4533.
#include "corpus.h"
#define TOTAL 60
#define POOL 8
#define DEPTH 6

static struct duo d;
static int pool[POOL], in_pool, completed;

static void *receive(void *arg)
{
	int i;

	(void)arg;
	for (i = 0; i < TOTAL; i++)
		give(d.b.qp, poll_good(d.b.rcq).wr_id);
	return NULL;
}

static void reap(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(d.a.scq, 1, &wc) > 0) {
		CHECK(wc.status == IBV_WC_SUCCESS, "send: %s", ibv_wc_status_str(wc.status));
		pool[in_pool++] = wc.wr_id;
		completed++;
	}
}

static bool send_one(void)
{
	int request = pool[--in_pool];
	int r = put(d.a.qp, request, 64, IBV_SEND_SIGNALED);

	if (!r)
		return true;
	CHECK(r == ENOMEM, "ibv_post_send: %s", strerror(r));
#if !WRONG
	pool[in_pool++] = request;
#endif
	return false;
}

int main(void)
{
	pthread_t t;
	int i;

	start();
	end_open(&d.a, IBV_QPT_RC, DEPTH);
	end_open(&d.b, IBV_QPT_RC, 2 * POOL);
	qp_pair(&port, d.a.qp, d.b.qp);
	for (i = 0; i < 2 * POOL; i++)
		give(d.b.qp, INBOX + i);
	for (i = 0; i < POOL; i++)
		pool[in_pool++] = i;
	thread(&t, receive, NULL);
	for (i = 0; i < TOTAL;) {
		reap();
		if (in_pool && send_one())
			i++;
		work(100);
	}
	while (completed < TOTAL)
		reap();
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("lost_on_error");
}
