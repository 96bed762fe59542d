// When the peers of a process on the same host have died, the process must give up all descriptors
// and mappings of these peers, even if the process keeps its queue pairs. A forked child must never
// have any.
// usage: remains CASE
// - idle: the process does not call the library after the deaths.
// - copying: threads are in the middle of copies.
// - forking: the process forks children while peers connect.
// - unread: messages that a peer sent before its death must be delivered.
// - reach: prints whether this process can read a living peer's unregistered memory (SECURITY.md).
#define _GNU_SOURCE
#include "rig.h"
#include <dirent.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PART (64 << 10)
#define LARGE (4 << 20)
#define UNREGISTERED (16 << 20)
#define SENDS 8
#define SECRET "unregistered"
#define MOST 256
#define ROUNDS 12

// The shared memory files of the library that a process has mapped or open, and the number of its
// pidfds (`ends`).
struct held {
	ino_t files[MOST];
	int n, ends;
};

struct hello {
	uint64_t addr;
	uint32_t rkey, qpn;
};

struct end {
	struct port port;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *mem;
	struct hello peer;
};

struct victim {
	pid_t pid;
	int fd;
	struct end end;
};

static void tell(int fd, const void *what, size_t len)
{
	CHECK(write(fd, what, len) == (ssize_t)len, "the other process has gone");
}

static void hear(int fd, void *what, size_t len)
{
	CHECK(recv(fd, what, len, MSG_WAITALL) == (ssize_t)len, "the other process has gone");
}

static void note(struct held *h, ino_t file)
{
	int i;

	for (i = 0; i < h->n; i++)
		if (h->files[i] == file)
			return;
	CHECK(h->n < MOST, "too many files");
	h->files[h->n++] = file;
}

// Shared files contain memory, published tables and rings. The file of the descriptor `cmd_fd` of a
// context is not shared with other processes, and does not count.
static int is_shared(const char *name)
{
	const char *at = strstr(name, "/memfd:adverb");

	return at && !strstr(at, "adverb-cmd");
}

static void look(struct held *h)
{
	char line[4600], path[300];
	unsigned long inode;
	struct dirent *e;
	struct stat st;
	ssize_t len;
	FILE *maps = fopen("/proc/self/maps", "r");
	DIR *fds = opendir("/proc/self/fd");

	memset(h, 0, sizeof(*h));
	CHECK(maps && fds, "/proc");
	while (fgets(line, sizeof(line), maps))
		if (is_shared(line) && sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1)
			note(h, inode);
	while ((e = readdir(fds))) {
		snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
		len = readlink(path, line, sizeof(line) - 1);
		if (len < 0)
			continue;
		line[len] = 0;
		if (is_shared(line) && !stat(path, &st))
			note(h, st.st_ino);
		h->ends += strstr(line, "pidfd") != NULL;
	}
	closedir(fds);
	fclose(maps);
}

static int more(const struct held *now, const struct held *before)
{
	int i, j, n = now->ends > before->ends;

	for (i = 0; i < now->n; i++) {
		for (j = 0; j < before->n && before->files[j] != now->files[i]; j++)
			;
		n += j == before->n;
	}
	return n;
}

// Waits until this process has no more shared files and pidfds than in `before`. A file counts if
// the file is open or mapped. After the wait, the library has released everything of the dead
// peers.
static void let_go(const struct held *before, const char *when)
{
	double until = now() + POLL_SECONDS;
	struct held h;

	for (;;) {
		look(&h);
		if (!more(&h, before))
			return;
		CHECK(now() < until, "%s: %d files and ends of dead peers are held", when, more(&h, before));
		usleep(1000);
	}
}

