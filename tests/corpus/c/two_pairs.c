// A WRITE carries a record over a queue pair, and a SEND over another queue pair announces the
// record. Only requests of the same queue pair are executed in order. The right program sends over
// the queue pair of the WRITE.
// From RDMA-example #3 (w180112).
#include "corpus.h"
#define RECORDS 60
#define FROM 0
#define TO 1
#define NEWS 2

static struct duo data, news;

static void write_record(int i)
{
	struct ibv_sge s = piece(FROM, SLOT);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;

	memset(slot(FROM), i, SLOT);
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t)slot(TO);
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(!ibv_post_send(data.a.qp, &wr, &bad), "write");
}

int main(void)
{
	struct duo *by = &data;
	int i;

	start();
	duo_open(&data, 16);
	duo_open(&news, 16);
#if WRONG
	by = &news;
#endif
	for (i = 1; i <= RECORDS; i++) {
		give(by->b.qp, INBOX);
		write_record(i);
		CHECK(!put(by->a.qp, NEWS, 16, IBV_SEND_SIGNALED), "say that it is there"); // over which queue pair
		poll_good(by->b.rcq);
		CHECK(slot(TO)[0] == i, "record %d is not there", i);
		poll_good(data.a.scq);
		poll_good(by->a.scq);
		work(20);
	}
	duo_close(&data);
	duo_close(&news);
	return finish("two_pairs");
}
