// A call that does not wait must not be a cancellation point. In rdma-core, such a call only makes
// an `ioctl`, and `ioctl` is no cancellation point. In our library, a thread that is cancelled
// within the call would leave locks held. So each call must disable cancellation first.
// usage: cancel_calls walk|calls
//   walk: checks this for each exported function, except the names in `is_other`. Also checks the
//   function pointers in the tables of `struct ibv_context`, except those of the data path.
//   calls: a thread with a pending cancellation makes calls. All calls must return.
#define _GNU_SOURCE
#include "rig.h"
#include <arpa/inet.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <setjmp.h>

static struct port port;

// This function replaces the function of the C library. While `armed` is set, a call that disables
// cancellation jumps back to `expect_guard` before the call reads its arguments.
static jmp_buf back;
static volatile int armed;

int pthread_setcancelstate(int state, int *old)
{
	static int (*real)(int, int *);

	if (armed && state == PTHREAD_CANCEL_DISABLE) {
		armed = 0;
		longjmp(back, 1);
	}
	if (!real)
		real = (int (*)(int, int *))dlsym(RTLD_NEXT, "pthread_setcancelstate");
	return real(state, old);
}

typedef long (*function)(long, long, long, long, long, long);

static void expect_guard(const char *library, const char *name, function f)
{
	if (!setjmp(back)) {
		armed = 1;
		f(0, 0, 0, 0, 0, 0);
		CHECK(0, "%s: %s does not disable cancellation", library, name);
	}
}

// Names that `walk` does not check: calls that wait, calls of the data path, functions for our own
// librdmacm (`adverb_ucma_`), and functions without effect.
static int is_other(const char *name)
{
	static const char *const whole[] = {
		"ibv_get_cq_event", "ibv_get_async_event", "rdma_get_cm_event", "rpoll", "rselect",
		"adverb_disarm_cq", "adverb_notify_cq", "adverb_overlooked", "adverb_peek_cq",
		"execute_ioctl", "ibv_read_ibdev_sysfs_file", "ibv_get_fw_ver", "ibv_register_driver",
	};
	static const char *const begins[] = {
		"adverb_ucma_", "ibv_cmd_", "ibv_dmabuf_heap_", "verbs_", "_verbs_", "__verbs_", "__ioctl_",
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(whole); i++)
		if (!strcmp(name, whole[i]))
			return 1;
	for (i = 0; i < ARRAY_LEN(begins); i++)
		if (!strncmp(name, begins[i], strlen(begins[i])))
			return 1;
	return 0;
}

// Returns the number of dynamic symbols. No header states this number, so the function takes the
// number from the last chain of the GNU hash table.
static uint32_t symbols(const uint32_t *hash)
{
	uint32_t buckets = hash[0], first = hash[1], bloom = hash[2], last = 0, i;
	const uint32_t *bucket = (const uint32_t *)((const uint64_t *)(hash + 4) + bloom), *chain = bucket + buckets;

	for (i = 0; i < buckets; i++)
		last = bucket[i] > last ? bucket[i] : last;
	if (last < first)
		return first;
	while (!(chain[last - first] & 1))
		last++;
	return last + 1;
}

static int walk_library(const char *name)
{
	void *handle = dlopen(name, RTLD_NOW);
	const uint32_t *hash = NULL;
	const ElfW(Sym) *table = NULL;
	const char *strings = NULL;
	struct link_map *map;
	const ElfW(Dyn) *d;
	uint32_t i, n;
	int checked = 0;

	CHECK(handle && !dlinfo(handle, RTLD_DI_LINKMAP, &map), "%s: %s", name, dlerror());
	for (d = map->l_ld; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_SYMTAB)
			table = (const ElfW(Sym) *)d->d_un.d_ptr;
		else if (d->d_tag == DT_STRTAB)
			strings = (const char *)d->d_un.d_ptr;
		else if (d->d_tag == DT_GNU_HASH)
			hash = (const uint32_t *)d->d_un.d_ptr;
	}
	CHECK(table && strings && hash, "%s has no symbols", name);
	n = symbols(hash);
	for (i = 0; i < n; i++) {
		const char *symbol = strings + table[i].st_name;

		if (table[i].st_shndx == SHN_UNDEF || ELF64_ST_TYPE(table[i].st_info) != STT_FUNC || is_other(symbol))
			continue;
		expect_guard(name, symbol, (function)(map->l_addr + table[i].st_value));
		checked++;
	}
	printf("%s: %d functions\n", name, checked);
	return checked;
}

