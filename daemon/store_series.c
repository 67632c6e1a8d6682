/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_series.c - see store_series.h.
 *
 * Rows are read in the order of their rowids, which is the order of writing and the order on the
 * disk: an index over times would look each row up by itself. Must not: write.
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
};

static int each_row(struct store *s, size_t query, uint64_t since_wall_ns,
                    int (*fn)(void *userdata, const struct store_point *point), void *userdata)
{
    _cleanup_(store_finalizep) sqlite3_stmt *stmt = NULL;
    int result, r = store_errno(sqlite3_prepare_v2(s->db, queries[query].sql, -1, &stmt, NULL));

    if (r < 0)
        return r;
    sqlite3_bind_int64(stmt, 1, since_wall_ns > INT64_MAX ? INT64_MAX : (int64_t)since_wall_ns);
    while ((result = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct store_point p = {
            .kind = queries[query].kind,
            .process_id = sqlite3_column_int64(stmt, 0),
            .wall_ns = (uint64_t)sqlite3_column_int64(stmt, 1),
            .boot_ns = (uint64_t)sqlite3_column_int64(stmt, 2),
            .device = (uint16_t)sqlite3_column_int(stmt, 3),
        };
        queries[query].read(stmt, &p);
        r = fn(userdata, &p);
        if (r)
            return r;
    }
    return store_errno(result);
}

int store_series_each(struct store *s, uint64_t since_wall_ns,
                      int (*fn)(void *userdata, const struct store_point *point), void *userdata)
{
    int r = 0;

    if (!s || !s->db)
        return -ENOENT;
    for (size_t i = 0; i < ARRAY_SIZE(queries) && r == 0; i++)
        r = each_row(s, i, since_wall_ns, fn, userdata);
    return r;
}

int store_process_of(struct store *s, int64_t process_id, struct process_facts *ret,
                     uint64_t *ret_exit_wall_ns)
{
    _cleanup_(store_finalizep) sqlite3_stmt *stmt = NULL;
    int r;

    if (!s || !s->db)
        return -ENOENT;
    r = store_errno(sqlite3_prepare_v2(
        s->db, "SELECT " STORE_PROCESS_COLUMNS ",exit_wall_ns FROM process WHERE id=?1", -1, &stmt,
        NULL));
    if (r < 0)
        return r;
    sqlite3_bind_int64(stmt, 1, process_id);
    r = sqlite3_step(stmt);
    if (r != SQLITE_ROW)
        return r == SQLITE_DONE ? -ENOENT : store_errno(r);
    store_facts_read(stmt, ret);
    *ret_exit_wall_ns = (uint64_t)sqlite3_column_int64(stmt, 19);
    return 0;
}

int store_owner_of(struct store *s, int64_t owner_id, char *ret, size_t size)
{
    _cleanup_(store_finalizep) sqlite3_stmt *stmt = NULL;
    const char *name;
    int r;

    if (!s || !s->db)
        return -ENOENT;
    r = store_errno(
        sqlite3_prepare_v2(s->db, "SELECT name FROM owner WHERE id=?1", -1, &stmt, NULL));
    if (r < 0)
        return r;
    sqlite3_bind_int64(stmt, 1, owner_id);
    r = sqlite3_step(stmt);
    if (r != SQLITE_ROW)
        return r == SQLITE_DONE ? -ENOENT : store_errno(r);
    name = (const char *)sqlite3_column_text(stmt, 0);
    snprintf(ret, size, "%s", name ? name : "");
    return 0;
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
    sqlite3_bind_int64(stmt, 1, since_wall_ns > INT64_MAX ? INT64_MAX : (int64_t)since_wall_ns);
    while ((result = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);
        r = fn(userdata, name ? name : "", (uint64_t)sqlite3_column_int64(stmt, 1),
               (uint64_t)sqlite3_column_int64(stmt, 2));
        if (r)
            return r;
    }
    return store_errno(result);
}
