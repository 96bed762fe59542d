// Two processes have a connection, and both sides fork. Some children exit at once, and some write
// into their copies of registered memory. The last child outlives the parent. Children must not
// affect the memory that the parent has registered.
// usage: fork_peers [heap]. With heap, the first process registers the whole heap, which also
// contains data of the library. This process then forks before it connects.
#include "rig.h"
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define SIZE 70000
#define PAGES 73728

enum { OUT, IN, TARGET, SOURCE, PARTS };

struct hello {
	uint64_t addr[PARTS];
	uint32_t rkey[PARTS], qpn;
};

struct end {
	struct port port;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint8_t *mem[PARTS];
	struct ibv_mr *mr[PARTS];
	struct hello peer;
	int fd, who;
	uint8_t want[SIZE];
};

static void tell(int fd, const void *what, size_t len)
{
	CHECK(write(fd, what, len) == (ssize_t)len, "the other process has gone");
}

static void hear(int fd, void *what, size_t len)
{
	CHECK(recv(fd, what, len, MSG_WAITALL) == (ssize_t)len, "the other process has gone");
}

static void end_open(struct end *e, int who, int fd)
{
	struct timers t = {14, 7, 7};
	struct hello mine;
	int i;

	memset(e, 0, sizeof(*e));
	e->who = who;
	e->fd = fd;
	port_open(&e->port);
	e->cq = cq_new(&e->port, 16, NULL, NULL);
	e->qp = qp_new(&e->port, IBV_QPT_RC, e->cq, e->cq, 8);
	for (i = 0; i < PARTS; i++) {
		e->mem[i] = mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(e->mem[i] != MAP_FAILED, "mmap");
		e->mr[i] = ibv_reg_mr(e->port.pd, e->mem[i], SIZE,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
		CHECK(e->mr[i], "mr");
		mine.addr[i] = (uintptr_t)e->mem[i];
		mine.rkey[i] = e->mr[i]->rkey;
	}
	fill(e->mem[SOURCE], SIZE, who, 0);
	mine.qpn = e->qp->qp_num;
	tell(fd, &mine, sizeof(mine));
	hear(fd, &e->peer, sizeof(e->peer));
	qp_init(&e->port, e->qp);
	qp_join(&e->port, e->qp, 100, e->peer.qpn, 100, e->port.gid, t);
}

static void post(struct end *e, enum ibv_wr_opcode op, int mine, int theirs)
{
	struct ibv_sge s = {(uintptr_t)e->mem[mine], SIZE, e->mr[mine]->lkey};
	struct ibv_send_wr w = {.sg_list = &s, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED}, *bad;

	w.wr.rdma.remote_addr = e->peer.addr[theirs];
	w.wr.rdma.rkey = e->peer.rkey[theirs];
	CHECK(!ibv_post_send(e->qp, &w, &bad), "post");
}

static void post_recv(struct end *e)
{
	struct ibv_sge s = {(uintptr_t)e->mem[IN], SIZE, e->mr[IN]->lkey};
	struct ibv_recv_wr r = {.sg_list = &s, .num_sge = 1}, *bad;

	CHECK(!ibv_post_recv(e->qp, &r, &bad), "post receive");
}

static void expect(struct end *e, int part, int who, int n, const char *what)
{
	fill(e->want, SIZE, who, n);
	CHECK(!memcmp(e->mem[part], e->want, SIZE), "process %d: %s number %d", e->who, what, n);
}

// One side of an exchange: a message, a WRITE and a READ in each direction. Each side sends `r`
// when it is ready and `d` when it is done, and waits for the same letter from the other side.
static void exchange(struct end *e, int n)
{
	int other = 3 - e->who;
	char c = 'r';

	post_recv(e);
	fill(e->mem[OUT], SIZE, e->who, n);
	tell(e->fd, &c, 1);
	hear(e->fd, &c, 1);
	CHECK(c == 'r', "%c", c);
	post(e, IBV_WR_RDMA_WRITE, OUT, TARGET);
	poll_good(e->cq);
	post(e, IBV_WR_SEND, OUT, 0);
	poll_good(e->cq);
	poll_good(e->cq);
	expect(e, IN, other, n, "message");
	expect(e, TARGET, other, n, "write");
	post(e, IBV_WR_RDMA_READ, IN, SOURCE);
	poll_good(e->cq);
	expect(e, IN, other, 0, "read");
	expect(e, SOURCE, e->who, 0, "source");
	c = 'd';
	tell(e->fd, &c, 1);
	hear(e->fd, &c, 1);
	CHECK(c == 'd', "%c", c);
}

static void exiting_child(int how)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0, "fork");
	if (!pid) {
		if (how)
			_exit(0);
		exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "child ended with %x", status);
}

