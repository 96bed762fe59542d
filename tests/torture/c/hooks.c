// A program replaces mmap, munmap and mremap by its own functions (hooks), as MPI libraries do.
// Each hook walks a list on the heap and counts the call in every node. Other threads register
// buffers on the same pages as the nodes. The hooks must still work during a registration, and no
// count may be lost.
#include "scenarios.h"

#define NODES 64
#define CALLS 400

struct node {
	struct node *next;
	uint64_t calls;
	uint8_t *buffer; // 3000 bytes, on the pages of other nodes
};

static struct node *first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// The expected count, in memory that the library does not know.
static uint64_t *calls;
static __thread int inside;

static void event(void)
{
	struct node *n;

	if (inside || !first)
		return;
	inside = 1;
	pthread_mutex_lock(&lock);
	for (n = first; n; n = n->next)
		n->calls++;
	++*calls;
	pthread_mutex_unlock(&lock);
	inside = 0;
}

static long with_errno(long r)
{
	if (r < 0 && r > -4096) {
		errno = -r;
		return -1;
	}
	return r;
}

void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	event();
	return (void *)with_errno(raw_call(SYS_mmap, (long)at, len, prot, flags, fd, off));
}

void *mmap64(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	event();
	return (void *)with_errno(raw_call(SYS_mmap, (long)at, len, prot, flags, fd, off));
}

int munmap(void *at, size_t len)
{
	event();
	return with_errno(raw_call(SYS_munmap, (long)at, len, 0, 0, 0, 0));
}

void *mremap(void *at, size_t old, size_t len, int flags, ...)
{
	va_list ap;
	void *to;

	va_start(ap, flags);
	to = flags & MREMAP_FIXED ? va_arg(ap, void *) : NULL;
	va_end(ap);
	event();
	return (void *)with_errno(raw_call(SYS_mremap, (long)at, old, len, flags, (long)to, 0));
}

static void *registrar(void *arg)
{
	struct rng rng = {.s = (uintptr_t)arg};
	struct node *n;
	int i, skip;

	for (i = 0; i < CALLS; i++) {
		skip = rng_below(&rng, NODES);
		for (n = first; skip--;)
			n = n->next;
		deregistered(registered(n->buffer, 3000, ALL_ACCESS));
	}
	return NULL;
}

void hooked(void)
{
	struct node *list = NULL, *n;
	pthread_t thread[3];
	long i;

	with_device();
	calls = raw_map(PAGE);
	for (i = 0; i < NODES; i++) {
		n = calloc(1, sizeof(*n));
		n->buffer = malloc(3000);
		CHECK(n->buffer, "malloc");
		memset(n->buffer, 0x33, 3000);
		n->next = list;
		list = n;
	}
	first = list;
	for (i = 0; i < 3; i++)
		CHECK(!pthread_create(&thread[i], NULL, registrar, (void *)(i + 1)), "thread");
	for (i = 0; i < 20 * CALLS; i++)
		CHECK(!munmap(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), PAGE), "munmap");
	for (i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	pthread_mutex_lock(&lock);
	for (n = list; n; n = n->next)
		if (n->calls != *calls)
			wrong("a count on the heap is %lu, not %lu", n->calls, *calls);
	pthread_mutex_unlock(&lock);
}