static void walk(void)
{
	struct verbs_context *v;
	struct ibv_context_ops ops;
	char **at;
	void **word;
	size_t i;

	CHECK(walk_library("libibverbs.so.1") > 90, "too few");
	CHECK(walk_library("librdmacm.so.1") > 60, "too few");
	port_open(&port);
	v = verbs_get_ctx(port.ctx);
	CHECK(v, "there is no table");
	// The functions of a context's table lie at lower addresses than the word `sz`. A word
	// without a function is null.
	word = (void **)((char *)port.ctx - (v->sz - sizeof(struct ibv_context)));
	for (at = (char **)word; (void *)at < (void *)&v->sz; at++)
		if (*at)
			expect_guard("table", "a function of the context", (function)*at);
	ops = port.ctx->ops;
	ops.poll_cq = NULL;
	ops.req_notify_cq = NULL;
	ops.post_send = NULL;
	ops.post_recv = NULL;
	ops.post_srq_recv = NULL;
	word = (void **)&ops;
	for (i = 0; i < sizeof(ops) / sizeof(*word); i++)
		if (word[i])
			expect_guard("operations", "a function of the context", (function)word[i]);
	port_close(&port);
	printf("ok walk\n");
}

// `last` names the call that began last. `returned` is set when all calls have returned.
static const char *volatile last = "none";
static volatile int returned;
// If set, the thread cancels itself before the calls.
static int cancelled;

#define CALL(call) (last = #call, (call))

static void control_calls(void)
{
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.dgid = port.gid, .sgid_index = port.gid_index}};
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_device **list;
	struct ibv_context *ctx;
	struct ibv_comp_channel *channel;
	struct ibv_port_attr attr;
	union ibv_gid gid;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_ah *ah;
	struct ibv_srq *srq;
	char *memory = aligned_alloc(4096, 1 << 20);
	int n;

	CHECK(memory, "memory");
	CHECK(CALL(list = ibv_get_device_list(&n)), "list");
	CHECK(CALL(ctx = ibv_open_device(list[0])), "open");
	CALL(ibv_free_device_list(list));
	CHECK(CALL(!ibv_query_port(ctx, 1, &attr)), "port");
	CHECK(CALL(!ibv_query_gid(ctx, 1, 0, &gid)), "gid");
	CHECK(CALL(!ibv_close_device(ctx)), "close");
	CHECK(CALL(pd = ibv_alloc_pd(port.ctx)), "pd");
	CHECK(CALL(mr = ibv_reg_mr(pd, memory, 1 << 20, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)), "reg");
	CHECK(CALL(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, pd, memory, 4096, 0)), "rereg");
	CHECK(CALL(!ibv_dereg_mr(mr)), "dereg");
	CHECK(CALL(!ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_REMOTE_WRITE)), "remote write without local write");
	CHECK(CALL(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1)), "mw");
	CHECK(CALL(!ibv_dealloc_mw(mw)), "mw");
	CHECK(CALL(ah = ibv_create_ah(pd, &to)), "ah");
	CHECK(CALL(!ibv_destroy_ah(ah)), "ah");
	CHECK(CALL(srq = ibv_create_srq(pd, &shared)), "srq");
	CHECK(CALL(!ibv_destroy_srq(srq)), "srq");
	CHECK(CALL(channel = ibv_create_comp_channel(port.ctx)), "channel");
	CHECK(CALL(!ibv_destroy_comp_channel(channel)), "channel");
	CHECK(CALL(!ibv_dealloc_pd(pd)), "pd");
	free(memory);
}

