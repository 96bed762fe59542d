// Tests memory regions of file descriptors, registrations by attributes (ibv_reg_mr_ex), DMA
// handles, completion counters and huge pages. Each case runs in a process of its own.
// usage: objects CASE; the table of cases is at the end. Prints "ok CASE" and ends with status 0,
// or prints FAIL with the file and line of the failed check. If the machine lacks something for the
// case, prints "skip REASON" and ends with status 77.
#define _GNU_SOURCE
#include "rig.h"
#include <dlfcn.h>
#include <linux/memfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define DEPTH 64
#define SIZE 4096
#define HUGE (2u << 20)
#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

// Declarations of rdma-core 59 to 65. The headers of this machine may be older.
struct my_dmah;
struct my_mr_init {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	struct my_dmah *dmah;
	void *buf;
};
struct my_dmah_init {
	uint32_t comp_mask, cpu_id;
	uint8_t ph, tph_mem_type;
};
struct my_cntr_init {
	uint32_t comp_mask;
	int type;
	uint32_t flags;
};
struct my_attach {
	uint32_t comp_mask, op_mask;
};
struct my_caps {
	uint64_t max_value;
	uint32_t max_counters, ops;
};
struct my_cntr {
	struct ibv_context *context;
	uint32_t handle;
};
enum { MR_IOVA = 1, MR_ADDR = 2, MR_FD = 4, MR_FD_OFFSET = 8, MR_DMAH = 16 };
enum { OP_SEND = 1, OP_RECV = 2, OP_READ = 4, OP_REMOTE_READ = 8, OP_WRITE = 16, OP_REMOTE_WRITE = 32 };

static void *sym(const char *name)
{
	void *f = dlsym(RTLD_DEFAULT, name);

	CHECK(f, "no %s", name);
	return f;
}
#define CALL(type, name, ...) ((type)sym(name))(__VA_ARGS__)
#define reg_mr_ex(...) CALL(struct ibv_mr *(*)(struct ibv_pd *, struct my_mr_init *), "ibv_reg_mr_ex", __VA_ARGS__)
#define alloc_dmah(...) CALL(struct my_dmah *(*)(struct ibv_context *, struct my_dmah_init *), "ibv_alloc_dmah", __VA_ARGS__)
#define dealloc_dmah(...) CALL(int (*)(struct my_dmah *), "ibv_dealloc_dmah", __VA_ARGS__)
#define dm_export(...) CALL(int (*)(struct ibv_dm *), "ibv_dm_export_dmabuf_fd", __VA_ARGS__)
#define cntr_new(...) CALL(struct my_cntr *(*)(struct ibv_context *, struct my_cntr_init *), "ibv_create_comp_cntr", __VA_ARGS__)
#define cntr_end(...) CALL(int (*)(struct my_cntr *), "ibv_destroy_comp_cntr", __VA_ARGS__)
#define cntr_do(name, ...) CALL(int (*)(struct my_cntr *, uint64_t), name, __VA_ARGS__)
#define cntr_attach(...) CALL(int (*)(struct ibv_qp *, struct my_cntr *, struct my_attach *), "ibv_qp_attach_comp_cntr", __VA_ARGS__)

static struct port port;
static struct ibv_cq *acq, *bcq;
static struct ibv_qp *a, *b;
static struct ibv_mr *mr;
// The memory of both queue pairs. `a` uses the first half, `b` the second half. Both queue pairs
// can access all of the memory.
static uint8_t *mem;

static void open_port(void)
{
	port_open(&port);
	CHECK(!posix_memalign((void **)&mem, 4096, 2 * SIZE), "memory");
	memset(mem, 0, 2 * SIZE);
	mr = ibv_reg_mr(port.pd, mem, 2 * SIZE, ALL);
	CHECK(mr, "mr");
	acq = cq_new(&port, DEPTH, NULL, NULL);
	bcq = cq_new(&port, DEPTH, NULL, NULL);
	a = qp_new(&port, IBV_QPT_RC, acq, acq, DEPTH);
	b = qp_new(&port, IBV_QPT_RC, bcq, bcq, DEPTH);
}

static void open_pair(void)
{
	open_port();
	qp_pair(&port, a, b);
}

