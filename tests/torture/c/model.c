// Blocks and their models: the expected contents, and the report of a difference.
#include "torture.h"
#include <ucontext.h>

static struct thread *threads;
static int thread_count;

void note(struct thread *t, struct block *b, const char *fmt, ...)
{
	struct note *n = &t->note[t->notes++ % NOTES];
	va_list ap;

	n->step = t->step;
	n->block = b ? b->id : 0;
	va_start(ap, fmt);
	vsnprintf(n->text, sizeof(n->text), fmt, ap);
	va_end(ap);
}

// Called before a report. Returns only in the first thread that fails, so the process prints only
// one report. Other threads wait here until the process ends.
static void only_one(void)
{
	static int taken;

	while (__atomic_exchange_n(&taken, 1, __ATOMIC_SEQ_CST))
		sleep(60);
}

static void print_notes(struct thread *t, struct block *b)
{
	uint64_t i, first = t->notes > NOTES ? t->notes - NOTES : 0, from = t->notes;
	int found = 0;

	for (i = t->notes; b && i > first && found < 32; i--)
		if (t->note[(i - 1) % NOTES].block == b->id) {
			found++;
			from = i - 1;
		}
	if (b)
		dprintf(1, "the last %d steps on block %u:\n", found, b->id);
	for (i = from; b && i < t->notes; i++)
		if (t->note[i % NOTES].block == b->id)
			dprintf(1, "  step %lu: %s\n", t->note[i % NOTES].step, t->note[i % NOTES].text);
	dprintf(1, "the last steps of the thread:\n");
	for (i = t->notes > first + 16 ? t->notes - 16 : first; i < t->notes; i++)
		dprintf(1, "  step %lu: block %u: %s\n", t->note[i % NOTES].step, t->note[i % NOTES].block,
			t->note[i % NOTES].text);
}

static void print_place(struct thread *t, struct block *b)
{
	static const char *const kinds[] = {"none", "heap", "mapped", "shared"};

	dprintf(1, "seed %lu thread %d step %lu pid %d\n", options.seed, t->index, t->step, getpid());
	if (b)
		dprintf(1, "block %u (%s) at %p, %zu bytes, protection %d, forked %d, lazy %zu..%zu, busy %d\n", b->id,
			kinds[b->kind], b->mem, b->len, b->prot, b->forked, b->lazy_from, b->lazy_to, b->busy);
}

static void print_bytes(const char *what, const uint8_t *p, size_t n)
{
	size_t i;

	dprintf(1, "%s", what);
	for (i = 0; i < n; i++)
		dprintf(1, " %02x", p[i]);
	dprintf(1, "\n");
}

static void difference(struct thread *t, struct block *b, size_t at, const uint8_t *got, size_t end, const char *when)
{
	size_t wrong = 0, i, n = end - at < 32 ? end - at : 32;

	only_one();
	for (i = at; i < end; i++)
		wrong += got[i - at] != b->model[i];
	dprintf(1, "DIFFERENCE %s: offset %#zx (%p), %zu bytes wrong from there\n", when, at, b->mem + at, wrong);
	print_place(t, b);
	print_bytes("expected", b->model + at, n);
	print_bytes("got     ", got, n);
	print_notes(t, b);
	_exit(1);
}

void differ(struct thread *t, struct block *b, size_t at, const char *when)
{
	difference(t, b, at, b->mem + at, b->len, when);
}

void fail(struct thread *t, struct block *b, const char *fmt, ...)
{
	char text[256];
	int e = errno;
	va_list ap;

	only_one();
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	dprintf(1, "FAIL %s (errno %d)\n", text, e);
	print_place(t, b);
	print_notes(t, b);
	_exit(1);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	uint8_t *at = info->si_addr;
	int i, j;

	(void)context;
	only_one();
	dprintf(1, "FAULT signal %d at %p pid %d\n", sig, at, getpid());
	for (i = 0; i < thread_count; i++) {
		struct thread *t = &threads[i];
		struct block *b = NULL;

		for (j = 0; j < BLOCKS; j++)
			if (t->block[j].kind && at >= t->block[j].mem && at < t->block[j].mem + t->block[j].len)
				b = &t->block[j];
		if (b || pthread_equal(t->pthread, pthread_self())) {
			print_place(t, b);
			print_notes(t, b);
		}
	}
	signal(sig, SIG_DFL);
	raise(sig);
}

