/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_gather.h - the histories of KV caches of a window, from the store and of now.
 */
#ifndef NPUMEM_DAEMON_KV_GATHER_H
#define NPUMEM_DAEMON_KV_GATHER_H

#include "kv_history.h"
#include "manager.h"
#include "view.h"

/* Whether the context's filter takes a process with a scheduler: itself or, while it lives, one of
 * its ranks. */
bool kv_gather_takes(struct manager *m, const struct view_context *c,
                     const struct process_facts *facts);
/* The server that it belongs to. */
uint32_t kv_gather_server(const struct process_facts *facts);

#define KV_GATHER_ROWS_MAX 256u /* engines; the oldest are left out */

/*
 * One row per process with a scheduler that the context's filter takes. Without a window (both 0)
 * of those that live, all that is kept; else of all of the window. A server that lives and of which
 * nothing is known has a row with the reason. Returns 0; -ENOMEM; errno of the store. Owns: the
 * caller frees *ret. Cost: store_kv_each(); the ring is drained meanwhile.
 */
int kv_gather(struct manager *m, const struct view_context *c, uint64_t since_wall_ns,
              uint64_t until_wall_ns, struct kv_history_row **ret, size_t *ret_count);

#endif
