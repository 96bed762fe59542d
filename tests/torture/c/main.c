// The memory torture: random steps on memory, registered or not. The test compares the memory byte
// for byte with a model. A registration must not change any byte, so the model knows nothing of
// registrations.
// usage: torture [--seed N] [--threads N] [--seconds S] [--steps N] [--no-verbs] [--asm] |
// --scenario NAME | --list
#include "scenarios.h"
#include <sys/prctl.h>

struct options options = {.seed = 1, .verbs = 1, .seconds = 3};
struct port port;

static const struct step steps[] = {
	{"malloc", 30, 0, step_malloc}, {"realloc", 20, 0, step_realloc}, {"free", 14, 0, step_free},
	{"write", 14, 0, step_write}, {"mmap", 12, 0, step_mmap}, {"unmap", 5, 0, step_unmap},
	{"grow", 8, 0, step_grow}, {"move", 4, 0, step_move}, {"shrink", 4, 0, step_shrink},
	{"hole", 3, 0, step_hole}, {"advise", 14, 0, step_advise}, {"discard", 6, 0, step_discard},
	{"lazy", 3, 0, step_lazy}, {"forked", 3, 0, step_forked}, {"protect", 4, 0, step_protect},
	{"fork", 2, 0, step_fork}, {"linger", 2, 0, step_linger}, {"exec", 1, 0, step_exec},
	{"pipe", 8, 0, step_pipe}, {"file", 6, 0, step_file}, {"waiter", 4, 0, step_waiter},
	{"foreign", 12, 0, step_foreign}, {"register", 40, 1, step_register}, {"deregister", 26, 1, step_deregister},
	{"own", 24, 1, step_own}, {"peer", 24, 1, step_peer}, {"out", 8, 1, step_out},
};

static const struct step *any_step(struct thread *t, unsigned total)
{
	unsigned at = rng_below(&t->rng, total), i;

	for (i = 0; at >= steps[i].weight; i++)
		at -= steps[i].weight;
	return &steps[i];
}

void finish(struct thread *t)
{
	int i;

	take_finished(t, 1);
	if (t->child_pid)
		step_linger(t);
	check_all(t, "at the end");
	for (i = 0; i < MRS; i++)
		if (t->region[i].mr)
			deregister(t, &t->region[i]);
	check_all(t, "after all was deregistered");
}

static void one_step(struct thread *t)
{
	static unsigned total;
	const struct step *s;
	unsigned i, sum = 0;

	if (!total) {
		for (i = 0; i < ARRAY_LEN(steps); i++)
			sum += steps[i].weight;
		__atomic_store_n(&total, sum, __ATOMIC_RELAXED);
	}
	t->step++;
	s = any_step(t, total);
	take_finished(t, 0);
	if (s->verbs && (!options.verbs || t->bystander))
		return;
	s->run(t);
	check_sample(t, s->name);
	if (t->step % 64 == 0)
		check_all(t, "all blocks");
}

void run_steps(struct thread *t, uint64_t n)
{
	while (n--)
		one_step(t);
}

static void *torture(void *arg)
{
	struct thread *t = arg;
	double end = now() + options.seconds;

	if (options.steps)
		run_steps(t, options.steps);
	else
		while (now() < end)
			one_step(t);
	finish(t);
	return NULL;
}

struct thread *threads_new(int n)
{
	struct thread *all = raw_map(n * sizeof(*all));
	int i, j;

	for (i = 0; i < n; i++) {
		struct thread *t = &all[i];

		t->index = i;
		t->rng.s = (options.seed * 1000003 + i + 1) * 0x9E3779B97F4A7C15ull | 1;
		t->scratch = raw_map(MAX_LEN);
		for (j = 0; j < BLOCKS; j++)
			t->block[j].model = raw_map(MAX_LEN);
		// A bystander registers no memory. The first thread is never a bystander.
		t->bystander = i > 0 && rng_chance(&t->rng, 20);
	}
	return all;
}

static int run(void)
{
	struct thread *all;
	int sockets[MAX_THREADS] = {0}, i;
	uint64_t sum = 0;

	if (!options.threads)
		options.threads = 1 + options.seed % MAX_THREADS;
	CHECK(options.threads <= MAX_THREADS, "at most %d threads", MAX_THREADS);
	all = threads_new(options.threads);
	catch_faults(all, options.threads);
	for (i = 0; i < options.threads; i++)
		all[i].foreigner = start_foreigner();
	if (options.verbs) {
		start_peer(sockets, options.threads);
		device_open(&port);
	}
	for (i = 0; i < options.threads; i++) {
		all[i].peer.fd = sockets[i];
		if (options.verbs)
			verbs_thread(&all[i]);
	}
	for (i = 0; i < options.threads; i++)
		CHECK(!pthread_create(&all[i].pthread, NULL, torture, &all[i]), "thread");
	for (i = 0; i < options.threads; i++) {
		pthread_join(all[i].pthread, NULL);
		sum += all[i].step;
	}
	printf("ok torture seed %lu: %d threads, %lu steps\n", options.seed, options.threads, sum);
	return 0;
}

int main(int argc, char **argv)
{
	int i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (i = 1; i < argc; i++) {
		const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";

		if (!strcmp(a, "--peer"))
			return peer_main(argc - i - 1, argv + i + 1);
		if (!strcmp(a, "--list")) {
			scenario_list();
			return 0;
		}
		if (!strcmp(a, "--no-verbs")) {
			options.verbs = 0;
			continue;
		}
		if (!strcmp(a, "--asm")) {
			options.assembly = 1;
			continue;
		}
		i++;
		if (!strcmp(a, "--seed"))
			options.seed = strtoull(value, NULL, 0);
		else if (!strcmp(a, "--threads"))
			options.threads = atoi(value);
		else if (!strcmp(a, "--seconds"))
			options.seconds = atof(value);
		else if (!strcmp(a, "--steps"))
			options.steps = strtoull(value, NULL, 0);
		else if (!strcmp(a, "--scenario"))
			options.scenario = value;
		else {
			fprintf(stderr, "torture: no option %s; there are --seed --threads --seconds --steps --no-verbs --asm "
					"--scenario --list\n", a);
			return 2;
		}
	}
	return options.scenario ? scenario_main(options.scenario) : run();
}
