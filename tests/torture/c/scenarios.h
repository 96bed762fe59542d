// Declarations for the scenarios. Each scenario runs in its own process, most of them with a
// device, and some with a connection to the peer.
#ifndef SCENARIOS_H
#define SCENARIOS_H
#include "torture.h"

#define ALL_ACCESS                                                                              \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

// The sources of memory in the scenarios.
enum source { LIBC_MAP, RAW_MAP, MALLOC, ALIGNED, SOURCES };
extern const char *const source_names[SOURCES];
uint8_t *make_memory(enum source s, size_t len);
void end_memory(enum source s, uint8_t *p, size_t len);
void with_device(void);
// Starts the peer, opens the device, and makes a completion queue and a connection with the peer.
void with_peer(struct link *l, struct ibv_cq **cq);
struct ibv_mr *registered(void *p, size_t len, int access);
void deregistered(struct ibv_mr *mr);
// Counts an error. The scenario fails at its end if there were errors.
void wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void expect_bytes(const uint8_t *p, const uint8_t *want, size_t len, const char *what);
void expect_zeroes(const uint8_t *p, size_t len, const char *what);
struct answer ask(struct link *l, enum op op, const void *at, size_t len, uint32_t rkey, uint64_t seed);

// vanish.c
void vanish_unmapped(void);
void vanish_no_access(void);
void vanish_read_only(void);
void vanish_truncated(void);
void bounds_and_rights(void);
void stopped_writer(void);
void stopped_writer_of_a_destroyed(void);
void stopped_writer_of_one_in_error(void);
void stopped_writer_without_rights(void);
// foreign.c
void storm_of_writes(void);
void storm_of_reads(void);
// blocks.c
void remap_blocks(void);
void wiped_blocks(void);
void fork_signals(void);
void closed_descriptors(void);
void fork_on_registered_stack(void);
// exec.c
void exec_new_memory(void);
// children.c
void fork_handlers(void);
void bare_children(void);
void fork_without_descriptors(void);
void fork_beside_stacks(void);
void cancelled(void);
// left.c
void locked_pages(void);
void fork_in_handlers(void);
void freed_in_the_parent(void);
void cloned_on_blocks(void);
// hooks.c, which is part of the program torture-hooks only.
void hooked(void) __attribute__((weak));
// main.c
struct thread *threads_new(int n);
void run_steps(struct thread *t, uint64_t n);
void finish(struct thread *t);
#endif