static void close_all(void)
{
	CHECK(!ibv_destroy_qp(a), "qp");
	CHECK(!ibv_destroy_qp(b), "qp");
	CHECK(!ibv_destroy_cq(acq), "cq");
	CHECK(!ibv_destroy_cq(bcq), "cq");
	CHECK(!ibv_dereg_mr(mr), "mr");
	port_close(&port);
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode op, int flags, uint64_t addr, uint32_t len, uint32_t lkey, uint64_t to,
		 uint32_t rkey)
{
	struct ibv_sge s = {addr, len, lkey};
	struct ibv_send_wr wr = {.wr_id = op, .sg_list = &s, .num_sge = 1, .opcode = op, .send_flags = flags}, *bad;

	wr.wr.rdma.remote_addr = to;
	wr.wr.rdma.rkey = rkey;
	CHECK(!ibv_post_send(qp, &wr, &bad), "post %d", op);
}

static void done(struct ibv_cq *cq, enum ibv_wc_status status, const char *what)
{
	struct ibv_wc wc = poll_one(cq);

	CHECK(wc.status == status, "%s: %s, not %s", what, ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

static int memfd_of(size_t len, unsigned flags)
{
	int fd = memfd_create("objects", flags);

	CHECK(fd >= 0, "memfd");
	CHECK(!ftruncate(fd, len), "length");
	return fd;
}

// Queue pair `a` writes to, reads from and sends into a region of `b`. For requests, the region
// begins at `iova`. The program has the bytes of the region mapped at `seen`.
static void use_region(struct ibv_mr *region, uint64_t iova, uint8_t *seen, size_t len, const char *what)
{
	struct ibv_sge s = {iova + 8, 64, region->lkey};
	struct ibv_recv_wr r = {.sg_list = &s, .num_sge = 1}, *bad;
	size_t step = len > 4 * SIZE ? len / 4 - 8 : 1024, at;

	for (at = 0; at + 1024 <= len; at += step) {
		fill(mem, 1024, 1, at);
		post(a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, (uintptr_t)mem, 1024, mr->lkey, iova + at, region->rkey);
		done(acq, IBV_WC_SUCCESS, what);
		CHECK(!memcmp(seen + at, mem, 1024), "%s: written at %zu", what, at);
		fill(seen + at, 1024, 2, at);
		post(a, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, (uintptr_t)mem, 1024, mr->lkey, iova + at, region->rkey);
		done(acq, IBV_WC_SUCCESS, what);
		CHECK(!memcmp(seen + at, mem, 1024), "%s: read at %zu", what, at);
	}
	CHECK(!ibv_post_recv(b, &r, &bad), "receive");
	fill(mem, 64, 3, 3);
	post(a, IBV_WR_SEND, IBV_SEND_SIGNALED, (uintptr_t)mem, 64, mr->lkey, 0, 0);
	done(acq, IBV_WC_SUCCESS, what);
	done(bcq, IBV_WC_SUCCESS, what);
	CHECK(!memcmp(seen + 8, mem, 64), "%s: received", what);
	// `b` also writes from the region.
	post(b, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, iova, 512, region->lkey, (uintptr_t)mem + 2048, mr->rkey);
	done(bcq, IBV_WC_SUCCESS, what);
	CHECK(!memcmp(seen, mem + 2048, 512), "%s: sent", what);
	if (!(iova & 7)) {
		uint64_t word = 40;

		memcpy(seen, &word, 8);
		struct ibv_sge t = {(uintptr_t)mem, 8, mr->lkey};
		struct ibv_send_wr wr = {.sg_list = &t, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
					 .send_flags = IBV_SEND_SIGNALED}, *no;
		wr.wr.atomic.remote_addr = iova;
		wr.wr.atomic.rkey = region->rkey;
		wr.wr.atomic.compare_add = 2;
		CHECK(!ibv_post_send(a, &wr, &no), "atomic");
		done(acq, IBV_WC_SUCCESS, what);
		memcpy(&word, seen, 8);
		CHECK(word == 42 && *(uint64_t *)mem == 40, "%s: atomic", what);
	}
}

static void refused(struct ibv_mr *got, int code, const char *what)
{
	CHECK(!got && errno == code, "%s: %p, not errno %d", what, (void *)got, code);
}

static void memfd_is_registered(void)
{
	static const struct { uint64_t offset; size_t len; uint64_t iova; } parts[] = {
		{0, 8 * SIZE, 0}, {SIZE, 3 * SIZE, 0x7000000000}, {100, 5000, 0x1000 + 100}, {3 * SIZE + 8, 2 * SIZE, 8},
	};
	int fd = memfd_of(8 * SIZE, MFD_CLOEXEC), again;
	uint8_t *seen = mmap(NULL, 8 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct ibv_mr *region[ARRAY_LEN(parts)];
	size_t i;

	CHECK(seen != MAP_FAILED, "map");
	open_pair();
	for (i = 0; i < ARRAY_LEN(parts); i++) {
		region[i] = ibv_reg_dmabuf_mr(port.pd, parts[i].offset, parts[i].len, parts[i].iova, fd, ALL);
		CHECK(region[i], "part %zu", i);
		CHECK(region[i]->length == parts[i].len && region[i]->pd == port.pd, "fields");
	}
	again = dup(fd);
	close(fd);
	close(again);
	for (i = 0; i < ARRAY_LEN(parts); i++)
		use_region(region[i], parts[i].iova, seen + parts[i].offset, parts[i].len, "part");
	// A WRITE past the end of the region must fail.
	post(a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, (uintptr_t)mem, 8, mr->lkey, parts[2].iova + 4993, region[2]->rkey);
	done(acq, IBV_WC_REM_ACCESS_ERR, "beyond");
	CHECK(ibv_dealloc_pd(port.pd) == EBUSY, "domain in use");
	for (i = 0; i < ARRAY_LEN(parts); i++)
		CHECK(!ibv_dereg_mr(region[i]), "dereg");
	close_all();
}

static void rights_of_descriptors(void)
{
	int fd = memfd_of(2 * SIZE, MFD_CLOEXEC), ro, ends[2];
	char path[64];
	struct ibv_mr *region;

	open_pair();
	// NCCL makes this call to learn whether the memory of GPUs can be registered. EOPNOTSUPP
	// means no.
	refused(ibv_reg_dmabuf_mr(port.pd, 0, 0, 0, -1, 0), EOPNOTSUPP, "no descriptor");
	refused(ibv_reg_dmabuf_mr(port.pd, 0, SIZE, 0, 999, ALL), EBADF, "closed descriptor");
	CHECK(!pipe(ends), "pipe");
	refused(ibv_reg_dmabuf_mr(port.pd, 0, SIZE, 0, ends[0], ALL), EINVAL, "a pipe");
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "sockets");
	refused(ibv_reg_dmabuf_mr(port.pd, 0, SIZE, 0, ends[0], ALL), EINVAL, "a socket");
	refused(ibv_reg_dmabuf_mr(port.pd, 0, 2 * SIZE + 1, 0, fd, ALL), EINVAL, "too long");
	refused(ibv_reg_dmabuf_mr(port.pd, 2 * SIZE, 1, 0, fd, ALL), EINVAL, "behind the end");
	refused(ibv_reg_dmabuf_mr(port.pd, UINT64_MAX - 4095, SIZE, 0, fd, ALL), EINVAL, "wraps");
	refused(ibv_reg_dmabuf_mr(port.pd, 0, 0, 0, fd, ALL), EINVAL, "no bytes");
	refused(ibv_reg_dmabuf_mr(port.pd, 0, SIZE, 8, fd, ALL), EINVAL, "iova of another offset in the page");
	refused(ibv_reg_dmabuf_mr(port.pd, 0, SIZE, 0, fd, ALL | IBV_ACCESS_ON_DEMAND), EINVAL, "on demand");
	refused(ibv_reg_dmabuf_mr(port.pd, 0, SIZE, 0, fd, IBV_ACCESS_MW_BIND), EINVAL, "windows");
	refused(ibv_reg_dmabuf_mr(port.pd, 0, SIZE, 0, fd, IBV_ACCESS_REMOTE_WRITE), EINVAL, "remote without local");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ro = open(path, O_RDONLY);
	CHECK(ro >= 0, "open for reading");
	refused(ibv_reg_dmabuf_mr(port.pd, 0, SIZE, 0, ro, ALL), EACCES, "read-only");
	region = ibv_reg_dmabuf_mr(port.pd, 0, SIZE, 0, ro, IBV_ACCESS_REMOTE_READ);
	CHECK(region, "for reading");
	post(a, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, (uintptr_t)mem, 8, mr->lkey, 0, region->rkey);
	done(acq, IBV_WC_SUCCESS, "read");
	post(a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, (uintptr_t)mem, 8, mr->lkey, 0, region->rkey);
	done(acq, IBV_WC_REM_ACCESS_ERR, "write");
	CHECK(!ibv_dereg_mr(region), "dereg");
	close_all();
}

static void a_file_that_is_cut_fails_the_request(void)
{
	int fd = memfd_of(2 * SIZE, MFD_CLOEXEC);
	struct ibv_mr *region;

	open_pair();
	region = ibv_reg_dmabuf_mr(port.pd, 0, 2 * SIZE, 0, fd, ALL);
	CHECK(region, "register");
	CHECK(!ftruncate(fd, 0), "cut");
	post(a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, (uintptr_t)mem, 64, mr->lkey, 0, region->rkey);
	done(acq, IBV_WC_REM_OP_ERR, "write");
	CHECK(!ibv_dereg_mr(region), "dereg");
	close_all();
}

// From linux/udmabuf.h, which the headers of this machine may lack.
struct my_udmabuf {
	uint32_t memfd, flags;
	uint64_t offset, size;
};

static void udmabuf_is_registered(void)
{
	int device = open("/dev/udmabuf", O_RDWR), fd, buf;
	struct my_udmabuf create = {.flags = 1, .size = 4 * SIZE};
	struct ibv_mr *region;
	uint8_t *seen;

	if (device < 0) {
		printf("skip no /dev/udmabuf: %s\n", strerror(errno));
		exit(77);
	}
	fd = memfd_of(4 * SIZE, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK(!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), "seal");
	create.memfd = fd;
	buf = ioctl(device, _IOW('u', 0x42, struct my_udmabuf), &create);
	CHECK(buf >= 0, "udmabuf");
	seen = mmap(NULL, 4 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(seen != MAP_FAILED, "map");
	open_pair();
	refused(ibv_reg_dmabuf_mr(port.pd, 0, 4 * SIZE + 1, 0, buf, ALL), EINVAL, "too long");
	region = ibv_reg_dmabuf_mr(port.pd, SIZE, 3 * SIZE, 0x10000, buf, ALL);
	CHECK(region, "register");
	close(buf);
	use_region(region, 0x10000, seen + SIZE, 3 * SIZE, "udmabuf");
	CHECK(!ibv_dereg_mr(region), "dereg");
	close_all();
}

static void device_memory_is_exported(void)
{
	struct ibv_alloc_dm_attr attr = {.length = 2 * SIZE};
	struct ibv_dm *dm;
	struct ibv_mr *region;
	uint8_t got[256];
	int fd;

	open_pair();
	dm = ibv_alloc_dm(port.ctx, &attr);
	CHECK(dm, "device memory");
	fd = dm_export(dm);
	CHECK(fd >= 0, "export");
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC, "closed by exec");
	CHECK(mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED, "it has no bytes to map");
	refused(ibv_reg_dmabuf_mr(port.pd, SIZE, SIZE + 1, 0, fd, ALL), EINVAL, "too long");
	region = ibv_reg_dmabuf_mr(port.pd, SIZE, SIZE, 0x20000, fd, ALL);
	CHECK(region, "register");
	close(fd);
	fill(mem, 256, 1, 1);
	post(a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, (uintptr_t)mem, 256, mr->lkey, 0x20000, region->rkey);
	done(acq, IBV_WC_SUCCESS, "write");
	CHECK(!ibv_memcpy_from_dm(got, dm, SIZE, 256), "copy");
	CHECK(!memcmp(got, mem, 256), "bytes");
	CHECK(ibv_free_dm(dm) == EBUSY, "in use");
	CHECK(!ibv_dereg_mr(region), "dereg");
	fd = dm_export(dm);
	CHECK(!ibv_free_dm(dm), "free");
	refused(ibv_reg_dmabuf_mr(port.pd, 0, SIZE, 0, fd, ALL), EINVAL, "freed");
	close(fd);
	close_all();
}

static void by_attributes(void)
{
	int fd = memfd_of(2 * SIZE, MFD_CLOEXEC);
	uint8_t *seen = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *own;
	struct my_mr_init m = {.length = 2 * SIZE, .access = ALL, .fd = fd};
	struct ibv_mr *region;

	CHECK(!posix_memalign((void **)&own, 4096, 2 * SIZE), "memory");
	open_pair();
	m.addr = own;
	m.comp_mask = MR_ADDR;
	region = reg_mr_ex(port.pd, &m);
	CHECK(region && region->addr == own && region->length == 2 * SIZE, "by address");
	use_region(region, (uintptr_t)own, own, 2 * SIZE, "by address");
	CHECK(!ibv_dereg_mr(region), "dereg");
	m.comp_mask |= MR_IOVA;
	m.iova = 0x5000;
	region = reg_mr_ex(port.pd, &m);
	CHECK(region, "iova");
	use_region(region, 0x5000, own, 2 * SIZE, "iova");
	CHECK(!ibv_dereg_mr(region), "dereg");
	m.comp_mask = MR_FD | MR_FD_OFFSET | MR_IOVA;
	m.fd_offset = SIZE;
	m.length = SIZE;
	region = reg_mr_ex(port.pd, &m);
	CHECK(region && region->addr == (void *)SIZE, "descriptor");
	use_region(region, 0x5000, seen + SIZE, SIZE, "descriptor");
	CHECK(!ibv_dereg_mr(region), "dereg");
	m.comp_mask = MR_FD | MR_FD_OFFSET;
	refused(reg_mr_ex(port.pd, &m), EINVAL, "without iova");
	m.comp_mask = MR_FD | MR_IOVA;
	refused(reg_mr_ex(port.pd, &m), EINVAL, "without offset");
	m.comp_mask = MR_FD | MR_FD_OFFSET | MR_IOVA | MR_ADDR;
	refused(reg_mr_ex(port.pd, &m), EINVAL, "both");
	m.comp_mask = MR_IOVA;
	refused(reg_mr_ex(port.pd, &m), EINVAL, "neither");
	m.comp_mask = MR_ADDR | 1 << 20;
	refused(reg_mr_ex(port.pd, &m), EINVAL, "unknown bit");
	close_all();
}

static void dma_handles(void)
{
	struct my_dmah_init h = {.comp_mask = 7, .ph = 3};
	struct my_mr_init m = {.length = SIZE, .access = ALL, .comp_mask = MR_ADDR | MR_DMAH};
	struct my_dmah *dmah;
	struct ibv_mr *region;
	cpu_set_t set;
	uint8_t *own;

	CHECK(!posix_memalign((void **)&own, 4096, SIZE), "memory");
	CHECK(!sched_getaffinity(0, sizeof(set), &set), "affinity");
	while (!CPU_ISSET(h.cpu_id, &set))
		h.cpu_id++;
	open_pair();
	dmah = alloc_dmah(port.ctx, &h);
	CHECK(dmah, "handle");
	m.addr = own;
	m.dmah = dmah;
	region = reg_mr_ex(port.pd, &m);
	CHECK(region, "region");
	use_region(region, (uintptr_t)own, own, SIZE, "hinted");
	CHECK(dealloc_dmah(dmah) == EBUSY && errno == EBUSY, "in use");
	CHECK(!ibv_dereg_mr(region), "dereg");
	m.access |= IBV_ACCESS_ON_DEMAND;
	refused(reg_mr_ex(port.pd, &m), EINVAL, "on demand");
	CHECK(!dealloc_dmah(dmah), "free");
	CHECK(dealloc_dmah(dmah) == EINVAL, "twice");
	m.access = ALL;
	refused(reg_mr_ex(port.pd, &m), EINVAL, "freed handle");
	h.ph = 4;
	CHECK(!alloc_dmah(port.ctx, &h) && errno == EINVAL, "ph");
	h.ph = 0;
	h.tph_mem_type = 2;
	CHECK(!alloc_dmah(port.ctx, &h) && errno == EINVAL, "memory type");
	h.tph_mem_type = 1;
	h.cpu_id = 0xffff;
	CHECK(!alloc_dmah(port.ctx, &h) && errno == EPERM, "cpu");
	h.comp_mask = 1 << 5;
	CHECK(!alloc_dmah(port.ctx, &h) && errno == EINVAL, "mask");
	close_all();
}

static struct my_cntr *counter(int type)
{
	struct my_cntr_init init = {.type = type};
	struct my_cntr *c = cntr_new(port.ctx, &init);

	CHECK(c && c->context == port.ctx, "counter");
	return c;
}

static void counts(struct my_cntr *c, uint64_t good, uint64_t bad, const char *what)
{
	double end = now() + 30;
	uint64_t g, e;

	do {
		struct ibv_wc wc;

		// The polls let the device make progress. No completion may arrive.
		CHECK(ibv_poll_cq(acq, 1, &wc) == 0 && ibv_poll_cq(bcq, 1, &wc) == 0, "%s: a completion", what);
		CHECK(!CALL(int (*)(struct my_cntr *, uint64_t *), "ibv_read_comp_cntr", c, &g), "read");
		CHECK(!CALL(int (*)(struct my_cntr *, uint64_t *), "ibv_read_err_comp_cntr", c, &e), "read");
	} while ((g != good || e != bad) && now() < end);
	CHECK(g == good && e == bad, "%s: %ju good, %ju bad; not %ju, %ju", what, (uintmax_t)g, (uintmax_t)e,
	      (uintmax_t)good, (uintmax_t)bad);
}

static int attach(struct ibv_qp *qp, struct my_cntr *c, uint32_t ops)
{
	struct my_attach at = {.op_mask = ops};

	return cntr_attach(qp, c, &at);
}

static void counters_are_values(void)
{
	struct my_cntr_init init = {.type = 7};
	struct my_attach at = {.comp_mask = 1, .op_mask = OP_SEND};
	struct my_caps caps;
	struct my_cntr *c;

	open_port();
	memset(&caps, 0xff, sizeof(caps));
	CHECK(!CALL(int (*)(struct ibv_context *, struct my_caps *, size_t), "_ibv_query_comp_cntr_caps", port.ctx, &caps,
		    sizeof(caps)), "caps");
	CHECK(caps.max_value == UINT64_MAX && caps.max_counters >= 1024 && caps.ops == 0x3f, "caps");
	CHECK(!cntr_new(port.ctx, &init) && errno == EINVAL, "type");
	init = (struct my_cntr_init){.flags = 1};
	CHECK(!cntr_new(port.ctx, &init) && errno == EINVAL, "flags");
	c = counter(0);
	counts(c, 0, 0, "new");
	CHECK(!cntr_do("ibv_set_comp_cntr", c, 40) && !cntr_do("ibv_set_err_comp_cntr", c, 7), "set");
	CHECK(!cntr_do("ibv_inc_comp_cntr", c, 2) && !cntr_do("ibv_inc_err_comp_cntr", c, 1), "inc");
	counts(c, 42, 8, "set and incremented");
	CHECK(!cntr_do("ibv_set_comp_cntr", c, UINT64_MAX) && !cntr_do("ibv_inc_comp_cntr", c, 1), "wrap");
	counts(c, 0, 8, "wraps to zero");
	CHECK(cntr_attach(a, c, &at) == EINVAL, "comp_mask");
	CHECK(attach(a, c, 0) == EINVAL, "no operation");
	CHECK(attach(a, c, 1 << 6) == ENOTSUP, "unknown operation");
	CHECK(!attach(a, c, OP_SEND | OP_RECV), "attach");
	CHECK(attach(a, c, OP_RECV | OP_READ) == EBUSY, "overlap");
	CHECK(!attach(a, c, OP_READ), "another operation");
	CHECK(cntr_end(c) == EBUSY, "attached");
	qp_pair(&port, a, b);
	CHECK(attach(b, c, OP_SEND) == EINVAL, "too late");
	CHECK(!ibv_destroy_qp(a), "qp");
	CHECK(!cntr_end(c), "destroy");
	CHECK(cntr_end(c) == EINVAL, "twice");
	a = qp_new(&port, IBV_QPT_RC, acq, acq, DEPTH);
	close_all();
}

static void counters_count(void)
{
	struct my_cntr *sent, *got, *bytes, *written, *read, *remote, *remote_bytes;
	struct ibv_sge s;
	struct ibv_recv_wr r = {.sg_list = &s, .num_sge = 1}, *bad;
	struct ibv_wc wc;
	int i;

	open_port();
	sent = counter(0), got = counter(0), written = counter(0), read = counter(0), remote = counter(0);
	bytes = counter(1), remote_bytes = counter(1);
	CHECK(!attach(a, sent, OP_SEND) && !attach(a, written, OP_WRITE) && !attach(a, read, OP_READ), "a");
	CHECK(!attach(b, got, OP_RECV) && !attach(b, remote, OP_REMOTE_WRITE) && !attach(b, remote_bytes, OP_REMOTE_READ), "b");
	CHECK(!attach(b, bytes, OP_WRITE), "b");
	qp_pair(&port, a, b);
	s = (struct ibv_sge){(uintptr_t)mem + SIZE, SIZE, mr->lkey};
	for (i = 0; i < 5; i++)
		CHECK(!ibv_post_recv(b, &r, &bad), "receive");
	// The requests of `a` are unsignaled. The counters must count them all the same.
	for (i = 0; i < 3; i++)
		post(a, IBV_WR_SEND, 0, (uintptr_t)mem, 100, mr->lkey, 0, 0);
	for (i = 0; i < 3; i++)
		done(bcq, IBV_WC_SUCCESS, "receive");
	counts(sent, 3, 0, "sends");
	counts(got, 3, 0, "receives");
	for (i = 0; i < 4; i++)
		post(a, IBV_WR_RDMA_WRITE, 0, (uintptr_t)mem, 200, mr->lkey, (uintptr_t)mem + SIZE, mr->rkey);
	for (i = 0; i < 2; i++)
		post(a, IBV_WR_RDMA_READ, 0, (uintptr_t)mem, 300, mr->lkey, (uintptr_t)mem + SIZE, mr->rkey);
	post(b, IBV_WR_RDMA_WRITE, 0, (uintptr_t)mem + SIZE, 50, mr->lkey, (uintptr_t)mem, mr->rkey);
	post(b, IBV_WR_RDMA_WRITE, 0, (uintptr_t)mem + SIZE, 60, mr->lkey, (uintptr_t)mem, mr->rkey);
	counts(written, 4, 0, "writes");
	counts(read, 2, 0, "reads");
	counts(remote, 4, 0, "writes of the peer");
	counts(remote_bytes, 600, 0, "bytes that the peer read");
	counts(bytes, 110, 0, "bytes written");
	// A WRITE is refused, and the device flushes the requests after the WRITE. The counters
	// must count these errors.
	post(a, IBV_WR_RDMA_WRITE, 0, (uintptr_t)mem, 8, mr->lkey, (uintptr_t)mem, mr->rkey ^ 0xff00);
	post(a, IBV_WR_SEND, 0, (uintptr_t)mem, 8, mr->lkey, 0, 0);
	done(acq, IBV_WC_REM_ACCESS_ERR, "write");
	done(acq, IBV_WC_WR_FLUSH_ERR, "send");
	done(bcq, IBV_WC_WR_FLUSH_ERR, "receive");
	done(bcq, IBV_WC_WR_FLUSH_ERR, "receive");
	CHECK(ibv_poll_cq(acq, 1, &wc) == 0, "nothing more");
	counts(written, 4, 1, "a write that failed");
	counts(sent, 3, 1, "a send that was flushed");
	counts(got, 3, 2, "receives that were flushed");
	CHECK(cntr_end(sent) == EBUSY, "attached");
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b), "qp");
	CHECK(!cntr_end(sent) && !cntr_end(got) && !cntr_end(bytes) && !cntr_end(written), "destroy");
	CHECK(!cntr_end(read) && !cntr_end(remote) && !cntr_end(remote_bytes), "destroy");
	a = qp_new(&port, IBV_QPT_RC, acq, acq, DEPTH);
	b = qp_new(&port, IBV_QPT_RC, bcq, bcq, DEPTH);
	close_all();
}

