/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: reading an earlier moment back. Must not: write. Its statements are made for each question:
 * they are rare, and take milliseconds anyway.
 * Invariant: all rows of one process come from one sample, or from none.
 */
#include "store_internal.h"

#include <string.h>

#include "ledger_restore.h"
#include "procfacts.h"

struct history {
    struct store *store;
    struct ledger *ledger;
    int64_t wall_ns;
    int64_t oldest_ns, newest_ns;
    int count;
};

static int prepare(struct store *s, const char *sql, sqlite3_stmt **ret)
{
    return store_errno(sqlite3_prepare_v2(s->db, sql, -1, ret, NULL));
}

static void text_copy(char *ret, size_t size, sqlite3_stmt *stmt, int column)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    snprintf(ret, size, "%s", text ? text : "");
}

static int32_t number_or(sqlite3_stmt *stmt, int column, int32_t otherwise)
{
    return sqlite3_column_type(stmt, column) == SQLITE_NULL ? otherwise
                                                            : sqlite3_column_int(stmt, column);
}

void store_facts_read(sqlite3_stmt *stmt, struct process_facts *f)
{
    const char *devices = (const char *)sqlite3_column_text(stmt, 18);
    struct title_facts title;
    int n;

    process_facts_init(f, (uint32_t)sqlite3_column_int64(stmt, 1));
    f->start_ticks = (uint32_t)sqlite3_column_int64(stmt, 2);
    f->start_time_ns = (uint64_t)sqlite3_column_int64(stmt, 3);
    text_copy(f->comm, sizeof(f->comm), stmt, 4);
    text_copy(f->title, sizeof(f->title), stmt, 5);
    text_copy(f->container, sizeof(f->container), stmt, 6);
    f->rank = number_or(stmt, 7, -1);
    f->world_size = number_or(stmt, 8, -1);
    text_copy(f->rank_source, sizeof(f->rank_source), stmt, 9);
    f->rank_inferred = sqlite3_column_int(stmt, 10);
    f->replica = number_or(stmt, 11, -1);
    f->server_rank = number_or(stmt, 12, -1);
    f->server_size = number_or(stmt, 13, -1);
    f->parent_tgid = (uint32_t)sqlite3_column_int64(stmt, 14);
    f->uid = sqlite3_column_type(stmt, 15) == SQLITE_NULL
                 ? UINT32_MAX
                 : (uint32_t)sqlite3_column_int64(stmt, 15);
    text_copy(f->user, sizeof(f->user), stmt, 16);
    text_copy(f->pod_uid, sizeof(f->pod_uid), stmt, 17);
    n = devices ? visible_devices_parse(devices, f->visible_devices) : 0;
    f->visible_count = (uint16_t)(n > 0 ? n : 0);
    title_parse(f->title, &title);
    f->role = title.kind;
    for (int g = 0; g < GROUP_COUNT; g++)
        f->group[g] = title.group[g];
}

/* Time of the newest sample of a process up to the moment; 0 none. */
static int sample_time(struct history *h, int64_t process_id, int64_t *ret)
{
    _cleanup_(store_finalizep) sqlite3_stmt *stmt = NULL;
    int r = prepare(h->store,
                    "SELECT max(t) FROM (SELECT max(wall_ns) t FROM sample WHERE process_id=?1 AND "
                    "wall_ns<=?2 UNION ALL SELECT max(wall_ns) FROM sample_device WHERE "
                    "process_id=?1 AND wall_ns<=?2 UNION ALL SELECT max(wall_ns) FROM sample_pool "
                    "WHERE process_id=?1 AND wall_ns<=?2)",
                    &stmt);
    if (r < 0)
        return r;
    sqlite3_bind_int64(stmt, 1, process_id);
    sqlite3_bind_int64(stmt, 2, h->wall_ns);
    r = sqlite3_step(stmt);
    *ret = r == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
    return store_errno(r);
}

/* Runs fn for each row of one sample of a process. A row that is implausible is left out. */
static int sample_rows(struct history *h, const char *sql, int64_t process_id, int64_t wall_ns,
                       uint32_t tgid, int (*fn)(struct history *, uint32_t tgid, sqlite3_stmt *))
{
    _cleanup_(store_finalizep) sqlite3_stmt *stmt = NULL;
    int result, r = prepare(h->store, sql, &stmt);

    if (r < 0)
        return r;
    sqlite3_bind_int64(stmt, 1, process_id);
    sqlite3_bind_int64(stmt, 2, wall_ns);
    while ((result = sqlite3_step(stmt)) == SQLITE_ROW) {
        r = fn(h, tgid, stmt);
        if (r < 0 && r != -EBADMSG)
            return r;
    }
    return store_errno(result);
}

static int owner_row(struct history *h, uint32_t tgid, sqlite3_stmt *stmt)
{
    const char *name = (const char *)sqlite3_column_text(stmt, 2);
    const char *level = (const char *)sqlite3_column_text(stmt, 1);
    struct ledger_owner_total t = {
        .device = (uint16_t)sqlite3_column_int(stmt, 0),
        .level = level ? level_parse(level) : LEVEL_COUNT,
        .bytes = (uint64_t)sqlite3_column_int64(stmt, 3),
        .count = (uint64_t)sqlite3_column_int64(stmt, 4),
        .peak_bytes = (uint64_t)sqlite3_column_int64(stmt, 5),
        .inferred = sqlite3_column_int(stmt, 6),
        .read_bytes = sqlite3_column_type(stmt, 7) == SQLITE_NULL
                          ? LEDGER_READ_UNKNOWN
                          : (uint64_t)sqlite3_column_int64(stmt, 7),
    };
    return name ? ledger_restore_owner(h->ledger, tgid, name, &t) : -EBADMSG;
}

