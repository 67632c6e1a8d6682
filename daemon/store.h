/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h - what npumemd keeps on disk (SQLite, schema/store/, docs/FORMATS.md).
 *
 * One thread, nothing here is called from the ring callback. A store that the disk refuses (full,
 * busy, corrupt in the middle) never stops the daemon: what is of importance (events, blocks of
 * processes that died) waits in bounded memory and is written when the disk takes it again; what is
 * not (samples, checkpoints) is left out and counted. Every function takes a NULL store and does
 * nothing then, so that a daemon without a store has no special cases.
 *
 * Times given are CLOCK_BOOTTIME ns; wall times are derived from both clocks at the time of the
 * call. A commit survives the death of the daemon; the loss of power may take the last ones (WAL,
 * synchronous=NORMAL), never the integrity of the file.
 */
#ifndef NPUMEM_DAEMON_STORE_H
#define NPUMEM_DAEMON_STORE_H

#include "cleanup.h"
#include "err.h"
#include "ledger.h"

struct store;

struct store_options {
    uint64_t max_bytes;  /* 0: 1 GiB */
    uint64_t max_age_ns; /* 0: 30 days */
    /* Both clocks in ns; NULL: the system's. For tests. */
    void (*clock_fn)(void *userdata, uint64_t *ret_boot_ns, uint64_t *ret_wall_ns);
    void *userdata;
    /* Resident host memory of a process, and what of it is of files and shared; false: not known.
     * May be NULL: no samples of it. */
    bool (*host_fn)(uint32_t tgid, uint64_t *ret_resident_bytes, uint64_t *ret_shared_bytes);
};

enum store_event_kind {
    STORE_EVENT_PROCESS = 0,
    STORE_EVENT_EXIT,
    STORE_EVENT_FAILED_CALL, /* out of memory among them */
    STORE_EVENT_COMMUNICATOR,
    STORE_EVENT_LOSS,
    STORE_EVENT_GAP,  /* npumemd was not there, or not attached, for a while */
    STORE_EVENT_MARK, /* a user mark; detail is its name */
};

struct store_event {
    enum store_event_kind kind;
    uint64_t time_ns;
    uint32_t tgid;                /* 0: of no process */
    const struct nm_event *event; /* may be NULL */
    const char *detail;           /* may be NULL; cut at 255 bytes */
};

struct store_stats {
    uint64_t bytes;     /* file and write-ahead log */
    uint64_t oldest_ns; /* wall time of the oldest sample or event; 0 none */
    uint64_t rows_written, commits;
    uint64_t failed_full, failed_busy, failed_other; /* transactions that were rolled back */
    uint64_t dropped_samples, dropped_events, dropped_blocks;    /* never written */
    uint64_t retired_samples, retired_events, retired_processes; /* gone by size or age */
    uint64_t corrupt;                                            /* files moved aside */
    uint64_t pending_events, pending_blocks;                     /* in memory, not yet on disk */
    bool healthy; /* the last transaction went through */
};

/* Opens or makes the store, brings its schema up to date, closes the processes of earlier boots. A
 * corrupt file is moved to PATH.corrupt-SECONDS and a new one begun (logged).
 * Errors: -EBUSY another daemon writes it (PATH.lock); -EROFS, -EACCES, -ENOENT and other errno of
 * the directory; -ENOTSUP schema of a newer version, -EINVAL a database of something else (neither
 * is touched). */
int store_open(const char *path, const struct store_options *options, struct store **ret,
               struct error *reterr);

/* Writes what is pending, if the disk takes it, and closes. */
struct store *store_close(struct store *store);
DEFINE_CLEANUP(struct store *, store_close)

/* Adds or refreshes a process (same boot, tgid and start_ticks: the same row, also after a restart
 * of the daemon). Returns 0; -errno when it has to wait (it is then written with the next call). */
int store_process(struct store *store, const struct process_facts *facts);

/* Writes everything the process still holds in the ledger and its exit. Call it BEFORE the ledger
 * drops the entries. exit_seen: the exit was observed at time_ns; false: found out afterwards. When
 * the disk refuses, the blocks wait in memory. Cost: about 2 us per live block. */
int store_process_final(struct store *store, const struct ledger *ledger, uint32_t tgid,
                        uint64_t time_ns, bool exit_seen);

/* Processes that the store believes to live: (tgid, start_ticks) of this boot without an exit. For
 * the start of the daemon, which checks each. fn must not call the store; non-zero stops. */
int store_each_open_process(struct store *store,
                            int (*fn)(void *userdata, uint32_t tgid, uint32_t start_ticks,
                                      uint64_t last_wall_ns),
                            void *userdata);
/* Marks one of them as ended while nobody looked. */
int store_process_vanished(struct store *store, uint32_t tgid, uint32_t start_ticks);

/* Brings live_block up to date for processes that changed since they were last written, one
 * transaction each, until LIMIT_STORE_CHECKPOINT_ROWS rows are written; the rest follows in the
 * next call. One that takes long to write is written at most a twentieth of the time. Returns the
 * number of processes still due, or -errno. */
int store_checkpoint(struct store *store, const struct ledger *ledger);

/* The same for all that changed, at once: for the end of the daemon. Cost: about 1.5 us per live
 * block. */
int store_checkpoint_all(struct store *store, const struct ledger *ledger);

/* Writes a sample of every live process that changed since its last one, and its phases. Returns 0
 * or -errno. */
int store_sample(struct store *store, const struct ledger *ledger, uint64_t now_ns);

/* Puts what was kept of the phases of a living process (as an earlier daemon saw it) into the
 * ledger, which knows the process. Returns the number of phases, or -errno. */
int store_phases_restore(struct store *store, struct ledger *ledger,
                         const struct process_facts *facts);

/* Writes an event; committed when it returns 0 with room in this second's
 * LIMIT_STORE_EVENTS_PER_SECOND, else with the next store_maintain() or full batch.
 * Returns 0 or -errno: it waits in memory. */
int store_event(struct store *store, const struct store_event *event);

/* Puts what the store knows of a moment into an empty ledger: the newest sample of each process
 * that lived then, not newer than wall_ns. ret_oldest_ns, ret_newest_ns: wall times of the samples
 * used, 0 none. Returns the number of processes; -ENOENT no store; other negative errno. */
int store_history(struct store *store, uint64_t wall_ns, struct ledger *ret_ledger,
                  uint64_t *ret_oldest_ns, uint64_t *ret_newest_ns);
/* Wall time of the newest mark of a name. Errors: -ENOENT. */
int store_mark_find(struct store *store, const char *name, uint64_t *ret_wall_ns);

/* Writes what waits, retires by size and age; call it about once a second. Bounded per call. */
int store_maintain(struct store *store);

const struct store_stats *store_stats(struct store *store);

#endif