// Calls with queue pairs. This includes calls of the data path and posts that fail.
static void queue_pair_calls(void)
{
	static uint64_t words[2];
	struct ibv_comp_channel *channel = ibv_create_comp_channel(port.ctx);
	struct ibv_cq *cq = cq_new(&port, 16, channel, NULL);
	struct ibv_qp *x, *y;
	struct ibv_mr *mr = ibv_reg_mr(port.pd, words, sizeof(words), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_sge from = {(uintptr_t)&words[0], 8, mr->lkey}, to = {(uintptr_t)&words[1], 8, mr->lkey};
	struct ibv_recv_wr r = {.sg_list = &to, .num_sge = 1}, *rbad;
	struct ibv_send_wr w = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	int i;

	CALL(x = qp_new(&port, IBV_QPT_RC, cq, cq, 16));
	CALL(y = qp_new(&port, IBV_QPT_RC, cq, cq, 16));
	CHECK(CALL(ibv_modify_qp(x, &attr, IBV_QP_STATE) == EINVAL), "RESET to RTS");
	CALL(qp_pair(&port, x, y));
	CHECK(CALL(!ibv_req_notify_cq(cq, 0)), "arm");
	CHECK(CALL(!ibv_post_recv(y, &r, &rbad)), "post recv");
	CHECK(CALL(!ibv_post_send(x, &w, &bad)), "post send");
	CALL(poll_good(cq));
	CALL(poll_good(cq));
	w.opcode = 77;
	CHECK(CALL(ibv_post_send(x, &w, &bad)), "an opcode that does not exist");
	w.opcode = IBV_WR_RDMA_WRITE;
	w.wr.rdma.remote_addr = 4096;
	w.wr.rdma.rkey = 1;
	CHECK(CALL(!ibv_post_send(x, &w, &bad)), "a write with a wrong key");
	CHECK(CALL(poll_one(cq)).status == IBV_WC_REM_ACCESS_ERR, "a wrong key");
	for (i = 0; i < 2; i++)
		CHECK(CALL(!ibv_destroy_qp(i ? x : y)), "destroy");
	CHECK(CALL(!ibv_destroy_cq(cq)) && CALL(!ibv_destroy_comp_channel(channel)) && CALL(!ibv_dereg_mr(mr)), "destroy");
}

static void connection_calls(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET}, nowhere = {.sin_family = AF_INET};
	struct rdma_event_channel *channel;
	struct ibv_context **devices;
	struct rdma_cm_id *id;
	int n;

	nowhere.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(CALL(devices = rdma_get_devices(&n)), "devices");
	CALL(rdma_free_devices(devices));
	CHECK(CALL(channel = rdma_create_event_channel()), "channel");
	CHECK(CALL(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)), "id");
	CHECK(CALL(!rdma_bind_addr(id, (struct sockaddr *)&any)), "bind");
	CHECK(CALL(!rdma_listen(id, 4)), "listen");
	CHECK(CALL(!rdma_destroy_id(id)), "destroy");
	CHECK(CALL(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)), "id");
	CHECK(CALL(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&nowhere, 1000)), "resolve");
	CHECK(CALL(rdma_connect(id, NULL) == -1), "connect without a route");
	CHECK(CALL(!rdma_destroy_id(id)), "destroy");
	CALL(rdma_destroy_event_channel(channel));
}

static void *all_calls(void *arg)
{
	void (*calls)(void) = *(void (**)(void))arg;

	if (cancelled)
		CHECK(!pthread_cancel(pthread_self()), "cancel");
	calls();
	returned = 1;
	pthread_testcancel();
	return arg;
}

static void calls(void)
{
	static void (*all[])(void) = {control_calls, queue_pair_calls, connection_calls};
	size_t i;

	port_open(&port);
	for (i = 0; i < 2 * ARRAY_LEN(all); i++) {
		pthread_t t;
		void *result;

		// After each cancelled thread, a thread without cancellation makes the same calls.
		cancelled = i % 2 == 0;
		returned = 0;
		alarm(60);
		CHECK(!pthread_create(&t, NULL, all_calls, &all[i / 2]), "thread");
		CHECK(!pthread_join(t, &result), "join");
		CHECK(returned, "the thread was cancelled in %s", last);
		CHECK((result == PTHREAD_CANCELED) == cancelled, "the thread is %scancelled", cancelled ? "not " : "");
	}
	port_close(&port);
	printf("ok calls\n");
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "walk"))
		walk();
	else
		calls();
	return 0;
}
