// The program registers the buffer for each message. For an empty message the wrong program returns
// without deregistering the buffer. The leak causes no failure until, days later, no more memory
// can be locked.
// From async-rdma #107 and Mooncake #1382.
#include "corpus.h"
#define MESSAGES 40

static struct duo d;

static void send_long(uint8_t *buffer, uint32_t len)
{
	struct ibv_mr *own = ibv_reg_mr(port.pd, buffer, SLOT, 0);
	struct ibv_sge s = {(uintptr_t)buffer, len, 0};
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	CHECK(own, "reg mr");
#if WRONG
	if (!len)
		return; // the region stays
#else
	if (!len) {
		CHECK(!ibv_dereg_mr(own), "dereg");
		return;
	}
#endif
	s.lkey = own->lkey;
	give(d.b.qp, INBOX);
	CHECK(!ibv_post_send(d.a.qp, &wr, &bad), "post send");
	poll_good(d.a.scq);
	poll_good(d.b.rcq);
	CHECK(!ibv_dereg_mr(own), "dereg");
}

int main(void)
{
	static uint8_t buffer[SLOT];
	int i;

	start();
	duo_open(&d, 16);
	for (i = 0; i < MESSAGES; i++)
		send_long(buffer, rand() % 100);
	duo_close(&d);
	// Like most programs, leaves the remaining objects to the end of the process.
	printf("ok leaked_mr\n");
	fflush(stdout);
	_exit(0);
}
