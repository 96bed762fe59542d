// Declarations for all files of the memory torture. Each thread owns blocks of memory. For each
// block, the thread keeps a model: the expected bytes, in memory from a raw system call, which no
// library knows. A step changes a block and its model in the same way, and their bytes must stay
// equal.
#ifndef TORTURE_H
#define TORTURE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "rig.h"
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define PAGE 4096ul
#define BLOCKS 24
#define MRS 32
#define MAX_LEN (8ul << 20)
#define NOTES 4096
#define PEER_LEN (1ul << 20)
#define OP_MAX (256ul << 10)
#define MAX_THREADS 8
// The most seconds of a wait, for example for a completion or another process. A longer wait fails.
// The driver (src/main.rs) has a longer limit. If the program does not end by then, the driver
// prints the stacks and kills the program.
#define HANG_LIMIT 60

// ---- Randomness and patterns (raw.c).
struct rng {
	uint64_t s;
};
uint64_t rng_next(struct rng *r);
// A number below n.
uint64_t rng_below(struct rng *r, uint64_t n);
// True in p of 100 cases.
int rng_chance(struct rng *r, unsigned p);
// Fills memory with bytes that depend only on the seed.
void pattern(void *to, size_t len, uint64_t seed);

// ---- System calls without the C library (raw.c).
long raw_call(long n, long a, long b, long c, long d, long e, long f);
// Maps memory for the model and for the checks. No library knows this memory.
void *raw_map(size_t len);
// The ways to make a call of the memory family (mmap, munmap, mremap, madvise): by the function of
// the C library, by its function syscall(), or by a system call instruction in this program.
enum way { BY_LIBC, BY_SYSCALL, BY_ASM };
const char *way_name(enum way w);
void *way_mmap(enum way w, void *at, size_t len, int prot, int flags);
int way_munmap(enum way w, void *at, size_t len);
void *way_mremap(enum way w, void *at, size_t old, size_t len, int flags, void *to);
int way_madvise(enum way w, void *at, size_t len, int advice);
int process_advise(void *at, size_t len, int advice);

// ---- Blocks.
enum kind { NONE, HEAP, MAPPED, SHARED };
enum forked { COPIED, DONTFORK, WIPED };
struct block {
	enum kind kind;
	uint32_t id;
	uint8_t *mem, *model;
	size_t len;
	int prot; // of the whole pages inside the block
	enum forked forked; // of the whole pages inside the block
	int mixed; // the kernel may have split the mapping; then mremap of the whole block fails (EFAULT)
	size_t lazy_from, lazy_to; // the range of MADV_FREE: each page there has its old bytes or zeroes
	int busy; // pending operations on this block
	size_t busy_from, busy_to; // the range that a pending operation changes
};
struct region {
	struct ibv_mr *mr;
	int block; // -1: the program unmapped, moved or discarded the memory; no operation uses the region
	size_t off, len;
	int access, used;
};
struct note {
	uint64_t step;
	uint32_t block;
	char text[84];
};

// ---- Pending operations of a thread, at most three: between two queue pairs of this process, by
// the peer, and by the foreigner. The peer and the foreigner are other processes (peer.c).
enum { OWN, PEER, FOREIGN, PENDINGS };
enum op { OP_NONE, OP_WRITE, OP_READ, OP_ADD, OP_SWAP, OP_SEND, OP_FILL, OP_DUMP, OP_CONNECT, OP_MEM_WRITE, OP_MEM_READ, OP_BIG_WRITE };
struct order {
	uint32_t op, rkey;
	uint64_t addr, len, seed, add, swap;
};
struct answer {
	uint32_t status, qpn, rkey, pad;
	uint64_t addr, value;
};
struct pending {
	enum op op;
	int to, from; // indexes of blocks; -1: none
	size_t to_off, from_off, len;
	int to_mr, from_mr;
	uint64_t seed, add, swap, since;
};
// The `wr_id` of work requests. At most one request of each number is pending.
enum { TAG_OWN, TAG_OWN_RECV, TAG_PEER_RECV, TAG_OUT, TAGS };

