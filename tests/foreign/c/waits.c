// Random waits (poll, select, epoll) on descriptors of the device and of the program. The reference
// is the kernel's result for plain pipes (see waits.h).
// usage: waits CASE; WAITS_SEED chooses the steps, WAITS_STEPS their number, and WAITS_VERBOSE
// prints them. With WAITS_DOUBLED the network doubles packets. Prints "ok CASE", or FAIL with the
// seed and the step.
#include "waits_calls.h"

// ---- Steps that change both worlds, REAL and TWIN (see waits.h).
static int number_of(int item, int world)
{
	return 200 + 2 * item + world;
}

// Puts a descriptor at the fixed number of an item, so both worlds reuse numbers in the same way.
static void place(int item, int world, int fd)
{
	CHECK(fd >= 0 && dup2(fd, number_of(item, world)) >= 0, "place");
	close(fd);
	items[item].fd[world] = number_of(item, world);
}

static void renew(int item)
{
	int world, ends[2];

	for (world = 0; world < WORLDS; world++) {
		if ((item == PIPE || item == SOCKET) && items[item].feed[world])
			close(items[item].feed[world]);
		if (item < OWN || item == PIPE || item == SOCKET) {
			CHECK(!(item == SOCKET ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)), "pipe");
			items[item].feed[world] = fcntl(ends[1], F_DUPFD_CLOEXEC, 400);
			close(ends[1]);
			place(item, world, ends[0]);
		} else {
			place(item, world,
			      item == EVENTFD ? eventfd(0, 0)
			      : item == TIMER ? timerfd_create(CLOCK_MONOTONIC, 0)
					      : epoll_create1(0));
			items[item].feed[world] = items[item].fd[world];
		}
	}
}

static void feed(int item, int world)
{
	struct itimerspec soon = {.it_value = {0, 1}};
	struct pollfd p = {.fd = items[item].fd[world], .events = POLLIN};
	uint64_t one = 1;

	if (item == TIMER)
		CHECK(!timerfd_settime(items[item].fd[world], 0, &soon, NULL), "settime");
	else
		CHECK(write(items[item].feed[world], &one, sizeof(one)) == sizeof(one), "feed");
	// A timer takes a moment until its descriptor is readable. The raw system call bypasses the
	// library, and is not part of the test.
	while (!syscall(SYS_poll, &p, 1, 1000))
		;
}

static void drain(int item)
{
	uint64_t word;
	int world;

	for (world = 0; world < WORLDS; world++) {
		struct pollfd p = {.fd = items[item].fd[world], .events = POLLIN};

		if (syscall(SYS_poll, &p, 1, 0) == 1)
			CHECK(read(p.fd, &word, sizeof(word)) == sizeof(word), "drain");
	}
}

static void drain_all(void)
{
	int i;

	for (i = 0; i < SETS; i++)
		if (i >= OWN)
			while (syscall(SYS_poll, &(struct pollfd){.fd = items[i].fd[TWIN], .events = POLLIN}, 1, 0) == 1)
				drain(i);
		else
			while (unread(items[i].fd[TWIN]))
				take_event(i);
}

struct change {
	int set, op, item, raw;
	struct epoll_event event;
};

static struct change draw_change(int set)
{
	static const int ops[] = {EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL};
	static int added[8][2];
	struct change c = {.set = set, .op = ops[draw(4)], .item = draw(ITEMS), .raw = chance(10)};
	int i;

	if (chance(50))
		c.item = draw(OWN);
	// Most changes are of an item that was added not long ago.
	i = draw(ARRAY_LEN(added));
	if (c.op == EPOLL_CTL_ADD)
		added[i][0] = c.set, added[i][1] = c.item;
	else if (added[i][0] && chance(80))
		c.set = added[i][0], c.item = added[i][1];
	c.event.events = chance(85) ? EPOLLIN : 0;
	c.event.events |= (chance(40) ? EPOLLET : 0) | (chance(20) ? EPOLLONESHOT : 0) | (chance(8) ? EPOLLEXCLUSIVE : 0);
	c.event.events |= (chance(15) ? EPOLLRDNORM : 0) | (chance(5) ? EPOLLPRI : 0) | (chance(3) ? EPOLLOUT : 0);
	c.event.data.u64 = (uint64_t)step << 32 | c.item;
	return c;
}

