// The program sends from a ring of four buffers and signals every fourth message. Before the
// program fills the buffers again, it must poll the completion of the fourth message. With WRONG=1
// the program polls this completion four messages later. So the program fills buffers that the
// device may not have read yet. Then an old message arrives with new bytes. The kind of mistake: a
// posted buffer belongs to the device until the completion.
#include "corpus.h"
#define TOTAL 60
#define RING 4

static struct duo d;
static int handled;

static void *receive(void *arg)
{
	int i, n, number;

	(void)arg;
	for (i = 0; i < TOTAL; i++) {
		n = poll_good(d.b.rcq).wr_id;
		memcpy(&number, slot(n), 4);
		CHECK(number == i, "message %d has the bytes of %d", i, number);
		give(d.b.qp, n);
		add(&handled, 1);
	}
	return NULL;
}

int main(void)
{
	pthread_t t;
	int i;

	start();
	duo_open(&d, 32);
	for (i = 0; i < 16; i++)
		give(d.b.qp, INBOX + i);
	thread(&t, receive, NULL);
	for (i = 0; i < TOTAL; i++) {
		bool last = i % RING == RING - 1;

		until(&handled, i - 8);
		memcpy(slot(i % RING), &i, 4); // the message of four before may still lie here
		CHECK(!put(d.a.qp, i % RING, 64, last ? IBV_SEND_SIGNALED : 0), "post send");
#if WRONG
		if (last && i > RING) // one round late
			poll_good(d.a.scq);
#else
		if (last)
			poll_good(d.a.scq);
#endif
	}
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("reused_buffer");
}
