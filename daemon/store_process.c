/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the map of living processes and of owners, and their rows.
 * Invariant: the map is sorted by tgid; the facts in it are those of the row once there is one.
 */
#include "store_internal.h"

#include <string.h>

#define OWNER_BOUND 65536u /* the ledger interns fewer */

static size_t process_position(const struct store *s, uint32_t tgid)
{
    size_t low = 0, high = s->process_count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->processes[middle].facts.tgid < tgid)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct store_process *store_find(struct store *s, uint32_t tgid)
{
    size_t i = process_position(s, tgid);

    return i < s->process_count && s->processes[i].facts.tgid == tgid ? &s->processes[i] : NULL;
}

void store_forget(struct store *s, uint32_t tgid)
{
    struct store_process *p = store_find(s, tgid);

    if (!p)
        return;
    s->process_count--;
    memmove(p, p + 1, (size_t)(s->processes + s->process_count - p) * sizeof(*p));
}

static struct store_process *process_add(struct store *s, const struct process_facts *facts)
{
    size_t i = process_position(s, facts->tgid);

    if (s->process_count == s->process_capacity) {
        size_t capacity = s->process_capacity ? s->process_capacity * 2 : 64;
        struct store_process *more = realloc(s->processes, capacity * sizeof(*more));

        if (!more)
            return NULL;
        s->processes = more;
        s->process_capacity = capacity;
    }
    memmove(&s->processes[i + 1], &s->processes[i], (s->process_count - i) * sizeof(*s->processes));
    s->process_count++;
    s->processes[i] = (struct store_process){.facts = *facts, .event_count = UINT64_MAX};
    return &s->processes[i];
}

static void bind_or_null(sqlite3_stmt *stmt, int at, bool known, int64_t value)
{
    if (known)
        sqlite3_bind_int64(stmt, at, value);
    else
        sqlite3_bind_null(stmt, at);
}

static void bind_place(struct store *s, sqlite3_stmt *stmt, const struct process_facts *f)
{
    char devices[64 * 6] = "";
    size_t used = 0;

    for (size_t i = 0; i < f->visible_count && i < ARRAY_SIZE(f->visible_devices); i++)
        used += (size_t)snprintf(devices + used, sizeof(devices) - used, "%s%u", i ? "," : "",
                                 f->visible_devices[i]);
    sqlite3_bind_int64(stmt, 12, f->rank_inferred);
    bind_or_null(stmt, 13, f->replica >= 0, f->replica);
    bind_or_null(stmt, 14, f->server_rank >= 0, f->server_rank);
    bind_or_null(stmt, 15, f->server_size >= 0, f->server_size);
    sqlite3_bind_int64(stmt, 16, f->parent_tgid);
    bind_or_null(stmt, 17, f->uid != UINT32_MAX, f->uid);
    store_bind_text(s, STORE_PROCESS_UPSERT, 18, f->user);
    store_bind_text(s, STORE_PROCESS_UPSERT, 19, f->pod_uid);
    store_bind_text(s, STORE_PROCESS_UPSERT, 20, devices);
}

int store_process_write(struct store *s, const struct process_facts *f, int64_t *ret_id)
{
    sqlite3_stmt *stmt = s->statements[STORE_PROCESS_UPSERT];
    uint64_t boot_ns, wall_ns;
    int r;

    store_clock(s, &boot_ns, &wall_ns);
    store_bind_text(s, STORE_PROCESS_UPSERT, 1, s->boot_id);
    sqlite3_bind_int64(stmt, 2, f->tgid);
    sqlite3_bind_int64(stmt, 3, f->start_ticks);
    sqlite3_bind_int64(stmt, 4, (int64_t)f->start_time_ns);
    sqlite3_bind_int64(stmt, 5, (int64_t)wall_ns);
    store_bind_text(s, STORE_PROCESS_UPSERT, 6, f->comm);
    store_bind_text(s, STORE_PROCESS_UPSERT, 7, f->title);
    store_bind_text(s, STORE_PROCESS_UPSERT, 8, f->container);
    bind_or_null(stmt, 9, f->rank >= 0, f->rank);
    bind_or_null(stmt, 10, f->world_size >= 0, f->world_size);
    store_bind_text(s, STORE_PROCESS_UPSERT, 11, f->rank_source);
    bind_place(s, stmt, f);
    *ret_id = 0;
    r = store_run(s, STORE_PROCESS_UPSERT, ret_id);
    return r == 0 && *ret_id == 0 ? -EIO : r;
}

int store_process_row(struct store *s, struct store_process *p)
{
    return p->id ? 0 : store_process_write(s, &p->facts, &p->id);
}

int64_t store_process_lookup(struct store *s, uint32_t tgid, uint32_t start_ticks)
{
    int64_t id = 0;

    store_bind_text(s, STORE_PROCESS_ID, 1, s->boot_id);
    sqlite3_bind_int64(s->statements[STORE_PROCESS_ID], 2, tgid);
    sqlite3_bind_int64(s->statements[STORE_PROCESS_ID], 3, start_ticks);
    return store_run(s, STORE_PROCESS_ID, &id) < 0 ? 0 : id;
}

