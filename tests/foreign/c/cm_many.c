// Connections that come and go must leak nothing.
// `cm_many leaks WARM COUNT` connects and disconnects two processes repeatedly. After WARM
// connections, the program counts the resources of each process. Then three rounds follow. In each
// round, the program makes COUNT connections and counts the resources again.
// `cm_many backlog` makes more connection requests than the backlog of a listener allows.
#include "cm_rig.h"

#include <dirent.h>
#include <limits.h>
#include <malloc.h>
#include <sys/stat.h>
#include <sys/wait.h>

// The resources of a process while no connection is in progress.
struct census {
	long descriptors, threads, heap, shared, resident;
};

static long status_of(const char *name)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long value = -1;

	CHECK(f, "status");
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			value = atol(line + strlen(name) + 1);
	fclose(f);
	CHECK(value >= 0, "no %s", name);
	return value;
}

// Counts the descriptors, and the memory of anonymous files (memfd).
static void descriptors(struct census *c)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	struct stat st;
	char to[256];
	ssize_t len;

	CHECK(dir, "fd");
	while ((entry = readdir(dir))) {
		len = readlinkat(dirfd(dir), entry->d_name, to, sizeof(to) - 1);
		if (len <= 0)
			continue;
		to[len] = 0;
		c->descriptors++;
		if (!strncmp(to, "/memfd:", 7) && !fstat(atoi(entry->d_name), &st))
			c->shared += st.st_blocks * 512;
	}
	closedir(dir);
}

static struct census census(void)
{
	struct census c = {0};
	struct mallinfo2 heap;

	// During this sleep, the time-wait states of closed connections end.
	usleep(2500 * 1000);
	descriptors(&c);
	c.threads = status_of("Threads");
	c.resident = status_of("RssAnon") * 1024;
	heap = mallinfo2();
	c.heap = heap.uordblks + heap.hblkhd;
	return c;
}

// NUMBERS is the number of queue pair numbers in a slot, the range that a process owns. PLACE is
// the number of bytes that a new number touches in the published tables, which peers read.
// OWN_PLACE is the number of bytes that a new number needs in other tables, on the heap.
enum { NUMBERS = 1 << 14, PLACE = 256, OWN_PLACE = 16 };

enum { ROUNDS = 3 };

static long lesser(long a, long b)
{
	return a < b ? a : b;
}

// Keeps the smallest growth of each resource over all rounds. So growth in a single round, such as
// a larger buffer or a new descriptor, does not count. If each connection leaks a resource, the
// resource grows in every round.
static void note(const char *who, struct census *least, const struct census *a, const struct census *b)
{
	printf("%s: descriptors %ld %ld, threads %ld %ld, heap %ld %ld, shared %ld %ld, resident %ld %ld\n", who,
	       a->descriptors, b->descriptors, a->threads, b->threads, a->heap, b->heap, a->shared, b->shared,
	       a->resident, b->resident);
	fflush(stdout);
	least->descriptors = lesser(least->descriptors, b->descriptors - a->descriptors);
	least->threads = lesser(least->threads, b->threads - a->threads);
	least->heap = lesser(least->heap, b->heap - a->heap);
	least->shared = lesser(least->shared, b->shared - a->shared);
	least->resident = lesser(least->resident, b->resident - a->resident);
}

static void judge(const struct census *least, int warm, int count)
{
	long new = warm < NUMBERS ? count : 0;

	CHECK(least->descriptors <= 0, "%ld descriptors", least->descriptors);
	CHECK(least->threads <= 0, "%ld threads", least->threads);
	CHECK(least->shared <= PLACE * new, "shared memory: %ld bytes", least->shared);
	// The limit is 8 bytes for each connection, less than the smallest allocation.
	CHECK(least->heap < 8L * count + OWN_PLACE * new + 4096, "heap: %ld bytes", least->heap);
	CHECK(least->resident < 64L * count + (1 << 20), "memory: %ld bytes", least->resident);
}

// All queue pair numbers must belong to the same slot. A process that leaks numbers would have to
// claim a second slot.
static void same_slot(const struct rdma_cm_id *id)
{
	static uint32_t slot;

	if (!slot)
		slot = id->qp->qp_num >> 14;
	CHECK(id->qp->qp_num >> 14 == slot, "queue pair number %#x is not of slot %#x", id->qp->qp_num, slot);
}

