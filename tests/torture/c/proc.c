// Steps that involve the kernel, other threads or other processes: fork, exec, pipes, files, and
// threads that sleep on a lock (mutex, semaphore, condition variable) inside a block.
#include "torture.h"
#include <semaphore.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

extern char **environ;

// ---- Forks.
// Finds the range of a block that a fork leaves out or wipes. Returns 0 if there is no such range.
static int special(struct block *b, size_t *a, size_t *z)
{
	return b->forked != COPIED && inner(b, a, z);
}

// Checks all blocks in a child of fork. `alone` means that the parent does not wait for this child.
// The parent may then change shared memory meanwhile, so the child does not check shared blocks.
static void child_checks(struct thread *t, int alone)
{
	size_t a, z;
	int i;

	for (i = 0; i < BLOCKS; i++) {
		struct block *b = &t->block[i];

		if (!b->kind || (alone && b->kind == SHARED))
			continue;
		if (!special(b, &a, &z)) {
			check(t, b, 0, b->len, "in a child of fork");
			continue;
		}
		check(t, b, 0, a, "in a child of fork, before special pages");
		check(t, b, z, b->len, "in a child of fork, behind special pages");
		if (b->forked == WIPED && b->prot & PROT_READ) {
			// This changes only the child's copy of the model.
			memset(b->model + a, 0, z - a);
			b->lazy_from = b->lazy_to = b->busy = 0;
			check(t, b, a, z, "in a child of fork, wiped");
		}
	}
}

static void scribble(struct thread *t, uint64_t seed, int verify)
{
	int i, part;

	for (i = 0; i < BLOCKS; i++) {
		struct block *b = &t->block[i];
		size_t a = b->len, z = b->len, at, n;

		if (!b->kind || b->kind == SHARED)
			continue;
		if (!(b->prot & PROT_WRITE) || b->forked == DONTFORK)
			if (!inner(b, &a, &z))
				a = z = b->len;
		for (part = 0; part < 2; part++) {
			at = part ? z : 0;
			n = part ? b->len - z : a;
			if (!verify) {
				pattern(b->mem + at, n, seed + i);
				continue;
			}
			pattern(b->model + at, n, seed + i);
			b->busy = 0;
			b->lazy_from = b->lazy_to = 0;
			check(t, b, at, at + n, "in a child of fork, what it wrote itself");
		}
	}
}

static void reap(struct thread *t, pid_t pid, const char *what)
{
	int status;

	while (waitpid(pid, &status, 0) != pid)
		if (errno != EINTR)
			fail(t, NULL, "waitpid of %s", what);
	if (status)
		fail(t, NULL, "%s ended with status %x", what, status);
}

static pid_t forked_child(struct thread *t, int fd)
{
	pid_t pid = fork();
	char c;

	if (pid < 0)
		fail(t, NULL, "fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	child_checks(t, fd >= 0);
	scribble(t, 77 * t->step, 0);
	if (fd < 0)
		_exit(0);
	while (read(fd, &c, 1) < 0)
		;
	scribble(t, 77 * t->step, 1);
	_exit(0);
}

void step_fork(struct thread *t)
{
	note(t, NULL, "fork");
	reap(t, forked_child(t, -1), "a child of fork");
	check_all(t, "after a fork");
}

// The first call forks a child, which writes to its blocks and waits, while the parent makes
// further steps. The next call lets the child check the bytes that the child wrote, and waits for
// its end.
void step_linger(struct thread *t)
{
	int fd[2];

	if (t->child_pid) {
		note(t, NULL, "end of the child that stayed");
		if (write(t->child_fd, "", 1) != 1)
			fail(t, NULL, "the child that stayed has gone");
		reap(t, t->child_pid, "the child that stayed");
		close(t->child_fd);
		t->child_pid = 0;
		return;
	}
	if (pipe2(fd, O_CLOEXEC))
		fail(t, NULL, "pipe");
	note(t, NULL, "fork of a child that stays");
	t->child_pid = forked_child(t, fd[0]);
	t->child_fd = fd[1];
	close(fd[0]);
	check_all(t, "after the fork of a child that stays");
}

void step_exec(struct thread *t)
{
	static char *argv[] = {"true", NULL};
	unsigned how = rng_below(&t->rng, 3);
	pid_t pid;
	int e;

	note(t, NULL, "exec by way %u", how);
	switch (how) {
	case 0:
		pid = vfork();
		if (!pid) {
			execv("/bin/true", argv);
			_exit(127);
		}
		if (pid < 0)
			fail(t, NULL, "vfork");
		reap(t, pid, "true, by vfork");
		break;
	case 1:
		e = posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ);
		if (e)
			fail(t, NULL, "posix_spawn gave %d", e);
		reap(t, pid, "true, by posix_spawn");
		break;
	default:
		e = system("true");
		if (e)
			fail(t, NULL, "system gave %x", e);
	}
	check_all(t, "after exec");
}

