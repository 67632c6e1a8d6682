/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_phases.c - what was highest in the phases of a process, for a daemon that comes later.
 *
 * Invariant: the rows of a process are those of one moment; they are written again only when a peak
 * or a question changed, so that a server that serves writes none.
 */
#include <string.h>

#include "ledger_restore.h"
#include "store_internal.h"

struct writing {
    struct store *store;
    const struct ledger *ledger;
    uint32_t tgid;
    int64_t process_id;
    uint64_t hash, rows;
};

static void hash_add(uint64_t *hash, uint64_t value)
{
    *hash = (*hash ^ value) * 1099511628211ull;
}

static int on_hash(void *userdata, const struct ledger_phase_use *u)
{
    struct writing *w = userdata;

    hash_add(&w->hash, 14695981039346656037ull);
    hash_add(&w->hash, (uint64_t)u->class_id << 16 | u->device);
    hash_add(&w->hash, u->first_ns);
    hash_add(&w->hash, u->block_count != 0);
    hash_add(&w->hash, (uint64_t)u->peak_allocated_bytes);
    hash_add(&w->hash, (uint64_t)u->peak_reserved_bytes);
    hash_add(&w->hash, u->peak_physical_bytes);
    hash_add(&w->hash, u->first.time_ns);
    hash_add(&w->hash, u->last.time_ns);
    return 0;
}

/* The most that an owner held. */
struct held {
    const struct ledger *ledger;
    const char *name;
    uint64_t bytes, physical_bytes; /* LEDGER_HELD_UNKNOWN: nothing */
};

static void held_add(uint64_t *held, uint64_t bytes)
{
    if (bytes && (*held == LEDGER_HELD_UNKNOWN || bytes > *held))
        *held = bytes;
}

static int on_owner(void *userdata, const struct ledger_owner_total *t)
{
    struct held *h = userdata;

    if ((t->level == LEVEL_BLOCK || t->level == LEVEL_PHYSICAL) &&
        strcmp(ledger_owner_name(h->ledger, t->owner), h->name) == 0)
        held_add(t->level == LEVEL_BLOCK ? &h->bytes : &h->physical_bytes,
                 t->bytes ? t->bytes : t->peak_bytes);
    return 0;
}

static void bind_held(struct store *s, int at, uint64_t bytes)
{
    sqlite3_stmt *stmt = s->statements[STORE_PHASE_INSERT];

    if (bytes == LEDGER_HELD_UNKNOWN)
        sqlite3_bind_null(stmt, at);
    else
        sqlite3_bind_int64(stmt, at, (int64_t)bytes);
}

static int on_phase(void *userdata, const struct ledger_phase_use *u)
{
    struct writing *w = userdata;
    const struct ledger_mem_info *a = &u->first, *b = &u->last;
    char name[PHASE_OWNER_MAX] = "";
    struct held held = {w->ledger, name, u->held_bytes, u->held_physical_bytes};

    ledger_phase_name(w->ledger, u->class_id, name);
    if (u->class_id && !name[0])
        return 0;
    if (name[0])
        ledger_each_owner(w->ledger, w->tgid, on_owner, &held);
    store_bind(w->store, STORE_PHASE_INSERT, 24,
               (const int64_t[]){w->process_id,
                                 u->device,
                                 0,
                                 (int64_t)u->first_ns,
                                 (int64_t)u->last_ns,
                                 (int64_t)u->block_count,
                                 u->start_allocated_bytes,
                                 u->peak_allocated_bytes,
                                 u->peak_reserved_bytes,
                                 (int64_t)u->peak_physical_bytes,
                                 0,
                                 0,
                                 (int64_t)a->time_ns,
                                 (int64_t)a->free_bytes,
                                 (int64_t)a->total_bytes,
                                 (int64_t)a->physical_bytes,
                                 a->reserved_bytes,
                                 a->allocated_bytes,
                                 (int64_t)b->time_ns,
                                 (int64_t)b->free_bytes,
                                 (int64_t)b->total_bytes,
                                 (int64_t)b->physical_bytes,
                                 b->reserved_bytes,
                                 b->allocated_bytes});
    store_bind_text(w->store, STORE_PHASE_INSERT, 3, name);
    bind_held(w->store, 11, held.bytes);
    bind_held(w->store, 12, held.physical_bytes);
    w->rows++;
    return store_run(w->store, STORE_PHASE_INSERT, NULL);
}

