// A pool has blocks of a header and a payload. The wrong length of the registration omits a header,
// so the region ends inside the last block. Messages that fill the last block are rare.
// From ucx #6414 and spdk #3807: local protection error for a pointer that looks right.
#include "corpus.h"
#define HEADER 32
#define PAYLOAD 480
#define BLOCKS 8
#define MESSAGES 60

static uint8_t pool[BLOCKS * (HEADER + PAYLOAD)] __attribute__((aligned(4096)));
static uint8_t inbox[HEADER + PAYLOAD];

int main(void)
{
#if WRONG
	size_t len = sizeof(pool) - HEADER;
#else
	size_t len = sizeof(pool);
#endif
	struct ibv_mr *blocks, *in;
	struct ibv_wc wc;
	struct duo d;
	int i;

	start();
	blocks = ibv_reg_mr(port.pd, pool, len, IBV_ACCESS_LOCAL_WRITE);
	in = ibv_reg_mr(port.pd, inbox, sizeof(inbox), IBV_ACCESS_LOCAL_WRITE);
	CHECK(blocks && in, "reg mr");
	duo_open(&d, 16);
	for (i = 0; i < MESSAGES; i++) {
		// Most messages are small. About 1 of 40 has any size.
		uint32_t size = HEADER + (rand() % 40 ? rand() % 64 : rand() % (PAYLOAD + 1));
		struct ibv_sge s = {(uintptr_t)pool + i % BLOCKS * (HEADER + PAYLOAD), size, blocks->lkey};
		struct ibv_sge r = {(uintptr_t)inbox, sizeof(inbox), in->lkey};
		struct ibv_recv_wr rr = {.sg_list = &r, .num_sge = 1}, *bad_recv;
		struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

		wr.wr_id = i;
		wr.send_flags = IBV_SEND_SIGNALED;
		CHECK(!ibv_post_recv(d.b.qp, &rr, &bad_recv), "post recv");
		CHECK(!ibv_post_send(d.a.qp, &wr, &bad), "post send");
		wc = poll_one(d.a.scq);
		CHECK(!wc.status, "message %d of %u bytes: %s, vendor error %#x", i, size,
		      ibv_wc_status_str(wc.status), wc.vendor_err);
		poll_good(d.b.rcq);
	}
	duo_close(&d);
	CHECK(!ibv_dereg_mr(blocks) && !ibv_dereg_mr(in), "dereg");
	return finish("short_region");
}
