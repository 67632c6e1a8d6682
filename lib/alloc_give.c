/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_give.c - what goes back to the driver: the whole cache, and what garbage collection and
 * max_split_size take of it.
 */
#include "alloc_internal.h"

static bool is_split(const struct alloc_block *b)
{
    return b->prev || b->next;
}

static void free_segment(struct alloc_model *m, struct alloc_pool *pool, struct alloc_block *b)
{
    alloc_bins_erase(pool, b);
    alloc_model_give(m, b->bytes, 1);
    alloc_block_done(m, b);
}

static void release_pool(struct alloc_model *m, struct alloc_pool *pool)
{
    struct alloc_block *next;

    for (struct alloc_block *b = alloc_bins_walk(pool, NULL); b; b = next) {
        next = alloc_bins_walk(pool, b);
        if (!b->segment && !is_split(b))
            free_segment(m, pool, b);
    }
    alloc_unmap_pool(m, pool);
}

void alloc_model_empty_cache(struct alloc_model *m)
{
    release_pool(m, &m->large);
    release_pool(m, &m->small);
}

void alloc_collect(struct alloc_model *m)
{
    uint64_t threshold = (uint64_t)(m->options.conf.gc_threshold * (double)m->limit_bytes);
    struct alloc_pool *pool = &m->large;
    struct alloc_block *next;
    double age = 0;
    uint64_t count = 0, freed = 0, target;
    bool progress = true;

    if (m->stats.reserved_bytes <= threshold)
        return;
    target = m->stats.reserved_bytes - threshold;
    for (struct alloc_block *b = NULL; (b = alloc_bins_walk(pool, b));)
        if (!is_split(b)) {
            age += (double)(pool->clock - b->collect_clock);
            count++;
        }
    if (!count)
        return;
    m->stats.collections++;
    while (freed < target && progress && count) {
        double mean = age / (double)count;
        progress = false;
        for (struct alloc_block *b = alloc_bins_walk(pool, NULL); b; b = next) {
            double own = (double)(pool->clock - b->collect_clock);
            next = alloc_bins_walk(pool, b);
            if (is_split(b) || own < mean)
                continue;
            progress = true;
            freed += b->bytes;
            age -= own;
            count--;
            free_segment(m, pool, b);
        }
    }
}

bool alloc_release_oversize(struct alloc_model *m, struct alloc_pool *pool, uint64_t bytes,
                            uint64_t stream)
{
    uint64_t limit = m->options.conf.max_split_bytes, wanted = bytes < limit ? limit : bytes;
    struct alloc_block key = {.stream = stream, .bytes = wanted};
    uint64_t freed = 0;

    if (limit == ALLOC_CONF_NO_SPLIT_LIMIT)
        return false;
    struct alloc_block *b = alloc_bins_lower(pool, &key), *before;
    if (b) {
        free_segment(m, pool, b);
        return true;
    }
    for (b = alloc_bins_before(pool, &key); b && freed < wanted && b->bytes >= limit; b = before) {
        before = alloc_bins_before(pool, b);
        freed += b->bytes;
        free_segment(m, pool, b);
    }
    return freed >= wanted;
}