// ---- Pipes and files.
static struct block *buffer(struct thread *t, size_t most, size_t *off, size_t *len)
{
	struct block *b = any_block(t, 1 << HEAP | 1 << MAPPED | 1 << SHARED, 1);

	if (!b)
		return NULL;
	settle(t, b);
	*len = 1 + rng_below(&t->rng, b->len < most ? b->len : most);
	*off = rng_below(&t->rng, b->len - *len + 1);
	return b;
}

void step_pipe(struct thread *t)
{
	unsigned how = rng_below(&t->rng, 4);
	uint64_t seed = rng_next(&t->rng);
	size_t off, len;
	struct block *b = buffer(t, 60000, &off, &len);
	ssize_t n = len, m;
	struct iovec v[2];
	int fd[2];

	if (!b)
		return;
	if (pipe2(fd, O_CLOEXEC))
		fail(t, b, "pipe");
	v[0] = (struct iovec){b->mem + off, len / 2};
	v[1] = (struct iovec){b->mem + off + len / 2, len - len / 2};
	note(t, b, "pipe, way %u, %zu bytes at %zu", how, len, off);
	if (how < 2) {
		pattern(t->scratch, len, seed);
		m = write(fd[1], t->scratch, len);
		n = how ? readv(fd[0], v, 2) : read(fd[0], b->mem + off, len);
		pattern(b->model + off, len, seed);
	} else {
		// vmsplice takes fewer bytes if the pipe has too few free buffers, for example
		// because of the limit on pipe pages of a user.
		n = how == 2 ? writev(fd[1], v, 2) : vmsplice(fd[1], v, 2, 0);
		for (m = 0; n > 0 && m < n;) {
			ssize_t r = read(fd[0], t->scratch + m, n - m);

			if (r <= 0)
				break;
			m += r;
		}
		if (how == 3 && n > 0)
			len = n;
		check_copy(t, b, off, t->scratch, len, "what went into a pipe");
	}
	if (n != (ssize_t)len || m != n)
		fail(t, b, "pipe, way %u: %zd and %zd of %zu bytes", how, m, n, len);
	close(fd[0]);
	close(fd[1]);
	check(t, b, 0, b->len, "read from a pipe");
}

#define FILE_LEN (256ul << 10)

static void file_open(struct thread *t)
{
	const char *dir = getenv("TMPDIR");
	char path[256];

	snprintf(path, sizeof(path), "%s/torture-%d-%d", dir ? dir : "/tmp", getpid(), t->index);
	t->file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(t->file >= 0, "%s", path);
	// Some file systems do not support O_DIRECT.
	t->direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	unlink(path);
	t->file_seed = 1234 + t->index;
	pattern(t->scratch, FILE_LEN, t->file_seed);
	CHECK(pwrite(t->file, t->scratch, FILE_LEN, 0) == (ssize_t)FILE_LEN, "%s", path);
}

