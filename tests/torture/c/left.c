// Blocks that a child still needs when the parent has freed them, and forks in signal handlers.
// Also locked pages, and children that start on a stack in a registered block.
#include "scenarios.h"
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

#define PAGES 32ul
#define LEN (PAGES * PAGE)

static uint8_t *block_of(int byte)
{
	uint8_t *p = make_memory(ALIGNED, LEN);

	memset(p, byte, LEN);
	return p;
}

static int all_are(const uint8_t *p, int byte, size_t len)
{
	size_t i = 0;

	while (i < len && p[i] == byte)
		i++;
	return i == len;
}

static void ended_well(pid_t pid, const char *what)
{
	int status;

	CHECK(pid >= 0 && waitpid(pid, &status, 0) == pid, "%s: %s", what, strerror(errno));
	if (status)
		wrong("%s ended with status %#x", what, status);
}

// The kernel refuses to discard locked pages (EINVAL). The call must discard the pages before the
// locked page. The locked page and the pages behind it must keep their bytes.
void locked_pages(void)
{
	static const int advices[] = {MADV_DONTNEED, MADV_FREE};
	uint8_t *p;
	struct ibv_mr *mr;
	size_t i;

	with_device();
	for (i = 0; i < 4; i++) {
		p = block_of(7);
		mr = i & 1 ? registered(p, LEN, ALL_ACCESS) : NULL;
		CHECK(!mlock(p + PAGE, PAGE), "mlock");
		errno = 0;
		if (madvise(p, LEN, advices[i / 2]) != -1 || errno != EINVAL)
			wrong("advice %d on locked pages, errno %d", advices[i / 2], errno);
		expect_zeroes(p, PAGE, "the page before");
		if (!all_are(p + PAGE, 7, LEN - PAGE))
			wrong("bytes are gone after advice %d that was refused", advices[i / 2]);
		CHECK(!munlock(p + PAGE, PAGE), "munlock");
		CHECK(!madvise(p, LEN, advices[i / 2]), "madvise");
		if (mr)
			deregistered(mr);
		free(p);
	}
}

// ---- A signal handler forks, at any point of the program. Each child must see the bytes of a
// registered block.
static uint8_t *shown;
static volatile sig_atomic_t forks, bad;
static timer_t timer;

// Sets the timer for the next signal. Each handler does this at its end. A periodic timer would
// interrupt the handler itself, because a fork may take longer than the interval.
static int next_signal(void)
{
	static const struct itimerspec soon = {{0, 0}, {0, 700000}};

	return timer_settime(timer, 0, &soon, NULL);
}

static void forks_here(int sig)
{
	int before = errno, status;
	pid_t pid = syscall(SYS_fork);

	(void)sig;
	if (!pid)
		_exit(!all_are(shown, 7, LEN));
	if (pid > 0 && waitpid(pid, &status, 0) == pid) {
		forks++;
		bad += status != 0;
	}
	if (forks < 600)
		next_signal();
	errno = before;
}

void fork_in_handlers(void)
{
	struct sigaction act = {.sa_handler = forks_here, .sa_flags = SA_RESTART};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	struct ibv_mr *mr;
	uint8_t *p;
	int i;

	with_device();
	shown = block_of(7);
	mr = registered(shown, LEN, ALL_ACCESS);
	CHECK(!sigaction(SIGALRM, &act, NULL), "sigaction");
	CHECK(!timer_create(CLOCK_MONOTONIC, &event, &timer), "timer_create");
	CHECK(!next_signal(), "timer_settime");
	for (i = 0; i < 3000 && forks < 600; i++) {
		p = make_memory(ALIGNED, 2 * LEN);
		memset(p, 1, 2 * LEN);
		CHECK(!madvise(p, 2 * LEN, MADV_DONTNEED), "madvise");
		free(p);
	}
	CHECK(!timer_delete(timer), "timer_delete");
	CHECK(signal(SIGALRM, SIG_IGN) != SIG_ERR, "signal");
	if (bad)
		wrong("%d of %d children had not their bytes", (int)bad, (int)forks);
	deregistered(mr);
}

// ---- The parent frees a block after the fork. The child must still read the block's bytes.
static ucontext_t outside, inside;
static int go[2], ready[2];
static pid_t child;

static void child_looks(const uint8_t *p, int byte, size_t len)
{
	char c;

	if (read(go[0], &c, 1) != 1)
		_exit(2);
	_exit(!all_are(p, byte, len));
}

static void forks_on_a_block(void)
{
	uint8_t mine[3 * PAGE];

	memset(mine, 0x66, sizeof(mine));
	child = fork();
	if (!child)
		child_looks(mine, 0x66, sizeof(mine));
	swapcontext(&inside, &outside);
}

static void *waits_on_a_block(void *unused)
{
	char c;

	CHECK(write(ready[1], "r", 1) == 1 && read(ready[0], &c, 1) == 1, "a pipe");
	return unused;
}

static void freed(uint8_t *p, const char *what)
{
	uint8_t *later;

	free(p);
	later = block_of(0xee);
	CHECK(write(go[1], "g", 1) == 1, "write");
	ended_well(child, what);
	free(later);
}

void freed_in_the_parent(void)
{
	uint8_t *p;
	pthread_attr_t attr;
	pthread_t thread;

	with_device();
	CHECK(!pipe(go) && !pipe(ready), "pipe");
	p = block_of(1);
	CHECK(!getcontext(&inside), "getcontext");
	inside.uc_stack.ss_sp = p;
	inside.uc_stack.ss_size = LEN;
	inside.uc_link = &outside;
	makecontext(&inside, forks_on_a_block, 0);
	CHECK(!swapcontext(&outside, &inside), "swapcontext");
	freed(p, "a child on a stack that its parent frees");
	p = block_of(3);
	CHECK(!pthread_attr_init(&attr) && !pthread_attr_setstack(&attr, p + 8 * PAGE, LEN - 8 * PAGE), "setstack");
	CHECK(!pthread_create(&thread, &attr, waits_on_a_block, NULL), "pthread_create");
	CHECK(!pthread_join(thread, NULL), "pthread_join");
	child = fork();
	if (!child)
		child_looks(p, 3, 8 * PAGE);
	freed(p, "a child with a block that a thread ran on");
}

// ---- clone() starts a child on a stack in a registered block. The child must run, and must not
// change the parent's stack.
static int looks(void *at)
{
	volatile uint8_t room[PAGE];

	room[0] = room[PAGE - 1] = 1;
	return !all_are(at, 7, LEN) || room[0] != 1;
}

void cloned_on_blocks(void)
{
	uint8_t *p, *stack;
	struct ibv_mr *mr[2];
	int i;

	with_device();
	p = block_of(7);
	stack = block_of(2);
	mr[0] = registered(p, LEN, ALL_ACCESS);
	mr[1] = registered(stack, LEN, ALL_ACCESS);
	for (i = 0; i < 3; i++)
		ended_well(clone(looks, stack + LEN - 8 * i, SIGCHLD, p), "a child on a registered block");
	if (!all_are(stack, 2, LEN))
		wrong("the child wrote to its parent's stack");
	deregistered(mr[0]);
	deregistered(mr[1]);
	CHECK(clone(looks, stack + LEN, SIGCHLD, p) > 0 && wait(&i) > 0 && !i, "a child on a block, status %#x", i);
}
