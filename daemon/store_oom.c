/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_oom.c - see store_oom.h. Rare, so its statements are prepared when used.
 */
#include "store_oom.h"

#include <string.h>

#include "store_internal.h"

static int prepare(struct store *s, const char *sql, sqlite3_stmt **ret)
{
    if (!s || !s->db)
        return -ENOENT;
    return store_errno(sqlite3_prepare_v2(s->db, sql, -1, ret, NULL));
}

int64_t store_oom_last(struct store *s)
{
    sqlite3_stmt *stmt;
    int64_t id = 0;

    if (prepare(s, "SELECT max(id) FROM oom", &stmt) < 0)
        return 0;
    if (sqlite3_step(stmt) == SQLITE_ROW)
        id = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return id;
}

static void bind_known(sqlite3_stmt *stmt, int index, bool known, int64_t value)
{
    if (known)
        sqlite3_bind_int64(stmt, index, value);
    else
        sqlite3_bind_null(stmt, index);
}

static int put_row(struct store *s, const struct store_oom *o)
{
    sqlite3_stmt *stmt;
    int r =
        prepare(s,
                "INSERT OR REPLACE INTO oom (id,wall_ns,tgid,rank,device,comm,verdict,recovered,"
                "failures,requested_bytes,reason,document)"
                " VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)",
                &stmt);
    if (r < 0)
        return r;
    sqlite3_bind_int64(stmt, 1, o->id);
    sqlite3_bind_int64(stmt, 2, (int64_t)o->wall_ns);
    sqlite3_bind_int64(stmt, 3, o->tgid);
    bind_known(stmt, 4, o->rank >= 0, o->rank);
    bind_known(stmt, 5, o->device >= 0, o->device);
    sqlite3_bind_text(stmt, 6, o->comm, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 7, o->verdict, -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 8, o->is_recovered);
    sqlite3_bind_int64(stmt, 9, o->failures);
    bind_known(stmt, 10, o->requested_bytes != UINT64_MAX, (int64_t)o->requested_bytes);
    sqlite3_bind_text(stmt, 11, o->reason, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 12, o->document, -1, SQLITE_STATIC);
    sqlite3_step(stmt);
    r = store_errno(sqlite3_finalize(stmt));
    s->stats.rows_written += r == 0;
    return r;
}

static int retire(struct store *s, int64_t newest)
{
    sqlite3_stmt *stmt;
    int r = prepare(s, "DELETE FROM oom WHERE id <= ?1", &stmt);

    if (r < 0)
        return r;
    sqlite3_bind_int64(stmt, 1, newest - STORE_OOM_ROWS_MAX);
    sqlite3_step(stmt);
    return store_errno(sqlite3_finalize(stmt));
}

int store_oom_put(struct store *s, const struct store_oom *report)
{
    int r;

    if (!s)
        return -ENOENT;
    r = store_begin(s);
    if (r < 0)
        return r;
    r = put_row(s, report);
    if (r == 0)
        r = retire(s, report->id);
    return store_end(s, r);
}

static void text_column(sqlite3_stmt *stmt, int column, char *ret, size_t size)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    snprintf(ret, size, "%s", text ? text : "");
}

static int32_t int_column(sqlite3_stmt *stmt, int column)
{
    return sqlite3_column_type(stmt, column) == SQLITE_NULL ? -1 : sqlite3_column_int(stmt, column);
}

int store_oom_each(struct store *s, int (*fn)(void *userdata, const struct store_oom *report),
                   void *userdata)
{
    sqlite3_stmt *stmt;
    int result = SQLITE_DONE, stop = 0;
    int r = prepare(s,
                    "SELECT id,wall_ns,tgid,rank,device,comm,verdict,recovered,failures,"
                    "requested_bytes,reason FROM oom ORDER BY id DESC",
                    &stmt);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    while (stop == 0 && (result = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct store_oom o = {
            .id = sqlite3_column_int64(stmt, 0),
            .wall_ns = (uint64_t)sqlite3_column_int64(stmt, 1),
            .tgid = (uint32_t)sqlite3_column_int64(stmt, 2),
            .rank = int_column(stmt, 3),
            .device = int_column(stmt, 4),
            .is_recovered = sqlite3_column_int(stmt, 7),
            .failures = (uint32_t)sqlite3_column_int64(stmt, 8),
            .requested_bytes = sqlite3_column_type(stmt, 9) == SQLITE_NULL
                                   ? UINT64_MAX
                                   : (uint64_t)sqlite3_column_int64(stmt, 9),
        };
        text_column(stmt, 5, o.comm, sizeof(o.comm));
        text_column(stmt, 6, o.verdict, sizeof(o.verdict));
        text_column(stmt, 10, o.reason, sizeof(o.reason));
        stop = fn(userdata, &o);
    }
    sqlite3_finalize(stmt);
    return stop ? stop : store_errno(result);
}

int store_oom_document(struct store *s, int64_t id, char **ret)
{
    sqlite3_stmt *stmt;
    int r = prepare(s, "SELECT document FROM oom WHERE id=?1", &stmt), result;

    if (r < 0)
        return r;
    sqlite3_bind_int64(stmt, 1, id);
    result = sqlite3_step(stmt);
    if (result == SQLITE_ROW) {
        *ret = strdup((const char *)sqlite3_column_text(stmt, 0));
        r = *ret ? 0 : -ENOMEM;
    } else {
        r = result == SQLITE_DONE ? -ENOENT : store_errno(result);
    }
    sqlite3_finalize(stmt);
    return r;
}
