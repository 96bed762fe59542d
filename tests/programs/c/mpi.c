// MPI programs: `mpi CASE ROUNDS`. Every received byte is compared with the byte that the sender
// must have sent. Rank 0 prints "ok CASE" when all ranks have finished.
#include "verify.h"
#include <mpi.h>

static int rank, ranks, rounds;

// The lengths of messages: 0 bytes, one packet, several packets, and lengths for which MPI copies
// the data or uses a rendezvous.
static const size_t sizes[] = {0, 1, 8, 1000, 4096, 8193, 70000, 1 << 20};

// Each rank sends to the right and receives from the left at the same time.
static void ring(void)
{
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;

	for (int r = 0; r < rounds; r++)
		for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
			uint8_t *out = memory(sizes[s]), *in = memory(sizes[s]);
			MPI_Status st;
			int got;

			fill(out, sizes[s], rank, r);
			MPI_Sendrecv(out, sizes[s], MPI_BYTE, right, s, in, sizes[s], MPI_BYTE, left, s,
				     MPI_COMM_WORLD, &st);
			MPI_Get_count(&st, MPI_BYTE, &got);
			CHECK(got == (int)sizes[s], "%d bytes of %zu", got, sizes[s]);
			verify(in, sizes[s], left, r);
			free(out);
			free(in);
		}
}

// Each rank sends many messages to every rank without waiting, and receives the messages in order.
static void flood(void)
{
	enum { EACH = 64, LEN = 5000 };
	uint8_t *out = memory((size_t)ranks * EACH * LEN), *in = memory((size_t)ranks * EACH * LEN);
	MPI_Request *req = memory(sizeof(*req) * 2 * ranks * EACH);

	for (int r = 0; r < rounds; r++) {
		int n = 0;

		for (int p = 0; p < ranks; p++)
			for (int m = 0; m < EACH; m++)
				MPI_Irecv(in + ((size_t)p * EACH + m) * LEN, LEN, MPI_BYTE, p, 7,
					  MPI_COMM_WORLD, &req[n++]);
		for (int m = 0; m < EACH; m++)
			for (int p = 0; p < ranks; p++) {
				uint8_t *o = out + ((size_t)p * EACH + m) * LEN;

				fill(o, 1 + m * LEN / EACH, rank, r * EACH + m);
				MPI_Isend(o, 1 + m * LEN / EACH, MPI_BYTE, p, 7, MPI_COMM_WORLD, &req[n++]);
			}
		MPI_Waitall(n, req, MPI_STATUSES_IGNORE);
		for (int p = 0; p < ranks; p++)
			for (int m = 0; m < EACH; m++)
				verify(in + ((size_t)p * EACH + m) * LEN, 1 + m * LEN / EACH, p,
				       r * EACH + m);
	}
	free(out);
	free(in);
	free(req);
}

