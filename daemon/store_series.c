/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_series.c - see store_series.h.
 *
 * Rows are read in the order of their rowids, which is the order of writing and the order on the
 * disk: an index over times would look each row up by itself.
 *
 * Must not: write; leave anything to do to the last one that closes the file, for it may have been
 * moved aside meanwhile and another one begun under its name.
 */
#include "store_series.h"

#include "ledger_restore.h"
#include "store_internal.h"

#define COMMON "SELECT process_id,wall_ns,boot_ns,"
#define FROM(table, condition)                                                                     \
    " FROM " table " WHERE " condition "rowid>=ifnull((SELECT rowid FROM " table                   \
    " WHERE wall_ns>=?1 ORDER BY wall_ns LIMIT 1),9223372036854775807) AND wall_ns>=?1"            \
    " ORDER BY rowid"

static void owner_point(sqlite3_stmt *stmt, struct store_point *p)
{
    const char *level = (const char *)sqlite3_column_text(stmt, 4);

    p->level = level ? level_parse(level) : LEVEL_COUNT;
    p->owner_id = sqlite3_column_int64(stmt, 5);
    p->bytes = (uint64_t)sqlite3_column_int64(stmt, 6);
    p->blocks = (uint64_t)sqlite3_column_int64(stmt, 7);
}

static void device_point(sqlite3_stmt *stmt, struct store_point *p)
{
    p->bytes = (uint64_t)sqlite3_column_int64(stmt, 4);
}

static void pool_point(sqlite3_stmt *stmt, struct store_point *p)
{
    p->bytes = (uint64_t)sqlite3_column_int64(stmt, 4);
    p->reserved_bytes = (uint64_t)sqlite3_column_int64(stmt, 5);
    p->active_bytes = (uint64_t)sqlite3_column_int64(stmt, 6);
}

static void resident_point(sqlite3_stmt *stmt, struct store_point *p)
{
    p->bytes = (uint64_t)sqlite3_column_int64(stmt, 4);
    p->shared_bytes = (uint64_t)sqlite3_column_int64(stmt, 5);
}

static const struct {
    enum store_series_kind kind;
    const char *sql;
    void (*read)(sqlite3_stmt *, struct store_point *);
} queries[] = {
    {STORE_SERIES_DEVICE, COMMON "device,physical_bytes" FROM("sample_device", ""), device_point},
    {STORE_SERIES_POOL,
     COMMON "device,allocated_bytes,reserved_bytes,active_bytes" FROM("sample_pool",
                                                                      "component='caching' AND "),
     pool_point},
    {STORE_SERIES_RESIDENT, COMMON "0,resident_bytes,shared_bytes" FROM("sample_host", ""),
     resident_point},
    {STORE_SERIES_OWNER, COMMON "device,level,owner_id,bytes,blocks" FROM("sample", ""),
     owner_point},
    /* a span that grows is written again, at the end: only the index has their times in order */
    {STORE_SERIES_KV,
     "SELECT process_id,wall_ns,0,0,sample_kv.* FROM sample_kv WHERE wall_ns>=?2"
     " AND end_wall_ns>=?1 ORDER BY wall_ns",
     NULL},
};

struct store_series {
    sqlite3 *db;
    sqlite3_stmt *stmt; /* of the query at hand; NULL: it has not begun */
    sqlite3_stmt *process, *owner;
    size_t query;
    uint64_t since_wall_ns;
    struct kv_span span; /* of the row at hand */
};

/* Only one thread uses the connection: it needs no locks, which are a fifth of the time of a row.
 */
