// The program sends small messages inline, because its buffer is invalid after ibv_post_send
// returns. The wrong program creates the queue pair without inline data, and some devices still
// accept a little. The right program requests the needed size and checks the granted size.
// From Mooncake #721: a NIC refuses what another NIC allows.
#include "corpus.h"
#define MESSAGES 30
#define LONGEST 48

static struct ibv_qp *qp_inline(struct end *e)
{
	struct ibv_qp_init_attr a = {.send_cq = e->scq, .recv_cq = e->rcq, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp;

	a.cap = (struct ibv_qp_cap){.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1};
#if !WRONG
	a.cap.max_inline_data = LONGEST;
#endif
	qp = ibv_create_qp(port.pd, &a);
	CHECK(qp, "create qp");
#if !WRONG
	CHECK(a.cap.max_inline_data >= LONGEST, "%u bytes inline", a.cap.max_inline_data);
#endif
	return qp;
}

static void tell(struct ibv_qp *qp, uint32_t len)
{
	uint8_t message[LONGEST] = {1, 2, 3};
	struct ibv_sge s = {(uintptr_t)message, len, 0};
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	int r;

	wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	r = ibv_post_send(qp, &wr, &bad);
	CHECK(!r, "ibv_post_send of %u bytes inline: %s", len, strerror(r));
}

int main(void)
{
	struct duo d;
	int i;

	start();
	end_open(&d.b, IBV_QPT_RC, 16);
	d.a.ch = ibv_create_comp_channel(port.ctx);
	d.a.scq = cq_new(&port, 32, NULL, NULL);
	d.a.rcq = cq_new(&port, 32, d.a.ch, NULL);
	d.a.qp = qp_inline(&d.a);
	qp_pair(&port, d.a.qp, d.b.qp);
	for (i = 0; i < MESSAGES; i++) {
		give(d.b.qp, INBOX);
		tell(d.a.qp, 4 + i % (LONGEST - 3));
		poll_good(d.a.scq);
		poll_good(d.b.rcq);
		CHECK(slot(INBOX)[2] == 3, "what came is not what was sent");
	}
	duo_close(&d);
	return finish("small_inline");
}