static void end_open(struct end *e, const struct port *port, size_t size)
{
	e->port = *port;
	e->cq = cq_new(&e->port, 64, NULL, NULL);
	e->qp = qp_new(&e->port, IBV_QPT_RC, e->cq, e->cq, 32);
	CHECK(!posix_memalign((void **)&e->mem, 4096, size), "memory");
	memset(e->mem, 0x5a, size);
	e->mr = ibv_reg_mr(e->port.pd, e->mem, size,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	CHECK(e->mr, "mr");
}

static void end_join(struct end *e, int fd)
{
	struct timers t = {14, 7, 7};
	struct hello mine = {(uintptr_t)e->mem, e->mr->rkey, e->qp->qp_num};
	char c = 'j';

	tell(fd, &mine, sizeof(mine));
	hear(fd, &e->peer, sizeof(e->peer));
	qp_init(&e->port, e->qp);
	qp_join(&e->port, e->qp, 100, e->peer.qpn, 100, e->port.gid, t);
	tell(fd, &c, 1);
	hear(fd, &c, 1);
}

static int post(struct end *e, enum ibv_wr_opcode op, size_t len)
{
	struct ibv_sge s = {(uintptr_t)e->mem, len, e->mr->lkey};
	struct ibv_send_wr w = {.sg_list = &s, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED}, *bad;

	w.wr.rdma.remote_addr = e->peer.addr;
	w.wr.rdma.rkey = e->peer.rkey;
	return ibv_post_send(e->qp, &w, &bad);
}

// A process that connects on command and waits to be killed. The process also has unregistered,
// page-aligned memory.
static void victim(int fd, size_t size)
{
	struct ibv_send_wr w[SENDS], *bad;
	struct ibv_sge s[SENDS];
	struct port port;
	struct end e;
	uint8_t *rest;
	char c;
	int i;

	alarm(120);
	hear(fd, &c, 1);
	port_open(&port);
	end_open(&e, &port, size);
	CHECK(!posix_memalign((void **)&rest, 4096, UNREGISTERED), "memory");
	memset(rest, 1, UNREGISTERED);
	strcpy((char *)rest, SECRET);
	end_join(&e, fd);
	// The victim also reads from the memory of the survivor. Then each process has mapped the
	// memory of the other process.
	CHECK(!post(&e, IBV_WR_RDMA_READ, PART), "post");
	poll_good(e.cq);
	tell(fd, &c, 1);
	hear(fd, &c, 1);
	memset(w, 0, sizeof(w));
	for (i = 0; i < SENDS; i++) {
		memset(e.mem + i * PART, i + 1, PART);
		s[i] = (struct ibv_sge){(uintptr_t)e.mem + i * PART, PART, e.mr->lkey};
		w[i] = (struct ibv_send_wr){.sg_list = s + i, .num_sge = 1, .opcode = IBV_WR_SEND,
					    .next = i + 1 < SENDS ? w + i + 1 : NULL};
	}
	CHECK(!ibv_post_send(e.qp, w, &bad), "post");
	tell(fd, &c, 1);
	for (;;)
		pause();
}

static void victim_start(struct victim *v, size_t size)
{
	int sv[2];

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv), "socketpair");
	v->pid = fork();
	CHECK(v->pid >= 0, "fork");
	if (!v->pid) {
		close(sv[0]);
		victim(sv[1], size);
	}
	close(sv[1]);
	v->fd = sv[0];
}

// Connects the victim with this process, the survivor. The survivor writes to the victim's memory.
static void victim_meet(struct victim *v, const struct port *port, size_t size)
{
	char c = 'm';

	tell(v->fd, &c, 1);
	end_open(&v->end, port, size);
	end_join(&v->end, v->fd);
	CHECK(!post(&v->end, IBV_WR_RDMA_WRITE, PART), "post");
	poll_good(v->end.cq);
	hear(v->fd, &c, 1);
}

static void victim_kill(struct victim *v)
{
	CHECK(!kill(v->pid, SIGKILL) && waitpid(v->pid, NULL, 0) == v->pid, "kill");
}

// Starts a child that stays alive. Sets `held` to the number of shared files that the child has
// from the parent and from the parent's peers.
static pid_t child_start(int *held)
{
	static const struct held none;
	struct held h;
	int ends[2], n;
	pid_t pid;

	CHECK(!pipe(ends), "pipe");
	pid = fork();
	CHECK(pid >= 0, "fork");
	if (!pid) {
		alarm(120);
		look(&h);
		h.ends = 0;
		n = more(&h, &none);
		tell(ends[1], &n, sizeof(n));
		for (;;)
			pause();
	}
	CHECK(read(ends[0], held, sizeof(*held)) == sizeof(*held), "the child has gone");
	close(ends[0]);
	close(ends[1]);
	return pid;
}

