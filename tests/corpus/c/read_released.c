// A reader reads a record from the memory of its peer and then sends a message, so that the peer
// writes the next record there. A SEND may overtake the data of an earlier READ. The right reader
// sets IBV_SEND_FENCE.
// From ucx #8221.
#include "corpus.h"
#define ROUNDS 60
#define RECORD 0
#define COPY 1
#define TAKEN 2

static struct duo d;
static int written, checked;

static void *writer(void *arg)
{
	int i;

	(void)arg;
	for (i = 1; i <= ROUNDS; i++) {
		memset(slot(RECORD), i, SLOT);
		add(&written, 1);
		poll_good(d.b.rcq);
		memset(slot(RECORD), 0xff, SLOT); // the reader has taken the record
		give(d.b.qp, INBOX);
		until(&checked, i);
	}
	return NULL;
}

static void take(int i)
{
	struct ibv_sge s = piece(COPY, SLOT), t = piece(TAKEN, 16);
	struct ibv_send_wr say = {.wr_id = 2, .sg_list = &t, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct ibv_send_wr wr = {.wr_id = 1, .next = &say, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_READ}, *bad;

	say.send_flags = IBV_SEND_SIGNALED;
#if !WRONG
	say.send_flags |= IBV_SEND_FENCE;
#endif
	wr.wr.rdma.remote_addr = (uintptr_t)slot(RECORD);
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(!ibv_post_send(d.a.qp, &wr, &bad), "read, and say so");
	poll_good(d.a.scq);
	CHECK(slot(COPY)[0] == i, "record %d has the bytes %#x", i, slot(COPY)[0]);
}

int main(void)
{
	pthread_t t;
	int i;

	start();
	duo_open(&d, 16);
	give(d.b.qp, INBOX);
	thread(&t, writer, NULL);
	for (i = 1; i <= ROUNDS; i++) {
		until(&written, i);
		take(i);
		add(&checked, 1);
		work(20);
	}
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("read_released");
}
