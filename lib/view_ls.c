/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_ls.c - the memory detail list: live entries, filtered, the largest first.
 *
 * Owns: the order and the bound of the list. Keeps the best `limit` entries in a heap whose top is
 * the worst of them, so that a million entries cost a million comparisons and no more memory than
 * the answer.
 * Invariants: totals count every match, shown or not; levels have totals of their own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "view_rows.h"

struct ls {
    const struct ledger *ledger;
    const struct view_context *context;
    const struct view_ls_query *query;
    struct ledger_entry *items;
    size_t count, capacity;
    uint64_t level_bytes[LEVEL_COUNT], level_blocks[LEVEL_COUNT];
    const struct ledger_process *process; /* of the entry before: entries come by process */
    bool process_selected;
};

/* The level of a block's device is the process's own; of all others the driver's. */
static int entry_device(const struct ledger_process *p, const struct ledger_entry *e)
{
    if (p && view_level_is_torch(e->level))
        return view_device_of(&p->facts, e->device);
    return e->device;
}

/* Negative when a comes before b in the list. A total order, so that answers are repeatable. */
static int compare(const void *a, const void *b)
{
    const struct ledger_entry *x = a, *y = b;
    if (x->size_bytes != y->size_bytes)
        return x->size_bytes > y->size_bytes ? -1 : 1;
    if (x->tgid != y->tgid)
        return x->tgid < y->tgid ? -1 : 1;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    if (x->level != y->level)
        return x->level < y->level ? -1 : 1;
    return (x->handle > y->handle) - (x->handle < y->handle);
}

/* Restores the heap below `i`: a parent comes after its children in the list. */
static void sift_down(struct ls *s, size_t i)
{
    for (;;) {
        size_t worst = i, left = 2 * i + 1, right = left + 1;
        if (left < s->count && compare(&s->items[left], &s->items[worst]) > 0)
            worst = left;
        if (right < s->count && compare(&s->items[right], &s->items[worst]) > 0)
            worst = right;
        if (worst == i)
            return;
        struct ledger_entry tmp = s->items[i];
        s->items[i] = s->items[worst];
        s->items[worst] = tmp;
        i = worst;
    }
}

static int keep(struct ls *s, const struct ledger_entry *e)
{
    uint32_t limit = s->query->limit;

    if (limit && s->count == limit) {
        if (compare(e, &s->items[0]) < 0) {
            s->items[0] = *e;
            sift_down(s, 0);
        }
        return 0;
    }
    if (ARRAY_ROOM(s->items, s->capacity, s->count) < 0)
        return -ENOMEM;
    s->items[s->count++] = *e;
    if (limit && s->count == limit) {
        for (size_t i = s->count / 2; i-- > 0;)
            sift_down(s, i);
    }
    return 0;
}

static bool owner_matches(const char *pattern, const char *name)
{
    size_t length = strlen(pattern);
    if (length && pattern[length - 1] == '*')
        return strncmp(pattern, name, length - 1) == 0;
    return strcmp(pattern, name) == 0;
}

static bool entry_matches(struct ls *s, const struct ledger_entry *e)
{
    const struct view_ls_query *q = s->query;
    const struct view_context *c = s->context;

    if (!s->process || s->process->facts.tgid != e->tgid) {
        s->process = ledger_find_process(s->ledger, e->tgid);
        s->process_selected = s->process && view_filter_process(c, &s->process->facts);
    }
    if (!s->process_selected || !view_filter_device(c, entry_device(s->process, e)))
        return false;
    if (e->size_bytes < q->min_size_bytes || e->allocated_ns < q->since_ns ||
        (q->until_ns && e->allocated_ns >= q->until_ns))
        return false;
    bool on_stream = q->stream_count == 0;
    for (size_t i = 0; i < q->stream_count && !on_stream; i++)
        on_stream = e->stream && q->streams[i] == e->stream;
    if (!on_stream)
        return false;
    bool ok = q->level_count == 0;
    for (size_t i = 0; i < q->level_count && !ok; i++)
        ok = q->levels[i] == e->level;
    if (!ok)
        return false;
    ok = q->owner_count == 0;
    for (size_t i = 0; i < q->owner_count && !ok; i++)
        ok = owner_matches(q->owners[i], ledger_owner_name(s->ledger, e->owner));
    return ok;
}

