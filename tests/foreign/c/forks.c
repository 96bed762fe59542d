// During a fork the device must not call the allocator, because the allocator's locks may be held.
// If the program forks in a signal handler, the handler may have interrupted the allocator.
// Allocators also take their locks themselves for a fork. Each case forks with many shared blocks.
// `allocations.c` counts the calls of the allocator during the fork.
// usage: forks CASE
#define _GNU_SOURCE
#include "rig.h"
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <linux/sched.h>

extern void allocations_begin(void);
extern int allocations_end(void);
extern void allocations_print(const char *where);
extern char **environ;

#define BLOCKS 600
#define LEN 8192
#define STACK (64 << 10)
#define SIGNALS 100
static char *blocks[BLOCKS];
static struct ibv_mr *registered;

static pid_t by_bare_fork(void) { return _Fork(); }
static pid_t by_fork(void) { return fork(); }
static pid_t by_number(void)
{
#ifdef SYS_fork
	return syscall(SYS_fork);
#else
	return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#endif
}
static pid_t by_clone(void) { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }
static pid_t by_clone3(void)
{
	struct clone_args a = {.exit_signal = SIGCHLD};

	return syscall(SYS_clone3, &a, sizeof(a));
}

static int run_child(void *arg)
{
	(void)arg;
	syscall(SYS_exit_group, allocations_end() ? 3 : 0);
	return 0;
}
static char stack[1 << 16] __attribute__((aligned(4096)));
static pid_t by_clone_function(void) { return clone(run_child, stack + sizeof(stack), SIGCHLD, NULL); }

static void touch_blocks(struct port *p)
{
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = aligned_alloc(4096, LEN);
		CHECK(blocks[i], "a block");
		memset(blocks[i], i, LEN);
	}
	// The mprotect calls split some mappings. The madvise calls give children no copy, or an
	// empty copy, of some pages.
	for (int i = 0; i < BLOCKS; i += 8) {
		CHECK(!mprotect(blocks[i] + 4096, 4096, PROT_READ), "mprotect");
		CHECK(!madvise(blocks[i + 1], LEN / 2, MADV_DONTFORK), "madvise");
		CHECK(!madvise(blocks[i + 2], LEN / 2, MADV_WIPEONFORK), "madvise");
	}
	registered = ibv_reg_mr(p->pd, blocks[3], LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(registered, "a region");
}

// The child ends with 0 if the child has the bytes of the parent, and with 4 if not. If the child
// has called the allocator during the fork, the child ends with 3.
static void fork_once(pid_t (*way)(void), const char *name)
{
	allocations_begin();
	pid_t pid = way();
	int calls = allocations_end(), status;

	if (pid == 0)
		syscall(SYS_exit_group, calls ? 3 : blocks[11][7] == 11 && !blocks[10][7] ? 0 : 4);
	CHECK(pid > 0, "%s", name);
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "%s: status %#x", name, status);
	if (calls)
		allocations_print(name);
	CHECK(!calls, "%s allocates", name);
	CHECK(WEXITSTATUS(status) == 0, "the child of %s ends with %d", name, WEXITSTATUS(status));
}

#define WAYS(X) X(by_bare_fork) X(by_fork) X(by_number) X(by_clone) X(by_clone3) X(by_clone_function)
#define ONCE(way) fork_once(way, #way);

static void every_way(void)
{
	WAYS(ONCE)
	WAYS(ONCE)
}

static void spawned(void)
{
	// The test does not count the allocations of posix_spawnp, because the C library itself may
	// allocate there, for example for the arguments. The device does nothing in this call.
	char *argv[] = {"true", NULL};
	pid_t pid;
	int status;

	CHECK(!posix_spawnp(&pid, "true", NULL, NULL, argv, environ), "posix_spawnp");
	CHECK(waitpid(pid, &status, 0) == pid && !status, "true ends with %#x", status);
	allocations_begin();
	pid = vfork();
	if (pid == 0)
		_exit(0);
	int calls = allocations_end();
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status, "vfork");
	CHECK(!calls, "vfork allocates");
}

static void on_signal_once(int s)
{
	(void)s;
	fork_once(by_bare_fork, "_Fork on an alternate stack");
	fork_once(by_number, "fork by number on an alternate stack");
}

