// System calls of a program (mremap, munmap, madvise, fork, close) on page-aligned allocations. The
// pages come from the allocator, and not from an mmap call of the program.
#include "scenarios.h"
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#define PAGES 8ul

static uint8_t *want;

// Allocates a block and fills it with the pattern of the seed. `want` gets the same bytes, for
// later comparisons.
static uint8_t *block_new(size_t pages, uint64_t seed)
{
	uint8_t *p = aligned_alloc(PAGE, pages * PAGE);

	CHECK(p, "aligned_alloc of %zu pages", pages);
	pattern(p, pages * PAGE, seed);
	if (!want)
		want = raw_map(64 << 20);
	pattern(want, pages * PAGE, seed);
	return p;
}

static uint8_t *grown(enum way w, uint8_t *p, size_t from, size_t to)
{
	uint8_t *q = way_mremap(w, p, from * PAGE, to * PAGE, MREMAP_MAYMOVE, NULL);

	CHECK(q != MAP_FAILED, "mremap from %zu to %zu pages by %s", from, to, way_name(w));
	return q;
}

// Cuts a block down to its first page, by mremap or munmap, and then grows this page again. The new
// pages must be zero: the bytes of the former pages must not come back.
static void cut_and_grown(enum way w, int how, int registers)
{
	uint8_t *p = block_new(PAGES, how), *q;
	struct ibv_mr *mr = registers ? registered(p, PAGES * PAGE, ALL_ACCESS) : NULL;

	if (how)
		CHECK(!way_munmap(w, p + PAGE, (PAGES - 1) * PAGE), "munmap");
	else
		CHECK(way_mremap(w, p, PAGES * PAGE, PAGE, 0, NULL) == p, "mremap that shrinks");
	q = grown(w, p, 1, PAGES);
	expect_bytes(q, want, PAGE, "the page that stayed");
	expect_zeroes(q + PAGE, (PAGES - 1) * PAGE, how ? "unmapped and grown" : "shrunk and grown");
	if (mr)
		deregistered(mr);
}

// Grows the first page of a block, so mremap moves this page to another address. The new pages
// there must be zero. The other pages of the block must keep their bytes at the old address.
static void split_and_grown(enum way w, int registers)
{
	uint8_t *p = block_new(PAGES, 7), *q;
	struct ibv_mr *mr = registers ? registered(p, PAGES * PAGE, ALL_ACCESS) : NULL;

	q = grown(w, p, 1, PAGES);
	expect_bytes(q, want, PAGE, "the page that was grown");
	expect_zeroes(q + PAGE, (PAGES - 1) * PAGE, "what it gained");
	memset(q + PAGE, 0xcc, (PAGES - 1) * PAGE);
	expect_bytes(p + PAGE, want + PAGE, (PAGES - 1) * PAGE, "the other pages of the block");
	memset(p + PAGE, 0xdd, PAGE);
	if (q[PAGE] != 0xcc)
		wrong("a store to one page shows in another");
	if (mr)
		deregistered(mr);
}

