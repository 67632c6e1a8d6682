/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_internal.h - what the alloc_model*.c files share.
 *
 *   alloc_model.c   the requests: search, split, the second attempt
 *   alloc_block.c   blocks and their neighbours
 *   alloc_give.c    what goes back to the driver: flush, collect, oversize blocks
 *   alloc_expand.c  expandable segments: addresses that granules back
 *   alloc_bins.c    the free blocks of a pool, by stream and size
 *   alloc_tree.c    blocks in order of (stream, size, address)
 */
#ifndef NPUMEM_ALLOC_INTERNAL_H
#define NPUMEM_ALLOC_INTERNAL_H

#include "alloc_model.h"

#define ALLOC_MIN_BLOCK 512u
#define ALLOC_PAD 32u
#define ALLOC_SMALL ((uint64_t)1 << 20)         /* largest request of the small pool */
#define ALLOC_SMALL_SEGMENT ((uint64_t)2 << 20) /* segment and granule of the small pool */
#define ALLOC_MIN_LARGE ((uint64_t)10 << 20)    /* from here a segment of its own */
#define ALLOC_ROUND_LARGE ((uint64_t)2 << 20)
#define ALLOC_GIB ((uint64_t)1 << 30)

struct alloc_segment {
    struct alloc_segment *next;
    uint64_t base, bytes, granule;
};

struct alloc_block {
    uint64_t address, bytes, stream;
    struct alloc_block *prev, *next;  /* neighbours in the segment */
    struct alloc_block *left, *right; /* in the tree of its pool */
    struct alloc_segment *segment;    /* expandable; NULL: a segment of its own */
    uint64_t collect_clock;           /* searches of the pool when it was put back */
    uint32_t priority;
    bool is_allocated, is_active, is_unmapped, is_small;
};

/* One tree: (stream, size, address); is_by_address: (stream, address). */
struct alloc_tree {
    struct alloc_block *root;
    bool is_by_address;
};
void alloc_tree_insert(struct alloc_tree *t, struct alloc_block *b);
void alloc_tree_erase(struct alloc_tree *t, struct alloc_block *b);
/* The first of all; the first not before key; the one after b; the one before it. NULL: none. */
struct alloc_block *alloc_tree_first(const struct alloc_tree *t);
struct alloc_block *alloc_tree_lower(const struct alloc_tree *t, const struct alloc_block *key);
struct alloc_block *alloc_tree_next(const struct alloc_tree *t, const struct alloc_block *b);
struct alloc_block *alloc_tree_before(const struct alloc_tree *t, const struct alloc_block *b);

#define ALLOC_STREAMS_MAX 2048 /* of a pool, 14 KB each; a device has fewer */

struct alloc_bins;
struct alloc_pool {
    struct alloc_bins *streams, *latest; /* free and mapped */
    size_t stream_count;
    struct alloc_tree unmapped;
    uint64_t clock; /* searches, for garbage collection */
    bool is_small;
};

/* Before the first block of a stream. Returns 0; -E2BIG; -ENOMEM. */
int alloc_bins_make(struct alloc_pool *pool, uint64_t stream);
void alloc_bins_done(struct alloc_pool *pool);
void alloc_bins_insert(struct alloc_pool *pool, struct alloc_block *b);
void alloc_bins_erase(struct alloc_pool *pool, struct alloc_block *b);
/* As alloc_tree_lower(), _next() and _before(), among the free blocks of the same stream. */
struct alloc_block *alloc_bins_lower(struct alloc_pool *pool, const struct alloc_block *key);
struct alloc_block *alloc_bins_next(struct alloc_pool *pool, const struct alloc_block *b);
struct alloc_block *alloc_bins_before(struct alloc_pool *pool, const struct alloc_block *b);
/* The one after `from` (NULL: the first), among those of all streams. */
struct alloc_block *alloc_bins_walk(struct alloc_pool *pool, const struct alloc_block *from);

#define ALLOC_CHUNK 1024
struct alloc_chunk {
    struct alloc_chunk *next;
    struct alloc_block blocks[ALLOC_CHUNK];
};

struct alloc_model {
    struct alloc_model_options options;
    struct alloc_model_stats stats;
    uint64_t limit_bytes; /* on reserved, by the fraction; UINT64_MAX none */
    struct alloc_pool small, large;
    struct alloc_segment *segments;
    uint64_t next_address;
    struct alloc_chunk *chunks;
    struct alloc_block *spare; /* through next */
    size_t chunk_used;
};

/* alloc_block.c: a block that is not linked anywhere; NULL out of memory. */
struct alloc_block *alloc_block_new(struct alloc_model *m);
void alloc_block_done(struct alloc_model *m, struct alloc_block *b);
/* Puts b between its neighbours. */
void alloc_block_splice(struct alloc_block *b, struct alloc_block *prev, struct alloc_block *next);
/* dst takes over src, a neighbour that is free and mapped as dst is; src is no more. */
void alloc_block_merge(struct alloc_model *m, struct alloc_pool *pool, struct alloc_block *dst,
                       struct alloc_block *src);
void alloc_pool_put(struct alloc_pool *pool, struct alloc_block *b);
/* Counts bytes that the driver would have to give. Returns false if it has not so many. */
bool alloc_model_take(struct alloc_model *m, uint64_t bytes, uint64_t pieces);
void alloc_model_give(struct alloc_model *m, uint64_t bytes, uint64_t pieces);

/* alloc_give.c: frees cached segments that were not used for longer than the average, until below
 * the threshold. */
void alloc_collect(struct alloc_model *m);
/* With max_split_size: one oversize block that is large enough goes, or several from the largest.
 * Returns whether that many bytes went. */
bool alloc_release_oversize(struct alloc_model *m, struct alloc_pool *pool, uint64_t bytes,
                            uint64_t stream);

/* alloc_expand.c: a free block of at least `bytes` at the end of mapped memory. Returns 0; -ENOSPC;
 * -ENOMEM. */
int alloc_expand(struct alloc_model *m, struct alloc_pool *pool, uint64_t bytes, uint64_t stream,
                 struct alloc_block **ret);
/* Gives back the whole granules of every free block of the pool. */
void alloc_unmap_pool(struct alloc_model *m, struct alloc_pool *pool);

#endif