int store_series_open(const struct store *s, uint64_t since_wall_ns, struct store_series **ret)
{
    _cleanup_(store_series_closep) struct store_series *series = calloc(1, sizeof(*series));
    int result;

    if (!series)
        return -ENOMEM;
    if (!s || !s->db)
        return -ENOENT;
    series->since_wall_ns = since_wall_ns;
    result =
        sqlite3_open_v2(s->path, &series->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
    if (result == SQLITE_OK) {
        sqlite3_db_config(series->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        sqlite3_busy_timeout(series->db, LIMIT_STORE_BUSY_MS);
        result =
            sqlite3_exec(series->db, "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; BEGIN",
                         NULL, NULL, NULL);
    }
    if (result != SQLITE_OK)
        return store_errno(result);
    *ret = TAKE_PTR(series);
    return 0;
}

struct store_series *store_series_close(struct store_series *s)
{
    if (!s)
        return NULL;
    sqlite3_finalize(s->stmt);
    sqlite3_finalize(s->process);
    sqlite3_finalize(s->owner);
    sqlite3_close(s->db);
    free(s);
    return NULL;
}

/* The statement of the next row of any query. Returns 1; 0: no row is left; -errno. */
static int row_next(struct store_series *s)
{
    while (s->query < ARRAY_SIZE(queries)) {
        int result = SQLITE_OK;
        if (!s->stmt) {
            result = sqlite3_prepare_v2(s->db, queries[s->query].sql, -1, &s->stmt, NULL);
            if (result == SQLITE_OK) {
                sqlite3_bind_int64(s->stmt, 1, store_moment(s->since_wall_ns));
                if (queries[s->query].kind == STORE_SERIES_KV)
                    sqlite3_bind_int64(s->stmt, 2, store_kv_begin(s->since_wall_ns));
            }
        }
        if (result == SQLITE_OK)
            result = sqlite3_step(s->stmt);
        if (result != SQLITE_DONE)
            return result == SQLITE_ROW ? 1 : store_errno(result);
        sqlite3_finalize(s->stmt);
        s->stmt = NULL;
        s->query++;
    }
    return 0;
}

int store_series_next(struct store_series *s, size_t rows,
                      int (*fn)(void *userdata, struct store_series *series,
                                const struct store_point *point),
                      void *userdata)
{
    int r = 1;

    for (size_t i = 0; i < rows && r > 0; i++) {
        r = row_next(s);
        if (r <= 0)
            break;
        struct store_point p = {
            .kind = queries[s->query].kind,
            .process_id = sqlite3_column_int64(s->stmt, 0),
            .wall_ns = (uint64_t)sqlite3_column_int64(s->stmt, 1),
            .boot_ns = (uint64_t)sqlite3_column_int64(s->stmt, 2),
            .device = (uint16_t)sqlite3_column_int(s->stmt, 3),
        };
        if (p.kind == STORE_SERIES_KV) {
            if (!store_kv_read(s->stmt, 4, &s->span))
                continue;
            p.span = &s->span;
        } else {
            queries[s->query].read(s->stmt, &p);
        }
        r = fn(userdata, s, &p);
        r = r < 0 ? r : 1;
    }
    if (r < 0)
        s->query = ARRAY_SIZE(queries);
    return r;
}

/* A statement about one row, made once, at that row. Returns 0; -ENOENT: there is none; other
 * errno. */
static int row_of(sqlite3 *db, sqlite3_stmt **stmt, const char *sql, int64_t id)
{
    int r = *stmt ? store_errno(sqlite3_reset(*stmt))
                  : store_errno(sqlite3_prepare_v2(db, sql, -1, stmt, NULL));

    if (r < 0)
        return r;
    sqlite3_bind_int64(*stmt, 1, id);
    r = sqlite3_step(*stmt);
    if (r == SQLITE_ROW)
        return 0;
    return r == SQLITE_DONE ? -ENOENT : store_errno(r);
}

static int process_of(sqlite3 *db, sqlite3_stmt **stmt, int64_t process_id,
                      struct process_facts *ret, uint64_t *ret_exit_wall_ns)
{
    int r =
        row_of(db, stmt, "SELECT " STORE_PROCESS_COLUMNS ",exit_wall_ns FROM process WHERE id=?1",
               process_id);

    if (r < 0)
        return r;
    store_facts_read(*stmt, ret);
    *ret_exit_wall_ns = (uint64_t)sqlite3_column_int64(*stmt, 19);
    return 0;
}

int store_series_process(struct store_series *s, int64_t process_id, struct process_facts *ret,
                         uint64_t *ret_exit_wall_ns)
{
    return process_of(s->db, &s->process, process_id, ret, ret_exit_wall_ns);
}

int store_series_owner(struct store_series *s, int64_t owner_id, char *ret, size_t size)
{
    int r = row_of(s->db, &s->owner, "SELECT name FROM owner WHERE id=?1", owner_id);

    if (r < 0)
        return r;
    const char *name = (const char *)sqlite3_column_text(s->owner, 0);
    snprintf(ret, size, "%s", name ? name : "");
    return 0;
}

int store_process_of(struct store *s, int64_t process_id, struct process_facts *ret,
                     uint64_t *ret_exit_wall_ns)
{
    _cleanup_(store_finalizep) sqlite3_stmt *stmt = NULL;

    if (!s || !s->db)
        return -ENOENT;
    return process_of(s->db, &stmt, process_id, ret, ret_exit_wall_ns);
}

int store_marks_each(struct store *s, uint64_t since_wall_ns,
                     int (*fn)(void *userdata, const char *name, uint64_t wall_ns,
                               uint64_t boot_ns),
                     void *userdata)
{
    _cleanup_(store_finalizep) sqlite3_stmt *stmt = NULL;
    int result, r;

    if (!s || !s->db)
        return -ENOENT;
    store_events_flush(s);
    r = store_errno(sqlite3_prepare_v2(s->db,
                                       "SELECT detail,wall_ns,boot_ns FROM event WHERE kind='mark' "
                                       "AND wall_ns>=?1 ORDER BY id",
                                       -1, &stmt, NULL));
    if (r < 0)
        return r;
    sqlite3_bind_int64(stmt, 1, store_moment(since_wall_ns));
    while ((result = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);
        r = fn(userdata, name ? name : "", (uint64_t)sqlite3_column_int64(stmt, 1),
               (uint64_t)sqlite3_column_int64(stmt, 2));
        if (r)
            return r;
    }
    return store_errno(result);
}