static void bind_exit(struct store *s, int64_t id, uint64_t wall_ns, uint64_t boot_ns, bool seen)
{
    store_bind(s, STORE_PROCESS_EXIT, 4,
               (const int64_t[]){id, (int64_t)wall_ns, (int64_t)boot_ns, seen});
}

int store_process(struct store *s, const struct process_facts *facts)
{
    struct store_process *p;
    struct process_facts before;
    uint64_t boot_ns, wall_ns;
    int64_t old_id = 0;
    bool learnt_ticks = false;
    int r;

    if (!s)
        return 0;
    p = store_find(s, facts->tgid);
    if (p && p->facts.start_ticks && facts->start_ticks &&
        p->facts.start_ticks != facts->start_ticks) {
        /* The tgid was given again and nobody told us of the end of the one before. */
        old_id = p->id;
        store_forget(s, facts->tgid);
        p = NULL;
    }
    if (!p && !(p = process_add(s, facts)))
        return -ENOMEM;
    learnt_ticks = p->id && !p->facts.start_ticks && facts->start_ticks;
    if (p->id && memcmp(&p->facts, facts, sizeof(*facts)) == 0)
        return 0;
    before = p->facts;
    p->facts = *facts;
    r = store_begin(s);
    if (r < 0)
        goto failed;
    store_clock(s, &boot_ns, &wall_ns);
    if (old_id) {
        bind_exit(s, old_id, wall_ns, boot_ns, false);
        r = store_run(s, STORE_PROCESS_EXIT, NULL);
    }
    if (r == 0 && learnt_ticks) {
        store_bind(s, STORE_PROCESS_TICKS, 2, (const int64_t[]){p->id, facts->start_ticks});
        r = store_run(s, STORE_PROCESS_TICKS, NULL);
    }
    if (r == 0)
        r = store_process_write(s, facts, &p->id);
    r = store_end(s, r);
    if (r == 0)
        return 0;
failed:
    /* What the row holds stays known, so that the next call sees the difference again. */
    p->facts = before;
    return r;
}

int store_process_vanished(struct store *s, uint32_t tgid, uint32_t start_ticks)
{
    int r;

    if (!s)
        return 0;
    r = store_begin(s);
    if (r < 0)
        return r;
    store_bind_text(s, STORE_PROCESS_VANISHED, 1, s->boot_id);
    sqlite3_bind_int64(s->statements[STORE_PROCESS_VANISHED], 2, tgid);
    sqlite3_bind_int64(s->statements[STORE_PROCESS_VANISHED], 3, start_ticks);
    return store_end(s, store_run(s, STORE_PROCESS_VANISHED, NULL));
}

int store_each_open_process(struct store *s,
                            int (*fn)(void *userdata, uint32_t tgid, uint32_t start_ticks,
                                      uint64_t last_wall_ns),
                            void *userdata)
{
    sqlite3_stmt *stmt;
    int result, r = 0;

    if (!s || !s->db)
        return 0;
    stmt = s->statements[STORE_PROCESS_OPEN];
    store_bind_text(s, STORE_PROCESS_OPEN, 1, s->boot_id);
    while (r == 0 && (result = sqlite3_step(stmt)) == SQLITE_ROW)
        r = fn(userdata, (uint32_t)sqlite3_column_int64(stmt, 0),
               (uint32_t)sqlite3_column_int64(stmt, 1), (uint64_t)sqlite3_column_int64(stmt, 2));
    sqlite3_reset(stmt);
    return r ? r : store_errno(result);
}

int store_owner_note(struct store *s, const struct ledger *ledger, uint32_t owner)
{
    const char *name;

    if (owner >= OWNER_BOUND)
        return -ERANGE;
    if (owner < s->owner_count && s->owners[owner].name)
        return 0;
    if (owner >= s->owner_count) {
        size_t count = owner + 64;
        struct store_owner *more = realloc(s->owners, count * sizeof(*more));

        if (!more)
            return -ENOMEM;
        memset(more + s->owner_count, 0, (count - s->owner_count) * sizeof(*more));
        s->owners = more;
        s->owner_count = count;
    }
    name = ledger_owner_name(ledger, owner);
    s->owners[owner].name = strdup(name ? name : "");
    return s->owners[owner].name ? 0 : -ENOMEM;
}

int store_owner_row(struct store *s, uint32_t owner, int64_t *ret_id)
{
    struct store_owner *o = &s->owners[owner];
    int r = 0;

    if (!o->id) {
        store_bind_text(s, STORE_OWNER_INSERT, 1, o->name);
        r = store_run(s, STORE_OWNER_INSERT, &o->id);
    }
    *ret_id = o->id;
    return r;
}
