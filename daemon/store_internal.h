/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_internal.h - shared by the store's files:
 *   store.c           lifecycle, transactions and what a failure means
 *   store_process.c   the map of processes and owners, and their rows
 *   store_open.c      opening, migrations, a corrupt or foreign file
 *   store_blocks.c    live_block: checkpoints and the last state of a process
 *   store_samples.c   samples
 *   store_series.c    samples as series over time
 *   store_kv.c        how full KV caches were
 *   store_events.c    events and the queue in front of the disk
 *   store_history.c   what was at an earlier moment, back into a ledger
 *   store_retention.c size and age
 */
#ifndef NPUMEM_DAEMON_STORE_INTERNAL_H
#define NPUMEM_DAEMON_STORE_INTERNAL_H

#include <sqlite3.h>

#include "kv_history.h"
#include "limits.h"
#include "store.h"

/* 'NPUM': PRAGMA application_id, so that no other program's database is taken for ours. */
#define STORE_APPLICATION_ID 0x4e50554d
#define STORE_DETAIL_BYTES 256

/* Prepared once per open database. X(name, sql) */
#define STORE_STATEMENTS(X)                                                                        \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                    \
    X(COMMIT, "COMMIT")                                                                            \
    X(ROLLBACK, "ROLLBACK")                                                                        \
    X(PROCESS_UPSERT,                                                                              \
      "INSERT INTO process (boot_id,tgid,start_ticks,start_wall_ns,first_wall_ns,last_wall_ns,"    \
      "comm,title,container,rank,world_size,rank_source,rank_inferred,replica,server_rank,"        \
      "server_size,parent_tgid,uid,user,pod_uid,visible_devices)"                                  \
      " VALUES (?1,?2,?3,?4,?5,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20)"        \
      " ON CONFLICT (boot_id,tgid,start_ticks) DO UPDATE SET "                                     \
      "start_wall_ns=excluded.start_wall_ns,"                                                      \
      "last_wall_ns=excluded.last_wall_ns,comm=excluded.comm,title=excluded.title,"                \
      "container=excluded.container,rank=excluded.rank,world_size=excluded.world_size,"            \
      "rank_source=excluded.rank_source,rank_inferred=excluded.rank_inferred,"                     \
      "replica=excluded.replica,server_rank=excluded.server_rank,"                                 \
      "server_size=excluded.server_size,parent_tgid=excluded.parent_tgid,uid=excluded.uid,"        \
      "user=excluded.user,pod_uid=excluded.pod_uid,visible_devices=excluded.visible_devices,"      \
      "exit_wall_ns=NULL,exit_boot_ns=NULL,exit_seen=0"                                            \
      " RETURNING id")                                                                             \
    X(PROCESS_TICKS, "UPDATE OR IGNORE process SET start_ticks=?2 WHERE id=?1")                    \
    X(PROCESS_ALIVE, "UPDATE process SET last_wall_ns=?2 WHERE id=?1")                             \
    X(PROCESS_EXIT, "UPDATE process SET exit_wall_ns=?2,exit_boot_ns=?3,exit_seen=?4 WHERE id=?1") \
    X(PROCESS_VANISHED,                                                                            \
      "UPDATE process SET exit_wall_ns=last_wall_ns,exit_seen=0 WHERE boot_id=?1 AND tgid=?2"      \
      " AND start_ticks=?3 AND exit_wall_ns IS NULL")                                              \
    X(PROCESS_ID,                                                                                  \
      "SELECT id FROM process WHERE boot_id=?1 AND tgid=?2 AND (start_ticks=?3 OR ?3=0)"           \
      " ORDER BY id DESC LIMIT 1")                                                                 \
    X(PROCESS_OPEN, "SELECT tgid,start_ticks,last_wall_ns FROM process WHERE exit_wall_ns IS "     \
                    "NULL AND boot_id=?1")                                                         \
    X(OWNER_INSERT, "INSERT INTO owner (name) VALUES (?1) ON CONFLICT (name) DO UPDATE SET "       \
                    "name=name RETURNING id")                                                      \
    X(BLOCKS_DELETE, "DELETE FROM live_block WHERE process_id=?1")                                 \
    X(BLOCK_INSERT, "INSERT INTO live_block VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)")      \
    X(SAMPLE_INSERT, "INSERT INTO sample VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)")             \
    X(SAMPLE_DEVICE_INSERT, "INSERT INTO sample_device VALUES (?1,?2,?3,?4,?5,?6,?7,?8)")          \
    X(SAMPLE_POOL_INSERT, "INSERT INTO sample_pool VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9)")           \
    X(SAMPLE_HOST_INSERT, "INSERT INTO sample_host VALUES (?1,?2,?3,?4,?5)")                       \
    X(SAMPLE_KV_PUT,                                                                               \
      "INSERT OR REPLACE INTO sample_kv VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,"   \
      "?15)")                                                                                      \
    X(PHASES_DELETE, "DELETE FROM phase WHERE process_id=?1")                                      \
    X(PHASE_INSERT,                                                                                \
      "INSERT OR REPLACE INTO phase VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,"   \
      "?16,?17,?18,?19,?20,?21,?22,?23,?24)")                                                      \
    X(EVENT_INSERT,                                                                                \
      "INSERT INTO event (wall_ns,boot_ns,kind,process_id,tgid,tid,api,result,address,"            \
      "requested_bytes,handle,flags,detail) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)")  \
    X(OLDEST,                                                                                      \
      "SELECT min(t) FROM (SELECT min(wall_ns) t FROM sample UNION ALL SELECT min(wall_ns) FROM"   \
      " sample_device UNION ALL SELECT min(wall_ns) FROM event)")                                  \
    X(RETIRE_SAMPLES,                                                                              \
      "DELETE FROM sample WHERE rowid IN (SELECT rowid FROM sample WHERE wall_ns < ?1"             \
      " ORDER BY wall_ns LIMIT ?2)")                                                               \
    X(RETIRE_DEVICES, "DELETE FROM sample_device WHERE rowid IN (SELECT rowid FROM sample_device " \
                      "WHERE wall_ns < ?1"                                                         \
                      " ORDER BY wall_ns LIMIT ?2)")                                               \
    X(RETIRE_POOLS,                                                                                \
      "DELETE FROM sample_pool WHERE rowid IN (SELECT rowid FROM sample_pool WHERE wall_ns < ?1"   \
      " ORDER BY wall_ns LIMIT ?2)")                                                               \
    X(RETIRE_HOSTS,                                                                                \
      "DELETE FROM sample_host WHERE rowid IN (SELECT rowid FROM sample_host WHERE wall_ns < ?1"   \
      " ORDER BY wall_ns LIMIT ?2)")                                                               \
    X(RETIRE_KV,                                                                                   \
      "DELETE FROM sample_kv WHERE rowid IN (SELECT rowid FROM sample_kv WHERE wall_ns < ?1"       \
      " ORDER BY wall_ns LIMIT ?2)")                                                               \
    X(RETIRE_EVENTS,                                                                               \
      "DELETE FROM event WHERE rowid IN (SELECT rowid FROM event WHERE wall_ns < ?1"               \
      " ORDER BY wall_ns LIMIT ?2)")                                                               \
    X(RETIRE_PROCESSES,                                                                            \
      "DELETE FROM process WHERE id IN (SELECT id FROM process WHERE exit_wall_ns < ?1"            \
      " ORDER BY exit_wall_ns LIMIT ?2)")                                                          \
    X(VACUUM, "PRAGMA incremental_vacuum(2000)")

