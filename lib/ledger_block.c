/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_block.c - torch_npu's allocators: their own totals, and the blocks that events name.
 *
 * Must not: add up workspace events. The workspace allocator reports a growth twice and frees per
 * use, so its block is one entry per (device, stream) that the newest event sets.
 * Invariants: known_block_bytes is the sum of the LEVEL_BLOCK entries of the pool; the newest
 * totals by time win, wherever they come from.
 *
 * A caching block goes MALLOC -> FREE (its owner let go) -> BLOCK_FREE (reusable). Between the last
 * two it is LEVEL_PENDING, the allocator's active - allocated.
 */
#include "ledger_internal.h"

#include <errno.h>
#include <string.h>

#define SMALL_CHUNK_SHIFT 4

struct pool *pool_find(const struct process *p, uint16_t user_device, uint8_t component)
{
    if (user_device >= POOL_DEVICE_LIMIT || component >= POOL_COMPONENTS)
        return NULL;
    unsigned number = p->pool_number[user_device][component];
    return number ? p->pools[number - 1] : NULL;
}

struct pool *pool_free(struct ledger *l, struct pool *pool)
{
    map_clear(&pool->small);
    ledger_memory(l, -(int64_t)sizeof(*pool));
    free(pool);
    return NULL;
}

struct pool *pool_get(struct ledger *l, struct process *p, uint8_t device, uint8_t component)
{
    struct pool *pool = pool_find(p, device, component);
    if (pool || device >= POOL_DEVICE_LIMIT || component >= POOL_COMPONENTS)
        return pool;
    struct pool **pools = realloc(p->pools, (p->pool_count + 1) * sizeof(*pools));
    if (!pools)
        return NULL;
    p->pools = pools;
    pool = calloc(1, sizeof(*pool));
    if (!pool)
        return NULL;
    ledger_memory(l, sizeof(*pools) + sizeof(*pool));
    pool->pub.device = device;
    pool->pub.component = component;
    map_init(&pool->small, sizeof(struct small), SMALL_CHUNK_SHIFT, &l->stats.memory_bytes);
    pools[p->pool_count++] = pool;
    p->pool_number[device][component] = (uint8_t)p->pool_count;
    return pool;
}

static int64_t changes_after(const struct pool *pool, uint64_t time_ns)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < pool->change_count; i++)
        if (pool->changes[i].time_ns > time_ns)
            sum += pool->changes[i].bytes;
    return sum;
}

void pool_change_add(struct pool *pool, uint64_t time_ns, int64_t bytes)
{
    if (pool->change_count == POOL_CHANGES) {
        pool->changes[1].bytes += pool->changes[0].bytes;
        memmove(&pool->changes[0], &pool->changes[1],
                (POOL_CHANGES - 1) * sizeof(pool->changes[0]));
        pool->change_count--;
    }
    pool->changes[pool->change_count++] = (struct pool_change){time_ns, bytes};
}

void pool_segment_change(struct process *p, uint8_t flags, uint16_t device, uint64_t time_ns,
                         int64_t bytes)
{
    uint8_t component = flags & ENTRY_SEGMENT_WORKSPACE ? NM_BLOCK_WORKSPACE : NM_BLOCK_CACHING;
    struct pool *pool = pool_find(p, process_user_device(p, device), component);
    if (!pool || !pool->has_totals)
        return; /* the first totals will contain it */
    if (time_ns > pool->pub.time_ns) {
        pool_change_add(pool, time_ns, bytes);
        return;
    }
    /* The totals were ahead of this event: what they showed as an unexplained drop was this. */
    struct device_use *d = device_find(p, device);
    if (d && bytes < 0)
        d->explained_bytes -=
            (uint64_t)-bytes < d->explained_bytes ? (uint64_t)-bytes : d->explained_bytes;
}

