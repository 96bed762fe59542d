// End a READs records of end b. End a then reads the last byte of its own memory to learn whether
// the record has arrived. A device may place the bytes of a READ in any order. The right program
// waits for the completion of the READ.
// The kind of mistake: polled memory.
#include "corpus.h"
#define RECORDS 40
#define LEN 65536

static struct duo d;
static uint8_t from[LEN] __attribute__((aligned(4096))), to[LEN] __attribute__((aligned(4096)));
static struct ibv_mr *out, *in;

static void read_record(void)
{
	struct ibv_sge s = {(uintptr_t)to, LEN, in->lkey};
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED}, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)from;
	wr.wr.rdma.rkey = out->rkey;
	CHECK(!ibv_post_send(d.a.qp, &wr, &bad), "read the record");
}

static void wait_for_record(int i)
{
#if WRONG
	while (__atomic_load_n(&to[LEN - 1], __ATOMIC_ACQUIRE) != i) // the last byte is there
		;
	CHECK(to[0] == i && to[LEN / 2] == i, "record %d begins with %d", i, to[0]);
#endif
	poll_good(d.a.scq);
	CHECK(to[0] == i && to[LEN / 2] == i, "record %d begins with %d", i, to[0]);
}

int main(void)
{
	int i;

	start();
	out = ibv_reg_mr(port.pd, from, LEN, IBV_ACCESS_REMOTE_READ);
	in = ibv_reg_mr(port.pd, to, LEN, IBV_ACCESS_LOCAL_WRITE);
	CHECK(out && in, "reg mr");
	duo_open(&d, 16);
	for (i = 1; i <= RECORDS; i++) {
		memset(from, i, LEN);
		read_record();
		wait_for_record(i);
	}
	duo_close(&d);
	CHECK(!ibv_dereg_mr(out) && !ibv_dereg_mr(in), "dereg");
	return finish("read_tail");
}