static int apply(struct change c, int world)
{
	int set = items[c.set].fd[world], fd = items[c.item].fd[world], r;

	r = c.raw || world == TWIN ? (int)syscall(SYS_epoll_ctl, set, c.op, fd, &c.event) : epoll_ctl(set, c.op, fd, &c.event);
	return r ? errno : 0;
}

static void duplicate(int dup, int item)
{
	int world;

	for (world = 0; world < WORLDS; world++)
		if (chance(50))
			items[dup].fd[world] = dup2(items[item].fd[world], number_of(dup, world));
		else
			place(dup, world, fcntl(items[item].fd[world], F_DUPFD, 600));
}

// ---- Deeds: what another thread or process does while the main thread waits.
enum act { SEND, SEND_BEFORE, FEED, CHANGE, CLOSE, SIGNAL, JUMP, NOTHING, ACTS };
enum noise { QUIET, QUIET_TOO, IGNORED, STOP, NOISES };
struct deed {
	enum act act;
	enum noise noise;
	int item, solicited, delay, error;
	struct change change;
};

// Returns when the main thread sleeps in its wait, or has already left the wait.
static void until_asleep(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", main_tid);
	do
		nap(50);
	while (!inside || (inside == 1 && state_of(path) != 'S'));
}

static void *act(void *arg)
{
	struct deed *d = arg;
	int i;

	nap(d->delay);
	for (i = 0; i < 3 && d->noise == IGNORED; i++) {
		until_asleep();
		pthread_kill(main_thread, i ? SIGURG : SIGHUP);
	}
	if (d->act == SEND)
		send_message(d->item, d->solicited, d->delay);
	if (d->act == FEED)
		feed(d->item, REAL);
	if (d->act == CHANGE)
		d->error = apply(d->change, REAL);
	if (d->act == CLOSE)
		close(d->item);
	if (d->act == SIGNAL || d->act == JUMP) {
		until_asleep();
		pthread_kill(main_thread, SIGUSR1);
	}
	return NULL;
}

static struct call draw_call(void)
{
	struct call c = {.how = draw(HOWS), .most = chance(30) ? 1 : chance(20) ? 2 : RESULTS};
	int i;

	if (chance(40))
		c.how = draw(3);
	c.mistake = chance(4) ? draw(MISTAKES) : NONE;
	c.members = c.how <= EPOLL_PWAIT2 ? 1 : draw(MEMBERS + 1);
	for (i = 0; i < c.members; i++) {
		c.member[i] = chance(50) ? (int)draw(OWN) : chance(4) ? -1 : chance(2) ? -2 : (int)draw(ITEMS);
		c.want[i] = (chance(85) ? POLLIN : 0) | (chance(3) ? POLLOUT : 0) | (chance(10) ? POLLPRI : 0);
		// An epoll set wakes a sleeping poll only if the poll asks for POLLIN, although the
		// set is then also ready for POLLRDNORM. So a poll of a set asks for POLLRDNORM
		// only together with POLLIN.
		if (chance(15) && (c.want[i] & POLLIN || c.member[i] < OWN))
			c.want[i] |= POLLRDNORM;
	}
	if (c.how <= EPOLL_PWAIT2)
		c.member[0] = chance(3)	   ? (int)draw(ITEMS)
			      : chance(20) ? DUPS + (int)draw(ITEMS - DUPS)
					   : SETS + (int)draw(5);
	if (c.how == EPOLL_PWAIT || c.how == EPOLL_PWAIT2 || c.how == PPOLL || c.how == PSELECT)
		c.mask = chance(40) ? NULL : chance(50) ? &open_mask : &closed_mask;
	c.pending = chance(c.mask ? 20 : 2);
	return c;
}

// Draws an item of the device for the next message. The item is not MANAGER if three requests wait,
// because the listener's backlog is short. With WAITS_DOUBLED the item is not DATAGRAM, because a
// doubled datagram would arrive twice.
static int draw_source(void)
{
	int i = draw(unread(items[MANAGER].fd[TWIN]) < 3 ? OWN : MANAGER);

	return i == DATAGRAM && getenv("WAITS_DOUBLED") ? PAIR : i;
}

static struct deed draw_deed(const struct call *c)
{
	struct deed d = {.act = draw(ACTS), .noise = draw(NOISES), .item = draw_source()};