void pool_totals_take(struct process *p, struct pool *pool, uint64_t time_ns, int64_t allocated,
                      int64_t reserved, int64_t active)
{
    if (pool->has_totals) {
        /* A drop that no known segment explains: a segment from before attach was freed. */
        int64_t predicted = pool->total_reserved_bytes + changes_after(pool, pool->pub.time_ns) -
                            changes_after(pool, time_ns);
        uint16_t device = process_logical_device(p, pool->pub.device);
        struct device_use *d = device_find(p, device);
        if (d && predicted > reserved)
            d->explained_bytes += (uint64_t)(predicted - reserved);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < pool->change_count; i++)
        if (pool->changes[i].time_ns > time_ns)
            pool->changes[kept++] = pool->changes[i];
    pool->change_count = kept;
    pool->pub.time_ns = time_ns;
    pool->pub.allocated_bytes = allocated;
    pool->pub.active_bytes = active;
    pool->total_reserved_bytes = reserved;
    pool->has_totals = true;
}

static bool total_plausible(int64_t bytes)
{
    return bytes >= 0 && bytes < TOTAL_LIMIT;
}

/*
 * allocated = known blocks + small blocks + from before attach. The kernel's sums of small blocks
 * are read at another moment than the totals: they are held within what the totals leave, and
 * memory from before attach within what there was then, less what was freed of it. What does not
 * add up under load is left for the sum check to show, not given to a neighbour.
 */
void pool_figures(const struct pool *pool, struct ledger_pool *ret)
{
    *ret = pool->pub;
    /* What has a phase leaves the sum that it came into; the rest may lose blocks from before
     * attach. */
    int64_t other = ret->small_bytes + pool->small_base_bytes - pool->phase_bytes;
    ret->small_bytes = other;
    if (pool->phase_bytes > 0)
        ret->small_bytes = pool->phase_bytes + (other > 0 ? other : 0);
    int64_t reserved = pool->total_reserved_bytes + changes_after(pool, pool->pub.time_ns);
    ret->reserved_bytes = reserved > 0 ? reserved : 0;
    int64_t rest = ret->allocated_bytes - ret->known_block_bytes;
    /* Below 0 the frees were of blocks from before attach: there is no small block of ours. */
    if (ret->small_bytes > rest && ret->small_bytes > 0)
        ret->small_bytes = rest > 0 ? rest : 0;
    rest -= ret->small_bytes > 0 ? ret->small_bytes : 0;
    int64_t limit = pool->base_bytes - pool->unknown_freed_bytes;
    if (rest > limit)
        rest = limit;
    ret->before_attach_bytes = rest > 0 ? rest : 0;
}

static int workspace_apply(struct ledger *l, struct process *p, struct pool *pool,
                           const struct nm_event *event)
{
    const struct nm_block *b = &event->block;
    uint32_t number = map_find(&p->entries, b->stream, SPACE_KEY(SPACE_WORKSPACE, b->device));
    if (number) {
        pool->pub.known_block_bytes -= (int64_t)entry_at(p, number)->bytes;
        entry_drop(l, p, number, event->time_ns);
    }
    if (b->action != NM_BLOCK_MALLOC)
        return 0;
    struct entry_spec spec = {
        .space = SPACE_WORKSPACE,
        .key = b->stream,
        .space_device = b->device,
        .level = LEVEL_BLOCK,
        .device = b->device,
        .owner = owner_of_block(b),
        .is_counted = true,
        .bytes = (uint64_t)b->size_bytes,
        .aux = b->address,
        .time_ns = event->time_ns,
        .caller = b->stream,
    };
    int r = entry_add(l, p, &spec, NULL);
    if (r == 0)
        pool->pub.known_block_bytes += b->size_bytes;
    return r;
}

void caching_drop(struct ledger *l, struct process *p, struct pool *pool, uint32_t number,
                  uint64_t time_ns)
{
    const struct entry *e = entry_at(p, number);
    if (entry_level(p, e) == LEVEL_BLOCK)
        pool->pub.known_block_bytes -= (int64_t)e->bytes;
    entry_drop(l, p, number, time_ns);
}