enum store_statement {
#define X(name, sql) STORE_##name,
    STORE_STATEMENTS(X)
#undef X
        STORE_STATEMENT_COUNT
};

struct store_process {
    struct process_facts facts;
    int64_t id;                 /* row of process; 0: not on disk yet */
    uint64_t event_count;       /* of the ledger at the last checkpoint; UINT64_MAX never */
    uint64_t sample_hash;       /* of the last sample's values */
    uint64_t sample_ns;         /* boot time of the last sample */
    uint64_t host_bytes;        /* resident at the last sample of host memory */
    uint64_t host_ns;           /* boot time of it; 0 none */
    uint64_t phase_hash;        /* of the phases as they were written; 0 never */
    uint64_t checkpoint_round;  /* of its last turn */
    uint64_t checkpoint_due_ns; /* not before: a long write is not repeated at once */
};

/* One row of live_block as it waits in memory. */
struct store_block {
    uint64_t address, handle, size_bytes, requested_bytes, allocated_ns, stream, caller;
    uint32_t owner; /* the ledger's id, index of struct store.owners */
    uint16_t device, api;
    uint8_t level;
};

/* The last state of a process that died. */
struct store_final {
    struct store_final *next;
    struct process_facts facts;
    uint64_t boot_ns, wall_ns;
    bool exit_seen;
    size_t count;
    struct store_block *blocks;
};

/* An event as it waits in memory. */
struct store_pending_event {
    enum store_event_kind kind;
    bool has_event;
    uint32_t tgid, start_ticks;
    uint64_t boot_ns, wall_ns;
    struct nm_event event;
    char detail[STORE_DETAIL_BYTES];
};

struct store_owner {
    char *name; /* NULL: not met yet */
    int64_t id; /* row of owner in the open file; 0: not known */
};