static int device_row(struct history *h, uint32_t tgid, sqlite3_stmt *stmt)
{
    struct ledger_device_use use = {
        .device = (uint16_t)sqlite3_column_int(stmt, 0),
        .physical_bytes = (uint64_t)sqlite3_column_int64(stmt, 1),
        .before_attach_bytes = (uint64_t)sqlite3_column_int64(stmt, 2),
        .driver_bytes = sqlite3_column_type(stmt, 3) == SQLITE_NULL
                            ? UINT64_MAX
                            : (uint64_t)sqlite3_column_int64(stmt, 3),
        .peak_bytes = (uint64_t)sqlite3_column_int64(stmt, 4),
    };
    return ledger_restore_device(h->ledger, tgid, &use);
}

static int pool_row(struct history *h, uint32_t tgid, sqlite3_stmt *stmt)
{
    const char *component = (const char *)sqlite3_column_text(stmt, 1);
    struct ledger_pool pool = {
        .device = (uint16_t)sqlite3_column_int(stmt, 0),
        .component = component && strcmp(component, "workspace") == 0 ? NM_BLOCK_WORKSPACE
                                                                      : NM_BLOCK_CACHING,
        .reserved_bytes = sqlite3_column_int64(stmt, 2),
        .allocated_bytes = sqlite3_column_int64(stmt, 3),
        .active_bytes = sqlite3_column_int64(stmt, 4),
        .before_attach_bytes = sqlite3_column_int64(stmt, 5),
    };
    return ledger_restore_pool(h->ledger, tgid, &pool);
}

static int process_row(struct history *h, sqlite3_stmt *stmt)
{
    int64_t id = sqlite3_column_int64(stmt, 0), at = 0;
    struct process_facts facts;
    int r = sample_time(h, id, &at);

    if (r < 0 || !at) /* nothing was sampled of it yet */
        return r;
    store_facts_read(stmt, &facts);
    r = ledger_process_update(h->ledger, &facts, 0);
    if (r == 0)
        r = sample_rows(
            h,
            "SELECT device,level,name,bytes,blocks,peak_bytes,inferred,read_bytes "
            "FROM sample JOIN owner ON owner.id=owner_id WHERE process_id=?1 AND wall_ns=?2",
            id, at, facts.tgid, owner_row);
    if (r == 0)
        r = sample_rows(h,
                        "SELECT device,physical_bytes,before_attach_bytes,driver_bytes,peak_bytes "
                        "FROM sample_device WHERE process_id=?1 AND wall_ns=?2",
                        id, at, facts.tgid, device_row);
    if (r == 0)
        r = sample_rows(h,
                        "SELECT device,component,reserved_bytes,allocated_bytes,active_bytes,"
                        "before_attach_bytes FROM sample_pool WHERE process_id=?1 AND wall_ns=?2",
                        id, at, facts.tgid, pool_row);
    if (r < 0)
        return r;
    h->count++;
    if (!h->oldest_ns || at < h->oldest_ns)
        h->oldest_ns = at;
    if (at > h->newest_ns)
        h->newest_ns = at;
    return 0;
}

int store_history(struct store *s, uint64_t wall_ns, struct ledger *ledger, uint64_t *ret_oldest_ns,
                  uint64_t *ret_newest_ns)
{
    struct history h = {.store = s, .ledger = ledger, .wall_ns = (int64_t)wall_ns};
    _cleanup_(store_finalizep) sqlite3_stmt *stmt = NULL;
    int result, r;

    if (!s || !s->db)
        return -ENOENT;
    r = prepare(s,
                "SELECT " STORE_PROCESS_COLUMNS " FROM process WHERE first_wall_ns<=?1 AND "
                "(exit_wall_ns IS NULL OR exit_wall_ns>?1) ORDER BY id LIMIT 65536",
                &stmt);
    if (r < 0)
        return r;
    sqlite3_bind_int64(stmt, 1, h.wall_ns);
    while ((result = sqlite3_step(stmt)) == SQLITE_ROW) {
        r = process_row(&h, stmt);
        if (r < 0)
            return r;
    }
    *ret_oldest_ns = (uint64_t)h.oldest_ns;
    *ret_newest_ns = (uint64_t)h.newest_ns;
    r = store_errno(result);
    return r < 0 ? r : h.count;
}

int store_mark_find(struct store *s, const char *name, uint64_t *ret_wall_ns)
{
    _cleanup_(store_finalizep) sqlite3_stmt *stmt = NULL;
    int r;

    if (!s || !s->db)
        return -ENOENT;
    store_events_flush(s);
    r = prepare(s,
                "SELECT wall_ns FROM event WHERE kind='mark' AND detail=?1 ORDER BY wall_ns DESC "
                "LIMIT 1",
                &stmt);
    if (r < 0)
        return r;
    sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    r = sqlite3_step(stmt);
    if (r != SQLITE_ROW)
        return r == SQLITE_DONE ? -ENOENT : store_errno(r);
    *ret_wall_ns = (uint64_t)sqlite3_column_int64(stmt, 0);
    return 0;
}
