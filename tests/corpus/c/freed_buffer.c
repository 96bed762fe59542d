// End a posts a message from a block and frees the block at once. The region around the block stays
// registered. The peer may then receive the bytes that the allocator writes into the freed block.
// The right program frees the block after the completion.
// From spdk #961: freed while the device still reads.
#include "corpus.h"
#define TOTAL 40

static struct duo d;
static bool used[8];

static int block_take(void)
{
	int i;

	for (i = 0; used[i]; i++)
		CHECK(i < 7, "no block is free");
	used[i] = true;
	return i;
}

static void block_free(int n)
{
	used[n] = false;
	memset(slot(n), 0xdd, SLOT);
}

static void *receive(void *arg)
{
	int i, n;

	(void)arg;
	for (i = 0; i < TOTAL; i++) {
		n = poll_good(d.b.rcq).wr_id;
		CHECK(slot(n)[9] == 1, "message %d came with %#x in it", i, slot(n)[9]);
		give(d.b.qp, n);
	}
	return NULL;
}

int main(void)
{
	pthread_t t;
	int i, n;

	start();
	duo_open(&d, 16);
	for (i = 0; i < 16; i++)
		give(d.b.qp, INBOX + i);
	thread(&t, receive, NULL);
	for (i = 0; i < TOTAL; i++) {
		n = block_take();
		memset(slot(n), 1, 64);
		CHECK(!put(d.a.qp, n, 64, IBV_SEND_SIGNALED), "post send");
#if WRONG
		work(1000);
		block_free(n); // still posted
		poll_good(d.a.scq);
#else
		poll_good(d.a.scq);
		block_free(n);
#endif
	}
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("freed_buffer");
}
