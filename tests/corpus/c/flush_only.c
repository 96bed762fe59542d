// End a writes records into the memory of end b and announces each record with a message. The wrong
// program assumes that the region is as long as the buffer of end a, so the longest records exceed
// the region. The write then fails, both queue pairs fail, and end b sees only a flush.
// From spdk #298 and ompi #95: flushed without a first error.
#include "corpus.h"
#define RECORDS 40
#define BOARD 1024

static struct duo d;
static struct ibv_mr *board;

static void write_record(uint32_t len)
{
	struct ibv_sge s = {(uintptr_t)mem, len, mr->lkey};
	struct ibv_send_wr note = {.wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .next = &note};

	wr.wr.rdma.remote_addr = (uintptr_t)board->addr;
	wr.wr.rdma.rkey = board->rkey;
	CHECK(!ibv_post_send(d.a.qp, &wr, &bad), "post the record");
}

int main(void)
{
	static uint8_t memory[2 * BOARD] __attribute__((aligned(4096)));
	struct ibv_wc wc;
	uint32_t len;
	int i;

	start();
	board = ibv_reg_mr(port.pd, memory, BOARD, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(board, "reg the board");
	duo_open(&d, 16);
	for (i = 0; i < 8; i++)
		give(d.b.qp, INBOX + i);
	for (i = 0; i < RECORDS; i++) {
		len = 1 + rand() % BOARD;
#if WRONG
		// About 1 of 400 records has a trailer, and exceeds the region.
		len += rand() % 400 ? 0 : BOARD;
#endif
		write_record(len);
		wc = poll_one(d.b.rcq);
		CHECK(!wc.status, "b: receive %d: %s", i, ibv_wc_status_str(wc.status));
		give(d.b.qp, wc.wr_id);
		poll_good(d.a.scq);
	}
	duo_close(&d);
	CHECK(!ibv_dereg_mr(board), "dereg the board");
	return finish("flush_only");
}
