// min_rnr_timer is a code and not a time. Code 0 means 655.36 ms, the longest time, and code 1
// means 10 µs. The wrong program leaves the code at zero. Each message that arrives before its
// receive then waits two thirds of a second. The program works, but slowly.
// From spdk #2429.
#include "corpus.h"
#define ROUNDS 20
#if WRONG
#define RNR_TIMER 0
#else
#define RNR_TIMER 12
#endif

static struct duo d;
static int posted;

static void *receive(void *arg)
{
	int i;

	(void)arg;
	for (i = 0; i < ROUNDS; i++) {
		work(200);
		give(d.b.qp, INBOX + i);
		add(&posted, 1);
		poll_good(d.b.rcq);
	}
	return NULL;
}

static void to_rtr(struct ibv_qp *qp, uint32_t qpn)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR, .path_mtu = port.attr.active_mtu, .dest_qp_num = qpn};

	a.rq_psn = 1;
	a.max_dest_rd_atomic = 1;
	a.min_rnr_timer = RNR_TIMER;
	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = 1;
	a.ah_attr.grh.dgid = port.gid;
	a.ah_attr.grh.sgid_index = port.gid_index;
	a.ah_attr.grh.hop_limit = 64;
	CHECK(!ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	      "to RTR");
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 1, .max_rd_atomic = 1};
	CHECK(!ibv_modify_qp(qp, &a,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC),
	      "to RTS");
}

int main(void)
{
	pthread_t t;
	int i;

	start();
	end_open(&d.a, IBV_QPT_RC, 32);
	end_open(&d.b, IBV_QPT_RC, 32);
	qp_init(&port, d.a.qp);
	qp_init(&port, d.b.qp);
	to_rtr(d.a.qp, d.b.qp->qp_num);
	to_rtr(d.b.qp, d.a.qp->qp_num);
	thread(&t, receive, NULL);
	for (i = 0; i < ROUNDS; i++) {
		// In 49 of 50 rounds the message follows the receive. In the other rounds the
		// message may come first.
		if (rand() % 50)
			until(&posted, i + 1);
		CHECK(!put(d.a.qp, 0, 64, IBV_SEND_SIGNALED), "post send");
		poll_good(d.a.scq);
	}
	pthread_join(t, NULL);
	duo_close(&d);
	return finish("rnr_timer");
}
