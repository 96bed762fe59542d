// Scenarios: small programs, of which some once read wrong bytes. The table at the end names the
// requirement that each scenario tests.
#include "scenarios.h"
#include <sys/stat.h>
#include <sys/wait.h>
#include <dirent.h>

const char *const source_names[SOURCES] = {"mmap", "mmap past the C library", "malloc", "aligned_alloc"};
static int wrongs;

void wrong(const char *fmt, ...)
{
	va_list ap;

	// Prints the first eight errors, and counts the others.
	if (wrongs++ >= 8)
		return;
	va_start(ap, fmt);
	vdprintf(1, fmt, ap);
	va_end(ap);
	dprintf(1, "\n");
}

void expect_bytes(const uint8_t *p, const uint8_t *want, size_t len, const char *what)
{
	size_t i = 0, n = 0, first = 0;

	if (!memcmp(p, want, len))
		return;
	for (; i < len; i++)
		if (p[i] != want[i] && !n++)
			first = i;
	wrong("%s: %zu of %zu bytes wrong, the first at %#zx (%p): %02x, not %02x", what, n, len, first, p + first, p[first],
	      want[first]);
}

void expect_zeroes(const uint8_t *p, size_t len, const char *what)
{
	static uint8_t *zeroes;

	if (!zeroes)
		zeroes = raw_map(64 << 20);
	expect_bytes(p, zeroes, len, what);
}

