// A signal handler that interrupts malloc calls fork. The fork of glibc then waits for a lock of
// malloc that the same thread holds, so the program hangs, with and without the device. The device
// must not prevent a signal from ending the program.
// usage: fork_in_malloc
//
// The interrupting signal is SIGSEGV. The program makes a page inaccessible, and malloc reads this
// page while malloc holds the lock.
#define _GNU_SOURCE
#include "rig.h"
#include <sys/mman.h>
#include <sys/wait.h>

static char *page;

static void in_malloc(int number)
{
	pid_t child;
	int status;

	(void)number;
	if (mprotect(page, 4096, PROT_READ | PROT_WRITE))
		_exit(2);
	if (write(1, "in malloc\n", 10) != 10)
		_exit(2);
	child = fork();
	if (child == 0)
		_exit(0);
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		_exit(3);
}

int main(void)
{
	struct sigaction action = {.sa_handler = in_malloc};
	struct port port;
	pid_t child;
	char *large, *after;
	int status;

	child = fork();
	CHECK(child >= 0, "fork");
	if (child == 0) {
		port_open(&port);
		// `large` becomes a free chunk in malloc's lists. `page` is the page with the list
		// pointers of the chunk.
		large = malloc(120000);
		after = malloc(16);
		CHECK(large && after, "memory");
		page = (char *)((uintptr_t)large & ~4095ul);
		free(large);
		CHECK(!sigaction(SIGSEGV, &action, NULL), "sigaction");
		// SIGALRM has the default action, and ends the process if fork does not return.
		alarm(3);
		CHECK(!mprotect(page, 4096, PROT_NONE), "mprotect");
		large = malloc(100000);
		_exit(large ? 0 : 4);
	}
	// This wait has no time limit. If the child hangs, the time limit of the test suite ends
	// the program.
	CHECK(waitpid(child, &status, 0) == child, "wait");
	CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM), "status %x", status);
	printf("ok fork in malloc: %s\n", status ? "ended by its signal" : "finished");
	return 0;
}