static int caching_malloc(struct ledger *l, struct process *p, struct pool *pool, uint32_t old,
                          const struct nm_event *event)
{
    const struct nm_block *b = &event->block;
    if (old) {
        caching_drop(l, p, pool, old, event->time_ns);
        l->stats.duplicate_allocs++;
    }
    uint32_t by_phase = owner_of_phase(l, b->phase);
    uint32_t owner = p->named || p->label.owner || l->label.owner
                         ? named_block(l, p, event, by_phase)
                         : by_phase;
    struct entry_spec spec = {
        .space = SPACE_BLOCK,
        .key = b->address,
        .space_device = b->device,
        .level = LEVEL_BLOCK,
        .device = b->device,
        .owner = owner ? owner : owner_of_block(b),
        .inferred = owner && owner == by_phase && (b->phase & NM_PHASE_INFERRED),
        .stack = b->stack,
        .is_counted = true,
        .bytes = (uint64_t)b->size_bytes,
        .time_ns = event->time_ns,
        .caller = b->stream,
    };
    int r = entry_add(l, p, &spec, NULL);
    if (r == 0)
        pool->pub.known_block_bytes += b->size_bytes;
    return r;
}

/* Frees of one collection follow each other closely; the next collection comes seconds later. */
#define COLLECTION_GAP_NS 100000000ull

static void collected_add(struct process *p, const struct nm_event *event)
{
    uint64_t bytes = (uint64_t)-event->block.size_bytes;
    unsigned generation = NM_PHASE_GENERATION(event->block.phase);
    struct ledger_collected *c = &p->collected;

    if (generation > 2)
        return;
    c->freed_bytes[generation] += bytes;
    c->freed_blocks[generation]++;
    if (generation < 2)
        return;
    if (event->time_ns > p->collection_ns + COLLECTION_GAP_NS)
        p->collection_bytes = 0;
    p->collection_ns = event->time_ns;
    p->collection_bytes += bytes;
    if (p->collection_bytes > c->largest_bytes)
        c->largest_bytes = p->collection_bytes;
}

static int caching_apply(struct ledger *l, struct process *p, struct pool *pool,
                         const struct nm_event *event)
{
    const struct nm_block *b = &event->block;
    uint32_t number = map_find(&p->entries, b->address, SPACE_KEY(SPACE_BLOCK, b->device));
    uint64_t done_address = pool->done_address;
    pool->done_address = 0;
    if (b->action == NM_BLOCK_MALLOC)
        return caching_malloc(l, p, pool, number, event);
    if (b->action == NM_BLOCK_FREE && b->phase & NM_PHASE_COLLECTED)
        collected_add(p, event);
    if (b->action == NM_BLOCK_BLOCK_FREE) {
        /* An unknown one is counted at its FREE. */
        if (number) {
            caching_drop(l, p, pool, number, event->time_ns);
            pool->done_address = b->address;
        }
        return 0;
    }
    if (!number) {
        /* an ordinary free: torch_npu says BLOCK_FREE and then, under the same lock, FREE */
        if (done_address == b->address)
            return 0;
        pool->unknown_freed_bytes -= b->size_bytes;
        if (p->seen)
            seen_note_free(p->seen, b->address, b->device);
        return free_unmatched(l, p, event);
    }
    const struct entry *e = entry_at(p, number);
    if (entry_level(p, e) == LEVEL_PENDING)
        return 0;
    if (b->total_active_bytes <= b->total_allocated_bytes) {
        caching_drop(l, p, pool, number, event->time_ns);
        return 0;
    }
    pool->pub.known_block_bytes -= (int64_t)e->bytes;
    return entry_move(l, p, number, LEVEL_PENDING, event->time_ns);
}

static bool block_plausible(const struct nm_block *b)
{
    bool is_malloc = b->action == NM_BLOCK_MALLOC;
    int64_t size = b->size_bytes;
    return b->device < POOL_DEVICE_LIMIT && b->component < POOL_COMPONENTS &&
           b->action <= NM_BLOCK_BLOCK_FREE && (is_malloc ? size >= 0 : size <= 0) &&
           size < (int64_t)SIZE_LIMIT && size > -(int64_t)SIZE_LIMIT && b->address &&
           total_plausible(b->total_allocated_bytes) && total_plausible(b->total_reserved_bytes) &&
           total_plausible(b->total_active_bytes);
}

/* What was allocated before a first event: its total without what it did itself. */
static int64_t base_of(const struct nm_block *b)
{
    int64_t base = b->total_allocated_bytes;
    if (b->action != NM_BLOCK_BLOCK_FREE)
        base -= b->size_bytes; /* negative for a free */
    return base > 0 ? base : 0;
}