// The child overwrites all memory that the parent has registered. The parent and the peer must not
// see the writes.
static void scribbling_child(struct end *e, int n)
{
	int ready[2], i;
	char c = 0;
	pid_t pid;

	CHECK(!pipe(ready), "pipe");
	pid = fork();
	CHECK(pid >= 0, "fork");
	if (!pid) {
		for (i = 0; i < PARTS; i++)
			memset(e->mem[i], 0xee, SIZE);
		tell(ready[1], &c, 1);
		alarm(120);
		pause();
		_exit(1);
	}
	CHECK(read(ready[0], &c, 1) == 1, "the child has gone");
	expect(e, SOURCE, e->who, 0, "source");
	expect(e, OUT, e->who, n - 1, "what was sent last");
	exchange(e, n);
	CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid, "end the child");
	close(ready[0]);
	close(ready[1]);
}

// The second process obeys the orders of the first process. After the order `l` a child takes over.
// The child waits until the parent has ended, and then opens a device.
static void second(int fd)
{
	static struct end e, heir;
	int n = 0;
	char c;

	end_open(&e, 2, fd);
	for (;;) {
		hear(fd, &c, 1);
		switch (c) {
		case 'x':
			exchange(&e, ++n);
			break;
		case 'f':
			exiting_child(n % 2);
			tell(fd, &c, 1);
			break;
		case 's':
			scribbling_child(&e, ++n);
			break;
		case 'l':
			// The child inherits all descriptors of the parent, including `fd`.
			if (fork())
				_exit(0);
			alarm(120);
			tell(fd, &c, 1);
			hear(fd, &c, 1);
			end_open(&heir, 2, fd);
			exchange(&heir, 1);
			exchange(&heir, 2);
			_exit(0);
		default:
			CHECK(0, "order %c", c);
		}
	}
}

// Registers the whole heap and forks. In the child, fork handlers of the library and of the C
// library change the child's copy of the heap. The parent must not see these changes.
static void fork_with_heap(struct port *p)
{
	unsigned long start = 0, end = 0;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");

	CHECK(maps, "maps");
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "[heap]") && sscanf(line, "%lx-%lx", &start, &end) == 2)
			break;
	fclose(maps);
	CHECK(end > start, "no heap");
	CHECK(ibv_reg_mr(p->pd, (void *)start, end - start,
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE), "mr of the heap");
	exiting_child(1);
}

static void order(int fd, char c)
{
	tell(fd, &c, 1);
}

int main(int argc, char **argv)
{
	static struct end e, again;
	struct port heap;
	struct ibv_wc wc;
	int sv[2], n = 0, i, status;
	char c;
	pid_t pid;

	alarm(120);
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv), "socketpair");
	pid = fork();
	CHECK(pid >= 0, "fork");
	if (!pid) {
		alarm(120);
		close(sv[0]);
		second(sv[1]);
	}
	close(sv[1]);
	if (argc > 1 && !strcmp(argv[1], "heap")) {
		port_open(&heap);
		fork_with_heap(&heap);
	}
	end_open(&e, 1, sv[0]);
	for (i = 0; i < 4; i++) {
		order(sv[0], 'x');
		exchange(&e, ++n);
		order(sv[0], 'f');
		hear(sv[0], &c, 1);
		order(sv[0], 'x');
		exchange(&e, ++n);
		exiting_child(i % 2);
	}
	order(sv[0], 's');
	exchange(&e, ++n);
	order(sv[0], 'x');
	scribbling_child(&e, ++n);
	// The second process ends while its child lives. The connection must end with the second
	// process, so the SEND must fail.
	post(&e, IBV_WR_SEND, OUT, 0);
	order(sv[0], 'l');
	hear(sv[0], &c, 1);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the second process ended with %x", status);
	wc = poll_one(e.cq);
	CHECK(wc.status == IBV_WC_RETRY_EXC_ERR, "%s", ibv_wc_status_str(wc.status));
	order(sv[0], 'g');
	end_open(&again, 1, sv[0]);
	exchange(&again, 1);
	exchange(&again, 2);
	printf("ok fork peers: %d exchanges beside forks, 2 with the child that was left\n", n);
	return 0;
}
