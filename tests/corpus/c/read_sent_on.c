// End a is a relay. A READ copies a record from the memory of end b, and a SEND passes the same
// bytes on. Without IBV_SEND_FENCE the SEND may read the bytes before the READ has written them.
// The right relay sets the flag.
// From ucx #7215.
#include "corpus.h"
#define ROUNDS 60
#define RECORD 0
#define COPY 1

static struct duo d;

static void read_record(void)
{
	struct ibv_sge s = piece(COPY, SLOT);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_READ}, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)slot(RECORD);
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(!ibv_post_send(d.a.qp, &wr, &bad), "read");
}

int main(void)
{
	int i, flags = IBV_SEND_SIGNALED;

	start();
	duo_open(&d, 16);
#if !WRONG
	flags |= IBV_SEND_FENCE;
#endif
	for (i = 1; i <= ROUNDS; i++) {
		memset(slot(RECORD), i, SLOT);
		give(d.b.qp, INBOX);
		read_record();
		CHECK(!put(d.a.qp, COPY, SLOT, flags), "send on"); // the bytes of the READ
		poll_good(d.a.scq);
		poll_good(d.b.rcq);
		CHECK(slot(INBOX)[SLOT - 1] == i, "round %d: the old bytes came", i);
		work(20);
	}
	duo_close(&d);
	return finish("read_sent_on");
}
