// A message has a header and a body, as two elements. For an empty body the wrong program passes an
// element with length 0 and an invalid key. To some devices length 0 means 2^31 bytes. The right
// program omits the element.
// From ucx #6414 and spdk #3195.
#include "corpus.h"
#define MESSAGES 60

static struct ibv_qp *qp_two(struct end *e)
{
	struct ibv_qp_init_attr a = {.send_cq = e->scq, .recv_cq = e->rcq, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp;

	a.cap = (struct ibv_qp_cap){.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 1};
	qp = ibv_create_qp(port.pd, &a);
	CHECK(qp, "create qp");
	return qp;
}

static void send_parts(struct ibv_qp *qp, uint32_t body)
{
	struct ibv_sge s[2] = {piece(0, 16)};
	struct ibv_send_wr wr = {.sg_list = s, .num_sge = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	if (body)
		s[1] = piece(1, body);
#if WRONG
	else
		s[1] = (struct ibv_sge){0, 0, 0xdead}; // length 0
#else
	else
		wr.num_sge = 1;
#endif
	CHECK(!ibv_post_send(qp, &wr, &bad), "post send");
}

int main(void)
{
	struct ibv_wc wc;
	uint32_t body;
	struct duo d;
	int i;

	start();
	end_open(&d.b, IBV_QPT_RC, 16);
	d.a.ch = ibv_create_comp_channel(port.ctx);
	d.a.scq = cq_new(&port, 32, NULL, NULL);
	d.a.rcq = cq_new(&port, 32, d.a.ch, NULL);
	d.a.qp = qp_two(&d.a);
	qp_pair(&port, d.a.qp, d.b.qp);
	for (i = 0; i < MESSAGES; i++) {
		body = rand() % 100;
		give(d.b.qp, INBOX);
		send_parts(d.a.qp, body);
		wc = poll_one(d.a.scq);
		CHECK(!wc.status, "body of %u: %s, vendor error %#x", body, ibv_wc_status_str(wc.status), wc.vendor_err);
		wc = poll_good(d.b.rcq);
		CHECK(wc.byte_len == 16 + body, "%u bytes came of %u", wc.byte_len, 16 + body);
	}
	duo_close(&d);
	return finish("zero_element");
}
