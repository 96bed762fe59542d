// Waits of several threads and of several processes. No event may be lost, and no event may come
// twice. waits.c includes this file.
#include <semaphore.h>
#include <sys/prctl.h>

enum mode { OWN_SETS, LEVEL, EDGE, ONESHOT, EXCLUSIVE, MODES };
struct worker {
	pthread_t thread;
	int index, set;
	enum how how;
};

static struct worker workers[PEERS];
static enum mode mode;
// For each lane: `taken` counts the events that threads have read, `named` the results of waits
// that name the lane, and `sent` the messages.
static volatile int taken[PEERS], named[PEERS];
static int sent[PEERS];
static volatile int stops, stopping;
static sem_t served;
static __thread volatile int signalled;
static __thread sigjmp_buf *volatile way_back;

static void count_signal(int number)
{
	(void)number;
	signalled++;
}

static void leave_wait(int number)
{
	(void)number;
	jumps++;
	if (way_back)
		siglongjmp(*way_back, 1);
}

static int rearm(int set, int op, int lane, uint32_t flags)
{
	struct epoll_event e = {.events = EPOLLIN | flags, .data.u64 = lane};

	return epoll_ctl(set, op, lanes[lane].channel->fd, &e);
}

static void serve(struct worker *w, int lane)
{
	struct ibv_cq *cq;
	void *context;

	RULE(lane >= 0 && lane < PEERS && (mode != OWN_SETS || lane == w->index), "thread %d gets lane %d", w->index, lane);
	__atomic_add_fetch(&named[lane], 1, __ATOMIC_SEQ_CST);
	if (ibv_get_cq_event(lanes[lane].channel, &cq, &context)) {
		// In these two modes, the kernel may wake several threads for one event. Then
		// another thread has read the event first.
		RULE(errno == EAGAIN && (mode == LEVEL || mode == EXCLUSIVE), "no event of lane %d", lane);
		return;
	}
	ibv_ack_cq_events(cq, 1);
	RULE(poll_good_one(cq), "an event of lane %d without a completion", lane);
	post_recv(lanes[lane].to);
	taken[lane]++;
	RULE(mode != ONESHOT || !rearm(w->set, EPOLL_CTL_MOD, lane, EPOLLONESHOT), "MOD");
	sem_post(&served);
}

// Performs one wait without a time-out, with the worker's kind of call.
static struct result wait_once(struct worker *w)
{
	struct pollfd p = {.fd = lanes[w->index].channel->fd, .events = POLLIN};
	struct result r = {.n = -1};
	struct epoll_event out[4];
	fd_set set;
	int i;

	FD_ZERO(&set);
	FD_SET(p.fd, &set);
	switch (w->how) {
	case POLL:
		r.n = poll(&p, 1, -1);
		break;
	case PPOLL:
		r.n = ppoll(&p, 1, NULL, &usual_mask);
		break;
	case SELECT:
		r.n = select(p.fd + 1, &set, NULL, NULL, NULL);
		break;
	case PSELECT:
		r.n = pselect(p.fd + 1, &set, NULL, NULL, NULL, &usual_mask);
		break;
	default:
		r.n = w->how == EPOLL_WAIT    ? epoll_wait(w->set, out, 4, -1)
		      : w->how == EPOLL_PWAIT ? epoll_pwait(w->set, out, 4, -1, &usual_mask)
					      : epoll_pwait2(w->set, out, 4, NULL, &usual_mask);
		for (i = 0; i < r.n; i++)
			r.out[i].data = out[i].data.u64;
		r.error = errno;
		return r;
	}
	r.error = errno;
	r.out[0].data = w->index;
	return r;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct result r;
	sigjmp_buf here;
	int i, before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	for (;;) {
		signalled = 0;
		before = stops;
		if (sigsetjmp(here, 1)) {
			// After a jump out of a wait of the C library, the cancellation type is
			// still asynchronous, so the thread sets the type again.
			pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
			pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
			way_back = NULL;
			continue;
		}
		way_back = &here;
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
		r = wait_once(w);
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
		way_back = NULL;
		RULE(r.n > 0 || (r.n == -1 && r.error == EINTR), "thread %d: %s", w->index, words(&r));
		RULE(r.n > 0 || signalled || (w->how <= EPOLL_PWAIT2 && (stopping || stops != before)),
		     "thread %d: EINTR without a handler", w->index);
		for (i = 0; i < r.n; i++)
			serve(w, r.out[i].data);
	}
	return arg;
}

