/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_watch.h - follows how full the KV caches of the observed servers are, without a network: their
 * schedulers' memory is read (kv_pool.h), and what was read goes to the store.
 *
 * A scheduler is looked for in the scan's child and read in the loop. Nothing is stopped or
 * written.
 */
#ifndef NPUMEM_DAEMON_KV_WATCH_H
#define NPUMEM_DAEMON_KV_WATCH_H

#include "cleanup.h"
#include "err.h"
#include "kv_history.h"

struct manager;
struct kv_watch;

/* The manager must outlive it. Owns: the caller frees. Errors: -ENOMEM. */
int kv_watch_new(struct manager *m, struct kv_watch **ret);
struct kv_watch *kv_watch_free(struct kv_watch *w);
DEFINE_CLEANUP(struct kv_watch *, kv_watch_free)

/* Every function below takes a NULL watch and does nothing then. */

/* Looks for what is due and reads what was found; call it every store.kv_interval. Cost: about 30
 * us per server. */
void kv_watch_turn(struct kv_watch *w);
/* A look ended; pool NULL: error says why. */
void kv_watch_found(struct kv_watch *w, uint32_t tgid, const struct kv_pool *pool,
                    const struct error *error);
/* Brings what is in memory to the store: before an answer, and at the end. */
void kv_watch_flush(struct kv_watch *w);
/* The process ends, or runs another program: before the store forgets it. */
void kv_watch_exit(struct kv_watch *w, uint32_t tgid);

/* Why a process has no readings; NULL: it has. Borrowed until the next turn. */
const char *kv_watch_reason(const struct kv_watch *w, uint32_t tgid);

#endif
