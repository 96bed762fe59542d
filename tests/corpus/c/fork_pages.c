// The program starts a helper by fork while pages are registered. After the fork, the first process
// that writes to a page gets a new page. If the parent writes first, a NIC keeps the old page, and
// the program never sees the data that arrives there. The right program calls ibv_fork_init before
// the first registration. MADV_DONTFORK, which keeps the registered pages out of the child, works
// too.
// From rdma-core #1222 and #1129, Mooncake #3660.
#include "corpus.h"
#include <sys/wait.h>

int main(void)
{
	struct duo d;
	pid_t child;
	int i, status;

#if !WRONG
	CHECK(!ibv_fork_init(), "fork init");
#endif
	start();
	duo_open(&d, 16);
	for (i = 0; i < 10; i++) {
		give(d.b.qp, INBOX);
		child = fork();
		if (!child) {
			usleep(2000);
			_exit(0);
		}
		CHECK(child > 0, "fork");
		// While the child is alive, this write gives the process a new page.
		slot(INBOX)[100] = i;
		memset(slot(0), i + 1, 64);
		CHECK(!put(d.a.qp, 0, 64, IBV_SEND_SIGNALED), "post send");
		poll_good(d.a.scq);
		poll_good(d.b.rcq);
		CHECK(slot(INBOX)[63] == i + 1, "message %d was not seen", i);
		CHECK(waitpid(child, &status, 0) == child && !status, "the child");
	}
	duo_close(&d);
	return finish("fork_pages");
}
