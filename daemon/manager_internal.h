/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager_internal.h - the parts of the manager: start and stop (manager.c), what happens to
 * processes (manager_process.c), what every turn of the loop and its timers do (manager_turn.c).
 */
#ifndef NPUMEM_DAEMON_MANAGER_INTERNAL_H
#define NPUMEM_DAEMON_MANAGER_INTERNAL_H

#include "manager.h"

/* manager_process.c: what is called with the manager as userdata */
extern const struct targets_handler manager_targets_handler;
extern const struct scans_handler manager_scans_handler;
extern const struct discovery_handler manager_discovery_handler;
const char *manager_on_caller(void *userdata, uint32_t tgid, uint64_t address);
/* Who the processes are, and what the driver says that they hold, to be fed when the ring is
 * drained. Cost: targets_refresh(), and one file of the driver per process. */
void manager_processes_refresh(struct manager *m);
/* Reads the driver's figures of processes that freed what they held before attach: else an OOM
 * report and the samples count it as held until somebody asks. Cost: a file of the driver for each.
 */
void manager_usage_refresh(struct manager *m);
/* Asks for scans again whose reading no longer holds. */
/* Scans of processes that came in this turn: ranks first, which have the memory; not of engines
 * whose workers have it, which is known once all of them were seen. */
void manager_scans_ask(struct manager *m);
void manager_scans_refresh(struct manager *m);

/* manager_turn.c: a notice of the ledger is copied, and written to the store after the turn */
void manager_on_notice(void *userdata, const struct ledger_notice *notice);
void manager_notices_write(struct manager *m);
/* Timers, signals, and the work after each turn. Returns 0 or negative errno. */
int manager_sources_add(struct manager *m);
/* Follows KV caches from now on, every store.kv_interval. Returns 0 or negative errno. */
int manager_kv_begin(struct manager *m);

#endif
