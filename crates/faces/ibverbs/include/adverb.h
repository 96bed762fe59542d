/* Functions that Adverb's libibverbs.so.1 has in addition to the verbs of rdma-core. Include this
 * header after <infiniband/verbs.h>.
 *
 * The names are weak. A program built with this header links and runs on any libibverbs, and can
 * test at run time whether a function exists: if (adverb_peek_cq) … . A function with an int result
 * returns 0 or a positive errno value, unless its comment says otherwise.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef ADVERB_H
#define ADVERB_H
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif
#define ADVERB_WEAK __attribute__((weak))

/* The kinds of completions for which an armed queue makes an event. */
enum adverb_notify {
	ADVERB_NOTIFY_NEXT = 0,      /* the next completion, like ibv_req_notify_cq(cq, 0) */
	ADVERB_NOTIFY_SOLICITED = 1, /* the next solicited or failed completion */
	ADVERB_NOTIFY_ERRORS = 2,    /* the next failed completion */
};

/* The queue stays armed until adverb_disarm_cq. Every completion of the chosen kind makes an event.
 * With the moderation of ibv_modify_cq, every batch makes an event. The number of unread events
 * never exceeds the number of entries of the queue. */
#define ADVERB_NOTIFY_PERSISTENT (1u << 0)

/* Copies up to num_entries completions, oldest first, and leaves the completions in the queue.
 * Returns their number, or a negative errno value. */
int adverb_peek_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc) ADVERB_WEAK;

/* Arms the queue. Returns EINVAL for an unknown kind or flag, or for a dead handle. */
int adverb_notify_cq(struct ibv_cq *cq, enum adverb_notify kind, unsigned int flags) ADVERB_WEAK;

/* Disarms the queue, also after a persistent arm. Events that exist already stay in the channel. */
int adverb_disarm_cq(struct ibv_cq *cq) ADVERB_WEAK;

/* Returns the number of completions in the queues of a channel that no event will report, or a
 * negative errno value. Such completions came before the pending arm, or no arm is pending, and no
 * event waits to be read. A thread that sleeps on the channel loses a wake-up while the number is
 * not 0. */
int adverb_overlooked(struct ibv_comp_channel *channel) ADVERB_WEAK;

#ifdef __cplusplus
}
#endif
#endif
