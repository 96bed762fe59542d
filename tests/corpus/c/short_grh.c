// Datagrams arrive in receives of 64 bytes. A GRH of 40 bytes precedes the data, so the receives of
// the wrong program have room for 24 bytes of data. Short requests fit. Every tenth request is
// longer. The device drops this request, and neither side gets an error.
#include "corpus.h"
#define ROUNDS 60
#define DATA 64
#define GRH 40

static struct end a, b;
static int served;

static void give_datagram(int n)
{
#if WRONG
	struct ibv_sge s = piece(n, DATA); // the data alone
#else
	struct ibv_sge s = piece(n, GRH + DATA);
#endif
	struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(b.qp, &wr, &bad), "post recv"); // a receive
}

static void *serve(void *arg)
{
	int i, n;

	for (i = 0; i < ROUNDS; i++) {
		n = poll_good(b.rcq).wr_id;
		CHECK(slot(n)[GRH] == i, "request %d in place of %d", slot(n)[GRH], i);
		give_datagram(n);
		add(&served, 1);
	}
	return arg;
}

int main(void)
{
	struct timers none = {0};
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};
	struct ibv_ah *ah;
	pthread_t t;
	int i;

	start();
	end_open(&a, IBV_QPT_UD, 16);
	end_open(&b, IBV_QPT_UD, 16);
	qp_init(&port, a.qp);
	qp_init(&port, b.qp);
	qp_join(&port, a.qp, 100, 0, 0, port.gid, none);
	qp_join(&port, b.qp, 200, 0, 0, port.gid, none);
	to.grh.dgid = port.gid;
	to.grh.sgid_index = port.gid_index;
	to.grh.hop_limit = 64;
	ah = ibv_create_ah(port.pd, &to);
	CHECK(ah, "create ah");
	for (i = 0; i < 8; i++)
		give_datagram(INBOX + i);
	thread(&t, serve, NULL);
	for (i = 0; i < ROUNDS; i++) {
		struct ibv_sge s = piece(0, i % 10 == 9 ? DATA : 16);
		struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
					 .wr.ud = {ah, b.qp->qp_num, 0x11111111}}, *bad;

		slot(0)[0] = i;
		CHECK(!ibv_post_send(a.qp, &wr, &bad), "post send");
		poll_good(a.scq);
		until(&served, i + 1);
	}
	CHECK(!pthread_join(t, NULL), "join");
	CHECK(!ibv_destroy_ah(ah), "destroy ah");
	end_close(&a);
	end_close(&b);
	return finish("short_grh");
}