static int huge_before;

static void huge_pages_as_before(void)
{
	FILE *f = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "w");

	if (f) {
		fprintf(f, "%d\n", huge_before);
		fclose(f);
	}
}

// Makes sure that `wanted` huge pages of 2 MiB are free. If too few are free, reserves more pages.
// If the user may not reserve pages, skips the case.
static void huge_pages(int wanted)
{
	const char *dir = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
	char path[128];
	int have = 0, i;
	FILE *f;

	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%sfree_hugepages", dir);
		f = fopen(path, "r");
		if (!f || fscanf(f, "%d", &have) != 1)
			have = 0;
		if (f)
			fclose(f);
		if (have >= wanted)
			return;
		snprintf(path, sizeof(path), "%snr_hugepages", dir);
		f = i ? NULL : fopen(path, "r+");
		if (!f)
			break;
		if (fscanf(f, "%d", &huge_before) != 1)
			huge_before = 0;
		atexit(huge_pages_as_before);
		rewind(f);
		fprintf(f, "%d\n", huge_before + wanted);
		fclose(f);
	}
	printf("skip %d huge pages of 2 MiB are free, %d are needed and cannot be reserved\n", have, wanted);
	exit(77);
}

static void huge(uint8_t *at, size_t len, const char *what)
{
	struct ibv_mr *all, *part;

	memset(at, 0, len);
	all = ibv_reg_mr(port.pd, at, len, ALL);
	CHECK(all, "%s", what);
	use_region(all, (uintptr_t)at, at, len, what);
	// A range across the border of two huge pages.
	part = ibv_reg_mr(port.pd, at + HUGE - 5000, 10000, ALL);
	CHECK(part, "%s: part", what);
	use_region(part, (uintptr_t)at + HUGE - 5000, at + HUGE - 5000, 10000, what);
	CHECK(!ibv_dereg_mr(part) && !ibv_dereg_mr(all), "%s: dereg", what);
	part = ibv_reg_mr(port.pd, at, HUGE, ALL | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB);
	CHECK(part, "%s: on demand", what);
	use_region(part, (uintptr_t)at, at, HUGE, what);
	CHECK(!ibv_dereg_mr(part), "%s: dereg", what);
}

