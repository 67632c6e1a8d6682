/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_view.c - the iterators: what the ledger shows, in a stable order.
 *
 * Must not: change the ledger.
 * Two owners are made up here, so that the rows of a level add up to its total: before_attach
 * (physical and block level) and PTA@small (block level).
 */
#include "ledger_internal.h"

#include <errno.h>
#include <string.h>

int ledger_each_process(const struct ledger *l, int (*fn)(void *, const struct ledger_process *),
                        void *userdata)
{
    for (uint32_t i = 0; i < l->process_count; i++) {
        int r = fn(userdata, &l->processes[i]->pub);
        if (r)
            return r;
    }
    return 0;
}

const struct ledger_process *ledger_find_process(const struct ledger *l, uint32_t tgid)
{
    const struct process *p = process_find(l, tgid);
    return p ? &p->pub : NULL;
}

int ledger_each_device(const struct ledger *l, uint32_t tgid,
                       int (*fn)(void *, const struct ledger_device_use *), void *userdata)
{
    const struct process *p = process_find(l, tgid);
    for (uint32_t i = 0; p && i < p->device_count; i++) {
        int r = fn(userdata, &p->devices[i].use);
        if (r)
            return r;
    }
    return 0;
}

bool ledger_holds_memory(const struct ledger *l, uint32_t tgid)
{
    const struct process *p = process_find(l, tgid);
    for (uint32_t i = 0; p && i < p->device_count; i++)
        if (p->devices[i].use.physical_bytes > 0)
            return true;
    return false;
}

static const struct device_use *pool_device(const struct process *p, const struct pool *pool)
{
    return device_find(p, process_logical_device(p, pool->pub.device));
}

/* Figures of a pool at a moment; false: there was none. */
static bool pool_when(const struct process *p, const struct pool *pool, enum ledger_when when,
                      struct ledger_pool *ret)
{
    const struct device_use *d = when == LEDGER_AT_PEAK ? pool_device(p, pool) : NULL;
    if (!d || d->peak_pending) {
        pool_figures(pool, ret);
        return when == LEDGER_NOW || d;
    }
    *ret = pool->then;
    return pool->then_epoch == d->epoch;
}

int ledger_each_pool_when(const struct ledger *l, uint32_t tgid, enum ledger_when when,
                          int (*fn)(void *, const struct ledger_pool *), void *userdata)
{
    const struct process *p = process_find(l, tgid);
    for (unsigned device = 0; p && device < POOL_DEVICE_LIMIT; device++) {
        for (unsigned component = 0; component < POOL_COMPONENTS; component++) {
            const struct pool *pool = pool_find(p, (uint16_t)device, (uint8_t)component);
            struct ledger_pool figures;
            if (!pool || !pool_when(p, pool, when, &figures))
                continue;
            int r = fn(userdata, &figures);
            if (r)
                return r;
        }
    }
    return 0;
}

int ledger_each_pool(const struct ledger *l, uint32_t tgid,
                     int (*fn)(void *, const struct ledger_pool *), void *userdata)
{
    return ledger_each_pool_when(l, tgid, LEDGER_NOW, fn, userdata);
}

static int owner_compare(const void *one, const void *other)
{
    const struct ledger_owner_total *a = one, *b = other;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->level != b->level)
        return a->level < b->level ? -1 : 1;
    return a->owner < b->owner ? -1 : a->owner > b->owner;
}

/* A row that has not changed since the peak is as it was then. */
static bool row_unchanged(const struct process *p, const struct row *row)
{
    uint16_t device = (uint16_t)row->key;
    if (row->key_b == LEVEL_BLOCK || row->key_b == LEVEL_PENDING)
        device = process_logical_device(p, device);
    const struct device_use *d = device_find(p, device);
    return !d || row->epoch != d->epoch;
}

/* Of small blocks that no event told of, how much a reading did. */
static uint64_t small_read(const struct pool *pool, uint64_t left)
{
    if (pool->is_restored)
        return pool->small_read_bytes;
    int64_t read = pool->small_base_bytes > 0 ? pool->small_base_bytes : 0;
    return (uint64_t)read < left ? (uint64_t)read : left;
}

/*
 * Small blocks by phase, those without one last: the sums are read at another moment than the
 * pool's total, which is what they are held within. A phase all of whose blocks are freed keeps its
 * row, as one of larger blocks does.
 */
