// Opens a device and, where FAULT_ names one, makes a mistake that a sanitizer has to report.
#include "rig.h"

static UNUSED int shared;

static UNUSED void *racer(void *arg)
{
	(void)arg;
	for (int i = 0; i < 1000; i++)
		shared++;
	return NULL;
}

int main(void)
{
	char *volatile block = malloc(100);
	struct port port;

	port_open(&port);
	memset(block, 1, 100);
#ifdef FAULT_OVERFLOW
	block[100] = 1;
#endif
#ifdef FAULT_RACE
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, racer, NULL), "thread");
	racer(NULL);
	pthread_join(thread, NULL);
#endif
	free(block);
#ifdef FAULT_LEAK
	/* Many, since a leak checker takes whatever looks like a pointer for one: the bytes of a single
	   address may lie unused in some live object that was built on the stack where the address
	   was. */
	for (int i = 0; i < 32; i++) {
		block = malloc(200);
		memset(block, 1, 200);
	}
	block = NULL;
#endif
	port_close(&port);
	return 0;
}