static void hugetlb_memory(void)
{
	uint8_t *at;
	int fd;
	struct ibv_mr *region;

	huge_pages(8);
	open_pair();
	at = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	CHECK(at != MAP_FAILED, "map");
	huge(at, 2 * HUGE, "private");
	CHECK(!munmap(at, 2 * HUGE), "unmap");
	at = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	CHECK(at != MAP_FAILED, "map");
	huge(at, 2 * HUGE, "shared");
	CHECK(!munmap(at, 2 * HUGE), "unmap");
	// A registration of a memfd. The range begins within a huge page and ends in the next huge
	// page.
	fd = memfd_of(2 * HUGE, MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);
	at = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(at != MAP_FAILED, "map");
	region = ibv_reg_dmabuf_mr(port.pd, HUGE - SIZE, 3 * SIZE, 0, fd, ALL);
	CHECK(region, "descriptor");
	close(fd);
	use_region(region, 0, at + HUGE - SIZE, 3 * SIZE, "descriptor");
	CHECK(!munmap(at, 2 * HUGE), "unmap");
	CHECK(!ibv_dereg_mr(region), "dereg");
	close_all();
}

static void transparent_huge_pages(void)
{
	uint8_t *at, *mapped;

	open_pair();
	CHECK(!posix_memalign((void **)&at, HUGE, 2 * HUGE), "memory");
	madvise(at, 2 * HUGE, MADV_HUGEPAGE);
	huge(at, 2 * HUGE, "allocated");
	free(at);
	mapped = mmap(NULL, 4 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(mapped != MAP_FAILED, "map");
	at = (uint8_t *)(((uintptr_t)mapped + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
	if (madvise(at, 2 * HUGE, MADV_HUGEPAGE)) {
		printf("skip this kernel has no transparent huge pages\n");
		exit(77);
	}
	huge(at, 2 * HUGE, "mapped");
	CHECK(!munmap(mapped, 4 * HUGE), "unmap");
	close_all();
}

static const struct {
	const char *id, *name;
	void (*run)(void);
} cases[] = {
	{"OBJ-1", "memfd_is_registered", memfd_is_registered},
	{"OBJ-1", "rights_of_descriptors", rights_of_descriptors},
	{"OBJ-1", "a_file_that_is_cut_fails_the_request", a_file_that_is_cut_fails_the_request},
	{"OBJ-1", "udmabuf_is_registered", udmabuf_is_registered},
	{"OBJ-1", "device_memory_is_exported", device_memory_is_exported},
	{"OBJ-2", "by_attributes", by_attributes},
	{"OBJ-3", "dma_handles", dma_handles},
	{"OBJ-4", "counters_are_values", counters_are_values},
	{"OBJ-4", "counters_count", counters_count},
	{"OBJ-5", "hugetlb_memory", hugetlb_memory},
	{"OBJ-5", "transparent_huge_pages", transparent_huge_pages},
};

int main(int argc, char **argv)
{
	size_t i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (i = 0; i < ARRAY_LEN(cases); i++)
		if (argc == 2 && !strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			printf("ok %s\n", argv[1]);
			return 0;
		}
	printf("FAIL no case %s\n", argc == 2 ? argv[1] : "");
	return 1;
}
