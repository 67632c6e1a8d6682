/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_bins.c - the free blocks of a pool, stream by stream in order of (size, address).
 *
 * A replay spends its time here: two to five changes and a search for every block. One tree of all
 * free blocks is some sixteen steps deep, each of which may go either way. So each stream has a bin
 * for every sixteenth of an octave of sizes, in the order of sizes; a bin is a small tree, and a
 * bitmap says which are filled.
 */
#include "alloc_internal.h"

#include <errno.h>
#include <stdlib.h>

#define STEP_BITS 4 /* 16 bins from one power of 2 to the next */
#define BINS 832    /* of all sizes of 64 bits in units of 512; a multiple of 64 */
#define WORD_BITS 64

struct alloc_bins {
    struct alloc_bins *next; /* of another stream */
    uint64_t stream;
    uint64_t filled[BINS / WORD_BITS];
    struct alloc_tree trees[BINS];
};

static unsigned bin_of(uint64_t bytes)
{
    uint64_t units = bytes / ALLOC_MIN_BLOCK;

    if (units < 1u << STEP_BITS)
        return (unsigned)units;
    unsigned shift = 63u - STEP_BITS - (unsigned)__builtin_clzll(units);
    return (shift << STEP_BITS) + (unsigned)(units >> shift);
}

static struct alloc_bins *bins_of(struct alloc_pool *pool, uint64_t stream)
{
    struct alloc_bins *s = pool->latest;

    if (s && s->stream == stream)
        return s;
    for (s = pool->streams; s && s->stream != stream;)
        s = s->next;
    return s ? pool->latest = s : NULL;
}

int alloc_bins_make(struct alloc_pool *pool, uint64_t stream)
{
    struct alloc_bins *s = bins_of(pool, stream);

    if (s)
        return 0;
    if (pool->stream_count == ALLOC_STREAMS_MAX)
        return -E2BIG;
    s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->stream = stream;
    s->next = pool->streams;
    pool->streams = s;
    pool->stream_count++;
    return 0;
}

void alloc_bins_done(struct alloc_pool *pool)
{
    struct alloc_bins *next;

    for (struct alloc_bins *s = pool->streams; s; s = next) {
        next = s->next;
        free(s);
    }
    pool->streams = pool->latest = NULL;
}

void alloc_bins_insert(struct alloc_pool *pool, struct alloc_block *b)
{
    struct alloc_bins *s = bins_of(pool, b->stream);
    unsigned bin = bin_of(b->bytes);

    alloc_tree_insert(&s->trees[bin], b);
    s->filled[bin / WORD_BITS] |= 1ull << bin % WORD_BITS;
}

void alloc_bins_erase(struct alloc_pool *pool, struct alloc_block *b)
{
    struct alloc_bins *s = bins_of(pool, b->stream);
    unsigned bin = bin_of(b->bytes);

    alloc_tree_erase(&s->trees[bin], b);
    if (!s->trees[bin].root)
        s->filled[bin / WORD_BITS] &= ~(1ull << bin % WORD_BITS);
}

/* The smallest block of the bins from `bin` on. */
static struct alloc_block *smallest(const struct alloc_bins *s, unsigned bin)
{
    uint64_t mask = ~0ull << bin % WORD_BITS;

    for (unsigned word = bin / WORD_BITS; word < BINS / WORD_BITS; word++, mask = ~0ull) {
        uint64_t filled = s->filled[word] & mask;
        if (filled)
            return alloc_tree_first(
                &s->trees[word * WORD_BITS + (unsigned)__builtin_ctzll(filled)]);
    }
    return NULL;
}

struct alloc_block *alloc_bins_lower(struct alloc_pool *pool, const struct alloc_block *key)
{
    const struct alloc_bins *s = bins_of(pool, key->stream);
    unsigned bin = bin_of(key->bytes);
    struct alloc_block *b = s ? alloc_tree_lower(&s->trees[bin], key) : NULL;

    return b || !s ? b : smallest(s, bin + 1);
}

struct alloc_block *alloc_bins_next(struct alloc_pool *pool, const struct alloc_block *b)
{
    const struct alloc_bins *s = bins_of(pool, b->stream);
    unsigned bin = bin_of(b->bytes);
    struct alloc_block *next = alloc_tree_next(&s->trees[bin], b);

    return next ? next : smallest(s, bin + 1);
}

struct alloc_block *alloc_bins_before(struct alloc_pool *pool, const struct alloc_block *b)
{
    const struct alloc_bins *s = bins_of(pool, b->stream);
    struct alloc_block *before = NULL;

    for (unsigned bin = bin_of(b->bytes) + 1; s && !before && bin-- > 0;)
        before = alloc_tree_before(&s->trees[bin], b);
    return before;
}

struct alloc_block *alloc_bins_walk(struct alloc_pool *pool, const struct alloc_block *from)
{
    const struct alloc_bins *s = from ? bins_of(pool, from->stream) : pool->streams;
    struct alloc_block *b = from ? alloc_bins_next(pool, from) : s ? smallest(s, 0) : NULL;

    while (!b && s && (s = s->next))
        b = smallest(s, 0);
    return b;
}