	d.solicited = chance(30);
	d.delay = draw(3000);
	if (chance(40))
		d.act = SEND;
	if (chance(60) && c->member[0] < MANAGER && c->member[0] >= 0)
		d.item = c->member[0];
	if (d.act == FEED)
		d.item = OWN + draw(SETS - OWN);
	if (d.act == CHANGE)
		d.change = draw_change(c->how <= EPOLL_PWAIT2 && chance(80) ? c->member[0] : SETS + (int)draw(5));
	// If a descriptor is closed during a call of poll, the call still watches the file. In the
	// world TWIN, the close would come before the call, so the twin's result would be no
	// reference.
	if (d.act == CLOSE && c->how > EPOLL_PWAIT2)
		d.act = NOTHING;
	return d;
}

// Does the deed in the world TWIN, before the wait in this world.
static void act_on_twin(struct deed *d, const struct call *c)
{
	int dup = DUPS + draw(ITEMS - DUPS);

	if (d->act == SEND || d->act == SEND_BEFORE) {
		if (chance(80))
			arm(d->item, chance(20));
		expect_message(d->item, d->solicited);
	} else if (d->act == FEED) {
		feed(d->item, TWIN);
	} else if (d->act == CHANGE) {
		d->error = apply(d->change, TWIN);
	} else if (d->act == CLOSE && dup == c->member[0]) {
		d->act = NOTHING;
	} else if (d->act == CLOSE) {
		close(items[dup].fd[TWIN]);
		d->item = items[dup].fd[REAL];
	}
}

// No descriptor is ready when the call begins. During the call another thread acts, for example
// sends a message. The call must sleep until then, and must return the same result as the call in
// the world TWIN, where the result comes from the kernel and not from the library.
static void wait_asleep(struct call *c)
{
	struct deed d = draw_deed(c), twin_deed;
	int signals = d.act == SIGNAL || d.act == JUMP, open = signals && c->mask != &closed_mask;
	struct result real, twin;
	pthread_t thread;
	char byte;

	if (signals)
		d.noise = QUIET;
	snprintf(doing + strlen(doing), sizeof(doing) - strlen(doing), ", deed %d of item %d, noise %d, delay %d", d.act, d.item,
		 d.noise, d.delay);
	if (verbose)
		printf("%u %s\n", step, doing);
	act_on_twin(&d, c);
	twin_deed = d;
	twin = ask(c, TWIN, 0);
	if (d.act == SEND_BEFORE)
		send_message(d.item, d.solicited, d.delay);
	if (d.noise == STOP)
		tell_peer(ORDER_STOP, 0, d.delay);
	jumps = d.act == JUMP && open;
	inside = 0;
	CHECK(!pthread_create(&thread, NULL, act, &d), "thread");
	do
		real = ask(c, REAL, twin.n || open ? -1 : (int)draw(8));
	// When a process is stopped and continued, the kernel ends its epoll_wait with EINTR
	// (signal(7)). The device may do the same, so the test then repeats the call.
	while (real.n == -1 && real.error == EINTR && !real.handled && d.noise == STOP && c->how <= EPOLL_PWAIT2);
	CHECK(!pthread_join(thread, NULL), "join");
	CHECK(d.noise != STOP || read(peer_socket, &byte, 1) == 1, "stopped");
	jumps = 0;
	if (open) {
		RULE(real.n == -1 && real.error == EINTR && real.handled == 1, "after a signal: %s", words(&real));
	} else {
		RULE(signals || real.handled == twin.handled, "handlers: %s", words(&real));
		real.handled = twin.handled;
		same(&real, &twin);
	}
	RULE(d.error == twin_deed.error, "errors %d and %d", d.error, twin_deed.error);
	settle(chance(50) ? 0 : 100);
}

static void wait_step(void)
{
	struct call c = draw_call();
	struct result real, twin;
	int limit = chance(50) ? 0 : (int)draw(6);

	// A pending signal also ends a wait without a limit.
	if (c.pending && c.mask == &open_mask && chance(30))
		limit = -1;
	next_step("call %d of %d items, first %d, most %d, mistake %d, mask %d, pending %d, limit %d", c.how, c.members,
		  c.member[0], c.most, c.mistake, c.mask ? 1 + (c.mask == &open_mask) : 0, c.pending, limit);
	twin = ask(&c, TWIN, limit);
	real = ask(&c, REAL, twin.n && limit && chance(50) && !c.mistake ? -1 : limit);
	same(&real, &twin);
	if (!twin.n && !c.pending && chance(70))
		wait_asleep(&c);
}

