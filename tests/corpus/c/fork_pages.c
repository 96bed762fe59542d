// A program that starts a helper by fork while its pages are registered. After the fork the first of the two that writes gets
// new pages, and a NIC keeps the old: what arrives is never seen. The right program keeps the registered pages out of the
// child by MADV_DONTFORK, or asks ibv_fork_init for it before anything is registered.
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
		// With the child alive this is where a page would change.
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