uint8_t *make_memory(enum source s, size_t len)
{
	void *p = NULL;

	if (s == LIBC_MAP || s == RAW_MAP)
		p = way_mmap(s == LIBC_MAP ? BY_LIBC : BY_ASM, NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
	else
		p = s == MALLOC ? malloc(len) : aligned_alloc(PAGE, len);
	CHECK(p && p != MAP_FAILED, "%s of %zu bytes", source_names[s], len);
	return p;
}

void end_memory(enum source s, uint8_t *p, size_t len)
{
	if (s == LIBC_MAP || s == RAW_MAP)
		CHECK(!way_munmap(s == LIBC_MAP ? BY_LIBC : BY_ASM, p, len), "munmap");
	else
		free(p);
}

void with_device(void)
{
	device_open(&port);
}

void with_peer(struct link *l, struct ibv_cq **cq)
{
	start_peer(&l->fd, 1);
	with_device();
	*cq = cq_new(&port, 64, NULL, NULL);
	link_open(l, *cq);
}

struct ibv_mr *registered(void *p, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(port.pd, p, len, access);

	CHECK(mr, "ibv_reg_mr of %zu bytes at %p", len, p);
	return mr;
}

void deregistered(struct ibv_mr *mr)
{
	CHECK(!ibv_dereg_mr(mr), "ibv_dereg_mr");
}

struct answer ask(struct link *l, enum op op, const void *at, size_t len, uint32_t rkey, uint64_t seed)
{
	struct order o = {.op = op, .addr = (uintptr_t)at, .len = len, .rkey = rkey, .seed = seed, .add = 1};
	struct answer a;

	tell(l->fd, &o, sizeof(o));
	hear(l->fd, &a, sizeof(a));
	return a;
}

// Grows the first of two adjacent registered pages. The new pages must have zeroes, and not the
// bytes of the second page.
static void grow_neighbour(void)
{
	uint8_t *a = raw_map(PAGE), *b = raw_map(PAGE), *p, *q;
	struct ibv_mr *m0, *m1;
	int i;

	with_device();
	for (i = 0; i < 40; i++) {
		p = make_memory(i & 2 ? RAW_MAP : LIBC_MAP, 2 * PAGE);
		pattern(a, PAGE, 2 * i);
		pattern(b, PAGE, 2 * i + 1);
		memcpy(p, a, PAGE);
		memcpy(p + PAGE, b, PAGE);
		m0 = registered(p, PAGE, ALL_ACCESS);
		m1 = registered(p + PAGE, PAGE, ALL_ACCESS);
		if (i & 1) {
			deregistered(m0);
			deregistered(m1);
		}
		q = way_mremap(i & 4 ? BY_ASM : BY_LIBC, p, PAGE, 3 * PAGE, MREMAP_MAYMOVE, NULL);
		CHECK(q != MAP_FAILED, "mremap");
		expect_bytes(q, a, PAGE, "the page that was grown");
		expect_zeroes(q + PAGE, 2 * PAGE, "what it gained");
		memset(q + PAGE, 0xcc, 2 * PAGE);
		expect_bytes(p + PAGE, b, PAGE, "its neighbour of before");
		if (!(i & 1)) {
			deregistered(m0);
			deregistered(m1);
		}
		expect_bytes(p + PAGE, b, PAGE, "its neighbour of before, in the end");
	}
}

static void *idle(void *unused)
{
	pause();
	return unused;
}

#define GROWN 20
// Registers, advises, deregisters and grows blocks of the allocator. The blocks must keep their
// bytes.
static void grow_blocks(void)
{
	static const size_t old = 400000, len = 700000;
	uint8_t *want = raw_map(GROWN * len), *p[GROWN];
	struct ibv_mr *mr[GROWN];
	uintptr_t start, end;
	pthread_t thread;
	int i, round;

	with_device();
	// Creates a second thread, because the library may treat the memory of a process with
	// several threads differently.
	CHECK(!pthread_create(&thread, NULL, idle, NULL), "thread");
	for (round = 0; round < 16; round++) {
		for (i = 0; i < GROWN; i++) {
			p[i] = malloc(old);
			pattern(want + i * len, len, i + round * 100);
			memcpy(p[i], want + i * len, old);
			mr[i] = registered(p[i], old, ALL_ACCESS);
			start = (uintptr_t)p[i] & -PAGE;
			end = ((uintptr_t)p[i] + old + PAGE - 1) & -PAGE;
			if (round & 2) {
				start += PAGE;
				end -= PAGE;
			}
			CHECK(!way_madvise(round & 4 ? BY_ASM : BY_LIBC, (void *)start, end - start, MADV_SEQUENTIAL),
			      "madvise");
		}
		for (i = 0; i < GROWN; i++)
			if (!(round & 1))
				deregistered(mr[i]);
		for (i = 0; i < GROWN; i++) {
			p[i] = realloc(p[i], len);
			CHECK(p[i], "realloc");
			expect_bytes(p[i], want + i * len, old, "a block that was grown");
			memcpy(p[i] + old, want + i * len + old, len - old);
		}
		for (i = 0; i < GROWN; i++) {
			if (round & 1)
				deregistered(mr[i]);
			expect_bytes(p[i], want + i * len, len, "a block, all of it");
			free(p[i]);
		}
	}
}

// After MADV_DONTNEED the pages must have zeroes, registered or not. There is one exception
// (book/src/local.md): advice on a page-aligned allocation by a system call instruction in the
// program. No function of the C library sees this call, so the library cannot clear the pages.
static void discard(void)
{
	static const char *const how[] = {"madvise", "syscall(SYS_madvise)", "a system call of our own", "process_madvise"};
	size_t len = 64 * PAGE, part = 8 * PAGE;
	struct ibv_mr *mr;
	char what[128];
	int s, w, before, r;

	with_device();
	for (s = 0; s < SOURCES; s++)
		for (w = 0; w < 4; w++)
			for (before = 0; before < 2; before++) {
				uint8_t *p, *q;

				if (s == ALIGNED && w == BY_ASM)
					continue;
				p = make_memory(s, len);
				q = (uint8_t *)(((uintptr_t)p + 16 * PAGE) & -PAGE);
				memset(p, 0xaa, len);
				mr = registered(p, len, ALL_ACCESS);
				if (before)
					deregistered(mr);
				r = w < 3 ? way_madvise(w, q, part, MADV_DONTNEED) : process_advise(q, part, MADV_DONTNEED);
				// Older kernels do not accept this advice through process_madvise.
				CHECK(!r || (w == 3 && errno == EINVAL), "%s", how[w]);
				snprintf(what, sizeof(what), "%s, MADV_DONTNEED by %s", source_names[s], how[w]);
				if (!r)
					expect_zeroes(q, part, what);
				memset(q, 0xbb, part);
				CHECK(q[-1] == 0xaa && q[part] == 0xaa, "%s: neighbours", what);
				if (!before)
					deregistered(mr);
				end_memory(s, p, len);
			}
}

// Threads sleep on locks, semaphores and condition variables in registered pages, or in a read()
// into the pages. All threads must wake up.
static void waiters(void)
{
	struct thread *t;
	int i;

	options.threads = 1;
	t = threads_new(1);
	catch_faults(t, 1);
	with_device();
	for (i = 0; i < SOURCES; i++) {
		uint8_t *p = make_memory(i, 4 * PAGE);
		struct block *b = new_block(t, i < MALLOC ? MAPPED : HEAP, p, 4 * PAGE);

		fill_block(t, b, 0, b->len);
	}
	for (t->step = 1; t->step <= 400; t->step++)
		step_waiter(t);
	for (i = 0; i < MRS; i++)
		if (t->region[i].mr)
			deregister(t, &t->region[i]);
}

// After the last deregistration, the memory must behave as if no memory had ever been registered.
// So the thread makes further random steps without registrations.
static void afterwards(void)
{
	struct thread *t;

	options.threads = 1;
	t = threads_new(1);
	catch_faults(t, 1);
	start_peer(&t->peer.fd, 1);
	t->foreigner = start_foreigner();
	with_device();
	verbs_thread(t);
	run_steps(t, 800);
	finish(t);
	t->bystander = 1;
	run_steps(t, 3000);
	finish(t);
}

// A child of fork must have a copy of all registered memory, and the parent must not see the
// child's changes.
static void fork_copies(void)
{
	size_t len = 64 << 20, i;
	uint8_t *want = raw_map(len), *p[SOURCES];
	struct ibv_mr *mr[SOURCES];
	int s, status;
	pid_t pid;

	with_device();
	len /= SOURCES;
	for (s = 0; s < SOURCES; s++) {
		p[s] = make_memory(s, len);
		pattern(want + s * len, len, s);
		memcpy(p[s], want + s * len, len);
		mr[s] = registered(p[s], len, ALL_ACCESS);
	}
	pid = fork();
	CHECK(pid >= 0, "fork");
	if (!pid) {
		for (s = 0; s < SOURCES; s++) {
			if (memcmp(p[s], want + s * len, len)) {
				dprintf(1, "the child has other bytes: %s\n", source_names[s]);
				_exit(1);
			}
			for (i = 0; i < len; i += PAGE)
				p[s][i] ^= 0xff;
		}
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status, "the child ended with %x", status);
	for (s = 0; s < SOURCES; s++) {
		expect_bytes(p[s], want + s * len, len, source_names[s]);
		deregistered(mr[s]);
		expect_bytes(p[s], want + s * len, len, "after its deregistration");
	}
}

// Returns the bytes of all memory files (memfd or /dev/shm) that this process has open.
static size_t in_files(void)
{
	char path[320], target[256];
	struct dirent *d;
	struct stat st;
	size_t sum = 0;
	ssize_t n;
	DIR *dir = opendir("/proc/self/fd");

	CHECK(dir, "/proc/self/fd");
	while ((d = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/self/fd/%s", d->d_name);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = 0;
		if (n > 0 && (!strncmp(target, "/memfd:", 7) || !strncmp(target, "/dev/shm", 8)) && !stat(path, &st))
			sum += st.st_blocks * 512ul;
	}
	closedir(dir);
	return sum;
}

// When the program has deregistered and freed memory, the library must give the memory back to the
// kernel, also in a process with several threads.
static void returned(void)
{
	size_t len = 64 << 20, before, after, bound = 8 << 20;
	pthread_t thread;
	struct ibv_mr *mr;
	int s, round;

	CHECK(!pthread_create(&thread, NULL, idle, NULL), "thread");
	with_device();
	before = in_files();
	for (round = 0; round < 3; round++)
		for (s = 0; s < SOURCES; s++) {
			uint8_t *p = make_memory(s, len);

			memset(p, 0x5a, len);
			mr = registered(p, len, ALL_ACCESS);
			deregistered(mr);
			end_memory(s, p, len);
		}
	after = in_files();
	if (after > before + bound)
		wrong("%zu KiB stay in memory files after all was deregistered and freed, before it was %zu", after >> 10,
		      before >> 10);
}

// Returns the resident memory of this process in bytes.
static size_t resident(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	size_t all, in;

	CHECK(f && fscanf(f, "%zu %zu", &all, &in) == 2, "statm");
	fclose(f);
	return in * PAGE;
}

// Registered memory that the program never touches must take no physical memory.
static void untouched(void)
{
	size_t len = 256 << 20, before, pages;
	uint8_t *p;

	with_device();
	before = in_files();
	p = make_memory(LIBC_MAP, len);
	registered(p, len, IBV_ACCESS_LOCAL_WRITE);
	if (in_files() > before + (8 << 20))
		wrong("%zu KiB in memory files for memory that nobody touched", (in_files() - before) >> 10);
	// A reallocation must take no memory for untouched pages either.
	pages = resident();
	p = make_memory(ALIGNED, len);
	memset(p, 1, PAGE);
	p = realloc(p, 2 * len);
	CHECK(p && p[0] == 1 && p[PAGE - 1] == 1 && !p[PAGE] && !p[len], "realloc");
	if (in_files() > before + (8 << 20) || resident() > pages + (64 << 20))
		wrong("%zu KiB in memory files, %zu KiB in the process for memory that was reallocated",
		      (in_files() - before) >> 10, (resident() - pages) >> 10);
	free(p);
}

// A process of the soak test (src/soak.rs). For a second, the process registers memory, receives
// writes and forks. Then the process exits, and leaves a region for the kernel to clean up.
static void cycle(void)
{
	size_t len = 4 << 20;
	struct ibv_mr *mr[SOURCES];
	double end = now() + 1;
	struct link l = {0};
	uint8_t *p[SOURCES];
	struct ibv_cq *cq;
	int s, status;
	pid_t pid;

	with_peer(&l, &cq);
	do {
		for (s = 0; s < SOURCES; s++) {
			p[s] = make_memory(s, len);
			mr[s] = registered(p[s], len, ALL_ACCESS);
			CHECK(!ask(&l, OP_WRITE, p[s], OP_MAX, mr[s]->rkey, s).status, "write");
		}
		pid = fork();
		CHECK(pid >= 0, "fork");
		if (!pid) {
			memset(p[0], 1, len);
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid && !status, "the child ended with %x", status);
		for (s = 1; s < SOURCES; s++) {
			deregistered(mr[s]);
			end_memory(s, p[s], len);
		}
	} while (now() < end);
}

static void with_hooks(void)
{
	CHECK(hooked, "this program has no hooks; torture-hooks has");
	hooked();
}

static const struct {
	const char *id, *name;
	void (*run)(void);
} scenarios[] = {
	{"MEM-1", "grow_neighbour", grow_neighbour},
	{"MEM-1", "grow_blocks", grow_blocks},
	{"MEM-1", "remap_blocks", remap_blocks},
	{"MEM-1", "discard", discard},
	{"MEM-1", "waiters", waiters},
	{"MEM-1", "afterwards", afterwards},
	{"MEM-2", "bounds_and_rights", bounds_and_rights},
	{"MEM-2", "stopped_writer", stopped_writer},
	{"MEM-2", "stopped_writer_of_a_destroyed", stopped_writer_of_a_destroyed},
	{"MEM-2", "stopped_writer_of_one_in_error", stopped_writer_of_one_in_error},
	{"MEM-2", "stopped_writer_without_rights", stopped_writer_without_rights},
	{"MEM-2", "exec_new_memory", exec_new_memory},
	{"MEM-3", "storm_of_writes", storm_of_writes},
	{"MEM-3", "storm_of_reads", storm_of_reads},
	{"MEM-4", "unmapped", vanish_unmapped},
	{"MEM-4", "no_access", vanish_no_access},
	{"MEM-4", "read_only", vanish_read_only},
	{"MEM-4", "truncated", vanish_truncated},
	{"MEM-5", "returned", returned},
	{"MEM-5", "untouched", untouched},
	{"MEM-5", "cycle", cycle},
	{"MEM-6", "fork_copies", fork_copies},
	{"MEM-6", "fork_handlers", fork_handlers},
	{"MEM-6", "bare_children", bare_children},
	{"MEM-6", "fork_without_descriptors", fork_without_descriptors},
	{"MEM-6", "fork_beside_stacks", fork_beside_stacks},
	{"MEM-1", "closed_descriptors", closed_descriptors},
	{"MEM-6", "fork_on_registered_stack", fork_on_registered_stack},
	{"MEM-6", "wiped_blocks", wiped_blocks},
	{"MEM-1", "cancelled", cancelled},
	{"MEM-1", "locked_pages", locked_pages},
	{"MEM-6", "freed_in_the_parent", freed_in_the_parent},
	{"MEM-6", "cloned_on_blocks", cloned_on_blocks},
	{"MEM-7", "fork_in_handlers", fork_in_handlers},
	{"MEM-7", "fork_signals", fork_signals},
	{"MEM-7", "hooked", with_hooks},
};

void scenario_list(void)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(scenarios); i++)
		printf("%s %s\n", scenarios[i].id, scenarios[i].name);
}

int scenario_main(const char *name)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(scenarios); i++) {
		if (strcmp(name, scenarios[i].name))
			continue;
		catch_faults(NULL, 0);
		scenarios[i].run();
		if (wrongs) {
			printf("FAIL %s %s: %d things wrong\n", scenarios[i].id, name, wrongs);
			return 1;
		}
		printf("ok %s %s\n", scenarios[i].id, name);
		return 0;
	}
	fprintf(stderr, "torture: no scenario %s; --list names them\n", name);
	return 2;
}
