// Calls while allocations fail. Each call must succeed or fail with ENOMEM, and must not end the
// process. When allocations succeed again, everything must work. The program defines the allocation
// functions itself, so that it can refuse allocations.
// usage: nomem CASE. The table of cases is at the end. The program prints "ok CASE" and ends with
// status 0, or prints FAIL with the file and line of the failed check.
#define _GNU_SOURCE
#include "rig.h"
#include <malloc.h>
#include <rdma/rdma_cma.h>
#include <sys/resource.h>

#define DEPTH 16
#define SIZE 16384

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

// The number of allocations before a refusal. A negative number means no refusal. At 0 the
// functions refuse a single allocation (if `refuses_one` is set) or all later allocations.
static long left = -1;
static int refuses_one;
static long refused;

static int refuses(void)
{
	long now;

	if (__atomic_load_n(&left, __ATOMIC_RELAXED) < 0)
		return 0;
	now = __atomic_fetch_sub(&left, 1, __ATOMIC_RELAXED);
	if (now > 0)
		return 0;
	__atomic_store_n(&left, refuses_one ? -1 : 0, __ATOMIC_RELAXED);
	__atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
	errno = ENOMEM;
	return 1;
}

void *malloc(size_t n)
{
	return refuses() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return refuses() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	return refuses() ? NULL : __libc_realloc(p, n);
}

void *memalign(size_t to, size_t n)
{
	return refuses() ? NULL : __libc_memalign(to, n);
}

void *aligned_alloc(size_t to, size_t n)
{
	return memalign(to, n);
}

int posix_memalign(void **p, size_t to, size_t n)
{
	void *got = memalign(to, n);

	if (!got)
		return ENOMEM;
	*p = got;
	return 0;
}

static struct port port;
static struct ibv_cq *cq;
static struct ibv_comp_channel *channel;
static struct ibv_srq *srq;
static struct ibv_xrcd *xrcd;
static struct ibv_qp *a, *b, *ud;
static struct ibv_mr *mr;
static struct ibv_device **devices;
static uint8_t *mem;
static union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 239, 7, 8, 9}};

