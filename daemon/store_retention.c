/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: how the store stays inside its size and age, and the once-a-second upkeep.
 * Invariant: samples go before events, events before the last states of processes that died; living
 * processes stay. Every call is bounded.
 */
#include "store_internal.h"

#define PROCESSES_AT_ONCE 64 /* their blocks go with them */
#define ROUNDS 4

static int64_t pragma_int(struct store *s, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    int64_t value = 0;

    if (sqlite3_prepare_v2(s->db, sql, -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW)
        value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return value;
}

/* Bytes of pages that hold something. */
static uint64_t used_bytes(struct store *s)
{
    return (
        uint64_t)((pragma_int(s, "PRAGMA page_count") - pragma_int(s, "PRAGMA freelist_count")) *
                  pragma_int(s, "PRAGMA page_size"));
}

static int retire(struct store *s, enum store_statement statement, int64_t before_ns, int64_t rows,
                  uint64_t *counter)
{
    int r;

    store_bind(s, statement, 2, (const int64_t[]){before_ns, rows});
    r = store_run(s, statement, NULL);
    if (r == 0)
        *counter += (uint64_t)sqlite3_changes64(s->db);
    return r;
}

static int retire_samples(struct store *s, int64_t before_ns, uint64_t *counter)
{
    int r = retire(s, STORE_RETIRE_SAMPLES, before_ns, LIMIT_STORE_RETENTION_ROWS, counter);

    if (r == 0)
        r = retire(s, STORE_RETIRE_DEVICES, before_ns, LIMIT_STORE_RETENTION_ROWS, counter);
    if (r == 0)
        r = retire(s, STORE_RETIRE_POOLS, before_ns, LIMIT_STORE_RETENTION_ROWS, counter);
    if (r == 0)
        r = retire(s, STORE_RETIRE_HOSTS, before_ns, LIMIT_STORE_RETENTION_ROWS, counter);
    if (r == 0)
        r = retire(s, STORE_RETIRE_KV, before_ns, LIMIT_STORE_RETENTION_ROWS, counter);
    return r;
}

struct retired {
    uint64_t samples, events, processes;
};

static int retire_by_age(struct store *s, struct retired *n)
{
    uint64_t boot_ns, wall_ns;
    int64_t before_ns;
    int r;

    store_clock(s, &boot_ns, &wall_ns);
    if (wall_ns < s->options.max_age_ns)
        return 0;
    before_ns = (int64_t)(wall_ns - s->options.max_age_ns);
    r = retire_samples(s, before_ns, &n->samples);
    if (r == 0)
        r = retire(s, STORE_RETIRE_EVENTS, before_ns, LIMIT_STORE_RETENTION_ROWS, &n->events);
    if (r == 0)
        r = retire(s, STORE_RETIRE_PROCESSES, before_ns, PROCESSES_AT_ONCE, &n->processes);
    return r;
}

/* One round of the oldest of whatever may go first. */
static int retire_by_size(struct store *s, struct retired *n)
{
    uint64_t samples = n->samples, events = n->events;
    int r = retire_samples(s, INT64_MAX, &n->samples);

    if (r == 0 && n->samples == samples)
        r = retire(s, STORE_RETIRE_EVENTS, INT64_MAX, LIMIT_STORE_RETENTION_ROWS, &n->events);
    if (r == 0 && n->samples == samples && n->events == events)
        r = retire(s, STORE_RETIRE_PROCESSES, INT64_MAX, 1, &n->processes);
    return r;
}

static uint64_t retired_total(const struct retired *n)
{
    return n->samples + n->events + n->processes;
}

/* Returns how much went, or -errno. */
static int64_t retention_run(struct store *s)
{
    struct retired n = {0};
    int r = store_begin(s);

    if (r < 0)
        return r;
    r = retire_by_age(s, &n);
    for (int i = 0; r == 0 && i < ROUNDS && used_bytes(s) > s->options.max_bytes; i++)
        r = retire_by_size(s, &n);
    r = store_end(s, r);
    if (r < 0)
        return r;
    s->stats.retired_samples += n.samples;
    s->stats.retired_events += n.events;
    s->stats.retired_processes += n.processes;
    if (retired_total(&n))
        store_run(s, STORE_VACUUM, NULL);
    return (int64_t)retired_total(&n);
}

int store_maintain(struct store *s)
{
    int64_t retired;
    int r;

    if (!s)
        return 0;
    /* When our own bound refused the write, making room is what helps; do not wait with that. */
    if (s->last_error == -ENOSPC && s->db && used_bytes(s) > s->options.max_bytes)
        s->retry_ns = 0;
    retired = retention_run(s);
    if (retired < 0)
        return (int)retired;
    r = store_finals_flush(s);
    return r < 0 ? r : store_events_flush(s);
}