static void serve_one(struct listener *l)
{
	struct rdma_cm_event *event = expect(l->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;

	CHECK(!rdma_ack_cm_event(event), "ack");
	accept_request(id, "welcome");
	same_slot(id);
	drop(l->channel, RDMA_CM_EVENT_ESTABLISHED);
	drop(l->channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_disconnect(id), "disconnect");
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id), "destroy");
}

static void ask_one(struct listener *l)
{
	struct rdma_cm_id *id = client_open(l, RDMA_PS_TCP);

	client_connect(id, "hello");
	same_slot(id);
	drop(id->channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(!rdma_disconnect(id), "disconnect");
	drop(id->channel, RDMA_CM_EVENT_DISCONNECTED);
	client_close(id);
}

static void repeat(const char *who, struct listener *l, void (*once)(struct listener *), int warm, int count)
{
	struct census least = {LONG_MAX, LONG_MAX, LONG_MAX, LONG_MAX, LONG_MAX};
	struct census before, after;
	int round, n;

	for (n = 0; n < warm; n++)
		once(l);
	before = census();
	for (round = 0; round < ROUNDS; round++) {
		for (n = 0; n < count; n++)
			once(l);
		after = census();
		note(who, &least, &before, &after);
		before = after;
	}
	judge(&least, warm, count);
}

static void leaks(int warm, int count)
{
	struct listener l = {0};
	int port[2], status;
	pid_t client;

	CHECK(!pipe(port), "pipe");
	client = fork();
	CHECK(client >= 0, "fork");
	if (!client) {
		CHECK(read(port[0], &l.port, sizeof(l.port)) == sizeof(l.port), "port");
		repeat("client", &l, ask_one, warm, count);
		_exit(0);
	}
	listener_open(&l, RDMA_PS_TCP);
	CHECK(write(port[1], &l.port, sizeof(l.port)) == sizeof(l.port), "port");
	repeat("server", &l, serve_one, warm, count);
	CHECK(waitpid(client, &status, 0) == client && !status, "the client's status is %#x", status);
	listener_close(&l);
}

enum { ASKING = 10, ROOM = 4 };

// The listener drops a request when the backlog is full, and the client repeats the request. So the
// server receives every request, and the number of waiting requests stays within the backlog.
static void backlog(void)
{
	struct rdma_cm_id *clients[ASKING], *servers[ASKING];
	struct rdma_cm_event *event;
	struct listener l;
	int served = 0, more = 0, n, i;

	listener_open(&l, RDMA_PS_TCP);
	for (i = 0; i < ASKING; i++) {
		clients[i] = client_open(&l, RDMA_PS_TCP);
		client_connect(clients[i], "hello");
	}
	while (served < ASKING) {
		// The server reads no request for a second, so waiting requests fill the backlog.
		usleep(1000 * 1000);
		for (n = 0; n <= ASKING; n++) {
			struct pollfd at = {.fd = l.channel->fd, .events = POLLIN};

			if (!poll(&at, 1, n ? 0 : 30000))
				break;
			CHECK(served < ASKING, "one request too many");
			event = expect(l.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
			servers[served++] = event->id;
			CHECK(!rdma_ack_cm_event(event), "ack");
		}
		// A client that repeats a request during these reads finds room in the backlog, so
		// the server may read more than ROOM requests at once. The test accepts one such
		// round.
		more += n > ROOM;
		CHECK(n > 0 && n < 2 * ROOM && more <= 1, "%d requests waited", n);
		printf("%d waited\n", n);
		fflush(stdout);
	}
	for (i = 0; i < ASKING; i++)
		accept_request(servers[i], NULL);
	for (i = 0; i < ASKING; i++)
		drop(clients[i]->channel, RDMA_CM_EVENT_ESTABLISHED);
	for (i = 0; i < ASKING; i++)
		drop(l.channel, RDMA_CM_EVENT_ESTABLISHED);
	for (i = 0; i < ASKING; i++)
		CHECK(!rdma_disconnect(clients[i]), "disconnect");
	for (i = 0; i < ASKING; i++)
		drop(l.channel, RDMA_CM_EVENT_DISCONNECTED);
	for (i = 0; i < ASKING; i++) {
		rdma_destroy_qp(servers[i]);
		CHECK(!rdma_destroy_id(servers[i]), "destroy");
		client_close(clients[i]);
	}
	listener_close(&l);
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "leaks"))
		leaks(atoi(argv[2]), atoi(argv[3]));
	else if (argc == 2 && !strcmp(argv[1], "backlog"))
		backlog();
	else
		return 2;
	printf("ok %s\n", argv[1]);
	return 0;
}