struct store {
    char *path;
    struct store_options options;
    int lock_fd; /* PATH.lock; -1 not yet */
    char boot_id[40];
    sqlite3 *db;
    sqlite3_stmt *statements[STORE_STATEMENT_COUNT];
    struct store_stats stats;
    uint64_t wall_offset_ns; /* CLOCK_REALTIME - CLOCK_BOOTTIME, see store_wall_ns(); 0 at first */

    struct store_process *processes; /* sorted by tgid */
    size_t process_count, process_capacity;
    uint64_t checkpoint_round; /* of turns, see store_checkpoint() */

    struct store_owner *owners; /* by the ledger's owner id */
    size_t owner_count;

    struct store_final *finals, **finals_tail;
    struct store_pending_event *events; /* ring */
    size_t event_first, event_count;
    uint64_t events_second; /* boot second of the immediate-commit budget */
    uint32_t events_this_second;

    uint64_t retry_ns, retry_delay_ns; /* the disk is left alone until then */
    int last_error; /* of the last transaction; said in the log when it changes */
};

/* Opens store->path into store->db, as store_open() says. */
int store_database_open(struct store *s, struct error *reterr);
void store_database_close(struct store *s);

void store_clock(const struct store *s, uint64_t *ret_boot_ns, uint64_t *ret_wall_ns);
uint64_t store_wall_ns(struct store *s, uint64_t boot_ns);

/* A transaction. begin: 0, or -EAGAIN while the disk is left alone, or -errno. end: commits when r
 * is 0, else rolls back, counts and schedules the retry; returns the final result. A corrupt file
 * is moved aside here and a new one begun. */
int store_begin(struct store *s);
int store_end(struct store *s, int r);

/* -errno of a SQLite result; 0 for OK, ROW and DONE. */
int store_errno(int sqlite_result);

/* Runs a statement that was bound to its end; *ret_id gets column 0 of its row. Resets it. */
int store_run(struct store *s, enum store_statement statement, int64_t *ret_id);
/* Binds integers to parameters 1..count. */
void store_bind(struct store *s, enum store_statement statement, unsigned count,
                const int64_t *values);
void store_bind_text(struct store *s, enum store_statement statement, int index, const char *text);

struct store_process *store_find(struct store *s, uint32_t tgid);
void store_forget(struct store *s, uint32_t tgid);
/* Inside a transaction: writes the process's row. */
int store_process_write(struct store *s, const struct process_facts *facts, int64_t *ret_id);
/* The same when it has none yet. */
int store_process_row(struct store *s, struct store_process *p);
/* Row of a process that may be gone from the map; start_ticks 0: its newest. 0 none. */
int64_t store_process_lookup(struct store *s, uint32_t tgid, uint32_t start_ticks);
/* Remembers the name of one of the ledger's owners. Returns 0 or -ENOMEM. */
int store_owner_note(struct store *s, const struct ledger *ledger, uint32_t owner);
/* Inside a transaction: row of an owner that was noted. */
int store_owner_row(struct store *s, uint32_t owner, int64_t *ret_id);

/* Writes pending finals, then events. 0 when nothing waits any more. */
int store_finals_flush(struct store *s);
int store_events_flush(struct store *s);
void store_finals_clear(struct store *s);

/* store_kv.c: the span of a row whose columns from `column` on are those of sample_kv. false: it is
 * none; anybody may have changed the file. */
bool store_kv_read(sqlite3_stmt *stmt, int column, struct kv_span *ret);
/* When a span that lasted to `wall_ns` may have begun at the earliest, as SQLite holds it. */
int64_t store_kv_begin(uint64_t wall_ns);

/* A moment as SQLite's integers hold it; what is beyond them is the last one. */
static inline int64_t store_moment(uint64_t ns)
{
    return ns > INT64_MAX ? INT64_MAX : (int64_t)ns;
}

static inline void store_finalizep(sqlite3_stmt **stmt)
{
    sqlite3_finalize(*stmt);
}

/* Inside a transaction, store_phases.c: writes the phases of a process if they changed; adds the
 * rows to *rows. Returns 0 or -errno. */
int store_phases_write(struct store *s, const struct ledger *ledger, struct store_process *p,
                       uint64_t *rows);

/* store_history.c: who a row of process is; the statement's first columns are these. */
#define STORE_PROCESS_COLUMNS                                                                      \
    "id,tgid,start_ticks,start_wall_ns,comm,title,container,rank,world_size,rank_source,"          \
    "rank_inferred,replica,server_rank,server_size,parent_tgid,uid,user,pod_uid,visible_devices"
void store_facts_read(sqlite3_stmt *stmt, struct process_facts *ret);

#endif
