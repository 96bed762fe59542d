// End a registers a buffer for a message, posts the message, and deregisters the buffer. The wrong
// program deregisters before the completion. The device may then find the key invalid, and the send
// fails with a local protection error.
// From spdk #961 and ucx #857.
#include "corpus.h"
#define MESSAGES 30

static struct duo d;
static int handled;

static void *receive(void *arg)
{
	int i;

	(void)arg;
	for (i = 0; i < MESSAGES; i++) {
		give(d.b.qp, poll_good(d.b.rcq).wr_id);
		add(&handled, 1);
	}
	return NULL;
}

static void send_one(uint8_t *buffer)
{
	struct ibv_mr *own = ibv_reg_mr(port.pd, buffer, SLOT, 0);
	struct ibv_sge s = {(uintptr_t)buffer, SLOT, 0};
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_wc wc;

	CHECK(own, "reg mr");
	s.lkey = own->lkey;
	CHECK(!ibv_post_send(d.a.qp, &wr, &bad), "post send");
#if WRONG
	usleep(5000); // seems long enough
	CHECK(!ibv_dereg_mr(own), "dereg at once");
#endif
	wc = poll_one(d.a.scq);
	CHECK(!wc.status, "send: %s, vendor error %#x", ibv_wc_status_str(wc.status), wc.vendor_err);
#if !WRONG
	CHECK(!ibv_dereg_mr(own), "dereg");
#endif
}

int main(void)
{
	uint8_t *buffer = malloc(SLOT);
	pthread_t t;
	int i;

	start();
	CHECK(buffer, "malloc");
	memset(buffer, 1, SLOT);
	duo_open(&d, 16);
	for (i = 0; i < 8; i++)
		give(d.b.qp, INBOX + i);
	thread(&t, receive, NULL);
	for (i = 0; i < MESSAGES; i++)
		send_one(buffer);
	pthread_join(t, NULL);
	duo_close(&d);
	free(buffer);
	return finish("dereg_early");
}
