/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_kv.c - see store_kv.h. What is read back is checked: anybody may have changed the file.
 */
#include "store_kv.h"

#include "store_internal.h"

/* No span is longer: LIMIT_STORE_SAMPLE_FULL_NS, and a gap at the longest store.kv_interval. */
#define SPAN_NS_MAX (2 * LIMIT_STORE_SAMPLE_FULL_NS)

static void bind_known(struct store *s, int at, uint64_t value)
{
    if (value == KV_POOL_UNKNOWN)
        sqlite3_bind_null(s->statements[STORE_SAMPLE_KV_PUT], at);
}

static int write_row(struct store *s, struct store_process *p, const struct kv_span *span)
{
    int r = store_process_row(s, p);
    char fills[KV_HISTORY_TEXT_BYTES];

    if (r < 0)
        return r;
    store_bind(s, STORE_SAMPLE_KV_PUT, 14,
               (const int64_t[]){(int64_t)span->begin_wall_ns, (int64_t)span->end_wall_ns, p->id,
                                 (int64_t)span->readings, (int64_t)span->usable_blocks,
                                 (int64_t)span->block_tokens, (int64_t)span->model_len,
                                 (int64_t)span->least_blocks, (int64_t)span->most_blocks,
                                 (int64_t)span->last_blocks, (int64_t)span->most_wall_ns,
                                 (int64_t)span->running, (int64_t)span->waiting,
                                 (int64_t)span->full_ns});
    bind_known(s, 12, span->running);
    bind_known(s, 13, span->waiting);
    kv_span_fills_write(span, fills);
    store_bind_text(s, STORE_SAMPLE_KV_PUT, 15, fills);
    return store_run(s, STORE_SAMPLE_KV_PUT, NULL);
}

int store_kv_write(struct store *s, uint32_t tgid, const struct kv_span *span)
{
    struct store_process *p = s ? store_find(s, tgid) : NULL;

    if (!p)
        return -ENOENT;
    int r = store_begin(s);
    if (r == 0)
        r = store_end(s, write_row(s, p, span));
    if (r == 0)
        s->stats.rows_written++;
    else
        s->stats.dropped_samples++;
    return r;
}

static uint64_t column_u64(sqlite3_stmt *stmt, int column)
{
    int64_t value = sqlite3_column_int64(stmt, column);
    return value > 0 ? (uint64_t)value : 0;
}

static uint64_t column_known(sqlite3_stmt *stmt, int column)
{
    return sqlite3_column_type(stmt, column) == SQLITE_NULL ? KV_POOL_UNKNOWN
                                                            : column_u64(stmt, column);
}

static struct kv_span span_read(sqlite3_stmt *stmt, int column)
{
    return (struct kv_span){
        .begin_wall_ns = column_u64(stmt, column),
        .end_wall_ns = column_u64(stmt, column + 1),
        .readings = column_u64(stmt, column + 3),
        .usable_blocks = column_u64(stmt, column + 4),
        .block_tokens = column_u64(stmt, column + 5),
        .model_len = column_u64(stmt, column + 6),
        .least_blocks = column_u64(stmt, column + 7),
        .most_blocks = column_u64(stmt, column + 8),
        .last_blocks = column_u64(stmt, column + 9),
        .most_wall_ns = column_u64(stmt, column + 10),
        .running = column_known(stmt, column + 11),
        .waiting = column_known(stmt, column + 12),
        .full_ns = column_u64(stmt, column + 13),
    };
}

bool store_kv_read(sqlite3_stmt *stmt, int column, struct kv_span *ret)
{
    const char *fills = (const char *)sqlite3_column_text(stmt, column + 14);
    struct kv_span s = span_read(stmt, column);

    if (!fills || kv_span_fills_parse(fills, &s) < 0 || !s.readings || !s.usable_blocks ||
        s.usable_blocks > KV_POOL_BLOCKS_MAX || s.block_tokens > KV_POOL_BLOCKS_MAX ||
        s.most_blocks > s.usable_blocks || s.least_blocks > s.most_blocks ||
        s.last_blocks > s.most_blocks || s.begin_wall_ns > s.end_wall_ns)
        return false;
    *ret = s;
    return true;
}

int64_t store_kv_begin(uint64_t wall_ns)
{
    return store_moment(wall_ns > SPAN_NS_MAX ? wall_ns - SPAN_NS_MAX : 0);
}

int store_kv_each(struct store *s, uint64_t since_wall_ns, uint64_t until_wall_ns,
                  int (*fn)(void *userdata, int64_t process_id, const struct kv_span *span),
                  void *userdata)
{
    _cleanup_(store_finalizep) sqlite3_stmt *stmt = NULL;
    int result, r;

    if (!s || !s->db)
        return -ENOENT;
    r = store_errno(sqlite3_prepare_v2(s->db,
                                       "SELECT * FROM sample_kv WHERE wall_ns>=?3 AND wall_ns<?2"
                                       " AND end_wall_ns>=?1 ORDER BY wall_ns DESC",
                                       -1, &stmt, NULL));
    if (r < 0)
        return r;
    sqlite3_bind_int64(stmt, 1, store_moment(since_wall_ns));
    sqlite3_bind_int64(stmt, 2, store_moment(until_wall_ns));
    sqlite3_bind_int64(stmt, 3, store_kv_begin(since_wall_ns));
    while ((result = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct kv_span span;
        r = store_kv_read(stmt, 0, &span) ? fn(userdata, sqlite3_column_int64(stmt, 2), &span) : 0;
        if (r)
            return r;
    }
    return store_errno(result);
}