// The driver (src/run.rs) sends SIGQUIT to a program that hangs. The handler prints the last steps
// of all threads.
static void on_quit(int sig)
{
	int i;

	dprintf(1, "HANG signal %d pid %d\n", sig, getpid());
	for (i = 0; i < thread_count; i++) {
		print_place(&threads[i], NULL);
		print_notes(&threads[i], NULL);
	}
	_exit(3);
}

void catch_faults(struct thread *all, int n)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_RESETHAND};

	signal(SIGQUIT, on_quit);
	threads = all;
	thread_count = n;
	CHECK(!sigaction(SIGSEGV, &sa, NULL) && !sigaction(SIGBUS, &sa, NULL), "sigaction");
}

static size_t first_difference(const uint8_t *a, const uint8_t *b, size_t len)
{
	size_t i = 0, n;

	// First compare page by page, because memcmp does not return the place of the difference.
	while (i < len) {
		n = len - i < PAGE ? len - i : PAGE;
		if (memcmp(a + i, b + i, n))
			break;
		i += n;
	}
	while (i < len && a[i] == b[i])
		i++;
	return i;
}

static int all_zero(const uint8_t *p, size_t n)
{
	while (n--)
		if (*p++)
			return 0;
	return 1;
}

static void check_plain(struct thread *t, struct block *b, size_t from, size_t to, const char *when)
{
	size_t at;

	if (from >= to || !memcmp(b->mem + from, b->model + from, to - from))
		return;
	at = from + first_difference(b->mem + from, b->model + from, to - from);
	// The bytes may have changed since memcmp, so this search may find no difference. The
	// result of memcmp still counts: the report then names the start of the range.
	differ(t, b, at < to ? at : from, when);
}

// After MADV_FREE each page has its old bytes or is all zero.
static void check_lazy(struct thread *t, struct block *b, size_t from, size_t to, const char *when)
{
	size_t page;

	for (page = b->lazy_from; page < b->lazy_to; page += PAGE)
		if (page < to && page + PAGE > from && memcmp(b->mem + page, b->model + page, PAGE) && !all_zero(b->mem + page, PAGE))
			differ(t, b, page + first_difference(b->mem + page, b->model + page, PAGE), when);
}

static void check_readable(struct thread *t, struct block *b, size_t from, size_t to, const char *when)
{
	if (b->busy && b->busy_to > b->busy_from) {
		check_plain(t, b, from, to < b->busy_from ? to : b->busy_from, when);
		check_plain(t, b, from > b->busy_to ? from : b->busy_to, to, when);
	} else if (b->lazy_to > b->lazy_from) {
		check_plain(t, b, from, to < b->lazy_from ? to : b->lazy_from, when);
		check_plain(t, b, from > b->lazy_to ? from : b->lazy_to, to, when);
		check_lazy(t, b, from, to, when);
	} else {
		check_plain(t, b, from, to, when);
	}
}

void check(struct thread *t, struct block *b, size_t from, size_t to, const char *when)
{
	size_t a, z;

	if (b->prot & PROT_READ || !inner(b, &a, &z)) {
		check_readable(t, b, from, to, when);
		return;
	}
	// Compare only the parts before and behind the unreadable pages.
	check_readable(t, b, from, to < a ? to : a, when);
	check_readable(t, b, from > z ? from : z, to, when);
}

void check_all(struct thread *t, const char *when)
{
	int i;

	for (i = 0; i < BLOCKS; i++)
		if (t->block[i].kind)
			check(t, &t->block[i], 0, t->block[i].len, when);
}

void check_sample(struct thread *t, const char *when)
{
	struct block *b = &t->block[rng_below(&t->rng, BLOCKS)];
	size_t from = 0, n = 64 << 10;

	if (!b->kind)
		return;
	if (b->len > n)
		from = rng_below(&t->rng, b->len - n);
	check(t, b, from, b->len < from + n ? b->len : from + n, when);
}