static int on_entry(void *userdata, const struct ledger_entry *e)
{
    struct ls *s = userdata;

    if (!entry_matches(s, e))
        return 0;
    s->level_bytes[e->level] += e->size_bytes;
    s->level_blocks[e->level]++;
    return keep(s, e);
}

struct inferred {
    const struct ledger_entry *entry;
    bool inferred;
};

static int on_owner(void *userdata, const struct ledger_owner_total *t)
{
    struct inferred *i = userdata;
    if (t->owner != i->entry->owner || t->device != i->entry->device || t->level != i->entry->level)
        return 0;
    i->inferred = t->inferred;
    return 1;
}

static void hex_or_null(struct json *j, const char *key, uint64_t value)
{
    if (value) {
        json_khex(j, key, value);
        return;
    }
    json_key(j, key);
    json_null(j);
}

static void write_frames(const struct view_context *c, const struct ledger_entry *e, struct json *j)
{
    const char *frames[VIEW_FRAMES_MAX];
    size_t n =
        c->frames_fn ? c->frames_fn(c->userdata, e->tgid, e->stack, frames, VIEW_FRAMES_MAX) : 0;

    json_karray(j, "frames");
    for (size_t i = 0; i < n; i++)
        json_str(j, frames[i]);
    json_end(j);
}

static void write_entry(const struct ls *s, const struct ledger_entry *e, struct json *j)
{
    const struct ledger_process *p = ledger_find_process(s->ledger, e->tgid);
    struct inferred inferred = {.entry = e};
    uint64_t boot_ns = s->context->boot_ns, wall_ns = view_wall_ns(s->context, e->allocated_ns);
    int device = entry_device(p, e);

    ledger_each_owner(s->ledger, e->tgid, on_owner, &inferred);
    json_object(j);
    json_ku64(j, "tgid", e->tgid);
    json_ki64_or_null(j, "rank", p && p->facts.rank >= 0, p ? p->facts.rank : 0);
    json_ki64_or_null(j, "device", device != VIEW_NO_DEVICE, device);
    json_khex(j, "address", e->address);
    hex_or_null(j, "handle", e->handle);
    json_ku64(j, "size_bytes", e->size_bytes);
    json_ki64_or_null(j, "requested_bytes", e->requested_bytes != 0, (int64_t)e->requested_bytes);
    json_kstr(j, "owner", ledger_owner_name(s->ledger, e->owner));
    json_kbool(j, "inferred", inferred.inferred);
    hex_or_null(j, "stream", e->stream);
    json_kstr(j, "level", level_name(e->level));
    json_kstr(j, "source", e->is_read ? "read" : "event");
    /* a block that was read is older than that by an unknown time */
    json_ki64_or_null(j, "allocated_ns", wall_ns != 0 && !e->is_read, (int64_t)wall_ns);
    json_ki64_or_null(j, "age_ns", !e->is_read,
                      boot_ns > e->allocated_ns ? (int64_t)(boot_ns - e->allocated_ns) : 0);
    json_key(j, "last_access_ns"); /* accesses are not observed */
    json_null(j);
    write_frames(s->context, e, j);
    hex_or_null(j, "caller", e->caller);
    json_end(j);
}

int view_ls(const struct ledger *l, const struct view_context *c, const struct view_ls_query *q,
            struct json *j)
{
    struct ls s = {.ledger = l, .context = c, .query = q};
    uint64_t matched = 0;
    int r = ledger_each_entry(l, c->tgid_count == 1 ? c->tgids[0] : 0, on_entry, &s);

    if (r) {
        free(s.items);
        return r;
    }
    if (s.count)
        qsort(s.items, s.count, sizeof(*s.items), compare);
    json_object(j);
    view_header(c, j);
    json_karray(j, "blocks");
    for (size_t i = 0; i < s.count; i++)
        write_entry(&s, &s.items[i], j);
    json_end(j);
    json_karray(j, "totals");
    for (int level = 0; level < LEVEL_COUNT; level++) {
        if (!s.level_blocks[level])
            continue;
        matched += s.level_blocks[level];
        json_object(j);
        json_kstr(j, "level", level_name(level));
        json_ku64(j, "bytes", s.level_bytes[level]);
        json_ku64(j, "blocks", s.level_blocks[level]);
        json_end(j);
    }
    json_end(j);
    json_ku64(j, "matched_blocks", matched);
    json_kbool(j, "truncated", matched > s.count);
    json_end(j);
    free(s.items);
    return j->error;
}
