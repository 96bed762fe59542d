// Causes a fault on purpose. Both ends print the statuses of their completions in order, the state
// of the queue pair, and the asynchronous events. Only peer.c includes this file.
#ifndef FAULTS_H
#define FAULTS_H
#include "ends.h"

enum trick {
	NONE,
	BAD_RKEY,     // an unknown key
	BEYOND,	      // the last byte lies after the end of the region
	NO_MR_RIGHT,  // the region does not allow the operation
	NO_QP_RIGHT,  // the queue pair does not allow the operation
	MISALIGNED,   // an atomic on an address that is no multiple of 8
	SHORT_RECV,   // the receive is shorter than the message
	BAD_RECV_KEY, // the receive names no region
	NO_RECV,      // no receive is ever posted
	LATE_RECV,    // receives are posted after the message
	BAD_INV,      // SEND with Invalidate of an unknown key
	GONE,	      // the responder's queue pair is in the error state
	BAD_QKEY,
};

static const struct fault {
	const char *name;
	enum ibv_qp_type type;
	enum op op;
	uint32_t len;
	enum trick trick;
} FAULTS[] = {
	{"rkey_write", IBV_QPT_RC, WRITE, 64, BAD_RKEY},
	{"rkey_read", IBV_QPT_RC, READ, 64, BAD_RKEY},
	{"rkey_cas", IBV_QPT_RC, CAS, 8, BAD_RKEY},
	{"rkey_empty_write", IBV_QPT_RC, WRITE, 0, BAD_RKEY},
	{"rkey_empty_read", IBV_QPT_RC, READ, 0, BAD_RKEY},
	{"beyond_write", IBV_QPT_RC, WRITE, 64, BEYOND},
	{"beyond_long_write", IBV_QPT_RC, WRITE, 20000, BEYOND},
	{"beyond_read", IBV_QPT_RC, READ, 64, BEYOND},
	{"mr_right_write", IBV_QPT_RC, WRITE, 64, NO_MR_RIGHT},
	{"mr_right_read", IBV_QPT_RC, READ, 64, NO_MR_RIGHT},
	{"mr_right_cas", IBV_QPT_RC, CAS, 8, NO_MR_RIGHT},
	{"qp_right_write", IBV_QPT_RC, WRITE, 64, NO_QP_RIGHT},
	{"qp_right_read", IBV_QPT_RC, READ, 64, NO_QP_RIGHT},
	{"qp_right_cas", IBV_QPT_RC, CAS, 8, NO_QP_RIGHT},
	{"misaligned_cas", IBV_QPT_RC, CAS, 8, MISALIGNED},
	{"oversize_send", IBV_QPT_RC, SEND, 64, SHORT_RECV},
	{"oversize_long_send", IBV_QPT_RC, SEND, 20000, SHORT_RECV},
	{"receive_key", IBV_QPT_RC, SEND, 64, BAD_RECV_KEY},
	{"no_receive", IBV_QPT_RC, SEND, 64, NO_RECV},
	{"no_receive_write_imm", IBV_QPT_RC, WRITE_IMM, 64, NO_RECV},
	{"late_receive", IBV_QPT_RC, SEND, 64, LATE_RECV},
	{"late_receive_long", IBV_QPT_RC, SEND, 20000, LATE_RECV},
	{"late_receive_write_imm", IBV_QPT_RC, WRITE_IMM, 20000, LATE_RECV},
	{"invalidate_key", IBV_QPT_RC, SEND_INV, 64, BAD_INV},
	{"gone", IBV_QPT_RC, SEND, 64, GONE},
	{"uc_rkey_write", IBV_QPT_UC, WRITE, 64, BAD_RKEY},
	{"uc_oversize_send", IBV_QPT_UC, SEND, 64, SHORT_RECV},
	{"uc_no_receive", IBV_QPT_UC, SEND, 64, NO_RECV},
	{"ud_qkey", IBV_QPT_UD, SEND, 64, BAD_QKEY},
	{"ud_oversize_send", IBV_QPT_UD, SEND, 64, SHORT_RECV},
};

// The responder posts two receives: for the faulty message and for the next message. In memory, the
// target of WRITEs, READs and atomics (TARGET_LEN bytes) follows the two receive buffers.
#define RECEIVES 2
#define RECV_LEN 32768
#define SHORT_LEN 16
#define TARGET_LEN 32768
#define ALL_RIGHTS                                                                                                        \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static const char *status_name(enum ibv_wc_status s)
{
	static const char *const name[] = {
		"SUCCESS",	 "LOC_LEN_ERR",	    "LOC_QP_OP_ERR",   "LOC_EEC_OP_ERR",     "LOC_PROT_ERR",
		"WR_FLUSH_ERR",	 "MW_BIND_ERR",	    "BAD_RESP_ERR",    "LOC_ACCESS_ERR",     "REM_INV_REQ_ERR",
		"REM_ACCESS_ERR", "REM_OP_ERR",	    "RETRY_EXC_ERR",   "RNR_RETRY_EXC_ERR",
	};

	return s < ARRAY_LEN(name) ? name[s] : "OTHER";
}

static int right_of(enum op op)
{
	return op == READ	      ? IBV_ACCESS_REMOTE_READ
	       : op == CAS || op == FADD ? IBV_ACCESS_REMOTE_ATOMIC
				      : IBV_ACCESS_REMOTE_WRITE;
}

static const struct fault *fault_named(const char *name)
{
	size_t i = 0;

	while (i < ARRAY_LEN(FAULTS) && strcmp(name, FAULTS[i].name))
		i++;
	CHECK(i < ARRAY_LEN(FAULTS), "no fault is called %s", name);
	return &FAULTS[i];
}

