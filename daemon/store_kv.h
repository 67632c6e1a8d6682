/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_kv.h - how full servers' KV caches were, as spans (kv_history.h).
 */
#ifndef NPUMEM_DAEMON_STORE_KV_H
#define NPUMEM_DAEMON_STORE_KV_H

#include "kv_history.h"
#include "store.h"

/* Writes a span of a process, in place of one that began at the same time: a span that grows is
 * written again. Returns 0 or -errno: it is not written. Cost: one transaction. */
int store_kv_write(struct store *store, uint32_t tgid, const struct kv_span *span);

/* Calls fn for every span of [since, until), the newest first, until fn returns non-zero. fn may
 * ask store_process_of(), and nothing else of the store. Returns what fn did, 0, or -errno; -ENOENT
 * no store. Cost: 2 us per row. */
int store_kv_each(struct store *store, uint64_t since_wall_ns, uint64_t until_wall_ns,
                  int (*fn)(void *userdata, int64_t process_id, const struct kv_span *span),
                  void *userdata);

#endif
