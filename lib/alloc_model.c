/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_model.c - see alloc_model.h.
 *
 * Invariants: a block is in exactly one of blocks (free, mapped), unmapped, allocated or active;
 * reserved is the sum of segments and granules; allocated and active are sums over blocks.
 */
#include "alloc_internal.h"

#include <errno.h>
#include <stdlib.h>

#define CARD_DEFAULT (64 * ALLOC_GIB)
#define FIRST_ADDRESS ((uint64_t)1 << 40)

static struct alloc_pool *pool_of(struct alloc_model *m, uint64_t bytes)
{
    return bytes <= ALLOC_SMALL ? &m->small : &m->large;
}

/* --- the driver --- */

bool alloc_model_take(struct alloc_model *m, uint64_t bytes, uint64_t pieces)
{
    struct alloc_model_stats *s = &m->stats;

    s->driver_calls += pieces;
    if (m->options.available_bytes && s->reserved_bytes + bytes > m->options.available_bytes)
        return false;
    s->reserved_bytes += bytes;
    s->segments += pieces;
    if (s->reserved_bytes > s->peak_reserved_bytes)
        s->peak_reserved_bytes = s->reserved_bytes;
    if (s->segments > s->peak_segments)
        s->peak_segments = s->segments;
    return true;
}

void alloc_model_give(struct alloc_model *m, uint64_t bytes, uint64_t pieces)
{
    m->stats.driver_calls += pieces;
    m->stats.reserved_bytes -= bytes;
    m->stats.segments -= pieces;
}

/* --- sizes --- */

static unsigned log2_of(uint64_t n)
{
    return 63u - (unsigned)__builtin_clzll(n);
}

/* The next of `divisions` equal steps between two powers of 2. */
static uint64_t round_division(uint64_t bytes, unsigned divisions)
{
    if (!(bytes & (bytes - 1)))
        return bytes;
    uint64_t floor = 1ull << log2_of(bytes), step = floor >> log2_of(divisions);
    if (!step)
        return floor << 1;
    uint64_t down = bytes & ~(step - 1);
    return down == bytes ? bytes : down + step;
}

uint64_t alloc_model_round(const struct alloc_conf *conf, uint64_t bytes)
{
    if (bytes >= (uint64_t)1 << 60)
        return (uint64_t)1 << 60;
    bytes += ALLOC_PAD;
    if (bytes < ALLOC_MIN_BLOCK)
        return ALLOC_MIN_BLOCK;
    unsigned power = log2_of(bytes), index = power < 20 ? 0 : power - 20;
    if (index >= ALLOC_CONF_POWERS)
        index = ALLOC_CONF_POWERS - 1;
    unsigned divisions = conf->divisions[index];
    if (divisions > 1 && bytes > (uint64_t)ALLOC_MIN_BLOCK * divisions)
        return round_division(bytes, divisions);
    return (bytes + ALLOC_MIN_BLOCK - 1) / ALLOC_MIN_BLOCK * ALLOC_MIN_BLOCK;
}

static uint64_t segment_bytes(const struct alloc_conf *conf, uint64_t bytes)
{
    uint64_t round = ALLOC_ROUND_LARGE;

    if (bytes <= ALLOC_SMALL)
        return ALLOC_SMALL_SEGMENT;
    if (conf->is_page_1g)
        round = ALLOC_GIB;
    else if (bytes < ALLOC_MIN_LARGE)
        return conf->large_segment_bytes;
    return (bytes + round - 1) / round * round;
}

/* --- search --- */

/* What a block of an expandable segment can grow to without a block in its way. */
static uint64_t reach(const struct alloc_block *b)
{
    return b->bytes + (b->next && b->next->is_unmapped ? b->next->bytes : 0);
}

