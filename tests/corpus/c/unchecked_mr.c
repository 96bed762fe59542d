// A sender registers each buffer that it is given. The wrong program does not check the result of
// ibv_reg_mr. At the limit of locked memory the result is NULL, and the program crashes. If the
// registration fails, the right program copies the message into memory that was registered at the
// start.
// From nccl-tests #206 and byteps #295.
#include "corpus.h"
#define MESSAGES 30

static struct duo d;

static void send_buffer(uint8_t *buffer)
{
	struct ibv_mr *own = ibv_reg_mr(port.pd, buffer, SLOT, 0);
	struct ibv_sge s = {(uintptr_t)buffer, SLOT, 0};
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

#if !WRONG
	if (!own) {
		memcpy(slot(0), buffer, SLOT);
		CHECK(!put(d.a.qp, 0, SLOT, IBV_SEND_SIGNALED), "post the copy");
		poll_good(d.a.scq);
		return;
	}
#endif
	s.lkey = own->lkey; // NULL if the registration failed
	CHECK(!ibv_post_send(d.a.qp, &wr, &bad), "post send");
	poll_good(d.a.scq);
	CHECK(!ibv_dereg_mr(own), "dereg");
}

int main(void)
{
	uint8_t *buffer;
	int i;

	start();
	duo_open(&d, 16);
	for (i = 0; i < MESSAGES; i++) {
		buffer = malloc(SLOT);
		CHECK(buffer, "malloc");
		memset(buffer, i, SLOT);
		give(d.b.qp, INBOX);
		send_buffer(buffer);
		poll_good(d.b.rcq);
		CHECK(slot(INBOX)[7] == i, "message %d came as %d", i, slot(INBOX)[7]);
		free(buffer);
	}
	duo_close(&d);
	return finish("unchecked_mr");
}