static void start_worker(struct worker *w)
{
	CHECK(!pthread_create(&w->thread, NULL, work, w), "thread");
}

static void cancel_worker(struct worker *w)
{
	void *result;

	CHECK(!pthread_cancel(w->thread) && !pthread_join(w->thread, &result), "cancel");
	RULE(result == PTHREAD_CANCELED, "thread %d ended otherwise", w->index);
}

// Disturbs a thread. In the modes EDGE and ONESHOT the kernel reports an event only once. If a jump
// or a cancellation ends a wait, the C library may already have the event, and the event would be
// lost. So in these modes, the test jumps and cancels only while no event can come (`idle`).
static void disturb(struct worker *w, int idle)
{
	int once = mode == EDGE || mode == ONESHOT;

	switch (draw(6)) {
	case 0:
		pthread_kill(w->thread, SIGUSR1);
		break;
	case 1:
		if (!idle && once)
			break;
		// Wait until the thread has jumped. A later jump could interrupt a cancellation of
		// the thread.
		for (jumps = 0, pthread_kill(w->thread, SIGRTMIN); !jumps;)
			nap(100);
		break;
	case 2:
		if (idle || !once) {
			cancel_worker(w);
			start_worker(w);
		}
		break;
	case 3:
		if (!stopping) {
			stopping = 1;
			tell_peer(ORDER_STOP, 0, draw(1000));
		}
		break;
	}
}

static void one_round(int count, int used)
{
	int i, k, messages = 0, first = draw(used), wanted = 1 + draw(used);
	char byte;

	if (chance(40))
		disturb(&workers[draw(count)], 1);
	for (i = 0; i < wanted; i++) {
		k = (first + i) % used;
		CHECK(!ibv_req_notify_cq(lanes[k].cq, 0), "arm");
		sent[k]++;
		messages++;
		tell_peer(k, 0, chance(50) ? 0 : draw(2000));
	}
	if (chance(40))
		disturb(&workers[draw(count)], 0);
	while (messages)
		messages -= !sem_wait(&served);
	for (i = 0; i < used; i++) {
		RULE(taken[i] == sent[i], "lane %d: %d events of %d messages", i, taken[i], sent[i]);
		RULE(mode == LEVEL || mode == EXCLUSIVE || named[i] == sent[i], "lane %d: %d results for %d events", i,
		     named[i], sent[i]);
		named[i] = sent[i];
	}
	if (stopping && read(peer_socket, &byte, 1) == 1) {
		stops++;
		stopping = 0;
	}
}

static void threads(int steps)
{
	struct sigaction counts = {.sa_handler = count_signal}, jumps_out = {.sa_handler = leave_wait};
	uint32_t flags[MODES] = {[EDGE] = EPOLLET, [ONESHOT] = EPOLLONESHOT, [EXCLUSIVE] = EPOLLEXCLUSIVE};
	struct ibv_qp *joined[PEERS];
	int i, k, count, used, set;

	open_port();
	for (i = 0; i < PEERS; i++) {
		lane_channel(&lanes[i]);
		fcntl(lanes[i].channel->fd, F_SETFL, O_NONBLOCK);
		joined[i] = lanes[i].to = qp_new(&port, IBV_QPT_RC, send_cq, lanes[i].cq, DEPTH);
	}
	join_peer(joined, PEERS);
	for (i = 0; i < PEERS; i++)
		fill_receives(&lanes[i]);
	CHECK(!sigaction(SIGUSR1, &counts, NULL) && !sigaction(SIGRTMIN, &jumps_out, NULL), "sigaction");
	CHECK(!sem_init(&served, 0, 0), "semaphore");
	while ((int)step < steps) {
		mode = draw(MODES);
		count = 1 + draw(PEERS);
		used = mode == OWN_SETS ? count : PEERS;
		set = epoll_create1(0);
		for (i = 0; i < count; i++) {
			workers[i] = (struct worker){.index = i, .set = set, .how = draw(mode == OWN_SETS ? HOWS : 3)};
			if (mode == OWN_SETS || mode == EXCLUSIVE)
				workers[i].set = epoll_create1(0);
			for (k = 0; k < used; k++)
				if (workers[i].set != set ? mode == EXCLUSIVE || k == i : !i)
					CHECK(!rearm(workers[i].set, EPOLL_CTL_ADD, k, flags[mode]), "ADD");
		}
		// In some modes several threads learn of the same event. A late thread may have
		// counted an event of the previous mode in `named`, so the counts start anew.
		for (i = 0; i < PEERS; i++)
			named[i] = sent[i];
		for (i = 0; i < count; i++)
			start_worker(&workers[i]);
		for (i = 5 + draw(40); i; i--) {
			next_step("mode %d, %d threads, %d lanes", mode, count, used);
			one_round(count, used);
		}
		for (i = 0; i < count; i++) {
			cancel_worker(&workers[i]);
			if (workers[i].set != set)
				close(workers[i].set);
		}
		close(set);
	}
}