static void child_end(pid_t pid)
{
	CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid, "end the child");
}

static void idle(struct victim *victims, int n, struct port *port)
{
	struct held before, met;
	int i, held;
	pid_t child;

	look(&before);
	CHECK(before.n > 0, "the library has no file of its own");
	for (i = 0; i < n; i++)
		victim_meet(&victims[i], port, SENDS * PART);
	look(&met);
	CHECK(more(&met, &before) >= n, "%d files more than before: nothing is shared", more(&met, &before));
	child = child_start(&held);
	CHECK(!held, "a child holds %d files and ends", held);
	for (i = 0; i < n; i++) {
		victim_kill(&victims[i]);
		if (i == 0)
			look(&met);
	}
	let_go(&before, "idle");
	for (i = 0; i < n; i++) {
		CHECK(!post(&victims[i].end, IBV_WR_RDMA_WRITE, PART), "post");
		CHECK(poll_one(victims[i].end.cq).status == IBV_WC_RETRY_EXC_ERR, "a write to a dead process");
	}
	let_go(&before, "after a write");
	child_end(child);
}

// Writes and reads until the peer dies. No copy may crash the process, and a READ with success must
// return the peer's bytes.
static void *copies(void *arg)
{
	struct end *e = arg;
	struct ibv_wc wc;
	long n;
	size_t i;

	for (n = 0;; n++) {
		enum ibv_wr_opcode op = n % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;

		if (op == IBV_WR_RDMA_READ)
			memset(e->mem, 0, LARGE);
		else
			memset(e->mem, 0x5a, LARGE);
		if (post(e, op, LARGE))
			break;
		wc = poll_one(e->cq);
		if (wc.status != IBV_WC_SUCCESS) {
			CHECK(wc.status == IBV_WC_RETRY_EXC_ERR, "%s", ibv_wc_status_str(wc.status));
			break;
		}
		for (i = 0; op == IBV_WR_RDMA_READ && i < LARGE; i += 512)
			CHECK(e->mem[i] == 0x5a, "read %ld: %#x at %zu", n, e->mem[i], i);
	}
	return NULL;
}

static void copying(struct victim *victims, int n, struct port *port)
{
	struct held before;
	pthread_t thread;
	int i;

	look(&before);
	for (i = 0; i < n; i++) {
		victim_meet(&victims[i], port, LARGE);
		CHECK(!pthread_create(&thread, NULL, copies, &victims[i].end), "thread");
		usleep(1000 * (i * 7 % 20));
		victim_kill(&victims[i]);
		pthread_join(thread, NULL);
		let_go(&before, "copying");
	}
}

static volatile int stop;

static void *forks(void *arg)
{
	int *most = arg, held;
	pid_t child;

	while (!stop) {
		child = child_start(&held);
		*most = held > *most ? held : *most;
		child_end(child);
	}
	return NULL;
}

static void forking(struct victim *victims, int n, struct port *port)
{
	struct held before;
	pthread_t thread;
	int i, most = 0;

	look(&before);
	CHECK(!pthread_create(&thread, NULL, forks, &most), "thread");
	for (i = 0; i < n; i++) {
		victim_meet(&victims[i], port, SENDS * PART);
		victim_kill(&victims[i]);
	}
	stop = 1;
	pthread_join(thread, NULL);
	CHECK(!most, "a child held %d files and ends", most);
	let_go(&before, "forking");
}

