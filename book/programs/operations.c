// A READ, an atomic addition, or an inline message. With a second argument, one thing is wrong.
#include "pair.h"

static struct end a, b;

// Posts the request and prints the status of its completion. A failure ends the program.
static void post(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int error = ibv_post_send(a.qp, wr, &bad);

	if (error) {
		printf("ibv_post_send: %s\n", strerror(error));
		exit(1);
	}
	struct ibv_wc wc = completion(&a);
	printf("%s (vendor_err 0x%x)\n", ibv_wc_status_str(wc.status), wc.vendor_err);
	if (wc.status != IBV_WC_SUCCESS)
		exit(1);
}

int main(int argc, char **argv)
{
	const char *what = word(argc, argv, 1, "read add inline");
	const char *wrong = word(argc, argv, 2, "beyond read-only odd no-flag long");
#define IS(name) (!strcmp(wrong, name))
	int atomic = !strcmp(what, "add"), in_line = !strcmp(what, "inline");
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

	open_device("adverb0");
	// A READ or an atomic writes its result into local memory, so the region needs LOCAL_WRITE.
	open_end(&a, 2, IS("read-only") ? 0 : access);
	open_end(&b, 2, access);
	connect_to(&a, &b);
	connect_to(&b, &a);
	if (IS("no-flag")) {
		struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_READ};
		MUST(!ibv_modify_qp(b.qp, &attr, IBV_QP_ACCESS_FLAGS));
	}
	a.memory[0] = 2;
	strcpy(b.memory, "\x05");
	MUST(!receive(&b, sizeof b.memory));

	struct ibv_sge sge = {(uintptr_t)a.memory, 8, a.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	if (atomic) {
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.remote_addr = (uintptr_t)b.memory + (IS("odd") ? 4 : 0);
		wr.wr.atomic.rkey = b.mr->rkey;
		wr.wr.atomic.compare_add = 3;
	} else if (in_line) {
		wr.opcode = IBV_WR_SEND;
		wr.send_flags |= IBV_SEND_INLINE;
		sge.length = IS("long") ? 60 : 5;
	} else {
		wr.opcode = IBV_WR_RDMA_READ;
		wr.wr.rdma.remote_addr = (uintptr_t)b.memory + (IS("beyond") ? sizeof b.memory - 4 : 0);
		wr.wr.rdma.rkey = b.mr->rkey;
	}
	post(&wr);
	printf("here %d, there %d\n", a.memory[0], b.memory[0]);
	return 0;
}