static uint32_t small_collect(const struct ledger *l, const struct process *p,
                              const struct pool *pool, enum ledger_when when,
                              const struct ledger_pool *figures, struct ledger_owner_total *totals)
{
    const struct device_use *d = device_find(p, process_logical_device(p, pool->pub.device));
    int64_t left = figures->small_bytes;
    uint32_t count = 0;
    for (int with_phase = 1; with_phase >= 0; with_phase--)
        for (uint32_t n = 0; (n = map_next(&pool->small, n));) {
            const struct small *small = map_at(&pool->small, n);
            bool changed = when != LEDGER_NOW && d && small->epoch == d->epoch;
            int64_t bytes = changed ? small->then_bytes : small->net_bytes;
            uint32_t owner = owner_of_phase_known(l, small->phase);
            if (bytes > left)
                bytes = left;
            if (bytes < 0)
                bytes = 0;
            if ((small->phase != 0) != (with_phase == 1) || (!bytes && !owner))
                continue;
            left -= bytes;
            totals[count++] = (struct ledger_owner_total){
                .owner = owner ? owner : OWNER_ID_PTA_SMALL,
                .device = figures->device,
                .level = LEVEL_BLOCK,
                .bytes = (uint64_t)bytes,
                .count = bytes ? small->net_count : 0,
                .peak_bytes = (uint64_t)bytes,
                .is_phase = !bytes,
                .inferred = small->phase & NM_PHASE_INFERRED,
            };
        }
    if (left > 0) /* those that a reading of the allocator found */
        totals[count++] = (struct ledger_owner_total){
            .owner = OWNER_ID_PTA_SMALL,
            .device = figures->device,
            .level = LEVEL_BLOCK,
            .bytes = (uint64_t)left,
            .peak_bytes = (uint64_t)left,
            .read_bytes = small_read(pool, (uint64_t)left),
        };
    return count;
}

/* Rows of one owner that came by different ways become one. totals are sorted. */
static uint32_t owners_merge(struct ledger_owner_total *totals, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct ledger_owner_total *last = kept ? &totals[kept - 1] : NULL;
        if (!last || owner_compare(last, &totals[i]) != 0) {
            totals[kept++] = totals[i];
            continue;
        }
        last->bytes += totals[i].bytes;
        last->count += totals[i].count;
        last->peak_bytes += totals[i].peak_bytes;
        last->inferred |= totals[i].inferred;
        ledger_read_add(&last->read_bytes, totals[i].read_bytes);
    }
    return kept;
}

static uint32_t owners_collect(const struct ledger *l, const struct process *p,
                               enum ledger_when when, struct ledger_owner_total *totals)
{
    uint32_t count = 0;
    for (uint32_t n = 0; (n = map_next(&p->rows, n));) {
        const struct row *row = map_at(&p->rows, n);
        bool now = when == LEDGER_NOW || row_unchanged(p, row);
        totals[count++] = (struct ledger_owner_total){
            .owner = (uint32_t)(row->key >> 32),
            .device = (uint16_t)row->key,
            .level = (enum ledger_level)row->key_b,
            .bytes = now ? row->bytes : row->then_bytes,
            .count = now ? row->count : row->then_count,
            .peak_bytes = row->peak_bytes,
            .read_bytes = now ? row->read_bytes : row->then_read,
            .inferred = row->inferred,
            .is_phase = !row->count && row->key_b == LEVEL_BLOCK &&
                        owner_is_phase(l, (uint32_t)(row->key >> 32), NULL),
        };
    }
    for (uint32_t i = 0; i < p->device_count; i++) {
        const struct ledger_device_use *use = &p->devices[i].use;
        uint64_t before =
            when == LEDGER_NOW ? use->before_attach_bytes : use->peak_before_attach_bytes;
        if (before)
            totals[count++] = (struct ledger_owner_total){
                .owner = OWNER_ID_BEFORE_ATTACH,
                .device = use->device,
                .level = LEVEL_PHYSICAL,
                .bytes = before,
                .peak_bytes = before,
            };
    }
    for (uint32_t i = 0; i < p->pool_count; i++) {
        struct ledger_pool figures;
        if (!pool_when(p, p->pools[i], when, &figures))
            continue;
        struct ledger_owner_total total = {.device = figures.device, .level = LEVEL_BLOCK};
        if (figures.before_attach_bytes) {
            total.owner = OWNER_ID_BEFORE_ATTACH;
            total.bytes = total.peak_bytes = (uint64_t)figures.before_attach_bytes;
            totals[count++] = total;
        }
        count += small_collect(l, p, p->pools[i], when, &figures, totals + count);
    }
    return count;
}

int ledger_each_owner_when(const struct ledger *l, uint32_t tgid, enum ledger_when when,
                           int (*fn)(void *, const struct ledger_owner_total *), void *userdata)
{
    const struct process *p = process_find(l, tgid);
    if (!p)
        return 0;
    size_t most = (size_t)p->rows.count + p->device_count + (size_t)p->pool_count;
    for (uint32_t i = 0; i < p->pool_count; i++)
        most += p->pools[i]->small.count + 1;
    _cleanup_free_ struct ledger_owner_total *totals = calloc(most + 1, sizeof(*totals));
    if (!totals)
        return -ENOMEM;
    uint32_t count = owners_collect(l, p, when, totals);
    qsort(totals, count, sizeof(*totals), owner_compare);
    count = owners_merge(totals, count);
    for (uint32_t i = 0; i < count; i++) {
        int r = fn(userdata, &totals[i]);
        if (r)
            return r;
    }
    return 0;
}

