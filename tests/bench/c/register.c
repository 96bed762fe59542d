// Measures the time to register and to deregister memory that the program has written. Uses plain
// verbs on any device.
//
// `register DEVICE` prints medians in seconds:
// - `reg_BYTES` and `dereg_BYTES`: a page, 64 KiB, and 256 MiB.
// - `reg_again_4096` and `dereg_again_4096`: a page next to a registered page.
// - `alloc_WHEN_BYTES`: a page-aligned allocation, a store to the memory, and its `free`. WHEN is
//   `plain` before a device is open, `open` with an open device, and `registered` if some of these
//   blocks are registered.
// The program checks that registrations do not change the bytes.
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE 4096

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static int order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *values, int n)
{
	qsort(values, n, sizeof(*values), order);
	return values[n / 2];
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static unsigned char byte_of(size_t at)
{
	return (unsigned char)(at * 2654435761u >> 13);
}

static void verify(const unsigned char *memory, size_t len, const char *when)
{
	for (size_t i = 0; i < len; i += 509)
		if (memory[i] != byte_of(i)) {
			fprintf(stderr, "byte %zu is another %s\n", i, when);
			exit(1);
		}
}

// Registers `count` ranges of `len` bytes, `gap` bytes apart, and then deregisters all ranges.
// Prints the median times of a registration and a deregistration.
static void measure(struct ibv_pd *pd, size_t len, size_t gap, int count, const char *name)
{
	size_t all = (len + gap) * count;
	unsigned char *memory = aligned_alloc(4096, all);
	struct ibv_mr **mrs = calloc(count, sizeof(*mrs));
	double *in = calloc(count, sizeof(*in)), *out = calloc(count, sizeof(*out));
	if (!memory || !mrs || !in || !out)
		die("memory");
	for (size_t i = 0; i < all; i++)
		memory[i] = byte_of(i);
	for (int i = 0; i < count; i++) {
		double begin = now();
		mrs[i] = ibv_reg_mr(pd, memory + (len + gap) * i, len,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
		in[i] = now() - begin;
		if (!mrs[i])
			die("ibv_reg_mr");
	}
	verify(memory, all, "after the registrations");
	for (int i = 0; i < count; i++) {
		double begin = now();
		if (ibv_dereg_mr(mrs[i]))
			die("ibv_dereg_mr");
		out[i] = now() - begin;
	}
	verify(memory, all, "in the end");
	printf("reg_%s %e s\n", name, median(in, count));
	printf("dereg_%s %e s\n", name, median(out, count));
	free(memory);
	free(mrs);
	free(in);
	free(out);
}

// Makes a page-aligned allocation, stores to the memory and frees it, EACH times. With `pd`, also
// registers some of the allocations. Prints the median of RUNS runs, without the time of the
// registrations.
static void allocations(const char *when, size_t len, struct ibv_pd *pd)
{
	enum { RUNS = 21, EACH = 500, ONE_OF = 16 };
	double runs[RUNS];

	for (int run = 0; run < RUNS; run++) {
		double begin = now(), apart = 0;

		for (int i = 0; i < EACH; i++) {
			char *memory = aligned_alloc(PAGE, len);

			if (!memory)
				die("memory");
			*(volatile char *)memory = 1;
			if (pd && i % ONE_OF == 0) {
				double from = now();
				struct ibv_mr *mr = ibv_reg_mr(pd, memory, len, IBV_ACCESS_LOCAL_WRITE);

				if (!mr || ibv_dereg_mr(mr))
					die("registration");
				apart += now() - from;
			}
			free(memory);
		}
		runs[run] = (now() - begin - apart) / EACH;
	}
	printf("alloc_%s_%zu %e s\n", when, len, median(runs, RUNS));
}

static void all_allocations(const char *when, struct ibv_pd *pd)
{
	for (size_t len = PAGE; len <= 4 << 20; len *= len == PAGE || len == 64 << 10 ? 16 : 4)
		allocations(when, len, pd);
}

int main(int argc, char **argv)
{
	all_allocations("plain", NULL);
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *context = NULL;
	for (int i = 0; list && i < n; i++)
		if (argc == 2 && !strcmp(ibv_get_device_name(list[i]), argv[1]))
			context = ibv_open_device(list[i]);
	if (!context)
		die("usage: register DEVICE");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	if (!pd)
		die("ibv_alloc_pd");
	all_allocations("open", NULL);
	all_allocations("registered", pd);
	measure(pd, PAGE, PAGE, 500, "4096");
	measure(pd, PAGE, 0, 500, "again_4096");
	measure(pd, 16 * PAGE, PAGE, 200, "65536");
	measure(pd, 256 << 20, PAGE, 3, "268435456");
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	ibv_free_device_list(list);
	return 0;
}