static struct alloc_block *find_free(struct alloc_model *m, struct alloc_pool *pool, uint64_t bytes,
                                     uint64_t stream)
{
    const struct alloc_conf *conf = &m->options.conf;
    struct alloc_block key = {.stream = stream, .bytes = bytes};
    struct alloc_block *b = alloc_bins_lower(pool, &key), *next;

    pool->clock++;
    if (!b)
        return NULL;
    /* best fit goes by what a block could grow to, so that the end of a segment is kept */
    while (b->segment && (next = alloc_bins_next(pool, b)) && reach(next) < reach(b))
        b = next;
    if (bytes < conf->max_split_bytes && b->bytes >= conf->max_split_bytes)
        return NULL;
    if (bytes >= conf->max_split_bytes && b->bytes >= bytes + conf->max_non_split_rounding_bytes)
        return NULL;
    alloc_bins_erase(pool, b);
    return b;
}

/* --- requests --- */

/* One attempt at new memory. */
static int attempt(struct alloc_model *m, struct alloc_pool *pool, uint64_t bytes, uint64_t stream,
                   struct alloc_block **ret)
{
    uint64_t size = segment_bytes(&m->options.conf, bytes);
    struct alloc_block *b;

    if (m->stats.reserved_bytes + size > m->limit_bytes)
        return -ENOSPC;
    if (m->options.conf.is_expandable)
        return alloc_expand(m, pool, bytes, stream, ret);
    b = alloc_block_new(m);
    if (!b)
        return -ENOMEM;
    if (!alloc_model_take(m, size, 1)) {
        alloc_block_done(m, b);
        return -ENOSPC;
    }
    b->address = m->next_address;
    m->next_address += size;
    b->bytes = size;
    b->stream = stream;
    b->is_small = pool->is_small;
    *ret = b;
    return 0;
}

static int new_memory(struct alloc_model *m, struct alloc_pool *pool, uint64_t bytes,
                      uint64_t stream, struct alloc_block **ret)
{
    int r;

    if (m->limit_bytes != UINT64_MAX && m->options.conf.gc_threshold > 0)
        alloc_collect(m);
    r = attempt(m, pool, bytes, stream, ret);
    if (r == -ENOSPC && alloc_release_oversize(m, pool, bytes, stream))
        r = attempt(m, pool, bytes, stream, ret);
    if (r == -ENOSPC) {
        m->stats.flushes++;
        alloc_model_empty_cache(m);
        r = attempt(m, pool, bytes, stream, ret);
    }
    return r;
}

/* Large blocks of expandable segments begin at a multiple of base_addr_aligned_kb. */
static int align(struct alloc_model *m, struct alloc_pool *pool, uint64_t bytes,
                 struct alloc_block **block)
{
    uint64_t unit = m->options.conf.base_align_bytes;
    struct alloc_block *head = *block, *b;

    if (!m->options.conf.is_expandable || bytes < ALLOC_ROUND_LARGE || !unit ||
        head->address % unit == 0)
        return 0;
    uint64_t offset = unit - head->address % unit;
    if (offset + bytes > head->bytes)
        return 0;
    b = alloc_block_new(m);
    if (!b)
        return -ENOMEM;
    *b = (struct alloc_block){.address = head->address + offset,
                              .bytes = head->bytes - offset,
                              .stream = head->stream,
                              .segment = head->segment,
                              .is_small = head->is_small};
    alloc_block_splice(b, head, head->next);
    head->bytes = offset;
    alloc_pool_put(pool, head);
    *block = b;
    return 0;
}

static bool should_split(const struct alloc_model *m, const struct alloc_block *b, uint64_t bytes)
{
    uint64_t left = b->bytes - bytes;

    if (b->is_small || m->options.conf.is_expandable)
        return left >= ALLOC_MIN_BLOCK;
    return bytes < m->options.conf.max_split_bytes && left > ALLOC_SMALL;
}

int alloc_model_malloc(struct alloc_model *m, uint64_t bytes, uint64_t stream,
                       struct alloc_block **ret)
{
    struct alloc_pool *pool = pool_of(m, bytes);
    struct alloc_block *b, *rest;
    int r = alloc_bins_make(pool, stream);