int store_phases_write(struct store *s, const struct ledger *ledger, struct store_process *p,
                       uint64_t *rows)
{
    struct writing w = {.store = s, .ledger = ledger, .tgid = p->facts.tgid};

    ledger_each_phase(ledger, w.tgid, on_hash, &w);
    if (w.hash == p->phase_hash) /* 0: it has none, or another program since it was written */
        return 0;
    int r = store_process_row(s, p);
    w.process_id = p->id;
    if (r == 0) {
        store_bind(s, STORE_PHASES_DELETE, 1, &w.process_id);
        r = store_run(s, STORE_PHASES_DELETE, NULL);
    }
    if (r == 0)
        r = ledger_each_phase(ledger, w.tgid, on_phase, &w);
    p->phase_hash = w.hash;
    *rows += w.rows;
    return r;
}

static uint64_t held_read(sqlite3_stmt *stmt, int column)
{
    return sqlite3_column_type(stmt, column) == SQLITE_NULL
               ? LEDGER_HELD_UNKNOWN
               : (uint64_t)sqlite3_column_int64(stmt, column);
}

static struct ledger_mem_info info_read(sqlite3_stmt *stmt, int column)
{
    return (struct ledger_mem_info){
        .time_ns = (uint64_t)sqlite3_column_int64(stmt, column),
        .free_bytes = (uint64_t)sqlite3_column_int64(stmt, column + 1),
        .total_bytes = (uint64_t)sqlite3_column_int64(stmt, column + 2),
        .physical_bytes = (uint64_t)sqlite3_column_int64(stmt, column + 3),
        .reserved_bytes = sqlite3_column_int64(stmt, column + 4),
        .allocated_bytes = sqlite3_column_int64(stmt, column + 5),
    };
}

int store_phases_restore(struct store *s, struct ledger *ledger, const struct process_facts *facts)
{
    _cleanup_(store_finalizep) sqlite3_stmt *stmt = NULL;
    int result, r, count = 0;

    if (!s || !s->db || !facts->start_ticks)
        return 0;
    r = store_errno(
        sqlite3_prepare_v2(s->db,
                           "SELECT phase.* FROM phase JOIN process ON process.id=process_id "
                           "WHERE boot_id=?1 AND tgid=?2 AND start_ticks=?3",
                           -1, &stmt, NULL));
    if (r < 0)
        return r;
    sqlite3_bind_text(stmt, 1, s->boot_id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 2, facts->tgid);
    sqlite3_bind_int64(stmt, 3, facts->start_ticks);
    while ((result = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(stmt, 2);
        struct ledger_phase_use u = {
            .device = (uint16_t)sqlite3_column_int(stmt, 1),
            .first_ns = (uint64_t)sqlite3_column_int64(stmt, 3),
            .last_ns = (uint64_t)sqlite3_column_int64(stmt, 4),
            .block_count = (uint64_t)sqlite3_column_int64(stmt, 5),
            .start_allocated_bytes = sqlite3_column_int64(stmt, 6),
            .peak_allocated_bytes = sqlite3_column_int64(stmt, 7),
            .peak_reserved_bytes = sqlite3_column_int64(stmt, 8),
            .peak_physical_bytes = (uint64_t)sqlite3_column_int64(stmt, 9),
            .held_bytes = held_read(stmt, 10),
            .held_physical_bytes = held_read(stmt, 11),
            .first = info_read(stmt, 12),
            .last = info_read(stmt, 18),
        };
        r = name ? ledger_restore_phase(ledger, facts->tgid, name, &u) : -EBADMSG;
        if (r == -ENOMEM)
            return r;
        count += r == 0;
    }
    r = store_errno(result);
    return r < 0 ? r : count;
}
