// Children that a program creates in every possible way: by fork, by clone, by clone3, and by a
// system call instruction. The program has fork handlers, has no free descriptors, or has threads
// on stacks from the allocator. At the end: the cancellation of a thread.
#include "scenarios.h"
#include <linux/sched.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define LEN (64 * PAGE)

static uint8_t *block_of(uint8_t byte)
{
	uint8_t *p = make_memory(ALIGNED, LEN);

	memset(p, byte, LEN);
	return p;
}

static void all_are(const uint8_t *p, uint8_t byte, const char *what)
{
	uint8_t *want = raw_map(LEN);

	memset(want, byte, LEN);
	expect_bytes(p, want, LEN, what);
	munmap(want, LEN);
}

static void ended_well(pid_t pid, const char *what)
{
	int status;

	CHECK(pid >= 0, "%s: %s", what, strerror(errno));
	CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
	if (status)
		wrong("%s ended with status %x", what, status);
}

// ---- Fork handlers that the program registers before it opens a device.
static uint8_t *seen_by_handlers;
static pthread_mutex_t of_program = PTHREAD_MUTEX_INITIALIZER;

static void before(void)
{
	seen_by_handlers[0] = 1;
	pthread_mutex_lock(&of_program);
}

static void after(void)
{
	pthread_mutex_unlock(&of_program);
	if (seen_by_handlers[0] != 1 || seen_by_handlers[LEN - 1] != 7)
		_exit(3);
	seen_by_handlers[0] = 7;
}

static int done;

static void *allocates(void *unused)
{
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		pthread_mutex_lock(&of_program);
		free(make_memory(ALIGNED, LEN));
		pthread_mutex_unlock(&of_program);
	}
	return unused;
}

// The program's fork handlers must find the right bytes in a block. The handlers may also take a
// lock, under which another thread allocates and frees memory. The fork must not wait forever then.
void fork_handlers(void)
{
	pthread_t thread;
	int i;

	CHECK(!pthread_atfork(before, after, after), "pthread_atfork");
	with_device();
	seen_by_handlers = block_of(7);
	CHECK(!pthread_create(&thread, NULL, allocates, NULL), "thread");
	for (i = 0; i < 300; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(seen_by_handlers[0] == 7 ? 0 : 4);
		ended_well(pid, "a child with handlers");
	}
	done = 1;
	pthread_join(thread, NULL);
}

// ---- Children that are created without fork(), so the C library calls no fork handlers.
static int gives_up(void *p)
{
	// It is possible that the child does not have this memory. Then these calls may damage the
	// child. But they must not change the memory of the parent.
	madvise(p, LEN, MADV_DONTNEED);
	free(p);
	return 0;
}

static pid_t by_clone(uint8_t *p)
{
	uint8_t *stack = raw_map(64 * PAGE);

	return clone(gives_up, stack + 64 * PAGE, SIGCHLD, p);
}

static pid_t by_instruction(uint8_t *p)
{
	pid_t pid = (pid_t)raw_call(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);

	if (!pid)
		_exit(gives_up(p));
	return pid;
}

static pid_t by_clone3(uint8_t *p)
{
	struct clone_args args = {.exit_signal = SIGCHLD};
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	if (!pid) {
		if (p[0] != 7 || p[LEN - 1] != 7)
			_exit(5);
		_exit(gives_up(p));
	}
	return pid;
}

// The parent's memory must keep its bytes, for every way to create a child, and also if the child
// discards and frees the memory.
void bare_children(void)
{
	pid_t (*const ways[])(uint8_t *) = {by_clone, by_instruction, by_clone3};
	const char *const names[] = {"clone", "the instruction", "clone3"};
	size_t i;

	with_device();
	for (i = 0; i < ARRAY_LEN(ways); i++) {
		uint8_t *p = block_of(7);
		struct ibv_mr *mr = i & 1 ? registered(p, LEN, ALL_ACCESS) : NULL;

		ended_well(ways[i](p), names[i]);
		all_are(p, 7, names[i]);
		if (mr)
			deregistered(mr);
		free(p);
	}
}

// ---- Limits of the process.
// A child must have the bytes of the moment of the fork, even if the process has no free descriptor
// left.
void fork_without_descriptors(void)
{
	struct rlimit limit;
	uint8_t *p;
	int i, fd;

	with_device();
	p = make_memory(ALIGNED, 32 << 20);
	CHECK(!getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
	limit.rlim_cur = 256;
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
	while ((fd = dup(0)) >= 0)
		;
	for (i = 1; i < 20; i++) {
		pid_t pid;
		size_t at;

		memset(p, i, 32 << 20);
		pid = fork();
		if (!pid) {
			for (at = 0; at < 32 << 20; at += PAGE)
				if (p[at] != i)
					_exit(6);
			_exit(0);
		}
		memset(p, 0xee, 32 << 20);
		ended_well(pid, "a child with no descriptor left");
	}
}

// ---- Stacks.
static void *sleeps(void *sem)
{
	char byte;

	while (read(*(int *)sem, &byte, 1) < 0)
		;
	return NULL;
}

// The main thread forks while other threads sleep on stacks that are blocks of the allocator. The
// children and the threads must end without an error.
void fork_beside_stacks(void)
{
	pthread_t thread[4];
	pthread_attr_t attr;
	int fd[2], i;

	with_device();
	CHECK(!pipe(fd), "pipe");
	for (i = 0; i < 4; i++) {
		CHECK(!pthread_attr_init(&attr), "attributes");
		CHECK(!pthread_attr_setstack(&attr, block_of(0), LEN), "stack");
		CHECK(!pthread_create(&thread[i], &attr, sleeps, &fd[0]), "thread");
	}
	for (i = 0; i < 10; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		ended_well(pid, "a child beside stacks");
	}
	close(fd[1]);
	for (i = 0; i < 4; i++)
		CHECK(!pthread_join(thread[i], NULL), "join");
}

// ---- Cancellation.
static int was_freed;

static void *frees(void *p)
{
	CHECK(!pthread_cancel(pthread_self()), "pthread_cancel");
	free(p);
	was_freed++;
	pthread_testcancel();
	return NULL;
}

// A cancellation may end a thread only at the cancellation points of POSIX. free() is not a
// cancellation point, so a thread with a pending cancellation must return from free().
void cancelled(void)
{
	pthread_t thread;
	void *result;
	int i;

	with_device();
	for (i = 0; i < 3; i++) {
		CHECK(!pthread_create(&thread, NULL, frees, block_of(i)), "thread");
		CHECK(!pthread_join(thread, &result), "join");
		if (result != PTHREAD_CANCELED || was_freed != i + 1)
			wrong("a thread was cancelled in free");
		free(block_of(9));
	}
}