// Moves a block by mremap, which leaves the old address mapped (MREMAP_DONTUNMAP). The old address
// must then have zeroes, and a store there must not change the moved bytes.
static void left_behind(enum way w, int registers)
{
	uint8_t *p = block_new(PAGES, 9), *q;
	struct ibv_mr *mr = registers ? registered(p, PAGES * PAGE, ALL_ACCESS) : NULL;

	q = way_mremap(w, p, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	CHECK(q != MAP_FAILED, "mremap that leaves the mapping");
	expect_bytes(q, want, PAGES * PAGE, "what was moved");
	expect_zeroes(p, PAGES * PAGE, "what was left behind");
	memset(p, 0xee, PAGES * PAGE);
	expect_bytes(q, want, PAGES * PAGE, "what was moved, after a store to what was left behind");
	if (mr)
		deregistered(mr);
}

void remap_blocks(void)
{
	int w, registers;

	with_device();
	for (w = BY_LIBC; w <= BY_SYSCALL; w++) {
		for (registers = 0; registers < 2; registers++) {
			cut_and_grown(w, 0, registers);
			cut_and_grown(w, 1, registers);
			split_and_grown(w, registers);
			left_behind(w, registers);
		}
		if (way_mremap(w, block_new(1, 3), 0, PAGE, MREMAP_MAYMOVE, NULL) != MAP_FAILED || errno != EINVAL)
			wrong("private memory was mapped twice by %s", way_name(w));
	}
}

// After MADV_WIPEONFORK on many blocks, a child must see zeroes in every block, also in the blocks
// that mremap has moved since then.
void wiped_blocks(void)
{
	enum { MANY = 600 };
	static uint8_t *p[MANY];
	uint8_t *to;
	int i, status;
	pid_t pid;

	with_device();
	for (i = 0; i < MANY; i++) {
		p[i] = block_new(2, i);
		CHECK(!madvise(p[i], 2 * PAGE, MADV_WIPEONFORK), "MADV_WIPEONFORK");
		if (i % 3)
			continue;
		to = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		p[i] = mremap(p[i], 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
		CHECK(p[i] == to, "mremap that moves");
	}
	pid = fork();
	CHECK(pid >= 0, "fork");
	if (!pid) {
		for (i = 0; i < MANY; i++)
			if (p[i][0] || p[i][2 * PAGE - 1])
				_exit(1);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
	if (status)
		wrong("a child sees what it was not to see (status %#x)", status);
}

static uint8_t *seen;
static volatile sig_atomic_t handled;

static void look(int signal)
{
	(void)signal;
	// If the child does not have the memory, this read ends the child by SIGSEGV.
	if (seen[0] != 0x77 || seen[64 * PAGE - 1] != 0x77)
		_exit(3);
	handled = 1;
}

// Another process sends signals all the time, while this process forks. In the parent and in each
// child, the signal handler must be able to read the block `seen`, with its bytes unchanged.
void fork_signals(void)
{
	struct sigaction act = {.sa_handler = look, .sa_flags = SA_RESTART};
	int i, status, bad = 0;
	pid_t pid, sender, self = getpid();

	with_device();
	seen = block_new(64, 1);
	memset(seen, 0x77, 64 * PAGE);
	CHECK(!setpgid(0, 0), "setpgid");
	CHECK(!sigaction(SIGUSR1, &act, NULL), "sigaction");
	sender = fork();
	if (!sender) {
		signal(SIGUSR1, SIG_IGN);
		// A signal during fork makes the kernel start the fork again. Without pauses
		// between the signals, no fork would ever finish.
		while (getppid() == self && !kill(-getpgrp(), SIGUSR1))
			usleep(50);
		_exit(0);
	}
	for (i = 0; i < 600; i++) {
		pid = fork();
		CHECK(pid >= 0, "fork");
		if (!pid)
			_exit(0);
		while (waitpid(pid, &status, 0) != pid)
			;
		bad += status != 0;
	}
	kill(sender, SIGKILL);
	while (waitpid(sender, &status, 0) != sender)
		;
	if (bad)
		wrong("%d of %d children ended in a handler that looked at their memory", bad, i);
	if (!handled)
		wrong("no signal came");
}

// A program closes all descriptors, as servers do at their start, and so also the library's
// descriptors. Then the program opens its own files, which get the same numbers. The library must
// not mistake these files for its own: memory and files of the program must keep their bytes.
void closed_descriptors(void)
{
	uint8_t *p[4], *other;
	char path[] = "/dev/shm/torture-XXXXXX", bytes[64];
	int fd[64], i, status;
	pid_t pid;

	CHECK(ibv_get_device_list(NULL), "devices");
	for (i = 0; i < 4; i++)
		p[i] = block_new(PAGES, i);
	for (i = 3; i < 1024; i++)
		close(i);
	fd[0] = mkstemp(path);
	CHECK(fd[0] >= 0 && !unlink(path), "mkstemp");
	memset(bytes, 0x33, sizeof(bytes));
	for (i = 0; i < 64; i++) {
		fd[i] = i ? dup(fd[0]) : fd[0];
		CHECK(pwrite(fd[i], bytes, 64, 64 * i + (1l << 31)) == 64, "pwrite");
	}
	free(p[0]);
	other = block_new(PAGES, 5);
	expect_bytes(other, want, PAGES * PAGE, "a block made later");
	CHECK(!madvise(p[1], PAGES * PAGE, MADV_DONTNEED), "madvise");
	expect_zeroes(p[1], PAGES * PAGE, "what was given up");
	pattern(want, PAGES * PAGE, 2);
	pid = fork();
	CHECK(pid >= 0, "fork");
	if (!pid) {
		if (memcmp(p[2], want, PAGES * PAGE))
			_exit(1);
		memset(p[2], 0, PAGES * PAGE);
		for (i = 0; i < 64; i++)
			if (pread(fd[i], bytes, 64, 64 * i + (1l << 31)) != 64 || bytes[0] != 0x33 || bytes[63] != 0x33)
				_exit(2);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
	if (status)
		wrong("a child has not what its parent has (status %#x)", status);
	expect_bytes(p[2], want, PAGES * PAGE, "a block after the fork");
	for (i = 1; i < 4; i++)
		free(p[i]);
	for (i = 0; i < 64; i++)
		if (pread(fd[i], bytes, 64, 64 * i + (1l << 31)) != 64 || bytes[0] != 0x33 || bytes[63] != 0x33)
			wrong("a file of the program has other bytes at %d", i);
}

static ucontext_t outer, inner_context;
static int status_there;

static void fork_there(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0, "fork");
	if (!pid)
		_exit(seen[8 * PAGE] != 0x77);
	CHECK(waitpid(pid, &status_there, 0) == pid, "waitpid");
	swapcontext(&inner_context, &outer);
}

// A function runs on a stack in a registered block, and forks there. The same block also contains
// buffers. After the fork, the buffers must still be registered: the peer must be able to write to
// them.
void fork_on_registered_stack(void)
{
	struct link l = {0};
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct answer a;

	with_peer(&l, &cq);
	seen = block_new(64, 1);
	memset(seen, 0x77, 64 * PAGE);
	mr = registered(seen, 64 * PAGE, ALL_ACCESS);
	CHECK(!getcontext(&inner_context), "getcontext");
	inner_context.uc_stack.ss_sp = seen + 32 * PAGE;
	inner_context.uc_stack.ss_size = 32 * PAGE;
	inner_context.uc_link = &outer;
	makecontext(&inner_context, fork_there, 0);
	CHECK(!swapcontext(&outer, &inner_context), "swapcontext");
	if (status_there)
		wrong("the child ended with status %#x", status_there);
	seen[PAGE] = 1;
	a = ask(&l, OP_WRITE, seen, 2 * PAGE, mr->rkey, 5);
	pattern(want, 2 * PAGE, 5);
	CHECK(!a.status, "a write, status %u", a.status);
	expect_bytes(seen, want, 2 * PAGE, "what a peer wrote after the fork");
	deregistered(mr);
}
