// Steps on mappings: creating, growing, moving, cutting, advising, protecting.
#include "torture.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define ADVICE_GUARD_INSTALL 102
#define ADVICE_GUARD_REMOVE 103

static size_t any_pages(struct thread *t)
{
	size_t most = rng_chance(&t->rng, 70) ? 8 : rng_chance(&t->rng, 70) ? 128 : 1024;

	return PAGE * (1 + rng_below(&t->rng, most));
}

static int room(struct thread *t, size_t len)
{
	return t->bytes + len <= (64ul << 20) / options.threads + (4 << 20);
}

static void fresh(struct thread *t, struct block *b, const char *when)
{
	memset(b->model, 0, b->len);
	check(t, b, 0, b->len, when);
	if (rng_chance(&t->rng, 90))
		fill_block(t, b, 0, b->len);
}

// Creates a mapping with a single block or with two adjacent blocks.
void step_mmap(struct thread *t)
{
	enum way w = any_way(t);
	size_t len = any_pages(t), second = rng_chance(&t->rng, 40) ? any_pages(t) : 0;
	enum kind kind = rng_chance(&t->rng, 12) ? SHARED : MAPPED;
	int flags = (kind == SHARED ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS;
	struct block *b;
	uint8_t *p;

	if (rng_chance(&t->rng, 15))
		flags |= MAP_NORESERVE;
	if (rng_chance(&t->rng, 10))
		flags |= MAP_POPULATE;
	if (!any_block(t, 1 << NONE, 0) || !room(t, len + second))
		return;
	p = way_mmap(w, NULL, len + second, PROT_READ | PROT_WRITE, flags);
	if (p == MAP_FAILED)
		fail(t, NULL, "mmap of %zu by %s", len + second, way_name(w));
	b = new_block(t, kind, p, len);
	note(t, b, "mmap(%zu + %zu) by %s = %p", len, second, way_name(w), p);
	fresh(t, b, "mmap");
	if (!second)
		return;
	if (!any_block(t, 1 << NONE, 0)) {
		if (way_munmap(w, p + len, second))
			fail(t, b, "munmap");
		return;
	}
	b = new_block(t, kind, p + len, second);
	note(t, b, "second half of mmap by %s = %p", way_name(w), p + len);
	fresh(t, b, "mmap, second half");
}

void step_unmap(struct thread *t)
{
	struct block *b = any_block(t, 1 << MAPPED | 1 << SHARED, 1);
	enum way w = any_way(t);

	if (!b || (!rng_chance(&t->rng, 50) && any_block(t, 1 << NONE, 0)))
		return;
	check(t, b, 0, b->len, "before munmap");
	note(t, b, "munmap(%p, %zu) by %s", b->mem, b->len, way_name(w));
	forget(t, b, 0, b->len);
	if (way_munmap(w, b->mem, b->len))
		fail(t, b, "munmap");
	drop_block(t, b);
}

void step_grow(struct thread *t)
{
	struct block *b = any_block(t, 1 << MAPPED, 1);
	enum way w = any_way(t);
	size_t old, len;
	uint8_t *p, *to = NULL;
	int flags, e;

	if (!b)
		return;
	old = b->len;
	len = old + any_pages(t);
	if (len > MAX_LEN || !room(t, len))
		return;
	settle(t, b);
	flags = rng_chance(&t->rng, 40) ? 0 : MREMAP_MAYMOVE;
	if (rng_chance(&t->rng, 20)) {
		to = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (to == MAP_FAILED)
			fail(t, b, "mmap of a place to move to");
		flags = MREMAP_MAYMOVE | MREMAP_FIXED;
	}
	p = way_mremap(w, b->mem, old, len, flags, to);
	e = errno;
	note(t, b, "mremap(%p, %zu -> %zu, flags %d) by %s = %p", b->mem, old, len, flags, way_name(w), p);
	if (p == MAP_FAILED) {
		// These failures are allowed: EFAULT for a block of several mappings, and ENOMEM if
		// the block must not move. A failed call with MREMAP_FIXED may have unmapped the
		// place `to`, and another thread may use the place by now. So this step does not
		// unmap `to`.
		if (!(e == EFAULT && b->mixed) && !(e == ENOMEM && !flags)) {
			errno = e;
			fail(t, b, "mremap");
		}
		check(t, b, 0, old, "mremap that failed");
		return;
	}
	if (p != b->mem)
		forget(t, b, 0, old);
	resize_block(t, b, p, len);
	memset(b->model + old, 0, len - old);
	check(t, b, 0, len, "mremap growing");
	if (rng_chance(&t->rng, 80))
		fill_block(t, b, old, len);
}

void step_move(struct thread *t)
{
	struct block *b = any_block(t, 1 << MAPPED, 1), *left = NULL;
	enum way w = any_way(t);
	uint8_t *p, *to, *from;
	int flags = MREMAP_MAYMOVE | MREMAP_FIXED;

	if (!b)
		return;
	settle(t, b);
	if (rng_chance(&t->rng, 30) && any_block(t, 1 << NONE, 0) && room(t, b->len))
		flags |= MREMAP_DONTUNMAP;
	to = mmap(NULL, b->len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (to == MAP_FAILED)
		fail(t, b, "mmap of a place to move to");
	from = b->mem;
	p = way_mremap(w, from, b->len, b->len, flags, to);
	note(t, b, "mremap(%p, %zu, move to %p, flags %d) by %s = %p", from, b->len, to, flags, way_name(w), p);
	if (p == MAP_FAILED && b->mixed) {
		check(t, b, 0, b->len, "mremap that failed");
		return;
	}
	if (p != to)
		fail(t, b, "mremap that moves");
	forget(t, b, 0, b->len);
	if (flags & MREMAP_DONTUNMAP) {
		left = new_block(t, MAPPED, from, b->len);
		left->forked = b->forked;
		left->mixed = b->mixed;
		note(t, left, "left behind by mremap");
	}
	b->mem = p;
	check(t, b, 0, b->len, "mremap moving");
	if (left)
		fresh(t, left, "what a mapping left behind");
}

void step_shrink(struct thread *t)
{
	struct block *b = any_block(t, 1 << MAPPED, 1);
	enum way w = any_way(t);
	size_t old, len;

	if (!b || b->len == PAGE)
		return;
	settle(t, b);
	old = b->len;
	len = PAGE * (1 + rng_below(&t->rng, old / PAGE - 1));
	switch (rng_below(&t->rng, 3)) {
	case 0:
		note(t, b, "mremap(%p, %zu -> %zu) by %s", b->mem, old, len, way_name(w));
		if (way_mremap(w, b->mem, old, len, 0, NULL) != b->mem)
			fail(t, b, "mremap that shrinks");
		break;
	case 1:
		note(t, b, "munmap of the end, from %zu of %zu by %s", len, old, way_name(w));
		if (way_munmap(w, b->mem + len, old - len))
			fail(t, b, "munmap of the end");
		break;
	default:
		note(t, b, "munmap of the first %zu of %zu by %s", old - len, old, way_name(w));
		if (way_munmap(w, b->mem, old - len))
			fail(t, b, "munmap of the beginning");
		forget(t, b, 0, old);
		memmove(b->model, b->model + old - len, len);
		resize_block(t, b, b->mem + old - len, len);
		check(t, b, 0, len, "munmap of the beginning");
		return;
	}
	forget(t, b, len, old);
	resize_block(t, b, b->mem, len);
	check(t, b, 0, len, "shrinking");
}

// Replaces pages in the middle of a mapping by a new mapping.
void step_hole(struct thread *t)
{
	struct block *b = any_block(t, 1 << MAPPED, 1);
	enum way w = any_way(t);
	size_t from, to;
	int fork_as;

	if (!b)
		return;
	settle(t, b);
	inner_part(t, b, &from, &to);
	forget(t, b, from, to);
	note(t, b, "mmap over %zu..%zu by %s", from, to, way_name(w));
	b->mixed = 1;
	// A single call replaces the pages (MAP_FIXED). If this step called munmap first, another
	// thread could map its own memory into the hole.
	if (way_mmap(w, b->mem + from, to - from, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED) != b->mem + from)
		fail(t, b, "mmap into the middle");
	fork_as = b->forked == DONTFORK ? MADV_DONTFORK : b->forked == WIPED ? MADV_WIPEONFORK : MADV_NORMAL;
	if (madvise(b->mem + from, to - from, fork_as))
		fail(t, b, "madvise of the middle");
	memset(b->model + from, 0, to - from);
	check(t, b, 0, b->len, "mmap over the middle");
}

static int advise(struct thread *t, struct block *b, size_t from, size_t to, int advice, const char **how)
{
	enum way w = any_way(t);

	// The exception is explained at `discard` in scenarios.c.
	if (w == BY_ASM && b->kind == HEAP)
		w = BY_SYSCALL;
	if (rng_chance(&t->rng, 20)) {
		*how = "process_madvise";
		return process_advise(b->mem + from, to - from, advice);
	}
	*how = way_name(w);
	return way_madvise(w, b->mem + from, to - from, advice);
}

// Gives advice that must change no byte, whether the call succeeds or fails.
void step_advise(struct thread *t)
{
	static const int harmless[] = {
		MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE,
		MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_DONTDUMP, MADV_DODUMP, MADV_COLD, MADV_PAGEOUT,
		MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_COLLAPSE, MADV_REMOVE, 12345,
	};
	struct block *b = any_block(t, 1 << HEAP | 1 << MAPPED | 1 << SHARED, 0);
	int advice = harmless[rng_below(&t->rng, ARRAY_LEN(harmless))], r, e;
	const char *how = "posix_madvise";
	size_t from, to;

	if (!b || !inner_part(t, b, &from, &to) || b->lazy_to || !(b->prot & PROT_WRITE))
		return;
	if (b->kind == SHARED && advice == MADV_REMOVE)
		return;
	if (rng_chance(&t->rng, 15)) {
		advice = POSIX_MADV_DONTNEED;
		r = posix_madvise(b->mem + from, to - from, advice);
	} else {
		r = advise(t, b, from, to, advice, &how);
	}
	b->mixed = 1;
	e = errno;
	note(t, b, "madvise(%zu..%zu, %d) by %s = %d", from, to, advice, how, r);
	// MADV_REMOVE needs a file. The kernel must refuse this advice for private memory without a
	// file.
	if (advice == MADV_REMOVE && how[0] != 'p' && !(r == -1 && e == EINVAL))
		fail(t, b, "MADV_REMOVE of private memory gave %d", r);
	check(t, b, 0, b->len, "madvise");
}

// Gives advice after which the pages must be zero.
void step_discard(struct thread *t)
{
	static const int discards[] = {MADV_DONTNEED, MADV_DONTNEED, MADV_DONTNEED_LOCKED, ADVICE_GUARD_INSTALL};
	struct block *b = any_block(t, 1 << HEAP | 1 << MAPPED | 1 << SHARED, 1);
	int advice = discards[rng_below(&t->rng, ARRAY_LEN(discards))], r;
	const char *how;
	size_t from, to;

	if (!b || !inner_part(t, b, &from, &to) || (b->kind == SHARED && advice == ADVICE_GUARD_INSTALL))
		return;
	settle(t, b);
	forget(t, b, from, to);
	r = advise(t, b, from, to, advice, &how);
	note(t, b, "madvise(%zu..%zu, discard %d) by %s = %d", from, to, advice, how, r);
	if (advice == ADVICE_GUARD_INSTALL && !r) {
		r = advise(t, b, from, to, ADVICE_GUARD_REMOVE, &how);
		note(t, b, "guard pages removed by %s = %d", how, r);
		if (r && madvise(b->mem + from, to - from, ADVICE_GUARD_REMOVE))
			fail(t, b, "MADV_GUARD_REMOVE");
		r = 0;
	} else if (advice == MADV_DONTNEED && r && how[0] != 'p') {
		fail(t, b, "MADV_DONTNEED");
	}
	// Shared memory keeps its bytes, because this advice removes only its page table entries.
	if (!r && b->kind != SHARED)
		memset(b->model + from, 0, to - from);
	check(t, b, 0, b->len, "discarding");
	if (rng_chance(&t->rng, 70))
		fill_block(t, b, from, to);
}

void step_lazy(struct thread *t)
{
	struct block *b = any_block(t, 1 << HEAP | 1 << MAPPED, 1);
	const char *how;
	size_t from, to;
	int r;

	if (!b || !inner_part(t, b, &from, &to))
		return;
	settle(t, b);
	forget(t, b, from, to);
	r = advise(t, b, from, to, MADV_FREE, &how);
	note(t, b, "madvise(%zu..%zu, MADV_FREE) by %s = %d", from, to, how, r);
	b->lazy_from = from;
	b->lazy_to = to;
	check(t, b, 0, b->len, "MADV_FREE");
}

// Gives advice about what a fork does with the pages: copy them, leave them out, or wipe them.
void step_forked(struct thread *t)
{
	struct block *b = any_block(t, 1 << HEAP | 1 << MAPPED, 1);
	enum way w = any_way(t);
	enum forked to_be = rng_below(&t->rng, 3);
	size_t from, to;

	if (!b || !inner(b, &from, &to))
		return;
	if (b->forked != COPIED &&
	    way_madvise(w, b->mem + from, to - from, b->forked == DONTFORK ? MADV_DOFORK : MADV_KEEPONFORK))
		fail(t, b, "madvise back to fork");
	b->forked = COPIED;
	if (to_be != COPIED &&
	    way_madvise(w, b->mem + from, to - from, to_be == DONTFORK ? MADV_DONTFORK : MADV_WIPEONFORK))
		fail(t, b, "madvise of what fork does");
	b->forked = to_be;
	note(t, b, "by fork: %s, by %s", to_be == COPIED ? "copied" : to_be == DONTFORK ? "left out" : "wiped", way_name(w));
	check(t, b, 0, b->len, "advice about fork");
}

void step_protect(struct thread *t)
{
	struct block *b = any_block(t, 1 << HEAP | 1 << MAPPED, 1);
	int prot = rng_chance(&t->rng, 60) ? PROT_READ : PROT_NONE;
	size_t from, to;

	if (!b || !inner(b, &from, &to))
		return;
	settle(t, b);
	note(t, b, "mprotect(%zu..%zu, %d)", from, to, prot);
	b->mixed = 1;
	if (mprotect(b->mem + from, to - from, prot))
		fail(t, b, "mprotect");
	b->prot = prot;
	check(t, b, 0, b->len, "mprotect");
	if (rng_chance(&t->rng, 60))
		settle(t, b);
}
