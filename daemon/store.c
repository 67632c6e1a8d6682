/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the life of the store, transactions and what a failure means.
 * Invariants:
 *   - row ids that are kept in memory are those of the open file; a rolled back transaction forgets
 *     them all, and the next upsert finds them again;
 *   - after a failure the disk is left alone for a while, so that a full disk costs nothing.
 */
#include "clock.h"
#include "store_internal.h"

#include <string.h>
#include <sys/stat.h>

#include "log.h"

void store_clock(const struct store *s, uint64_t *ret_boot_ns, uint64_t *ret_wall_ns)
{
    if (s->options.clock_fn) {
        s->options.clock_fn(s->options.userdata, ret_boot_ns, ret_wall_ns);
        return;
    }
    *ret_boot_ns = clock_ns(CLOCK_BOOTTIME);
    *ret_wall_ns = clock_ns(CLOCK_REALTIME);
}

/*
 * The two clocks are read one after the other, and what comes between looks like a difference of
 * theirs: a mark would stand before the sample that it was made with. So the difference is kept
 * until the wall clock was set: it is more than a millisecond another one, three times in a row.
 */
uint64_t store_wall_ns(struct store *s, uint64_t boot_ns)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < 3; i++) {
        uint64_t now_boot, now_wall, apart;
        store_clock(s, &now_boot, &now_wall);
        apart = now_wall - now_boot;
        if (apart + 1000000 - s->wall_offset_ns <= 2000000)
            return s->wall_offset_ns + boot_ns;
        if (apart < least)
            least = apart;
    }
    s->wall_offset_ns = least;
    return least + boot_ns;
}

static void boot_id_read(char *ret, size_t size)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    snprintf(ret, size, "unknown");
    if (f && fgets(ret, (int)size, f))
        ret[strspn(ret, "0123456789abcdefABCDEF-")] = '\0';
}

int store_open(const char *path, const struct store_options *options, struct store **ret,
               struct error *reterr)
{
    _cleanup_(store_closep) struct store *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return error_set(reterr, ENOMEM, "store: out of memory");
    s->lock_fd = -1;
    s->path = strdup(path);
    if (!s->path)
        return error_set(reterr, ENOMEM, "store: out of memory");
    if (options)
        s->options = *options;
    if (!s->options.max_bytes)
        s->options.max_bytes = 1ull << 30;
    if (!s->options.max_age_ns)
        s->options.max_age_ns = 30ull * 86400 * 1000000000;
    s->finals_tail = &s->finals;
    s->checkpoint_round = 1;
    boot_id_read(s->boot_id, sizeof(s->boot_id));
    r = store_database_open(s, reterr);
    if (r < 0)
        return r;
    s->stats.healthy = true;
    *ret = TAKE_PTR(s);
    return 0;
}

struct store *store_close(struct store *s)
{
    if (!s)
        return NULL;
    if (s->db) {
        s->retry_ns = 0;
        store_finals_flush(s);
        store_events_flush(s);
    }
    store_database_close(s);
    store_finals_clear(s);
    for (size_t i = 0; i < s->owner_count; i++)
        free(s->owners[i].name);
    free(s->owners);
    free(s->processes);
    free(s->events);
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    free(s->path);
    free(s);
    return NULL;
}

/* Transactions */

int store_run(struct store *s, enum store_statement statement, int64_t *ret_id)
{
    sqlite3_stmt *stmt = s->statements[statement];
    int result = sqlite3_step(stmt);

    if (result == SQLITE_ROW) {
        if (ret_id)
            *ret_id = sqlite3_column_int64(stmt, 0);
        do
            result = sqlite3_step(stmt);
        while (result == SQLITE_ROW);
    }
    sqlite3_reset(stmt);
    return store_errno(result);
}

void store_bind(struct store *s, enum store_statement statement, unsigned count,
                const int64_t *values)
{
    for (unsigned i = 0; i < count; i++)
        sqlite3_bind_int64(s->statements[statement], (int)i + 1, values[i]);
}