static void *waits(void *word)
{
	while (__atomic_load_n((int *)word, __ATOMIC_SEQ_CST) == 0)
		syscall(SYS_futex, word, 0 /* FUTEX_WAIT */, 0, NULL, NULL, 0);
	return NULL;
}

// The thread that forks uses a block as the signal stack, and another thread waits for a futex in
// this block. In the first round the block is not registered. In the second round the block is
// registered.
static void on_a_block(void)
{
	for (int i = 0; i < 2; i++) {
		char *block = aligned_alloc(4096, STACK);
		stack_t alternate = {.ss_sp = block, .ss_size = STACK};
		struct sigaction a = {.sa_handler = on_signal_once, .sa_flags = SA_ONSTACK};
		int *word = (int *)block;
		pthread_t thread;

		CHECK(block, "a block");
		CHECK(!i || ibv_reg_mr(registered->pd, block, STACK, IBV_ACCESS_LOCAL_WRITE), "a region");
		*word = 0;
		CHECK(!sigaltstack(&alternate, NULL) && !sigaction(SIGUSR1, &a, NULL), "a handler");
		CHECK(!pthread_create(&thread, NULL, waits, word), "a thread");
		usleep(20000);
		CHECK(!raise(SIGUSR1), "raise");
		__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, word, 1 /* FUTEX_WAKE */, 1, NULL, NULL, 0);
		CHECK(!pthread_join(thread, NULL), "join");
	}
}

static volatile int forks;
static int by_call;

static void on_alarm(int s)
{
	int before = errno, status;
	pid_t pid = by_call ? by_number() : _Fork();

	(void)s;
	if (pid == 0)
		syscall(SYS_exit_group, 0);
	if (pid > 0) {
		waitpid(pid, &status, 0);
		forks++;
	}
	errno = before;
}

// The signal handler forks while the interrupted code may be inside malloc or free, and so may hold
// a lock of the allocator. If the device allocated memory during the fork, the device would wait
// for this lock forever.
static void in_a_handler(void)
{
	for (by_call = 0; by_call < 2; by_call++) {
		struct sigaction a = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};

		CHECK(!sigaction(SIGALRM, &a, NULL), "a handler");
		for (forks = 0; forks < SIGNALS;) {
			// The timer fires a single time. If forks are slow, a periodic timer would
			// fire again before the program continues.
			struct itimerval t = {{0, 0}, {0, 100 + forks}};
			int before = forks;

			CHECK(!setitimer(ITIMER_REAL, &t, NULL), "a timer");
			while (forks == before) {
				void *p[64];

				for (int i = 0; i < 64; i++)
					p[i] = malloc(2000 + i * 64);
				for (int i = 0; i < 64; i++)
					free(p[i]);
			}
		}
	}
}

// The library refuses the fork, because no descriptor is free. The log must name the refused fork,
// and the library must not allocate memory for this log line.
static void refused(void)
{
	struct rlimit few = {3, 3};

	CHECK(!close_range(3, ~0U, 0) && !setrlimit(RLIMIT_NOFILE, &few), "no descriptors");
	allocations_begin();
	pid_t pid = _Fork();
	int calls = allocations_end(), error = errno;

	if (pid == 0)
		syscall(SYS_exit_group, 0);
	if (calls)
		allocations_print("a refused fork");
	CHECK(!calls, "a refused fork allocates");
	CHECK(pid < 0 && error == EAGAIN, "it was to be refused: %d, errno %d", pid, error);
}

static const struct {
	const char *id, *name;
	void (*run)(void);
} cases[] = {
	{"MEM-6", "every_way", every_way},
	{"MEM-6", "spawned", spawned},
	{"MEM-6", "on_a_block", on_a_block},
	{"MEM-7", "in_a_handler", in_a_handler},
	{"MEM-6", "refused", refused},
};

int main(int argc, char **argv)
{
	struct port p;

	port_open(&p);
	touch_blocks(&p);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (argc < 2 || strcmp(argv[1], cases[i].name))
			continue;
		cases[i].run();
		printf("ok %s\n", cases[i].name);
		fflush(stdout);
		_exit(0);
	}
	printf("no such case\n");
	return 1;
}