int block_apply(struct ledger *l, struct process *p, const struct nm_event *event)
{
    const struct nm_block *b = &event->block;
    if (!block_plausible(b))
        return -EBADMSG;
    struct pool *pool = pool_get(l, p, b->device, b->component);
    if (!pool) {
        l->stats.dropped_entries++;
        return NOT_APPLIED;
    }
    pool->pub.event_count++;
    if (!pool->has_totals)
        pool->base_bytes = base_of(b);
    if (!pool->has_totals || event->time_ns >= pool->pub.time_ns)
        pool_totals_take(p, pool, event->time_ns, b->total_allocated_bytes, b->total_reserved_bytes,
                         b->total_active_bytes);
    if (b->action == NM_BLOCK_MALLOC && b->component == NM_BLOCK_CACHING)
        phase_block(l, p, event);
    if (b->component == NM_BLOCK_WORKSPACE)
        return workspace_apply(l, p, pool, event);
    return caching_apply(l, p, pool, event);
}

int ledger_pool_totals(struct ledger *l, const struct nm_pool_key *key,
                       const struct nm_pool_totals *totals)
{
    struct process *p;
    if (key->device >= POOL_DEVICE_LIMIT || key->component >= POOL_COMPONENTS ||
        !total_plausible(totals->total_allocated_bytes) ||
        !total_plausible(totals->total_reserved_bytes) ||
        !total_plausible(totals->total_active_bytes)) {
        l->stats.decode_errors++;
        return -EBADMSG;
    }
    if (totals->seq & 1)
        return -EAGAIN; /* being written */
    int r = process_for_key(l, key->tgid, totals->start_ticks, totals->time_ns, &p);
    if (r)
        return r;
    struct pool *pool = pool_get(l, p, key->device, key->component);
    if (!pool)
        return -ENOMEM;
    /* The kernel saw the first event, whatever its size. */
    int64_t first = totals->first_allocated_bytes;
    if (first >= 0 && (!pool->has_totals || first < pool->base_bytes))
        pool->base_bytes = first;
    if (totals->event_count > pool->pub.event_count)
        pool->pub.event_count = totals->event_count;
    if (pool->has_totals && totals->time_ns <= pool->pub.time_ns)
        return 0;
    pool_totals_take(p, pool, totals->time_ns, totals->total_allocated_bytes,
                     totals->total_reserved_bytes, totals->total_active_bytes);
    return 0;
}

int ledger_small_totals(struct ledger *l, const struct nm_small_key *key,
                        const struct nm_small_totals *totals)
{
    struct process *p = process_find(l, key->tgid);
    if (key->device >= POOL_DEVICE_LIMIT || key->component >= POOL_COMPONENTS ||
        key->phase == UINT32_MAX || totals->malloc_bytes >= (uint64_t)TOTAL_LIMIT ||
        totals->free_bytes >= (uint64_t)TOTAL_LIMIT) {
        l->stats.decode_errors++;
        return -EBADMSG;
    }
    if (!p || !p->pub.alive)
        return NOT_APPLIED;
    peak_settle(p);
    struct pool *pool = pool_get(l, p, key->device, key->component);
    if (!pool)
        return -ENOMEM;
    uint32_t number = map_find(&pool->small, key->stream, key->phase);
    if (!number && map_add(&pool->small, key->stream, key->phase, &number) < 0)
        return -ENOMEM;
    struct small *small = map_at(&pool->small, number);
    int64_t net = (int64_t)totals->malloc_bytes - (int64_t)totals->free_bytes;
    if (__builtin_add_overflow(pool->pub.small_bytes, net - small->net_bytes,
                               &pool->pub.small_bytes)) {
        l->stats.decode_errors++;
        return -EBADMSG;
    }
    owner_of_phase(l, key->phase); /* views look it up */
    if (key->phase)
        pool->phase_bytes += net - small->net_bytes;
    const struct device_use *d = device_find(p, process_logical_device(p, key->device));
    if (d && small->epoch != d->epoch) {
        small->then_bytes = small->net_bytes;
        small->epoch = d->epoch;
    }
    small->net_bytes = net;
    small->net_count =
        totals->malloc_count > totals->free_count ? totals->malloc_count - totals->free_count : 0;
    return 0;
}