// ---- A child inherits an epoll set from its parent. Each of the two processes may open a device.
static int order_pipe[2], reply_pipe[2];

static void say(int *ends)
{
	CHECK(write(ends[1], "", 1) == 1, "say");
}

static void hear(int *ends)
{
	char byte;

	CHECK(read(ends[0], &byte, 1) == 1, "hear");
}

static void expect_ready(int set, int data)
{
	struct epoll_event out[4];
	struct pollfd p = {.fd = set, .events = POLLIN};
	int n = data < 0 ? epoll_wait(set, out, 4, chance(50) ? 0 : 3) : -1;

	if (data < 0) {
		RULE(n == 0, "%d items are ready, the first is %d", n, (int)out[0].data.u64);
		return;
	}
	if (chance(30))
		RULE(poll(&p, 1, -1) == 1 && p.revents == POLLIN, "revents %x", p.revents);
	n = epoll_wait(set, out, 4, -1);
	RULE(n == 1 && (int)out[0].data.u64 == data && out[0].events == EPOLLIN, "%d items are ready, the first is %d, not %d",
	     n, (int)out[0].data.u64, data);
}

// Opens a device in this process and adds a channel to the set.
static void open_in(int set, int data)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = data};
	int fd;

	open_port();
	open_pair(&lanes[PAIR]);
	fd = lanes[PAIR].channel->fd;
	if (chance(50))
		CHECK(!epoll_ctl(set, EPOLL_CTL_ADD, fd, &e), "ADD");
	else
		CHECK(!syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, fd, &e), "ADD");
}

static void make_event(void)
{
	CHECK(!ibv_req_notify_cq(lanes[PAIR].cq, 0), "arm");
	post_send(lanes[PAIR].from, 0, 0, 0);
}

static void end_event(void)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_get_cq_event(lanes[PAIR].channel, &cq, &context), "get");
	ibv_ack_cq_events(cq, 1);
	poll_good(lanes[PAIR].cq);
	poll_good(send_cq);
}

static void child(int set, int own, int both, int opens)
{
	char byte;

	if (opens)
		open_in(set, 2);
	expect_ready(set, -1);
	if (both) {
		say(order_pipe);
		expect_ready(set, 1);
		say(order_pipe);
		hear(reply_pipe);
		expect_ready(set, -1);
	}
	if (opens) {
		make_event();
		expect_ready(set, 2);
		say(order_pipe);
		hear(reply_pipe);
		end_event();
		expect_ready(set, -1);
	}
	say(order_pipe);
	expect_ready(set, 0);
	CHECK(read(own, &byte, 1) == 1, "read");
	expect_ready(set, -1);
	_exit(0);
}

static void inherit(int both, int opens)
{
	int set = epoll_create1(0), own[2], status;
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = 0};
	pid_t pid;

	CHECK(!pipe(own) && !pipe(order_pipe) && !pipe(reply_pipe) && !epoll_ctl(set, EPOLL_CTL_ADD, own[0], &e), "pipes");
	if (both)
		open_in(set, 1);
	pid = fork();
	CHECK(pid >= 0, "fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		child(set, own[0], both, opens);
	}
	if (both) {
		hear(order_pipe);
		make_event();
		hear(order_pipe);
		end_event();
		say(reply_pipe);
	}
	// The child has added its channel to the inherited set, so this process must also see the
	// event.
	if (opens) {
		hear(order_pipe);
		expect_ready(set, 2);
		say(reply_pipe);
	}
	hear(order_pipe);
	say(own);
	CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
	_exit(status ? 1 : 0);
}

// Each step runs in a new process, because a process opens its first device only once.
static void forks(int steps)
{
	int status, both, opens;
	pid_t pid;

	while ((int)step < steps) {
		both = chance(60);
		opens = chance(70);
		next_step("the parent has a device: %d, the child: %d", both, opens);
		fflush(stdout);
		pid = fork();
		CHECK(pid >= 0, "fork");
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			inherit(both, opens);
		}
		CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
		RULE(!status, "status %x", status);
	}
}