int ledger_each_owner(const struct ledger *l, uint32_t tgid,
                      int (*fn)(void *, const struct ledger_owner_total *), void *userdata)
{
    return ledger_each_owner_when(l, tgid, LEDGER_NOW, fn, userdata);
}

static void entry_show(const struct process *p, const struct entry *e, struct ledger_entry *ret)
{
    const struct row *row = map_at(&p->rows, e->row);
    *ret = (struct ledger_entry){
        .address = e->key,
        .size_bytes = e->bytes,
        .allocated_ns = e->time_ns,
        .owner = (uint32_t)(row->key >> 32),
        .stack = e->stack,
        .tgid = p->pub.facts.tgid,
        .device = (uint16_t)row->key,
        .api = e->api,
        .level = (enum ledger_level)row->key_b,
        .is_read = e->flags & ENTRY_READ,
    };
    switch (SPACE_OF(e->key_b)) {
    case SPACE_BLOCK:
        ret->stream = e->stream;
        return;
    case SPACE_WORKSPACE:
        ret->stream = e->stream;
        ret->address = e->aux;
        return;
    case SPACE_HANDLE:
        ret->handle = e->key;
        ret->address = e->link ? e->aux : 0;
        ret->requested_bytes = e->bytes;
        break;
    case SPACE_ORPHAN:
        ret->address = e->aux;
        ret->requested_bytes = e->bytes;
        break;
    default:
        if (ret->level == LEVEL_POOL_SUB)
            ret->handle = e->aux;
        ret->requested_bytes = ret->level == LEVEL_POOL_SUB ? e->bytes : e->aux;
        break;
    }
    ret->caller = e->caller;
}

int ledger_block(const struct ledger *l, uint32_t tgid, uint16_t device, uint64_t address,
                 struct ledger_entry *ret)
{
    const struct process *p = process_find(l, tgid);
    uint32_t number = p ? map_find(&p->entries, address, SPACE_KEY(SPACE_BLOCK, device)) : 0;

    if (!number || !entry_at(p, number)->row)
        return -ENOENT;
    entry_show(p, entry_at(p, number), ret);
    return 0;
}

static int each_entry_of(const struct process *p, int (*fn)(void *, const struct ledger_entry *),
                         void *userdata)
{
    for (uint32_t n = 0; (n = map_next(&p->entries, n));) {
        const struct entry *e = entry_at(p, n);
        struct ledger_entry shown;
        if (!e->row)
            continue;
        entry_show(p, e, &shown);
        int r = fn(userdata, &shown);
        if (r)
            return r;
    }
    return 0;
}

int ledger_each_entry(const struct ledger *l, uint32_t tgid,
                      int (*fn)(void *, const struct ledger_entry *), void *userdata)
{
    if (tgid) {
        const struct process *p = process_find(l, tgid);
        return p ? each_entry_of(p, fn, userdata) : 0;
    }
    for (uint32_t i = 0; i < l->process_count; i++) {
        int r = each_entry_of(l->processes[i], fn, userdata);
        if (r)
            return r;
    }
    return 0;
}

void ledger_collected(const struct ledger *l, uint32_t tgid, struct ledger_collected *ret)
{
    const struct process *p = process_find(l, tgid);
    *ret = p ? p->collected : (struct ledger_collected){0};
}

int ledger_each_phase(const struct ledger *l, uint32_t tgid,
                      int (*fn)(void *, const struct ledger_phase_use *), void *userdata)
{
    const struct process *p = process_find(l, tgid);
    for (uint32_t i = 0; p && i < p->phase_count; i++) {
        int r = fn(userdata, &p->phases[i]);
        if (r)
            return r;
    }
    return 0;
}

bool ledger_entry_of(const struct ledger *l, const struct nm_event *event, struct ledger_entry *ret)
{
    const struct process *p = process_find(l, event->tgid);
    uint64_t key = event->call.address;
    uint32_t n, space;

    switch (event->kind) {
    case NM_EVENT_BLOCK:
        key = event->block.component == NM_BLOCK_WORKSPACE ? event->block.stream
                                                           : event->block.address;
        space =
            SPACE_KEY(event->block.component == NM_BLOCK_WORKSPACE ? SPACE_WORKSPACE : SPACE_BLOCK,
                      event->block.device);
        break;
    case NM_EVENT_CREATE:
        key = event->call.handle;
        space = SPACE_HANDLE;
        break;
    case NM_EVENT_ALLOC:
        space = SPACE_MEMORY;
        break;
    default:
        return false;
    }
    n = p ? map_find(&p->entries, key, space) : 0;
    if (!n || !entry_at(p, n)->row)
        return false;
    entry_show(p, entry_at(p, n), ret);
    return true;
}

uint64_t ledger_object_count(const struct ledger *l, uint32_t tgid, unsigned kind)
{
    const struct process *p = process_find(l, tgid);
    return p && kind < NM_EVENT_KIND_COUNT ? p->object_count[kind] : 0;
}