void store_bind_text(struct store *s, enum store_statement statement, int index, const char *text)
{
    sqlite3_bind_text(s->statements[statement], index, text, -1, SQLITE_TRANSIENT);
}

/* The file broke under us: put it aside and go on with a new one. */
static void database_replace(struct store *s)
{
    struct error error = {0};
    int r;

    store_database_close(s);
    r = store_database_open(s, &error);
    if (r < 0)
        log_error_detail(LOG_ERR, r, &error);
}

static void failure_note(struct store *s, int r)
{
    uint64_t boot_ns, wall_ns;

    store_clock(s, &boot_ns, &wall_ns);
    s->stats.healthy = false;
    if (r == -EBUSY) {
        s->stats.failed_busy++;
        s->retry_ns = boot_ns + 1000000000;
    } else {
        if (r == -ENOSPC)
            s->stats.failed_full++;
        else
            s->stats.failed_other++;
        s->retry_delay_ns = s->retry_delay_ns ? s->retry_delay_ns * 2 : LIMIT_STORE_RETRY_NS;
        if (s->retry_delay_ns > LIMIT_STORE_RETRY_MAX_NS)
            s->retry_delay_ns = LIMIT_STORE_RETRY_MAX_NS;
        s->retry_ns = boot_ns + s->retry_delay_ns;
    }
    if (r != s->last_error)
        log_print(LOG_WARNING, "store %s: %s; history waits in memory and is written later",
                  s->path, strerror(-r));
    s->last_error = r;
}

static void rows_forget(struct store *s)
{
    for (size_t i = 0; i < s->process_count; i++)
        s->processes[i].id = 0;
    for (size_t i = 0; i < s->owner_count; i++)
        s->owners[i].id = 0;
}

int store_begin(struct store *s)
{
    uint64_t boot_ns, wall_ns;
    int r;

    store_clock(s, &boot_ns, &wall_ns);
    if (boot_ns < s->retry_ns)
        return -EAGAIN;
    if (!s->db) {
        struct error error = {0};

        r = store_database_open(s, &error);
        if (r < 0) {
            failure_note(s, r);
            return r;
        }
    }
    r = store_run(s, STORE_BEGIN, NULL);
    if (r < 0)
        return store_end(s, r);
    return 0;
}

int store_end(struct store *s, int r)
{
    if (r == 0)
        r = store_run(s, STORE_COMMIT, NULL);
    if (r == 0) {
        s->stats.commits++;
        if (s->last_error)
            log_notice("store %s: is written again", s->path);
        s->stats.healthy = true;
        s->last_error = 0;
        s->retry_ns = s->retry_delay_ns = 0;
        return 0;
    }
    /* SQLite rolls back by itself after some errors. */
    if (!sqlite3_get_autocommit(s->db))
        store_run(s, STORE_ROLLBACK, NULL);
    rows_forget(s);
    failure_note(s, r);
    if (r == -EUCLEAN) {
        database_replace(s);
        for (size_t i = 0; i < s->process_count; i++)
            s->processes[i].event_count = UINT64_MAX;
        s->retry_ns = 0;
    }
    return r;
}

const struct store_stats *store_stats(struct store *s)
{
    static const struct store_stats none;
    char path[4096];
    struct stat st;
    int64_t oldest = 0;

    if (!s)
        return &none;
    s->stats.bytes = 0;
    if (stat(s->path, &st) == 0)
        s->stats.bytes += (uint64_t)st.st_size;
    snprintf(path, sizeof(path), "%s-wal", s->path);
    if (stat(path, &st) == 0)
        s->stats.bytes += (uint64_t)st.st_size;
    if (s->db && store_run(s, STORE_OLDEST, &oldest) == 0)
        s->stats.oldest_ns = (uint64_t)oldest;
    s->stats.pending_events = s->event_count;
    return &s->stats;
}
