/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_expand.c - expandable segments.
 *
 * One range of addresses of 1 1/8 of the card per pool and stream, more when it is used up. A part
 * of it that no granule backs is a block, too: unmapped, in a tree of its own in order of
 * addresses. Invariant: an unmapped block begins and ends at a granule.
 */
#include "alloc_internal.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t granule_of(const struct alloc_model *m, const struct alloc_pool *pool)
{
    if (pool->is_small)
        return ALLOC_SMALL_SEGMENT;
    return alloc_conf_granule(&m->options.conf);
}

static bool is_usable(const struct alloc_block *b)
{
    return b && !b->is_allocated && !b->is_active;
}

static bool has_room(const struct alloc_block *b, uint64_t bytes)
{
    uint64_t sum = 0;
    for (; sum < bytes && is_usable(b); b = b->next)
        sum += b->bytes;
    return sum >= bytes;
}

static int segment_new(struct alloc_model *m, struct alloc_pool *pool, uint64_t stream,
                       struct alloc_block **ret)
{
    struct alloc_segment *s = calloc(1, sizeof(*s));
    struct alloc_block *b = s ? alloc_block_new(m) : NULL;

    if (!b) {
        free(s);
        return -ENOMEM;
    }
    s->granule = granule_of(m, pool);
    s->bytes = (m->options.card_bytes + m->options.card_bytes / 8 + s->granule - 1) / s->granule *
               s->granule;
    s->base = m->next_address;
    m->next_address += s->bytes + ALLOC_GIB; /* never adjacent */
    s->next = m->segments;
    m->segments = s;
    m->stats.driver_calls++;
    b->address = s->base;
    b->bytes = s->bytes;
    b->stream = stream;
    b->segment = s;
    b->is_small = pool->is_small;
    b->is_unmapped = true;
    alloc_tree_insert(&pool->unmapped, b);
    *ret = b;
    return 0;
}

/* The lowest address from which free and unmapped blocks have room in a row. */
static int find_room(struct alloc_model *m, struct alloc_pool *pool, uint64_t bytes,
                     uint64_t stream, struct alloc_block **ret)
{
    struct alloc_block key = {.stream = stream};

    for (struct alloc_block *at = alloc_tree_lower(&pool->unmapped, &key);
         at && at->stream == stream; at = alloc_tree_next(&pool->unmapped, at)) {
        struct alloc_block *from = is_usable(at->prev) ? at->prev : at;
        if (has_room(from, bytes)) {
            *ret = from;
            return 0;
        }
    }
    return segment_new(m, pool, stream, ret);
}

/* Backs the first `bytes` of an unmapped block and merges it with free neighbours. */
static int map_block(struct alloc_model *m, struct alloc_pool *pool, struct alloc_block *b,
                     uint64_t bytes)
{
    uint64_t granule = b->segment->granule, granules = (bytes + granule - 1) / granule;
    struct alloc_block *rest = NULL;

    if (granules * granule < b->bytes && !(rest = alloc_block_new(m)))
        return -ENOMEM;
    if (!alloc_model_take(m, granules * granule, granules)) {
        if (rest)
            alloc_block_done(m, rest);
        return -ENOSPC;
    }
    m->stats.driver_calls += granules; /* mappings, beside the handles */
    alloc_tree_erase(&pool->unmapped, b);
    b->is_unmapped = false;
    if (rest) {
        *rest = (struct alloc_block){.address = b->address + granules * granule,
                                     .bytes = b->bytes - granules * granule,
                                     .stream = b->stream,
                                     .segment = b->segment,
                                     .is_small = b->is_small,
                                     .is_unmapped = true};
        alloc_block_splice(rest, b, b->next);
        b->bytes = granules * granule;
        alloc_tree_insert(&pool->unmapped, rest);
    }
    if (is_usable(b->prev) && !b->prev->is_unmapped)
        alloc_block_merge(m, pool, b, b->prev);
    if (is_usable(b->next) && !b->next->is_unmapped)
        alloc_block_merge(m, pool, b, b->next);
    alloc_pool_put(pool, b);
    return 0;
}

int alloc_expand(struct alloc_model *m, struct alloc_pool *pool, uint64_t bytes, uint64_t stream,
                 struct alloc_block **ret)
{
    struct alloc_block *at;
    int r = find_room(m, pool, bytes, stream, &at);

    if (r == 0 && at->is_unmapped)
        r = map_block(m, pool, at, at->bytes < bytes ? at->bytes : bytes);
    while (r == 0 && at->bytes < bytes) {
        struct alloc_block *next = at->next;
        uint64_t missing = bytes - at->bytes;
        if (!next || !next->is_unmapped)
            return -ENOSPC;
        r = map_block(m, pool, next, next->bytes < missing ? next->bytes : missing);
        at = next;
    }
    if (r < 0)
        return r;
    alloc_bins_erase(pool, at);
    *ret = at;
    return 0;
}

/* A range of addresses with nothing behind it goes. */
static void segment_done(struct alloc_model *m, struct alloc_pool *pool, struct alloc_block *b)
{
    struct alloc_segment **at = &m->segments;

    while (*at && *at != b->segment)
        at = &(*at)->next;
    if (*at)
        *at = b->segment->next;
    free(b->segment);
    m->stats.driver_calls++;
    alloc_tree_erase(&pool->unmapped, b);
    alloc_block_done(m, b);
}

static void unmap_block(struct alloc_model *m, struct alloc_pool *pool, struct alloc_block *b)
{
    const struct alloc_segment *s = b->segment;
    uint64_t from = (b->address - s->base + s->granule - 1) / s->granule * s->granule + s->base;
    uint64_t to = (b->address + b->bytes - s->base) / s->granule * s->granule + s->base;
    struct alloc_block *before = NULL, *after = NULL;

    if (from >= to)
        return;
    if (from > b->address && !(before = alloc_block_new(m)))
        return; /* out of memory: it stays cached */
    if (to < b->address + b->bytes && !(after = alloc_block_new(m))) {
        if (before)
            alloc_block_done(m, before);
        return;
    }
    alloc_bins_erase(pool, b);
    struct alloc_block whole = *b;
    b->address = from;
    b->bytes = to - from;
    b->is_unmapped = true;
    if (before) {
        *before = whole;
        before->bytes = from - whole.address;
        alloc_block_splice(before, b->prev, b);
        alloc_pool_put(pool, before);
    }
    if (after) {
        *after = whole;
        after->address = to;
        after->bytes = whole.address + whole.bytes - to;
        alloc_block_splice(after, b, b->next);
        alloc_pool_put(pool, after);
    }
    if (b->prev && b->prev->is_unmapped)
        alloc_block_merge(m, pool, b, b->prev);
    if (b->next && b->next->is_unmapped)
        alloc_block_merge(m, pool, b, b->next);
    alloc_tree_insert(&pool->unmapped, b);
    uint64_t granules = (to - from) / s->granule;
    m->stats.driver_calls += granules; /* unmappings, beside the handles */
    alloc_model_give(m, to - from, granules);
    if (!b->prev && !b->next)
        segment_done(m, pool, b);
}

void alloc_unmap_pool(struct alloc_model *m, struct alloc_pool *pool)
{
    struct alloc_block *next;

    for (struct alloc_block *b = alloc_bins_walk(pool, NULL); b; b = next) {
        /* what unmapping leaves of b sorts before it or was looked at: remember a place, not a
         * block
         */
        struct alloc_block place = *b;
        if (b->segment)
            unmap_block(m, pool, b);
        next = alloc_bins_walk(pool, &place);
    }
}