void check_copy(struct thread *t, struct block *b, size_t off, const void *got, size_t len, const char *when)
{
	size_t at = first_difference(got, b->model + off, len);

	if (at < len)
		difference(t, b, off + at, (const uint8_t *)got + at, off + len, when);
}

void fill_block(struct thread *t, struct block *b, size_t from, size_t to)
{
	uint64_t seed = rng_next(&t->rng);

	pattern(b->mem + from, to - from, seed);
	pattern(b->model + from, to - from, seed);
}

int inner(struct block *b, size_t *from, size_t *to)
{
	uintptr_t start = ((uintptr_t)b->mem + PAGE - 1) & -PAGE, end = ((uintptr_t)b->mem + b->len) & -PAGE;

	if (end <= start)
		return 0;
	*from = start - (uintptr_t)b->mem;
	*to = end - (uintptr_t)b->mem;
	return 1;
}

int inner_part(struct thread *t, struct block *b, size_t *from, size_t *to)
{
	size_t pages, first, n;

	if (!inner(b, from, to))
		return 0;
	if (rng_chance(&t->rng, 40))
		return 1;
	pages = (*to - *from) / PAGE;
	first = rng_below(&t->rng, pages);
	n = 1 + rng_below(&t->rng, pages - first);
	*from += first * PAGE;
	*to = *from + n * PAGE;
	return 1;
}

void settle(struct thread *t, struct block *b)
{
	size_t from, to;

	if (b->prot != (PROT_READ | PROT_WRITE) && inner(b, &from, &to)) {
		note(t, b, "mprotect back to read and write");
		if (mprotect(b->mem + from, to - from, PROT_READ | PROT_WRITE))
			fail(t, b, "mprotect");
		b->prot = PROT_READ | PROT_WRITE;
		check(t, b, 0, b->len, "after mprotect back");
	}
	if (b->lazy_to > b->lazy_from) {
		note(t, b, "write over lazy pages");
		check(t, b, 0, b->len, "before writing lazy pages");
		fill_block(t, b, b->lazy_from, b->lazy_to);
		b->lazy_from = b->lazy_to = 0;
	}
}

struct block *any_block(struct thread *t, unsigned kinds, int idle)
{
	int i, n = 0, pick;

	for (i = 0; i < BLOCKS; i++)
		n += (kinds >> t->block[i].kind & 1) && !(idle && t->block[i].busy);
	if (!n)
		return NULL;
	pick = rng_below(&t->rng, n);
	for (i = 0;; i++)
		if ((kinds >> t->block[i].kind & 1) && !(idle && t->block[i].busy) && !pick--)
			return &t->block[i];
}

struct block *new_block(struct thread *t, enum kind kind, void *mem, size_t len)
{
	struct block *b = any_block(t, 1 << NONE, 0);
	uint8_t *model;

	CHECK(b, "no room for a block");
	model = b->model;
	*b = (struct block){.kind = kind, .id = ++t->next_id, .mem = mem, .model = model, .len = len,
			    .prot = PROT_READ | PROT_WRITE};
	t->bytes += len;
	return b;
}

void resize_block(struct thread *t, struct block *b, void *mem, size_t len)
{
	t->bytes += len - b->len;
	b->mem = mem;
	b->len = len;
}

void drop_block(struct thread *t, struct block *b)
{
	t->bytes -= b->len;
	b->kind = NONE;
	// The block needs no model any more, so the pages of the model go back to the kernel.
	raw_call(SYS_madvise, (long)b->model, MAX_LEN, MADV_DONTNEED, 0, 0, 0);
}

enum way any_way(struct thread *t)
{
	return rng_below(&t->rng, options.assembly ? 3 : 2);
}

size_t any_size(struct thread *t)
{
	unsigned p = rng_below(&t->rng, 100);

	if (p < 35)
		return 1 + rng_below(&t->rng, 4096);
	if (p < 65)
		return 4096 + rng_below(&t->rng, 124 << 10);
	if (p < 75)
		return PAGE * (1 + rng_below(&t->rng, 64));
	if (p < 93)
		return (128 << 10) + rng_below(&t->rng, 896 << 10);
	return (1 << 20) + rng_below(&t->rng, 3 << 20);
}
