// Traced processes end in several ways, for the test of `adverb run --trace`. The first argument
// chooses the way.
#define _GNU_SOURCE
#include "rig.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#define FILES 40
#define CHILDREN 100

static struct port port;
static struct ibv_cq *cq;

static void open_all(void)
{
	port_open(&port);
	cq = cq_new(&port, 16, NULL, NULL);
}

static void work(void)
{
	struct ibv_wc wc;
	struct ibv_port_attr attr;

	ibv_req_notify_cq(cq, 0);
	ibv_poll_cq(cq, 1, &wc);
	ibv_query_port(port.ctx, 1, &attr);
}

static void *works(void *unused)
{
	for (;;)
		work();
	return unused;
}

// Closes all descriptors, as a daemon does, and then opens files, which get the same numbers. The
// library must not write trace records to these files.
static void reuse(void)
{
	int n, fds[FILES];
	struct ibv_device **list = ibv_get_device_list(&n);

	CHECK(list, "list");
	ibv_free_device_list(list);
	CHECK(!close_range(3, ~0U, 0), "close_range");
	for (int i = 0; i < FILES; i++) {
		char name[] = "/tmp/adverb-traced-XXXXXX";

		fds[i] = mkstemp(name);
		CHECK(fds[i] >= 0, "a file");
		unlink(name);
		CHECK(write(fds[i], "mine\n", 5) == 5, "write");
	}
	usleep(200000);
	list = ibv_get_device_list(&n);
	CHECK(list, "list");
	ibv_free_device_list(list);
	usleep(200000);
	for (int i = 0; i < FILES; i++) {
		struct stat found;

		CHECK(!fstat(fds[i], &found), "stat");
		CHECK(found.st_size == 5 && lseek(fds[i], 0, SEEK_CUR) == 5, "a file of the program was written");
	}
}

// Creates children by the bare clone system call while other threads record trace events. No child
// may hang.
static void children(void)
{
	pthread_t thread;

	open_all();
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&thread, NULL, works, NULL), "thread");
	for (int i = 0; i < CHILDREN; i++) {
		pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		int status, waited = 0;

		if (!child)
			_exit(3);
		while (waitpid(child, &status, WNOHANG) == 0) {
			CHECK(waited++ < 10000 || kill(child, SIGKILL), "a child hangs");
			usleep(1000);
		}
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3, "status of a child");
	}
}

static void ends(int signal)
{
	exit(signal == SIGALRM ? 0 : 1);
}

// Calls exit in a signal handler, which may interrupt the recording of a trace event.
static void in_handler(unsigned after)
{
	struct itimerval at = {.it_value = {.tv_usec = after}};

	open_all();
	signal(SIGALRM, ends);
	setitimer(ITIMER_REAL, &at, NULL);
	works(NULL);
}

// A child of vfork ends. Then a signal kills this process.
static void after_vfork(void)
{
	pid_t child;

	open_all();
	child = vfork();
	if (!child)
		_exit(3);
	CHECK(child > 0 && wait(NULL) == child, "vfork");
	work();
	kill(getpid(), SIGKILL);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "reuse"))
		reuse();
	else if (!strcmp(what, "children"))
		children();
	else if (!strcmp(what, "handler"))
		in_handler(argc > 2 ? atoi(argv[2]) : 1000);
	else if (!strcmp(what, "vfork"))
		after_vfork();
	else
		return 2;
	fflush(NULL);
	_exit(0);
}