// Rank 0 receives from any rank by probing. The other ranks alternate between MPI_Send and
// MPI_Ssend.
static void probe(void)
{
	for (int r = 0; r < rounds; r++) {
		for (size_t s = 0; s < ARRAY_LEN(sizes) && rank; s++) {
			uint8_t *out = memory(sizes[s]);

			fill(out, sizes[s], rank, s);
			if (s % 2)
				MPI_Ssend(out, sizes[s], MPI_BYTE, 0, s, MPI_COMM_WORLD);
			else
				MPI_Send(out, sizes[s], MPI_BYTE, 0, s, MPI_COMM_WORLD);
			free(out);
		}
		for (int m = 0; m < (ranks - 1) * (int)ARRAY_LEN(sizes) && !rank; m++) {
			MPI_Status st;
			int got;

			MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &st);
			MPI_Get_count(&st, MPI_BYTE, &got);
			CHECK(got == (int)sizes[st.MPI_TAG], "%d bytes with tag %d", got, st.MPI_TAG);
			uint8_t *in = memory(got);
			MPI_Recv(in, got, MPI_BYTE, st.MPI_SOURCE, st.MPI_TAG, MPI_COMM_WORLD, &st);
			verify(in, got, st.MPI_SOURCE, st.MPI_TAG);
			free(in);
		}
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

// Sends a column of a matrix: the data type has gaps at the sender and at the receiver.
static void types(void)
{
	enum { N = 200 };
	static int out[N][N], in[N][N];
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
	MPI_Datatype column;

	MPI_Type_vector(N, 1, N, MPI_INT, &column);
	MPI_Type_commit(&column);
	for (int r = 0; r < rounds; r++) {
		for (int i = 0; i < N; i++)
			for (int j = 0; j < N; j++)
				out[i][j] = rank * 1000003 + r * 10007 + i * N + j, in[i][j] = -1;
		MPI_Sendrecv(&out[0][3], 1, column, right, 1, &in[0][5], 1, column, left, 1,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int i = 0; i < N; i++)
			for (int j = 0; j < N; j++)
				CHECK(in[i][j] == (j == 5 ? left * 1000003 + r * 10007 + i * N + 3 : -1),
				      "[%d][%d] is %d", i, j, in[i][j]);
	}
	MPI_Type_free(&column);
}

static void collectives(void)
{
	static const int counts[] = {1, 100, 3000, 60000};

	for (int r = 0; r < rounds; r++)
		for (size_t c = 0; c < ARRAY_LEN(counts); c++) {
			int n = counts[c], root = (r + c) % ranks;
			long *a = memory(sizeof(*a) * n * ranks), *b = memory(sizeof(*b) * n * ranks);
			long sum_of_ranks = (long)ranks * (ranks - 1) / 2;

			for (int i = 0; i < n; i++)
				a[i] = rank == root ? root + i : -1;
			MPI_Bcast(a, n, MPI_LONG, root, MPI_COMM_WORLD);
			for (int i = 0; i < n; i++)
				CHECK(a[i] == root + i, "bcast: [%d] is %ld", i, a[i]);

			for (int i = 0; i < n; i++)
				a[i] = rank + i;
			MPI_Allreduce(a, b, n, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
			for (int i = 0; i < n; i++)
				CHECK(b[i] == sum_of_ranks + (long)ranks * i, "allreduce: [%d] is %ld", i, b[i]);
			MPI_Reduce(a, b, n, MPI_LONG, MPI_MAX, root, MPI_COMM_WORLD);
			for (int i = 0; i < n && rank == root; i++)
				CHECK(b[i] == ranks - 1 + i, "reduce: [%d] is %ld", i, b[i]);
			MPI_Scan(a, b, n, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
			for (int i = 0; i < n; i++)
				CHECK(b[i] == (long)rank * (rank + 1) / 2 + (long)(rank + 1) * i,
				      "scan: [%d] is %ld", i, b[i]);

			MPI_Allgather(a, n, MPI_LONG, b, n, MPI_LONG, MPI_COMM_WORLD);
			for (int p = 0; p < ranks; p++)
				for (int i = 0; i < n; i++)
					CHECK(b[p * n + i] == p + i, "allgather: %d of %d", i, p);
			MPI_Gather(a, n, MPI_LONG, b, n, MPI_LONG, root, MPI_COMM_WORLD);
			for (int i = 0; i < n * ranks && rank == root; i++)
				CHECK(b[i] == i / n + i % n, "gather: %d", i);
			for (int i = 0; i < n * ranks; i++)
				b[i] = root * 7 + i;
			MPI_Scatter(b, n, MPI_LONG, a, n, MPI_LONG, root, MPI_COMM_WORLD);
			for (int i = 0; i < n; i++)
				CHECK(a[i] == root * 7 + rank * n + i, "scatter: %d", i);

			for (int i = 0; i < n * ranks; i++)
				a[i] = rank * 1000000L + i;
			MPI_Alltoall(a, n, MPI_LONG, b, n, MPI_LONG, MPI_COMM_WORLD);
			for (int p = 0; p < ranks; p++)
				for (int i = 0; i < n; i++)
					CHECK(b[p * n + i] == p * 1000000L + rank * n + i, "alltoall: %d of %d",
					      i, p);
			free(a);
			free(b);
		}
	MPI_Barrier(MPI_COMM_WORLD);
}

// Tests MPI windows: put and get between fences, and under locks.
static void onesided(void)
{
	enum { LEN = 300000 };
	uint8_t *mine, *out = memory(LEN), *in = memory(LEN);
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
	MPI_Win win;

	MPI_Win_allocate(LEN, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
	for (int r = 0; r < rounds; r++) {
		memset(mine, 0, LEN);
		MPI_Win_fence(0, win);
		fill(out, LEN, rank, r);
		MPI_Put(out, LEN, MPI_BYTE, right, 0, LEN, MPI_BYTE, win);
		MPI_Win_fence(0, win);
		verify(mine, LEN, left, r);
		MPI_Get(in, LEN, MPI_BYTE, right, 0, LEN, MPI_BYTE, win);
		MPI_Win_fence(0, win);
		verify(in, LEN, rank, r);

		fill(out, LEN / 2, rank, r + 1000);
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, left, 0, win);
		MPI_Put(out, LEN / 2, MPI_BYTE, left, 0, LEN / 2, MPI_BYTE, win);
		MPI_Win_flush(left, win);
		MPI_Get(in, LEN / 2, MPI_BYTE, left, 0, LEN / 2, MPI_BYTE, win);
		MPI_Win_unlock(left, win);
		verify(in, LEN / 2, rank, r + 1000);
		MPI_Win_fence(0, win);
		verify(mine, LEN / 2, right, r + 1000);
		MPI_Win_fence(0, win);
	}
	MPI_Win_free(&win);
	free(out);
	free(in);
}

// All ranks draw numbers from a counter. Each number must be drawn exactly once. Also tests sums
// over all ranks, and a compare-and-swap that must succeed in a single rank.
static void atomics(void)
{
	int each = 100 * rounds;
	long *mine, one = 1;
	MPI_Win win;

	MPI_Win_allocate(3 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
	MPI_Win_fence(0, win);
	mine[0] = mine[1] = mine[2] = 0;
	MPI_Win_fence(0, win);
	long last = -1, sum = 0, total = 0;
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < each; i++) {
		long got = -1;

		MPI_Fetch_and_op(&one, &got, MPI_LONG, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
		CHECK(got > last, "%ld after %ld", got, last);
		last = got;
		sum += got;
		for (int p = 0; p < ranks; p++)
			MPI_Accumulate(&one, 1, MPI_LONG, p, 1, 1, MPI_LONG, MPI_SUM, win);
	}
	long old = -1, zero = 0, me = rank + 1;
	MPI_Compare_and_swap(&me, &zero, &old, MPI_LONG, 0, 2, win);
	MPI_Win_flush_all(win);
	MPI_Win_unlock_all(win);
	int won = old == 0, winners = 0;
	MPI_Allreduce(&won, &winners, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Allreduce(&sum, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	MPI_Win_fence(0, win);
	long all = (long)each * ranks;
	CHECK(winners == 1, "%d ranks swapped the word", winners);
	CHECK(total == all * (all - 1) / 2, "numbers drawn sum to %ld, not %ld", total, all * (all - 1) / 2);
	CHECK(mine[1] == all, "%ld accumulated, not %ld", mine[1], all);
	MPI_Win_free(&win);
}

// Tests MPI windows with MPI_Win_post, MPI_Win_start, MPI_Win_complete and MPI_Win_wait.
static void epochs(void)
{
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
	uint8_t *mine = memory(4096), out[4096];
	MPI_Group world, to, from;
	MPI_Win win;

	MPI_Win_create(mine, 4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 1, &right, &to);
	MPI_Group_incl(world, 1, &left, &from);
	for (int r = 0; r < 10 * rounds; r++) {
		MPI_Win_post(from, 0, win);
		MPI_Win_start(to, 0, win);
		fill(out, sizeof(out), rank, r);
		MPI_Put(out, sizeof(out), MPI_BYTE, right, 0, sizeof(out), MPI_BYTE, win);
		MPI_Win_complete(win);
		MPI_Win_wait(win);
		verify(mine, sizeof(out), left, r);
	}
	MPI_Group_free(&world);
	MPI_Group_free(&to);
	MPI_Group_free(&from);
	MPI_Win_free(&win);
	free(mine);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"ring", ring},
	{"flood", flood},
	{"probe", probe},
	{"types", types},
	{"collectives", collectives},
	{"onesided", onesided},
	{"atomics", atomics},
	{"epochs", epochs},
};

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	CHECK(argc == 3, "usage: mpi CASE ROUNDS");
	CHECK((rounds = atoi(argv[2])) > 0, "no rounds");
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (!strcmp(cases[i].name, argv[1])) {
			cases[i].run();
			MPI_Barrier(MPI_COMM_WORLD);
			if (!rank)
				printf("ok %s with %d ranks\n", argv[1], ranks);
			MPI_Finalize();
			return 0;
		}
	CHECK(0, "no case %s", argv[1]);
}