static void file_direct(struct thread *t, struct block *b)
{
	size_t from, to, at;
	ssize_t n;

	if (!inner_part(t, b, &from, &to))
		return;
	if (to - from > FILE_LEN)
		to = from + FILE_LEN;
	if (rng_chance(&t->rng, 50)) {
		at = PAGE * rng_below(&t->rng, (FILE_LEN - (to - from)) / PAGE + 1);
		note(t, b, "O_DIRECT read %zu..%zu from %zu", from, to, at);
		pattern(t->scratch, FILE_LEN, t->file_seed);
		memcpy(b->model + from, t->scratch + at, to - from);
		n = pread(t->direct, b->mem + from, to - from, at);
	} else {
		note(t, b, "O_DIRECT write %zu..%zu", from, to);
		n = pwrite(t->direct, b->mem + from, to - from, FILE_LEN);
		if (n != pread(t->file, t->scratch, to - from, FILE_LEN))
			fail(t, b, "reading back");
		check_copy(t, b, from, t->scratch, to - from, "what went into a file past the cache");
	}
	if (n != (ssize_t)(to - from))
		fail(t, b, "O_DIRECT: %zd of %zu bytes", n, to - from);
	check(t, b, 0, b->len, "O_DIRECT");
}

void step_file(struct thread *t)
{
	size_t off, len, at;
	struct block *b = buffer(t, FILE_LEN, &off, &len);
	ssize_t n;

	if (!b)
		return;
	if (!t->file)
		file_open(t);
	if (t->direct >= 0 && rng_chance(&t->rng, 50)) {
		file_direct(t, b);
		return;
	}
	at = rng_below(&t->rng, FILE_LEN - len + 1);
	if (rng_chance(&t->rng, 50)) {
		note(t, b, "pread %zu bytes to %zu from %zu", len, off, at);
		pattern(t->scratch, FILE_LEN, t->file_seed);
		memcpy(b->model + off, t->scratch + at, len);
		n = pread(t->file, b->mem + off, len, at);
	} else {
		note(t, b, "pwrite %zu bytes from %zu", len, off);
		n = pwrite(t->file, b->mem + off, len, FILE_LEN);
		if (n != pread(t->file, t->scratch, len, FILE_LEN))
			fail(t, b, "reading back");
		check_copy(t, b, off, t->scratch, len, "what went into a file");
	}
	if (n != (ssize_t)len)
		fail(t, b, "file: %zd of %zu bytes", n, len);
	check(t, b, 0, b->len, "file");
}

// ---- A thread sleeps on a lock in a block, or in a read() into the block. Meanwhile another
// thread registers and deregisters the block, forks, and gives advice. The sleeping thread must
// then wake up.
enum waits { ROBUST, PSHARED, PLAIN, SEM, SEM_PSHARED, COND, COND_PSHARED, READ, WAITS };
struct words {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	sem_t sem;
	int go;
};
struct waiter {
	enum waits kind;
	struct words *w;
	volatile int tid;
	int fd, error;
	size_t len;
};

static void *wait_there(void *arg)
{
	struct waiter *x = arg;
	struct words *w = x->w;

	x->tid = syscall(SYS_gettid);
	switch (x->kind) {
	case ROBUST:
	case PSHARED:
	case PLAIN:
		x->error = pthread_mutex_lock(&w->mutex);
		if (!x->error)
			x->error = pthread_mutex_unlock(&w->mutex);
		break;
	case SEM:
	case SEM_PSHARED:
		while (sem_wait(&w->sem))
			x->error = errno == EINTR ? 0 : errno;
		break;
	case COND:
	case COND_PSHARED:
		pthread_mutex_lock(&w->mutex);
		while (!w->go)
			pthread_cond_wait(&w->cond, &w->mutex);
		pthread_mutex_unlock(&w->mutex);
		break;
	default:
		x->error = read(x->fd, w, x->len) == (ssize_t)x->len ? 0 : EIO;
	}
	return NULL;
}

