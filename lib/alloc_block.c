/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_block.c - the blocks of the model: where they come from, and their neighbours.
 */
#include "alloc_internal.h"

#include <stdlib.h>
#include <string.h>

struct alloc_block *alloc_block_new(struct alloc_model *m)
{
    struct alloc_block *b = m->spare;

    if (b) {
        m->spare = b->next;
    } else {
        if (!m->chunks || m->chunk_used == ALLOC_CHUNK) {
            struct alloc_chunk *chunk = malloc(sizeof(*chunk));
            if (!chunk)
                return NULL;
            chunk->next = m->chunks;
            m->chunks = chunk;
            m->chunk_used = 0;
        }
        b = &m->chunks->blocks[m->chunk_used++];
    }
    memset(b, 0, sizeof(*b));
    return b;
}

void alloc_block_done(struct alloc_model *m, struct alloc_block *b)
{
    b->next = m->spare;
    m->spare = b;
}

void alloc_block_splice(struct alloc_block *b, struct alloc_block *prev, struct alloc_block *next)
{
    b->prev = prev;
    b->next = next;
    if (prev)
        prev->next = b;
    if (next)
        next->prev = b;
}

void alloc_block_merge(struct alloc_model *m, struct alloc_pool *pool, struct alloc_block *dst,
                       struct alloc_block *src)
{
    if (src->is_unmapped)
        alloc_tree_erase(&pool->unmapped, src);
    else
        alloc_bins_erase(pool, src);
    if (dst->prev == src) {
        dst->address = src->address;
        alloc_block_splice(dst, src->prev, dst->next);
    } else {
        alloc_block_splice(dst, dst->prev, src->next);
    }
    dst->bytes += src->bytes;
    alloc_block_done(m, src);
}

void alloc_pool_put(struct alloc_pool *pool, struct alloc_block *b)
{
    b->collect_clock = pool->clock;
    alloc_bins_insert(pool, b);
}