static void other_step(void)
{
	int i = draw_source(), solicited = chance(30), own = OWN + draw(SETS - OWN), set = SETS + draw(5), errors[WORLDS];
	struct change change;

	switch (draw(12)) {
	case 0:
	case 1:
		next_step("arm %d", i);
		arm(i, solicited);
		break;
	case 2:
	case 3:
		next_step("message %d", i);
		expect_message(i, solicited);
		send_message(i, solicited, 0);
		settle(chance(50) ? 0 : 100);
		break;
	case 4:
		next_step("event of %d", i);
		if (unread(items[i].fd[TWIN]))
			take_event(i);
		break;
	case 5:
		next_step("feed or drain %d", own);
		if (chance(40))
			feed(own, REAL), feed(own, TWIN);
		else
			drain(own);
		break;
	case 6:
		next_step("drain all");
		drain_all();
		break;
	case 7:
		next_step("renew");
		renew(chance(70) ? set : own);
		break;
	case 8:
		next_step("duplicate");
		duplicate(DUPS + draw(ITEMS - DUPS), chance(40) ? set : chance(70) ? i : (int)draw(DUPS));
		break;
	default:
		change = draw_change(chance(80) ? set : (int)draw(ITEMS));
		next_step("change %d of set %d, item %d, events %x, raw %d", change.op, change.set, change.item,
			  change.event.events, change.raw);
		for (i = 0; i < WORLDS; i++)
			errors[i] = apply(change, i);
		RULE(errors[REAL] == errors[TWIN], "errors %d and %d", errors[REAL], errors[TWIN]);
	}
}

static void be_able_to_signal(void)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = chance(50) ? SA_RESTART : 0};

	sigemptyset(&open_mask);
	sigemptyset(&usual_mask);
	sigaddset(&usual_mask, SIGUSR2);
	sigfillset(&closed_mask);
	CHECK(!sigaction(SIGUSR1, &action, NULL) && !sigaction(SIGUSR2, &action, NULL), "sigaction");
	signal(SIGHUP, SIG_IGN);
	CHECK(!pthread_sigmask(SIG_SETMASK, &usual_mask, NULL), "mask");
	main_thread = pthread_self();
	main_tid = syscall(SYS_gettid);
}

static void model(int steps)
{
	int i, world;

	no_memory = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	be_able_to_signal();
	// The program creates the epoll sets, and adds items to the sets, before it opens the
	// device.
	for (i = 0; i < DUPS; i++)
		renew(i);
	for (i = 0; i < 10; i++)
		for (world = 0; world < WORLDS; world++)
			epoll_ctl(items[SETS + i % 5].fd[world], EPOLL_CTL_ADD, items[OWN + i % 4].fd[world],
				  &(struct epoll_event){.events = EPOLLIN | EPOLLET, .data.u64 = i});
	open_lanes();
	for (i = 0; i < OWN; i++) {
		close(items[i].fd[REAL]);
		items[i].fd[REAL] = i < ASYNC ? lanes[i].channel->fd : i == ASYNC ? port.ctx->async_fd : listener.channel->fd;
	}
	for (i = DUPS; i < ITEMS; i++)
		duplicate(i, draw(DUPS));
	while ((int)step < steps)
		chance(45) ? wait_step() : other_step();
}

#include "waits_threads.h"

static const struct {
	const char *name;
	void (*run)(int steps);
	int steps;
} cases[] = {
	{"model", model, 1500},
	{"threads", threads, 1000},
	{"forks", forks, 20},
};

int main(int argc, char **argv)
{
	const char *text = getenv("WAITS_SEED"), *steps = getenv("WAITS_STEPS");
	pthread_t thread;
	size_t i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	seed = text ? strtoull(text, NULL, 0) : seed;
	dice = (seed + 1) * 0x9E3779B97F4A7C15ull;
	verbose = !!getenv("WAITS_VERBOSE");
	printf("seed %llu\n", (unsigned long long)seed);
	for (i = 0; argc > 1 && i < ARRAY_LEN(cases); i++)
		if (!strcmp(argv[1], cases[i].name)) {
			if (cases[i].run != forks)
				start_peer(cases[i].run == model ? 2 : PEERS);
			CHECK(!pthread_create(&thread, NULL, watchdog, NULL), "thread");
			cases[i].run(steps ? atoi(steps) : cases[i].steps);
			printf("%u steps\nok %s\n", step, argv[1]);
			fflush(stdout);
			_exit(0);
		}
	CHECK(0, "usage: waits CASE");
}
