// OpenSHMEM programs: `shmem CASE ROUNDS`. PE 0 prints "ok CASE" when all PEs have finished.
#include "verify.h"
#include <shmem.h>

enum { LEN = 200000 };
static int me, pes, rounds;
static long sync_words[SHMEM_COLLECT_SYNC_SIZE];
static long flag, counter, seen, lock;
static long values[64], results[64 * 64];

// Puts blocks to the right neighbour and gets the blocks back.
static void putget(void)
{
	uint8_t *mine = shmem_malloc(LEN), *out = memory(LEN), *in = memory(LEN);
	int right = (me + 1) % pes, left = (me + pes - 1) % pes;

	CHECK(mine, "shmem_malloc");
	for (int r = 0; r < rounds; r++) {
		fill(out, LEN, me, r);
		shmem_putmem(mine, out, LEN, right);
		shmem_barrier_all();
		verify(mine, LEN, left, r);
		memset(in, 0, LEN);
		shmem_getmem(in, mine, LEN, right);
		verify(in, LEN, me, r);
		shmem_barrier_all();
		fill(out, LEN, me, r + 1000);
		for (size_t at = 0; at < LEN; at += 1000)
			shmem_putmem_nbi(mine + at, out + at, 1000, right);
		shmem_quiet();
		shmem_barrier_all();
		verify(mine, LEN, left, r + 1000);
		shmem_barrier_all();
	}
	shmem_free(mine);
	free(out);
	free(in);
}

// Each PE puts data, makes a fence, and puts a flag. A PE that sees the flag must also see the
// data.
static void flags(void)
{
	uint8_t *mine = shmem_malloc(4096), out[4096];
	int right = (me + 1) % pes, left = (me + pes - 1) % pes;

	CHECK(mine, "shmem_malloc");
	for (int r = 1; r <= 20 * rounds; r++) {
		fill(out, sizeof(out), me, r);
		shmem_putmem(mine, out, sizeof(out), right);
		shmem_fence();
		shmem_long_p(&flag, r, right);
		shmem_long_wait_until(&flag, SHMEM_CMP_GE, r);
		verify(mine, sizeof(out), left, r);
		shmem_barrier_all();
	}
	shmem_free(mine);
}

static void atomics(void)
{
	long each = 100 * rounds, last = -1;

	for (long i = 0; i < each; i++) {
		long got = shmem_long_atomic_fetch_inc(&counter, 0);

		CHECK(got > last, "%ld after %ld", got, last);
		last = got;
		for (int p = 0; p < pes; p++)
			shmem_long_atomic_add(&seen, 3, p);
	}
	shmem_barrier_all();
	CHECK(shmem_long_g(&counter, 0) == each * pes, "the counter is %ld", shmem_long_g(&counter, 0));
	CHECK(seen == 3 * each * pes, "%ld added", seen);
	shmem_barrier_all();
	// The lock guards a sum made by plain gets and puts.
	for (int i = 0; i < 20 * rounds; i++) {
		shmem_set_lock(&lock);
		long v = shmem_long_g(&values[0], 0);
		shmem_long_p(&values[0], v + 1, 0);
		shmem_quiet();
		shmem_clear_lock(&lock);
	}
	shmem_barrier_all();
	CHECK(shmem_long_g(&values[0], 0) == 20L * rounds * pes, "%ld under the lock",
	      shmem_long_g(&values[0], 0));
}

static void collectives(void)
{
	static long work[SHMEM_REDUCE_MIN_WRKDATA_SIZE + 64], reduce_sync[SHMEM_REDUCE_SYNC_SIZE];

	for (size_t i = 0; i < ARRAY_LEN(sync_words); i++)
		sync_words[i] = SHMEM_SYNC_VALUE;
	for (size_t i = 0; i < ARRAY_LEN(reduce_sync); i++)
		reduce_sync[i] = SHMEM_SYNC_VALUE;
	shmem_barrier_all();
	for (int r = 0; r < rounds; r++) {
		for (int i = 0; i < 64; i++)
			values[i] = me * 100 + i + r;
		shmem_barrier_all();
		shmem_fcollect64(results, values, 64, 0, 0, pes, sync_words);
		for (int p = 0; p < pes; p++)
			for (int i = 0; i < 64; i++)
				CHECK(results[p * 64 + i] == p * 100 + i + r, "fcollect: %d of %d", i, p);
		shmem_barrier_all();
		shmem_long_sum_to_all(results, values, 64, 0, 0, pes, work, reduce_sync);
		for (int i = 0; i < 64; i++)
			CHECK(results[i] == 50L * pes * (pes - 1) + (long)pes * (i + r), "sum: %d", i);
		shmem_barrier_all();
	}
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"putget", putget},
	{"flags", flags},
	{"atomics", atomics},
	{"collectives", collectives},
};

int main(int argc, char **argv)
{
	shmem_init();
	me = shmem_my_pe();
	pes = shmem_n_pes();
	CHECK(argc == 3, "usage: shmem CASE ROUNDS");
	CHECK((rounds = atoi(argv[2])) > 0, "no rounds");
	CHECK(pes <= 64, "%d PEs are too many", pes);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (!strcmp(cases[i].name, argv[1])) {
			cases[i].run();
			shmem_barrier_all();
			if (!me)
				printf("ok %s with %d PEs\n", argv[1], pes);
			shmem_finalize();
			return 0;
		}
	CHECK(0, "no case %s", argv[1]);
}
