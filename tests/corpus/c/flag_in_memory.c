// End a writes a record into the memory of end b. End b reads the last byte to learn whether the
// record has arrived. A device may place the bytes of a WRITE in any order. The right end b waits
// for the completion of a WRITE with immediate data.
// The kind of mistake: polled memory.
#include "corpus.h"
#define RECORDS 40
#define LEN 65536

static struct duo d;
static uint8_t from[LEN] __attribute__((aligned(4096))), to[LEN] __attribute__((aligned(4096)));
static struct ibv_mr *out, *in;

static void write_record(int i)
{
	struct ibv_sge s = {(uintptr_t)from, LEN, out->lkey};
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;

#if !WRONG
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.imm_data = i;
#endif
	memset(from, i, LEN);
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t)to;
	wr.wr.rdma.rkey = in->rkey;
	CHECK(!ibv_post_send(d.a.qp, &wr, &bad), "post the record");
}

static void wait_for_record(int i)
{
#if WRONG
	while (__atomic_load_n(&to[LEN - 1], __ATOMIC_ACQUIRE) != i) // the last byte is there
		;
#else
	CHECK((int)poll_good(d.b.rcq).imm_data == i, "immediate data");
#endif
}

int main(void)
{
	int i;

	start();
	out = ibv_reg_mr(port.pd, from, LEN, 0);
	in = ibv_reg_mr(port.pd, to, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(out && in, "reg mr");
	duo_open(&d, 16);
	for (i = 1; i <= RECORDS; i++) {
#if !WRONG
		give(d.b.qp, INBOX);
#endif
		write_record(i);
		wait_for_record(i);
		CHECK(to[0] == i && to[LEN / 2] == i, "record %d begins with %d", i, to[0]);
		poll_good(d.a.scq);
	}
	duo_close(&d);
	CHECK(!ibv_dereg_mr(out) && !ibv_dereg_mr(in), "dereg");
	return finish("flag_in_memory");
}