    if (r < 0)
        return r;
    b = find_free(m, pool, bytes, stream);
    m->stats.requests++;
    if (!b)
        r = new_memory(m, pool, bytes, stream, &b);
    if (r == 0)
        r = align(m, pool, bytes, &b);
    if (r < 0) {
        m->stats.failures += r == -ENOSPC;
        return r;
    }
    if (should_split(m, b, bytes)) {
        rest = alloc_block_new(m);
        if (!rest) {
            alloc_pool_put(pool, b);
            return -ENOMEM;
        }
        *rest = *b;
        rest->address += bytes;
        rest->bytes -= bytes;
        b->bytes = bytes;
        alloc_block_splice(rest, b, b->next);
        alloc_pool_put(pool, rest);
    }
    b->is_allocated = b->is_active = true;
    m->stats.allocated_bytes += b->bytes;
    m->stats.active_bytes += b->bytes;
    if (m->stats.allocated_bytes > m->stats.peak_allocated_bytes)
        m->stats.peak_allocated_bytes = m->stats.allocated_bytes;
    *ret = b;
    return 0;
}

void alloc_model_release(struct alloc_model *m, struct alloc_block *b)
{
    if (b->is_allocated)
        m->stats.allocated_bytes -= b->bytes;
    b->is_allocated = false;
}

static bool is_free(const struct alloc_block *b)
{
    return b && !b->is_allocated && !b->is_active && !b->is_unmapped;
}

void alloc_model_reuse(struct alloc_model *m, struct alloc_block *b)
{
    struct alloc_pool *pool = b->is_small ? &m->small : &m->large;

    alloc_model_release(m, b);
    m->stats.active_bytes -= b->bytes;
    b->is_active = false;
    if (is_free(b->prev))
        alloc_block_merge(m, pool, b, b->prev);
    if (is_free(b->next))
        alloc_block_merge(m, pool, b, b->next);
    alloc_pool_put(pool, b);
}

uint64_t alloc_model_block_bytes(const struct alloc_block *b)
{
    return b->bytes;
}

/* --- life --- */

int alloc_model_new(const struct alloc_model_options *options, struct alloc_model **ret)
{
    struct alloc_model *m = calloc(1, sizeof(*m));

    if (!m)
        return -ENOMEM;
    m->options = *options;
    if (!m->options.card_bytes)
        m->options.card_bytes = CARD_DEFAULT;
    m->limit_bytes = UINT64_MAX;
    if (options->fraction > 0 && options->fraction < 1)
        m->limit_bytes = (uint64_t)(options->fraction * (double)m->options.card_bytes);
    m->next_address = FIRST_ADDRESS;
    m->small.is_small = true;
    m->small.unmapped.is_by_address = m->large.unmapped.is_by_address = true;
    *ret = m;
    return 0;
}

struct alloc_model *alloc_model_free(struct alloc_model *m)
{
    struct alloc_chunk *chunk, *next;
    struct alloc_segment *segment, *after;

    if (!m)
        return NULL;
    for (chunk = m->chunks; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    for (segment = m->segments; segment; segment = after) {
        after = segment->next;
        free(segment);
    }
    alloc_bins_done(&m->small);
    alloc_bins_done(&m->large);
    free(m);
    return NULL;
}

void alloc_model_stats(struct alloc_model *m, struct alloc_model_stats *ret)
{
    struct alloc_pool *pools[] = {&m->small, &m->large};

    *ret = m->stats;
    for (size_t i = 0; i < ARRAY_SIZE(pools); i++)
        for (struct alloc_block *b = NULL; (b = alloc_bins_walk(pools[i], b));) {
            ret->holes++;
            if (b->bytes > ret->largest_hole_bytes)
                ret->largest_hole_bytes = b->bytes;
        }
}
