// The main thread waits in a loop for a flag. Another thread sets the flag when the first message
// has arrived. The compiler may read a plain variable once, before the loop. The right program
// reads an atomic variable.
// From derecho #1.
#include "corpus.h"

static struct duo d;
static int there;

static void *receive(void *arg)
{
	(void)arg;
	poll_good(d.b.rcq);
#if WRONG
	there = 1;
#else
	add(&there, 1);
#endif
	return NULL;
}

int main(void)
{
	pthread_t t;

	start();
	duo_open(&d, 16);
	give(d.b.qp, INBOX);
	thread(&t, receive, NULL);
	CHECK(!put(d.a.qp, 0, 64, IBV_SEND_SIGNALED), "send");
#if WRONG
	while (!there) // a plain variable
		;
#else
	until(&there, 1);
#endif
	pthread_join(t, NULL);
	poll_good(d.a.scq);
	duo_close(&d);
	return finish("plain_flag");
}
