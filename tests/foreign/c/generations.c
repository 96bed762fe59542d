// A chain of 70 processes. Each process opens the device, creates a queue pair, and forks the next
// process. In every generation, the child must close the sockets that it inherits from the device
// of its parent. Otherwise the number of sockets would grow.
// usage: generations
#include "rig.h"
#include <dirent.h>
#include <sys/wait.h>

#define GENERATIONS 70

// Returns the number of open sockets of this process.
static int sockets(void)
{
	DIR *all = opendir("/proc/self/fd");
	struct dirent *one;
	char path[300], to[64];
	int count = 0;

	CHECK(all, "opendir");
	while ((one = readdir(all))) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%s", one->d_name);
		n = readlink(path, to, sizeof(to));
		count += n > 7 && !memcmp(to, "socket:", 7);
	}
	closedir(all);
	return count;
}

int main(void)
{
	int before = sockets(), here, generation, status;

	for (generation = 1; generation <= GENERATIONS; generation++) {
		struct port port;
		struct ibv_cq *cq;
		pid_t child;

		alarm(60);
		// The test permits three more sockets, because the fork may copy sockets that the
		// parent's background thread has open for a moment.
		here = sockets();
		CHECK(here - before <= 3, "generation %d begins with %d sockets more than its parent", generation,
		      here - before);
		before = here;
		port_open(&port);
		cq = cq_new(&port, 4, NULL, NULL);
		qp_init(&port, qp_new(&port, IBV_QPT_RC, cq, cq, 4));
		child = fork();
		CHECK(child >= 0, "fork");
		if (child > 0) {
			alarm(0);
			CHECK(waitpid(child, &status, 0) == child && status == 0, "after generation %d: %x", generation,
			      status);
			if (generation == 1)
				printf("ok generations\n");
			return 0;
		}
	}
	return 0;
}