struct link {
	struct ibv_qp *qp;
	uint64_t peer_addr;
	uint32_t peer_rkey;
	int fd;
};
struct thread {
	int index;
	struct rng rng;
	uint64_t step;
	struct block block[BLOCKS];
	struct region region[MRS];
	struct note note[NOTES];
	uint64_t notes;
	size_t bytes; // of all blocks
	uint32_t next_id;
	int bystander; // registers nothing
	uint8_t *scratch; // MAX_LEN bytes from raw_map
	int file, direct; // file 0: not yet open; direct -1: without O_DIRECT
	uint64_t file_seed;
	int foreigner; // socket to the process that reads and writes our memory without RDMA
	struct link peer;
	struct ibv_cq *cq;
	struct ibv_qp *own[2];
	int done[TAGS];
	struct pending pending[PENDINGS];
	int child_pid, child_fd;
	pthread_t pthread;
};
struct options {
	uint64_t seed, steps;
	int threads, verbs, assembly;
	double seconds;
	const char *scenario;
};
extern struct options options;
extern struct port port;

// ---- The model (model.c).
void note(struct thread *t, struct block *b, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// Reports that a block differs from its model at offset `at`, and ends the process.
void differ(struct thread *t, struct block *b, size_t at, const char *when);
void fail(struct thread *t, struct block *b, const char *fmt, ...) __attribute__((format(printf, 3, 4), noreturn));
void catch_faults(struct thread *all, int n);
// Compares a range of a block with its model. A difference ends the process.
void check(struct thread *t, struct block *b, size_t from, size_t to, const char *when);
void check_all(struct thread *t, const char *when);
void check_sample(struct thread *t, const char *when);
// Compares the model with a copy of the block's bytes, for example with the bytes that a peer has
// read.
void check_copy(struct thread *t, struct block *b, size_t off, const void *got, size_t len, const char *when);
void fill_block(struct thread *t, struct block *b, size_t from, size_t to);
// Makes a block readable and writable again, and writes to its lazy pages. Then every step can use
// the block.
void settle(struct thread *t, struct block *b);
// Finds the whole pages inside a block, as offsets. Returns 0 if there are none.
int inner(struct block *b, size_t *from, size_t *to);
int inner_part(struct thread *t, struct block *b, size_t *from, size_t *to);
struct block *any_block(struct thread *t, unsigned kinds, int idle); // kinds: bits 1 << kind
struct block *new_block(struct thread *t, enum kind kind, void *mem, size_t len);
void drop_block(struct thread *t, struct block *b);
void resize_block(struct thread *t, struct block *b, void *mem, size_t len);
enum way any_way(struct thread *t);
size_t any_size(struct thread *t);

// ---- Registrations and operations (verbs.c).
void device_open(struct port *p);
void verbs_thread(struct thread *t);
void step_register(struct thread *t);
void step_deregister(struct thread *t);
void step_own(struct thread *t);
void step_peer(struct thread *t);
void step_out(struct thread *t);
void step_foreign(struct thread *t);
// Handles the results of pending operations that have finished. With `wait`, first waits until all
// pending operations have finished.
void take_finished(struct thread *t, int wait);
void register_part(struct thread *t, struct block *b, size_t from, size_t to);
void deregister(struct thread *t, struct region *r);
// For a range that the program unmaps, moves or discards. Operations no longer use the regions in
// this range, and some of these regions are deregistered at once.
void forget(struct thread *t, struct block *b, size_t from, size_t to);
int wait_tag(struct thread *t, int tag);

// ---- The two helper processes (peer.c).
int peer_main(int argc, char **argv);
extern pid_t peer_pid;
void start_peer(int *sockets, int n);
int start_foreigner(void);
void tell(int fd, const void *what, size_t len);
void hear(int fd, void *what, size_t len);
void link_open(struct link *l, struct ibv_cq *cq);

// ---- Steps.
struct step {
	const char *name;
	unsigned weight;
	int verbs;
	void (*run)(struct thread *t);
};
void step_malloc(struct thread *t);
void step_realloc(struct thread *t);
void step_free(struct thread *t);
void step_write(struct thread *t);
void step_mmap(struct thread *t);
void step_unmap(struct thread *t);
void step_grow(struct thread *t);
void step_move(struct thread *t);
void step_shrink(struct thread *t);
void step_hole(struct thread *t);
void step_advise(struct thread *t);
void step_discard(struct thread *t);
void step_lazy(struct thread *t);
void step_forked(struct thread *t);
void step_protect(struct thread *t);
void step_fork(struct thread *t);
void step_linger(struct thread *t);
void step_exec(struct thread *t);
void step_pipe(struct thread *t);
void step_file(struct thread *t);
void step_waiter(struct thread *t);

int scenario_main(const char *name);
void scenario_list(void);
#endif
