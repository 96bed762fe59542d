// A client has a single request buffer. The wrong client fills the buffer for the next request as
// soon as the answer has arrived, and polls the completions of its sends later. The answer proves
// only that the request arrived. Until the send completes, the device may send the buffer again.
// From nfs-ganesha #14.
#include "corpus.h"
#define ROUNDS 60
#define REQUEST 0

static struct duo d;

int main(void)
{
	struct echoes e = {&d, ROUNDS, 16};
	pthread_t server;
	int i, sent = 0;

	start();
	duo_open(&d, 2 * ROUNDS);
	for (i = 0; i < 16; i++)
		give(d.b.qp, INBOX + i);
	thread(&server, echo, &e);
	for (i = 1; i <= ROUNDS; i++) {
		give(d.a.qp, INBOX + 32);
		memset(slot(REQUEST), i, 64); // the last request is answered
		CHECK(!put(d.a.qp, REQUEST, 64, IBV_SEND_SIGNALED), "request");
#if !WRONG
		poll_good(d.a.scq);
		sent++;
#endif
		poll_good(d.a.rcq);
		CHECK(slot(INBOX + 32)[0] == i, "answer %d", i);
		work(20);
	}
	for (; sent < ROUNDS; sent++)
		poll_good(d.a.scq);
	pthread_join(server, NULL);
	duo_close(&d);
	return finish("freed_at_reply");
}