static void *pd_new(void)
{
	return ibv_alloc_pd(port.ctx);
}
static int pd_end(void *p)
{
	return ibv_dealloc_pd(p);
}
static void *channel_new(void)
{
	return ibv_create_comp_channel(port.ctx);
}
static int channel_end(void *p)
{
	return ibv_destroy_comp_channel(p);
}
static void *cq_plain(void)
{
	return ibv_create_cq(port.ctx, DEPTH, NULL, channel, 0);
}
static void *cq_large(void)
{
	return ibv_create_cq(port.ctx, 100000, NULL, channel, 0);
}
static void *cq_extended(void)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = DEPTH, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_cq_ex *ex = ibv_create_cq_ex(port.ctx, &attr);

	return ex ? ibv_cq_ex_to_cq(ex) : NULL;
}
static int cq_end(void *p)
{
	return ibv_destroy_cq(p);
}
static void *srq_new(void)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 1000, .max_sge = 2}};

	return ibv_create_srq(port.pd, &attr);
}
static void *srq_xrc(void)
{
	struct ibv_srq_init_attr_ex attr = {.attr = {.max_wr = 100, .max_sge = 2}, .srq_type = IBV_SRQT_XRC, .pd = port.pd,
		.xrcd = xrcd, .cq = cq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ};

	return ibv_create_srq_ex(port.ctx, &attr);
}
static int srq_end(void *p)
{
	return ibv_destroy_srq(p);
}
static void *qp_of(enum ibv_qp_type type, int depth, struct ibv_srq *shared)
{
	struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .srq = shared, .qp_type = type,
		.cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 100}};

	return ibv_create_qp(port.pd, &attr);
}
static void *qp_rc(void)
{
	return qp_of(IBV_QPT_RC, DEPTH, NULL);
}
static void *qp_ud(void)
{
	return qp_of(IBV_QPT_UD, DEPTH, NULL);
}
static void *qp_large(void)
{
	return qp_of(IBV_QPT_RC, 4096, NULL);
}
static void *qp_shared(void)
{
	return qp_of(IBV_QPT_RC, DEPTH, srq);
}
static int qp_end(void *p)
{
	return ibv_destroy_qp(p);
}
static void *mr_new(void)
{
	return ibv_reg_mr(port.pd, mem + 64, 1000, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}
static void *mr_pages(void)
{
	return ibv_reg_mr(port.pd, mem, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}
static int mr_end(void *p)
{
	return ibv_dereg_mr(p);
}
static void *mw_new(void)
{
	return ibv_alloc_mw(port.pd, IBV_MW_TYPE_2);
}
static int mw_end(void *p)
{
	return ibv_dealloc_mw(p);
}
static void *ah_new(void)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = port.gid, .sgid_index = port.gid_index}};

	return ibv_create_ah(port.pd, &attr);
}
static int ah_end(void *p)
{
	return ibv_destroy_ah(p);
}
static void *td_new(void)
{
	struct ibv_td_init_attr attr = {0};

	return ibv_alloc_td(port.ctx, &attr);
}
static int td_end(void *p)
{
	return ibv_dealloc_td(p);
}
static void *xrcd_new(void)
{
	struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};

	return ibv_open_xrcd(port.ctx, &attr);
}
static int xrcd_end(void *p)
{
	return ibv_close_xrcd(p);
}
static void *dm_new(void)
{
	struct ibv_alloc_dm_attr attr = {.length = 4096};

	return ibv_alloc_dm(port.ctx, &attr);
}
static int dm_end(void *p)
{
	return ibv_free_dm(p);
}
static void *context_new(void)
{
	return ibv_open_device(devices[0]);
}
static int context_end(void *p)
{
	return ibv_close_device(p);
}
static void *list_new(void)
{
	return ibv_get_device_list(NULL);
}
static int list_end(void *p)
{
	ibv_free_device_list(p);
	return 0;
}
static void *as_pointer(int code)
{
	if (code > 0)
		errno = code;
	return code ? NULL : mem;
}
static void *resized(void)
{
	return as_pointer(ibv_resize_cq(cq, 5000));
}
static int resize_end(void *p)
{
	(void)p;
	return ibv_resize_cq(cq, 64);
}
static void *attached(void)
{
	return as_pointer(ibv_attach_mcast(ud, &group, 0));
}
static int attach_end(void *p)
{
	(void)p;
	return ibv_detach_mcast(ud, &group, 0);
}
static void *connected(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	return as_pointer(ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}
static int connect_end(void *p)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	(void)p;
	return ibv_modify_qp(a, &attr, IBV_QP_STATE);
}
static void *posted(void)
{
	struct ibv_sge s = {(uintptr_t)mem, 64, mr->lkey}, s2[2] = {s, s};
	struct ibv_recv_wr wr = {.sg_list = s2, .num_sge = 2}, *bad;

	return as_pointer(ibv_post_srq_recv(srq, &wr, &bad));
}
static int post_end(void *p)
{
	(void)p;
	return 0;
}
static void *cm_channel(void)
{
	return rdma_create_event_channel();
}
static int cm_channel_end(void *p)
{
	rdma_destroy_event_channel(p);
	return 0;
}
static struct rdma_event_channel *events;
static void *cm_id(void)
{
	struct rdma_cm_id *id;

	return rdma_create_id(events, &id, NULL, RDMA_PS_TCP) ? NULL : id;
}
static int cm_id_end(void *p)
{
	return rdma_destroy_id(p);
}

static const struct verb {
	const char *name;
	void *(*make)(void);
	int (*end)(void *);
} verbs[] = {
	{"alloc_pd", pd_new, pd_end},
	{"create_comp_channel", channel_new, channel_end},
	{"create_cq", cq_plain, cq_end},
	{"create_cq of 100000", cq_large, cq_end},
	{"create_cq_ex", cq_extended, cq_end},
	{"create_srq", srq_new, srq_end},
	{"create_srq_ex (XRC)", srq_xrc, srq_end},
	{"create_qp (RC)", qp_rc, qp_end},
	{"create_qp (UD)", qp_ud, qp_end},
	{"create_qp of 4096", qp_large, qp_end},
	{"create_qp (SRQ)", qp_shared, qp_end},
	{"reg_mr", mr_new, mr_end},
	{"reg_mr of pages", mr_pages, mr_end},
	{"alloc_mw", mw_new, mw_end},
	{"create_ah", ah_new, ah_end},
	{"alloc_td", td_new, td_end},
	{"open_xrcd", xrcd_new, xrcd_end},
	{"alloc_dm", dm_new, dm_end},
	{"resize_cq", resized, resize_end},
	{"attach_mcast", attached, attach_end},
	{"modify_qp", connected, connect_end},
	{"post_srq_recv", posted, post_end},
	{"open_device", context_new, context_end},
	{"get_device_list", list_new, list_end},
	{"rdma_create_event_channel", cm_channel, cm_channel_end},
	{"rdma_create_id", cm_id, cm_id_end},
};

static void open_all(void)
{
	struct timers t = {14, 7, 7};

	port_open(&port);
	devices = ibv_get_device_list(NULL);
	channel = ibv_create_comp_channel(port.ctx);
	cq = cq_new(&port, 64, NULL, NULL);
	xrcd = xrcd_new();
	srq = srq_new();
	CHECK(channel && srq && xrcd && devices, "objects");
	CHECK(!posix_memalign((void **)&mem, 4096, SIZE), "memory");
	memset(mem, 0, SIZE);
	mr = mr_pages();
	CHECK(mr, "mr");
	a = qp_new(&port, IBV_QPT_RC, cq, cq, DEPTH);
	b = qp_new(&port, IBV_QPT_RC, cq, cq, DEPTH);
	ud = qp_new(&port, IBV_QPT_UD, cq, cq, DEPTH);
	qp_init(&port, b);
	qp_join(&port, b, 100, b->qp_num, 100, port.gid, t);
	events = rdma_create_event_channel();
	CHECK(events, "event channel");
}

