// A program calls exec, and the new program of this process maps memory at the same address. A peer
// that was writing to the memory of the old program must not write to the memory of the new
// program.
#include "scenarios.h"
#include <signal.h>
#include <sys/wait.h>

#define AT ((uint8_t *)0x200000000000)
#define LEN 64ul
#define STATE "TORTURE_AFTER_EXEC"
enum { ROUNDS = 40, ORDERS = 150 };

static void map_there(int byte)
{
	uint8_t *p = mmap(AT, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	CHECK(p == AT, "mmap at %p", AT);
	memset(AT, byte, PAGE);
}

// Runs in the new program. The old program has stopped the peer (SIGSTOP) in the middle of many
// writes. The new program maps memory at the old address, and lets the peer continue. No byte of
// the new memory may change.
static void after(const char *state, int *round)
{
	int fd, pid;
	size_t i;

	CHECK(sscanf(state, "%d %d %d", round, &fd, &pid) == 3, "%s=%s", STATE, state);
	map_there(0x5a);
	kill(pid, SIGCONT);
	usleep(5000);
	for (i = 0; i < LEN && AT[i] == 0x5a; i++)
		;
	CHECK(i == LEN, "round %d: byte %zu of the new program is %02x", *round, i, AT[i]);
	munmap(AT, PAGE);
	close(fd);
	kill(pid, SIGKILL);
	CHECK(waitpid(pid, NULL, 0) == pid, "waitpid");
}

void exec_new_memory(void)
{
	char *argv[] = {"torture", "--scenario", "exec_new_memory", NULL}, next[64];
	struct order o = {.op = OP_WRITE, .addr = (uintptr_t)AT, .len = LEN, .seed = 1};
	const char *state = getenv(STATE);
	struct link l = {0};
	struct ibv_cq *cq;
	struct answer a;
	int i, round = 0;

	if (state)
		after(state, &round);
	if (round == ROUNDS)
		return;
	with_peer(&l, &cq);
	map_there(0);
	o.rkey = registered(AT, LEN, ALL_ACCESS)->rkey;
	for (i = 0; i < ORDERS; i++)
		tell(l.fd, &o, sizeof(o));
	hear(l.fd, &a, sizeof(a));
	kill(peer_pid, SIGSTOP);
	CHECK(!a.status, "a write, status %u", a.status);
	CHECK(!fcntl(l.fd, F_SETFD, 0), "fcntl");
	snprintf(next, sizeof(next), "%d %d %d", round + 1, l.fd, peer_pid);
	setenv(STATE, next, 1);
	execv("/proc/self/exe", argv);
	CHECK(0, "exec");
}
