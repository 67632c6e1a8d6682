/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_seen.c - blocks from readings of the allocator; see ledger_seen.h.
 *
 * Owns: struct seen of a process, that is the addresses freed while a reading runs.
 * Invariants: known_block_bytes stays the sum of the pool's entries; an entry that an event made
 * after the reading began is newer than the reading and is left alone; time_ns of a read entry is
 * the beginning of the newest reading that found it.
 */
#include "ledger_seen.h"

#include <errno.h>
#include <string.h>

#include "ledger_internal.h"

#define FREED_MAX 65536u /* remembered while one reading runs; after that nothing new is put in */
#define FREED_CHUNK_SHIFT 6

struct seen {
    uint64_t begin_ns;
    bool is_running;
    struct map freed; /* struct freed by (address, device) */
};

struct freed {
    uint64_t address;
    uint32_t device, zero;
};

struct seen *seen_free(struct ledger *l, struct seen *seen)
{
    if (!seen)
        return NULL;
    map_clear(&seen->freed);
    ledger_memory(l, -(int64_t)sizeof(*seen));
    free(seen);
    return NULL;
}

void seen_note_free(struct seen *seen, uint64_t address, uint16_t device)
{
    uint32_t number;

    if (seen->is_running && seen->freed.count < FREED_MAX &&
        !map_find(&seen->freed, address, device))
        (void)map_add(&seen->freed, address, device, &number);
}

/* The live process of a reading. */
static struct process *process_of(struct ledger *l, uint32_t tgid)
{
    struct process *p = process_find(l, tgid);
    return p && p->pub.alive ? p : NULL;
}

int ledger_seen_begin(struct ledger *l, uint32_t tgid, uint64_t now_ns)
{
    struct process *p = process_of(l, tgid);

    if (!p)
        return NOT_APPLIED;
    if (!p->seen) {
        p->seen = calloc(1, sizeof(*p->seen));
        if (!p->seen)
            return -ENOMEM;
        ledger_memory(l, sizeof(*p->seen));
        map_init(&p->seen->freed, sizeof(struct freed), FREED_CHUNK_SHIFT, &l->stats.memory_bytes);
    }
    map_clear(&p->seen->freed);
    p->seen->begin_ns = now_ns;
    p->seen->is_running = true;
    return 0;
}

int ledger_seen_pool(struct ledger *l, uint32_t tgid, uint16_t device,
                     const struct ledger_seen_totals *totals, uint64_t now_ns)
{
    struct process *p = process_of(l, tgid);
    struct pool *pool;

    if (!p || !p->seen || device >= POOL_DEVICE_LIMIT ||
        totals->reserved_bytes >= (uint64_t)TOTAL_LIMIT ||
        totals->active_bytes > totals->reserved_bytes ||
        totals->allocated_bytes > totals->active_bytes ||
        totals->small_bytes > totals->allocated_bytes)
        return NOT_APPLIED;
    pool = pool_get(l, p, (uint8_t)device, NM_BLOCK_CACHING);
    if (!pool)
        return -ENOMEM;
    if (!pool->has_totals) {
        /* nothing was ever heard of this pool: all of it is from before */
        pool->base_bytes = (int64_t)totals->allocated_bytes;
        pool_totals_take(p, pool, now_ns, (int64_t)totals->allocated_bytes,
                         (int64_t)totals->reserved_bytes, (int64_t)totals->active_bytes);
    }
    /* the kernel's sum holds what came and went since attach; the rest of the small ones was there
     */
    pool->small_base_bytes = (int64_t)totals->small_bytes - pool->pub.small_bytes;
    return 0;
}

int ledger_seen_block(struct ledger *l, uint32_t tgid, const struct ledger_seen_block *b)
{
    struct process *p = process_of(l, tgid);
    struct pool *pool = p ? pool_find(p, b->device, NM_BLOCK_CACHING) : NULL;

    if (!pool || !p->seen || !p->seen->is_running || !b->bytes || b->bytes >= SIZE_LIMIT ||
        p->seen->freed.count >= FREED_MAX || map_find(&p->seen->freed, b->address, b->device))
        return NOT_APPLIED;
    struct entry_spec spec = {
        .space = SPACE_BLOCK,
        .key = b->address,
        .space_device = b->device,
        .level = LEVEL_BLOCK,
        .device = b->device,
        .owner = b->owner ? owner_find(l, b->owner) : (uint32_t)OWNER_ID_PTA_BLOCK,
        .is_counted = true,
        .bytes = b->bytes,
        .aux = b->requested_bytes,
        .time_ns = p->seen->begin_ns,
        .caller = b->stream,
        .flags = ENTRY_READ,
    };
    uint32_t number = map_find(&p->entries, b->address, SPACE_KEY(SPACE_BLOCK, b->device));
    if (number) {
        const struct entry *e = entry_at(p, number);
        bool is_read = e->flags & ENTRY_READ;
        if (entry_level(p, e) != LEVEL_BLOCK || e->bytes != b->bytes ||
            (!is_read && e->time_ns >= p->seen->begin_ns))
            return NOT_APPLIED;
        if (is_read && !b->owner && b->is_cut) {
            entry_at(p, number)->time_ns = p->seen->begin_ns;
            return 0;
        }
        if (!is_read) { /* an event's entry without a better owner gets this one, and stays the
                           event's */
            if (!b->owner || entry_owner(p, e) != OWNER_ID_PTA_BLOCK)
                return 0;
            spec.flags = e->flags;
            spec.time_ns = e->time_ns;
            spec.caller = e->caller;
            spec.api = e->api;
            spec.stack = e->stack;
        }
        caching_drop(l, p, pool, number, spec.time_ns);
    }
    int r = entry_add(l, p, &spec, NULL);
    if (r == 0)
        pool->pub.known_block_bytes += (int64_t)b->bytes;
    return r;
}

bool ledger_seen_has(const struct ledger *l, uint32_t tgid, uint64_t address, uint16_t device)
{
    const struct process *p = process_find(l, tgid);
    return p && map_find(&p->entries, address, SPACE_KEY(SPACE_BLOCK, device));
}

int64_t ledger_seen_end(struct ledger *l, uint32_t tgid, uint64_t now_ns)
{
    struct process *p = process_of(l, tgid);
    int64_t dropped = 0;

    if (!p || !p->seen || !p->seen->is_running)
        return NOT_APPLIED;
    for (uint32_t n = map_next(&p->entries, 0); n; n = map_next(&p->entries, n)) {
        const struct entry *e = entry_at(p, n);
        struct pool *pool;
        if (!(e->flags & ENTRY_READ) || e->time_ns == p->seen->begin_ns ||
            SPACE_OF(e->key_b) != SPACE_BLOCK)
            continue;
        pool = pool_find(p, (uint16_t)(e->key_b >> 8), NM_BLOCK_CACHING);
        if (pool) {
            caching_drop(l, p, pool, n, now_ns);
            dropped++;
        }
    }
    p->seen->is_running = false;
    map_clear(&p->seen->freed);
    return dropped;
}