// Checks that an old queue pair still works: writes data through `b`, which was created before the
// first allocation was refused.
static void works(const char *after)
{
	struct ibv_sge s = {(uintptr_t)mem, 64, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
				 .wr = {.rdma = {(uintptr_t)mem + 4096, mr->rkey}}}, *bad;

	CHECK(!ibv_post_send(b, &wr, &bad), "post after %s", after);
	poll_good(cq);
}

static void each_can_be_made(const char *after)
{
	size_t v;

	for (v = 0; v < ARRAY_LEN(verbs); v++) {
		void *made = verbs[v].make();

		CHECK(made, "%s after %s", verbs[v].name, after);
		CHECK(!verbs[v].end(made), "end of %s", verbs[v].name);
	}
	works(after);
}

// Refuses the nth allocation of each call (if `one` is set), or the nth and all later allocations.
// `n` grows until the call succeeds without a refusal.
static void sweep(int one)
{
	size_t v;
	long n;
	int code;

	open_all();
	each_can_be_made("nothing");
	refuses_one = one;
	for (v = 0; v < ARRAY_LEN(verbs); v++) {
		for (n = 0; n < 1000; n++) {
			void *made;

			refused = 0;
			__atomic_store_n(&left, n, __ATOMIC_RELAXED);
			errno = 0;
			made = verbs[v].make();
			code = errno;
			__atomic_store_n(&left, -1, __ATOMIC_RELAXED);
			if (!made)
				CHECK(code == ENOMEM, "%s, allocation %ld: errno %d", verbs[v].name, n, code);
			if (made)
				CHECK(!verbs[v].end(made), "end of %s", verbs[v].name);
			if (made && !refused)
				break;
		}
		CHECK(n < 1000, "%s allocates for ever", verbs[v].name);
		works(verbs[v].name);
	}
	each_can_be_made("the sweep");
}

static void all_are_refused(void)
{
	sweep(0);
}

static void one_is_refused(void)
{
	sweep(1);
}

static long mapped(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long pages = 0;

	CHECK(f && fscanf(f, "%ld", &pages) == 1, "statm");
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

// Limits the address space to a little more than its present size. The program then tries to create
// many objects. Each call succeeds or fails with ENOMEM or EMFILE. Then the program removes the
// limit and destroys the objects.
static void address_space(void)
{
	static void *made[64][ARRAY_LEN(verbs)];
	struct rlimit no = {RLIM_INFINITY, RLIM_INFINITY};
	size_t v, round;
	long room;

	open_all();
	for (room = 0; room <= 4 << 20; room += 64 << 10) {
		struct rlimit r = {mapped() + room, RLIM_INFINITY};

		CHECK(!setrlimit(RLIMIT_AS, &r), "limit");
		memset(made, 0, sizeof(made));
		for (round = 0; round < ARRAY_LEN(made); round++) {
			for (v = 0; v < ARRAY_LEN(verbs); v++) {
				if (verbs[v].make == resized || verbs[v].make == attached || verbs[v].make == connected ||
				    verbs[v].make == posted)
					continue;
				errno = 0;
				made[round][v] = verbs[v].make();
				CHECK(made[round][v] || errno == ENOMEM || errno == EMFILE, "%s with %ld bytes", verbs[v].name,
				      room);
			}
		}
		CHECK(!setrlimit(RLIMIT_AS, &no), "no limit");
		for (round = 0; round < ARRAY_LEN(made); round++)
			for (v = 0; v < ARRAY_LEN(verbs); v++)
				if (made[round][v])
					CHECK(!verbs[v].end(made[round][v]), "end of %s", verbs[v].name);
		works("the limit");
	}
	each_can_be_made("the limits");
}

static const struct {
	const char *id, *name;
	void (*run)(void);
} cases[] = {
	{"OBJ-10", "every_allocation_from_the_nth_on_is_refused", all_are_refused},
	{"OBJ-10", "the_nth_allocation_is_refused", one_is_refused},
	{"OBJ-10", "the_address_space_is_used_up", address_space},
};

int main(int argc, char **argv)
{
	size_t i;

	setvbuf(stdout, NULL, _IONBF, 0);
	for (i = 0; i < ARRAY_LEN(cases); i++) {
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			printf("ok %s\n", cases[i].name);
			return 0;
		}
	}
	printf("FAIL no such case\n");
	return 1;
}