static void words_init(struct words *w, enum waits kind)
{
	int shared = kind == ROBUST || kind == PSHARED || kind == SEM_PSHARED || kind == COND_PSHARED;
	pthread_mutexattr_t m;
	pthread_condattr_t c;

	memset(w, 0, sizeof(*w));
	pthread_mutexattr_init(&m);
	pthread_mutexattr_setpshared(&m, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
	if (kind == ROBUST)
		pthread_mutexattr_setrobust(&m, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&w->mutex, &m);
	pthread_condattr_init(&c);
	pthread_condattr_setpshared(&c, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
	pthread_cond_init(&w->cond, &c);
	sem_init(&w->sem, shared, 0);
}

static void wait_until_asleep(struct waiter *x)
{
	char path[64], text[256], *state;
	int tries, fd;
	ssize_t n;

	for (tries = 0; tries < 200; tries++) {
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", x->tid);
		fd = x->tid ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		if (fd >= 0)
			close(fd);
		text[n > 0 ? n : 0] = 0;
		state = strrchr(text, ')');
		if (state && state[1] && state[2] == 'S')
			return;
		usleep(100);
	}
}

static void wake(struct waiter *x, int out, uint64_t seed)
{
	char bytes[4096];

	switch (x->kind) {
	case ROBUST:
	case PSHARED:
	case PLAIN:
		CHECK(!pthread_mutex_unlock(&x->w->mutex), "unlock");
		break;
	case SEM:
	case SEM_PSHARED:
		CHECK(!sem_post(&x->w->sem), "sem_post");
		break;
	case COND:
	case COND_PSHARED:
		pthread_mutex_lock(&x->w->mutex);
		x->w->go = 1;
		pthread_cond_signal(&x->w->cond);
		pthread_mutex_unlock(&x->w->mutex);
		break;
	default:
		pattern(bytes, x->len, seed);
		CHECK(write(out, bytes, x->len) == (ssize_t)x->len, "write");
	}
}

static void disturb(struct thread *t, struct block *b, size_t off, size_t len)
{
	int times = 1 + rng_below(&t->rng, 3);

	while (times--) {
		switch (rng_below(&t->rng, 4)) {
		case 0:
			step_fork(t);
			break;
		case 1:
			step_advise(t);
			break;
		case 2:
			if (options.verbs && !t->bystander)
				step_deregister(t);
			break;
		default:
			if (options.verbs && !t->bystander)
				register_part(t, b, off - rng_below(&t->rng, off + 1), off + len);
		}
	}
}

void step_waiter(struct thread *t)
{
	struct block *b = any_block(t, 1 << HEAP | 1 << MAPPED | 1 << SHARED, 1);
	struct waiter x = {.kind = rng_below(&t->rng, WAITS), .len = sizeof(struct words)};
	uint64_t seed = rng_next(&t->rng);
	int fd[2] = {-1, -1};
	pthread_t thread;
	size_t off;

	if (!b || b->len < 1024)
		return;
	settle(t, b);
	off = rng_below(&t->rng, b->len - 512);
	off += -((uintptr_t)b->mem + off) & 63;
	x.w = (struct words *)(b->mem + off);
	if (x.kind == READ && pipe2(fd, O_CLOEXEC))
		fail(t, b, "pipe");
	x.fd = fd[0];
	note(t, b, "a thread sleeps at %zu, kind %d", off, x.kind);
	b->busy++;
	b->busy_from = off;
	b->busy_to = off + sizeof(struct words);
	if (x.kind != READ)
		words_init(x.w, x.kind);
	if (x.kind <= PLAIN)
		pthread_mutex_lock(&x.w->mutex);
	if (pthread_create(&thread, NULL, wait_there, &x))
		fail(t, b, "pthread_create");
	wait_until_asleep(&x);
	disturb(t, b, off, sizeof(struct words));
	wake(&x, fd[1], seed);
	pthread_join(thread, NULL);
	note(t, b, "the thread is awake");
	if (x.error)
		fail(t, b, "the thread that slept at %zu, kind %d: %d", off, x.kind, x.error);
	b->busy--;
	b->busy_from = b->busy_to = 0;
	if (x.kind == READ) {
		pattern(b->model + off, sizeof(struct words), seed);
		close(fd[0]);
		close(fd[1]);
	} else {
		fill_block(t, b, off, off + sizeof(struct words));
	}
	check(t, b, 0, b->len, "after a thread slept there");
}
