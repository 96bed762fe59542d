// An inbox: one thread sends 200 letters, and the main thread sleeps until letters come.
#include "pair.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { LETTERS = 200, WINDOW = 8 };

static struct end sender, inbox;
static int mended;
static atomic_int received;

// Takes all letters that are in the queue.
static void take_letters(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(inbox.cq, 1, &wc) > 0) {
		MUST(wc.status == IBV_WC_SUCCESS);
		MUST(!receive(&inbox, sizeof inbox.memory));
		received++;
	}
}

static void wait_for_letters(void)
{
	struct ibv_cq *cq;
	void *cq_context;

	MUST(!ibv_get_cq_event(inbox.channel, &cq, &cq_context));
	ibv_ack_cq_events(cq, 1);
	if (!mended)
		take_letters();
	MUST(!ibv_req_notify_cq(inbox.cq, 0));
	if (mended)
		take_letters();
}

// A letter is sent only if the inbox has a receive for the letter.
static void *send_letters(void *unused)
{
	for (int sent = 0; sent < LETTERS; sent++) {
		while (sent - received == WINDOW)
			usleep(20);
		MUST(!transmit(&sender, "a letter", &inbox, 0));
		MUST(completion(&sender).status == IBV_WC_SUCCESS);
	}
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	mended = !strcmp(word(argc, argv, 1, "mended"), "mended");
	open_device("adverb0");
	open_end(&sender, WINDOW, IBV_ACCESS_LOCAL_WRITE);
	open_end(&inbox, WINDOW, IBV_ACCESS_LOCAL_WRITE);
	connect_to(&sender, &inbox);
	connect_to(&inbox, &sender);
	for (int i = 0; i < WINDOW; i++)
		MUST(!receive(&inbox, sizeof inbox.memory));
	MUST(!ibv_req_notify_cq(inbox.cq, 0));
	MUST(!pthread_create(&thread, NULL, send_letters, NULL));
	while (received < LETTERS)
		wait_for_letters();
	MUST(!pthread_join(thread, NULL));
	printf("%d letters\n", received);
	return 0;
}
