// Steps that allocate, resize, free and write blocks of the allocator.
#include "torture.h"
#include <malloc.h>

static int room(struct thread *t, size_t len)
{
	return t->bytes + len <= (64ul << 20) / options.threads + (4 << 20);
}

static void *allocate(struct thread *t, size_t *len, const char **how, int *zero)
{
	size_t align = 1ul << (4 + rng_below(&t->rng, 13));
	void *p = NULL;

	*zero = 0;
	switch (rng_below(&t->rng, 8)) {
	case 0:
		*how = "posix_memalign";
		return posix_memalign(&p, align, *len) ? NULL : p;
	case 1:
		*how = "aligned_alloc";
		*len = (*len + align - 1) & -align;
		return aligned_alloc(align, *len);
	case 2:
		*how = "memalign";
		return memalign(PAGE, *len);
	case 3:
		*how = "valloc";
		*len = (*len + PAGE - 1) & -PAGE;
		return valloc(*len);
	case 4:
	case 5:
		*how = "calloc";
		*zero = 1;
		return calloc(1, *len);
	default:
		*how = "malloc";
		return malloc(*len);
	}
}

void step_malloc(struct thread *t)
{
	size_t len = any_size(t);
	struct block *b;
	const char *how;
	int zero;
	void *p;

	if (!any_block(t, 1 << NONE, 0) || !room(t, len + (1 << 17)))
		return;
	p = allocate(t, &len, &how, &zero);
	if (!p)
		fail(t, NULL, "%s(%zu) failed", how, len);
	b = new_block(t, HEAP, p, len);
	note(t, b, "%s(%zu) = %p", how, len, p);
	if (zero) {
		memset(b->model, 0, len);
		check(t, b, 0, len, "calloc");
	}
	fill_block(t, b, zero ? len / 2 : 0, len);
}

// Undoes the advice about fork (MADV_DONTFORK, MADV_WIPEONFORK) before the allocator gets the pages
// back. The allocator may reuse the pages for data that a child needs.
static void ordinary(struct thread *t, struct block *b)
{
	size_t from, to;

	settle(t, b);
	if (b->forked == COPIED || !inner(b, &from, &to))
		return;
	if (madvise(b->mem + from, to - from, b->forked == DONTFORK ? MADV_DOFORK : MADV_KEEPONFORK))
		fail(t, b, "madvise back to fork");
	b->forked = COPIED;
}

void step_realloc(struct thread *t)
{
	struct block *b = any_block(t, 1 << HEAP, 1);
	size_t old, len;
	void *p;

	if (!b)
		return;
	old = b->len;
	len = rng_chance(&t->rng, 60) ? old + 1 + any_size(t) : 1 + rng_below(&t->rng, old);
	if (len > MAX_LEN || (len > old && !room(t, len)))
		return;
	ordinary(t, b);
	note(t, b, "realloc(%p, %zu -> %zu)", b->mem, old, len);
	p = realloc(b->mem, len);
	if (!p)
		fail(t, b, "realloc");
	if (p == b->mem) {
		if (len < old)
			forget(t, b, len, old);
	} else {
		forget(t, b, 0, old);
	}
	resize_block(t, b, p, len);
	note(t, b, "realloc gave %p", p);
	check(t, b, 0, len < old ? len : old, "realloc");
	if (len > old)
		fill_block(t, b, old, len);
}

void step_free(struct thread *t)
{
	struct block *b = any_block(t, 1 << HEAP, 1);

	if (!b || (!rng_chance(&t->rng, 60) && any_block(t, 1 << NONE, 0)))
		return;
	ordinary(t, b);
	check(t, b, 0, b->len, "before free");
	note(t, b, "free(%p)", b->mem);
	forget(t, b, 0, b->len);
	free(b->mem);
	drop_block(t, b);
}

void step_write(struct thread *t)
{
	struct block *b = any_block(t, 1 << HEAP | 1 << MAPPED | 1 << SHARED, 1);
	size_t from, to;

	if (!b)
		return;
	settle(t, b);
	from = rng_below(&t->rng, b->len);
	to = from + 1 + rng_below(&t->rng, b->len - from);
	note(t, b, "write %zu..%zu", from, to);
	fill_block(t, b, from, to);
}