// An arbiter process stops this process, the survivor. While the survivor is stopped, the peer
// sends messages and is killed. Then the arbiter continues the survivor, which must receive the
// messages.
static void unread(struct victim *v, struct port *port)
{
	struct ibv_recv_wr r = {.num_sge = 1}, *bad;
	struct ibv_sge s;
	struct held before;
	pid_t me = getpid(), arbiter;
	uint8_t *mem;
	int i, j, state;
	char c = 's';

	look(&before);
	victim_meet(v, port, SENDS * PART);
	CHECK(!posix_memalign((void **)&mem, 4096, SENDS * PART), "memory");
	s.lkey = ibv_reg_mr(port->pd, mem, SENDS * PART, IBV_ACCESS_LOCAL_WRITE)->lkey;
	for (i = 0; i < SENDS; i++) {
		s.addr = (uintptr_t)mem + i * PART;
		s.length = PART;
		r.sg_list = &s;
		r.wr_id = i;
		CHECK(!ibv_post_recv(v->end.qp, &r, &bad), "post receive");
	}
	arbiter = fork();
	CHECK(arbiter >= 0, "fork");
	if (!arbiter) {
		alarm(120);
		CHECK(!kill(me, SIGSTOP), "stop");
		usleep(100000);
		tell(v->fd, &c, 1);
		hear(v->fd, &c, 1);
		CHECK(!kill(v->pid, SIGKILL), "kill");
		// The dead peer is still a zombie, as the survivor has not called waitpid. The
		// library must see the death all the same.
		usleep(100000);
		CHECK(!kill(me, SIGCONT), "continue");
		_exit(0);
	}
	CHECK(waitpid(arbiter, &state, 0) == arbiter && !state, "the arbiter ended with %x", state);
	CHECK(waitpid(v->pid, NULL, 0) == v->pid, "wait");
	let_go(&before, "unread");
	for (i = 0; i < SENDS; i++) {
		struct ibv_wc wc = poll_good(v->end.cq);

		CHECK(wc.wr_id == (uint64_t)i && wc.byte_len == PART, "message %d", i);
		for (j = 0; j < PART; j++)
			CHECK(mem[i * PART + j] == i + 1, "byte %d of message %d", j, i);
	}
}

// True if a page of the descriptor's file begins with `text`.
static int holds(int fd, const char *text)
{
	off_t at = 0, end;
	char page[64];

	while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
		end = lseek(fd, at, SEEK_HOLE);
		for (; at < end; at += 4096)
			if (pread(fd, page, sizeof(page), at) > 0 && !strncmp(page, text, strlen(text)))
				return 1;
	}
	return 0;
}

static void reach(struct victim *v, struct port *port)
{
	int reached = 0;
	char path[300], link[128];
	struct dirent *e;
	ssize_t len;
	DIR *fds;

	victim_meet(v, port, SENDS * PART);
	fds = opendir("/proc/self/fd");
	CHECK(fds, "/proc/self/fd");
	while ((e = readdir(fds))) {
		snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
		len = readlink(path, link, sizeof(link) - 1);
		link[len < 0 ? 0 : len] = 0;
		reached |= is_shared(link) && holds(atoi(e->d_name), SECRET);
	}
	closedir(fds);
	victim_kill(v);
	printf("unregistered memory is %s\n", reached ? "reached" : "out of reach");
}

int main(int argc, char **argv)
{
	static struct victim victims[ROUNDS];
	const char *how = argc > 1 ? argv[1] : "";
	int n = !strcmp(how, "idle") ? 3 : !strcmp(how, "unread") || !strcmp(how, "reach") ? 1 : ROUNDS, i;
	struct port port;

	alarm(120);
	setvbuf(stdout, NULL, _IONBF, 0);
	for (i = 0; i < n; i++)
		victim_start(&victims[i], !strcmp(how, "copying") ? LARGE : SENDS * PART);
	port_open(&port);
	if (!strcmp(how, "idle"))
		idle(victims, n, &port);
	else if (!strcmp(how, "copying"))
		copying(victims, n, &port);
	else if (!strcmp(how, "forking"))
		forking(victims, n, &port);
	else if (!strcmp(how, "unread"))
		unread(victims, &port);
	else if (!strcmp(how, "reach"))
		reach(victims, &port);
	else
		CHECK(0, "no such way: %s", how);
	printf("ok remains: %s, %d peers\n", how, n);
	return 0;
}
