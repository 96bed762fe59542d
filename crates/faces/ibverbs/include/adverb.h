/* What Adverb's libibverbs.so.1 offers beside the verbs of rdma-core. Include it after <infiniband/verbs.h>.
 *
 * The names are weak: a program built with this header links and runs on any libibverbs, and asks at run time whether
 * they are there: if (adverb_peek_cq) … . Functions that return an int return 0, or a positive errno value, unless they
 * say otherwise. SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef ADVERB_H
#define ADVERB_H
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif
#define ADVERB_WEAK __attribute__((weak))

/* What an arm waits for. */
enum adverb_notify {
	ADVERB_NOTIFY_NEXT = 0,      /* the next completion, as ibv_req_notify_cq(cq, 0) */
	ADVERB_NOTIFY_SOLICITED = 1, /* the next solicited or failed one, as ibv_req_notify_cq(cq, 1) */
	ADVERB_NOTIFY_ERRORS = 2,    /* the next failed one */
};

/* The arm stays: every completion it waits for makes an event (with ibv_modify_cq's moderation: every batch does), until
 * adverb_disarm_cq. No more events wait unread than the queue has entries. */
#define ADVERB_NOTIFY_PERSISTENT (1u << 0)

/* Copies up to num_entries completions, oldest first, and leaves them in the queue. Returns how many, or a negative errno
 * value. */
int adverb_peek_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc) ADVERB_WEAK;

/* Arms the queue. EINVAL for an unknown kind or flag, or a handle that is no living queue. */
int adverb_notify_cq(struct ibv_cq *cq, enum adverb_notify kind, unsigned int flags) ADVERB_WEAK;

/* Takes a pending arm back, persistent or not. Events made already stay. */
int adverb_disarm_cq(struct ibv_cq *cq) ADVERB_WEAK;

/* How many completions lie in the queues of a channel that no event will speak of: they came before the pending arm, or
 * nothing is armed, and no event waits to be read. Whoever sleeps on the channel while this is not 0 loses a wake-up. Returns
 * the number, or a negative errno value. */
int adverb_overlooked(struct ibv_comp_channel *channel) ADVERB_WEAK;

#ifdef __cplusplus
}
#endif
#endif
