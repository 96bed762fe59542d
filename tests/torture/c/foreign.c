// Other processes access the memory of this process by process_vm_writev and process_vm_readv.
// Meanwhile this process registers and deregisters the memory all the time.
#include "scenarios.h"
#include <sys/prctl.h>
#include <sys/wait.h>

#define PAGES 64
#define LEN (PAGES * PAGE)
#define SLOTS (LEN / 8)
#define ROUNDS 60

struct control {
	volatile uint32_t asked, done;
	volatile uint64_t at, bad, calls;
	volatile int busy, end;
	char what[128];
};

static struct control *control_new(void)
{
	long r = raw_call(SYS_mmap, 0, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(r > 0, "control page");
	return (struct control *)r;
}

// Writes a word to each slot, in a scattered order, with one call for each word.
static void write_all(struct control *c, pid_t pid)
{
	struct iovec mine, theirs;
	uint64_t value, i, slot;

	for (i = 0; i < SLOTS; i++) {
		slot = i * 40503 % SLOTS;
		value = (uint64_t)c->asked << 32 | slot;
		mine = (struct iovec){&value, 8};
		theirs = (struct iovec){(void *)(c->at + slot * 8), 8};
		if (process_vm_writev(pid, &mine, 1, &theirs, 1, 0) != 8) {
			snprintf(c->what, sizeof(c->what), "process_vm_writev: %s", strerror(errno));
			c->bad++;
		}
		c->calls++;
	}
}

// Reads as long as the owner of the memory is registering it (`busy` is set). The owner may finish
// before the first read, so the function makes at least about 500 reads.
static void read_all(struct control *c, pid_t pid)
{
	static uint8_t got[4 * PAGE], want[LEN];
	struct rng rng = {.s = 7 + c->asked};
	struct iovec mine = {got, sizeof(got)}, theirs;
	size_t off;
	int least = 500;

	pattern(want, sizeof(want), 5);
	do {
		off = rng_below(&rng, sizeof(want) - sizeof(got));
		theirs = (struct iovec){(void *)(c->at + off), sizeof(got)};
		if (process_vm_readv(pid, &mine, 1, &theirs, 1, 0) != sizeof(got)) {
			snprintf(c->what, sizeof(c->what), "process_vm_readv: %s", strerror(errno));
			c->bad++;
		} else if (memcmp(got, want + off, sizeof(got))) {
			snprintf(c->what, sizeof(c->what), "process_vm_readv saw bytes that were never there");
			c->bad++;
		}
		c->calls++;
	} while (c->busy || --least > 0);
}

static pid_t start(struct control *c, void (*round)(struct control *, pid_t))
{
	pid_t parent = getpid(), pid;

	// The security module Yama may let a process access only its descendants. The child must
	// access its parent, so the parent allows the access here.
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	pid = fork();
	CHECK(pid >= 0, "fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	while (!c->end) {
		if (c->asked == c->done)
			continue;
		round(c, parent);
		__atomic_store_n(&c->done, c->asked, __ATOMIC_SEQ_CST);
	}
	_exit(0);
}

// Registers page by page, while the other process reads or writes the pages. Some pages are
// registered more than once.
static void registrations(uint8_t *p, struct ibv_mr **mr)
{
	size_t i;

	for (i = 0; i < PAGES; i++) {
		mr[i] = registered(p + i * PAGE, PAGE, ALL_ACCESS);
		if (i % 4 == 3) {
			deregistered(mr[i]);
			mr[i] = registered(p + i * PAGE, i + 3 < PAGES ? 3 * PAGE : PAGE, ALL_ACCESS);
		}
	}
}

static void one_round(struct control *c, uint32_t round, pid_t pid, uint8_t *p)
{
	struct ibv_mr *mr[PAGES];
	double end = now() + HANG_LIMIT;
	size_t i;

	c->at = (uintptr_t)p;
	c->busy = 1;
	__atomic_store_n(&c->asked, round, __ATOMIC_SEQ_CST);
	registrations(p, mr);
	c->busy = 0;
	while (c->done != round) {
		CHECK(now() < end && !waitpid(pid, NULL, WNOHANG), "the other process stopped in round %u", round);
		usleep(20);
	}
	for (i = 0; i < PAGES; i++)
		deregistered(mr[i]);
}

static void finish_storm(struct control *c, pid_t pid)
{
	c->end = 1;
	CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
	CHECK(c->calls > ROUNDS, "only %lu calls", c->calls);
	if (c->bad)
		wrong("%lu of %lu calls: %s", c->bad, c->calls, c->what);
}

void storm_of_writes(void)
{
	struct control *c = control_new();
	uint64_t got, lost = 0, i;
	pid_t pid = start(c, write_all);
	uint32_t round;
	uint8_t *p;

	with_device();
	for (round = 1; round <= ROUNDS; round++) {
		enum source s = round % SOURCES;

		p = make_memory(s, LEN);
		memset(p, 0x11, LEN);
		one_round(c, round, pid, p);
		for (i = 0; i < SLOTS; i++) {
			memcpy(&got, p + i * 8, 8);
			lost += got != ((uint64_t)round << 32 | i);
		}
		end_memory(s, p, LEN);
	}
	if (lost)
		wrong("%lu of %lu writes by process_vm_writev were lost", lost, ROUNDS * SLOTS);
	finish_storm(c, pid);
}

void storm_of_reads(void)
{
	struct control *c = control_new();
	pid_t pid = start(c, read_all);
	uint32_t round;
	uint8_t *p;

	with_device();
	for (round = 1; round <= ROUNDS; round++) {
		enum source s = round % SOURCES;

		p = make_memory(s, LEN);
		pattern(p, LEN, 5);
		one_round(c, round, pid, p);
		end_memory(s, p, LEN);
	}
	finish_storm(c, pid);
}