// Prints " WHAT=A,B,C": the statuses of at most `n` completions, until none comes for `seconds`.
static void say_completions(struct ibv_cq *cq, const char *what, int n, double seconds)
{
	struct ibv_wc wc;
	int i;

	printf(" %s=", what);
	for (i = 0; i < n && poll_within(cq, &wc, seconds); i++)
		printf("%s%s", i ? "," : "", status_name(wc.status));
	if (i == 0)
		printf("none");
}

static void say_state_and_events(struct end *e)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr i;
	struct ibv_async_event event;
	const char *sep = "";

	CHECK(!ibv_query_qp(e->qp, &a, IBV_QP_STATE, &i), "query qp");
	printf(" state=%s events=", a.qp_state == IBV_QPS_RTS ? "RTS" : a.qp_state == IBV_QPS_ERR ? "ERR" : "other");
	CHECK(!fcntl(e->ctx->async_fd, F_SETFL, fcntl(e->ctx->async_fd, F_GETFL) | O_NONBLOCK), "non-blocking events");
	while (!ibv_get_async_event(e->ctx, &event)) {
		const char *name = event.event_type == IBV_EVENT_QP_ACCESS_ERR ? "ACCESS_ERR"
				   : event.event_type == IBV_EVENT_QP_REQ_ERR  ? "REQ_ERR"
				   : event.event_type == IBV_EVENT_QP_FATAL    ? "FATAL"
									       : NULL;
		if (name) {
			printf("%s%s", sep, name);
			sep = ",";
		}
		ibv_ack_async_event(&event);
	}
	printf("%s\n", *sep ? "" : "none");
}

// Posts the faulty request. Returns 0, or the errno of a refused request.
static int post_faulty(struct end *e, const struct fault *f)
{
	struct ibv_sge from = {(uintptr_t)e->mem, f->len, e->mr->lkey};
	uint64_t at = e->theirs.addr;

	if (f->trick == BEYOND)
		at += TARGET_LEN - f->len + 1;
	if (f->trick == MISALIGNED)
		at += 4;
	struct ibv_send_wr wr = request(e, f->op, &from, at);

	if (f->trick == BAD_RKEY && f->op == CAS)
		wr.wr.atomic.rkey ^= 0x00ff0000;
	else if (f->trick == BAD_RKEY)
		wr.wr.rdma.rkey ^= 0x00ff0000;
	if (f->trick == BAD_INV)
		wr.invalidate_rkey = 0x00ff0000;
	if (f->trick == BAD_QKEY)
		wr.wr.ud.remote_qkey ^= 1;
	return ibv_post_send(e->qp, &wr, &(struct ibv_send_wr *){0});
}

// Posts the faulty request, then a plain SEND.
static void provoke_as_requester(struct end *e, const struct fault *f)
{
	struct ibv_sge from = {(uintptr_t)e->mem, 8, e->mr->lkey};
	struct ibv_send_wr next = request(e, SEND, &from, 0);
	char ready;
	int refused;

	receive_all(e, &ready, 1);
	refused = post_faulty(e, f);
	post(e, &next);
	printf("END%s%s", refused ? " post=" : "", refused ? strerrorname_np(refused) : "");
	say_completions(e->scq, "send", refused ? 1 : 2, SECONDS_OF_PATIENCE);
	send_all(e, "d", 1);
	say_state_and_events(e);
	// Waits for the other end. Its last completions may depend on acknowledgements of this end.
	receive_all(e, &ready, 1);
}

static void post_receives(struct end *e, const struct fault *f)
{
	int grh = f->type == IBV_QPT_UD ? GRH : 0;
	uint32_t first = f->trick == SHORT_RECV ? SHORT_LEN + grh : RECV_LEN;

	post_receive(e, 0, e->mem, first, e->mr->lkey ^ (f->trick == BAD_RECV_KEY ? 0x00ff0000 : 0));
	post_receive(e, 1, e->mem + RECV_LEN, RECV_LEN, e->mr->lkey);
}

static void provoke_as_responder(struct end *e, const struct fault *f)
{
	struct ibv_qp_attr broken = {.qp_state = IBV_QPS_ERR};
	char done;

	if (f->trick != NO_RECV && f->trick != LATE_RECV)
		post_receives(e, f);
	if (f->trick == GONE)
		CHECK(!ibv_modify_qp(e->qp, &broken, IBV_QP_STATE), "to ERR");
	send_all(e, "r", 1);
	if (f->trick == LATE_RECV) {
		usleep(e->o.late_ms * 1000);
		post_receives(e, f);
	}
	receive_all(e, &done, 1);
	printf("END");
	say_completions(e->rcq, "recv", RECEIVES, 2);
	say_state_and_events(e);
	send_all(e, "e", 1);
}

static void provoke(struct end *e)
{
	const struct fault *f = fault_named(e->o.fault);
	struct ibv_mr *target;
	int hidden = right_of(f->op), mr_rights = ALL_RIGHTS, qp_rights = ALL_RIGHTS;

	e->o.type = f->type;
	if (f->trick == NO_MR_RIGHT)
		mr_rights &= ~hidden;
	if (f->trick == NO_QP_RIGHT)
		qp_rights &= ~hidden;
	make_end(e, RECEIVES * RECV_LEN + TARGET_LEN, 8, qp_rights);
	memset(e->mem, 0, e->len);
	target = ibv_reg_mr(e->pd, e->mem + RECEIVES * RECV_LEN, TARGET_LEN, mr_rights);
	CHECK(target, "register target");
	join(e, target->addr, target->rkey);
	if (e->o.host)
		provoke_as_requester(e, f);
	else
		provoke_as_responder(e, f);
}
#endif
