/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom_log.h - reports of out of memory: taken at the failing call, judged, kept on disk.
 *
 * The snapshot is taken in the ring's callback, because the state that led to a failure is gone a
 * few events later (the process frees, or dies): the one place there that allocates, at most
 * OOM_CAPTURES_PER_SECOND times a second. The verdict, the card's figures and the disk come after.
 */
#ifndef NPUMEM_DAEMON_OOM_LOG_H
#define NPUMEM_DAEMON_OOM_LOG_H

#include "api.h"
#include "budget_view.h"
#include "cleanup.h"
#include "event.h"
#include "store_oom.h"

struct manager;
struct oom_log;

/* A report that is not on disk. */
struct oom_unsaved {
    struct store_oom row;
    char *document; /* members of its object */
};

#define OOM_CAPTURES_PER_SECOND 8
#define OOM_LATEST_MAX 256 /* failures that are remembered beside their reports */
#define OOM_UNSAVED_MAX 64 /* reports that wait for the disk (or live without one) */

/* manager is borrowed, and used whenever a function below is called. */
int oom_log_new(struct manager *manager, struct oom_log **ret);
/* Writes what is open. */
struct oom_log *oom_log_free(struct oom_log *log);
DEFINE_CLEANUP(struct oom_log *, oom_log_free)

/* From the ring's callback: a device allocation failed. */
void oom_log_failure(struct oom_log *log, const struct nm_event *event);
/* The process has ended (and is still in the ledger): what was open of it is final. */
void oom_log_exit(struct oom_log *log, uint32_t tgid);
/* After the callbacks: judges and writes what is decided. */
void oom_log_turn(struct oom_log *log);

/* Reports of a process of this number, of the last OOM_LATEST_MAX of all, and the largest request
 * of those that were recovered (ANALYSIS_UNKNOWN: none, or of one it is not known). */
void oom_log_count(const struct oom_log *log, uint32_t tgid, uint64_t *ret_failures,
                   uint64_t *ret_recovered, uint64_t *ret_largest_bytes);

/* The newest failure for good of a process of this number, of the last OOM_LATEST_MAX of all.
 * false: none since the daemon started. */
bool oom_log_newest(const struct oom_log *log, uint32_t tgid, struct budget_failure *ret);

/* The reports that are not on disk, the oldest first; borrowed, until the next turn. One of the
 * same id on disk is older. */
const struct oom_unsaved *oom_log_unsaved(const struct oom_log *log, size_t *ret_count);
/* Id of the newest report; 0 none. */
int64_t oom_log_last_id(const struct oom_log *log);

#endif
