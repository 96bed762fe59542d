// Opens a device. If the program is compiled with a macro FAULT_..., the program also makes a
// mistake that a sanitizer must report.
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
	/* Leak many blocks, because a leak checker may miss some of them. The checker regards any
	 * word with the address of a block as a reference to the block. An old copy of the address
	 * on the stack could end up in the unused bytes of a live object. */
	for (int i = 0; i < 32; i++) {
		block = malloc(200);
		memset(block, 1, 200);
	}
	block = NULL;
#endif
	port_close(&port);
	return 0;
}
