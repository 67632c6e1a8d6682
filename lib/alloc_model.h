/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_model.h - torch_npu's caching allocator as a model: no memory, only what it would reserve.
 *
 * Owns: rounding, pools per stream, segments, best fit, splits and merges, expandable segments and
 * their granules, garbage collection, the flush and the second attempt when the card is full.
 * Must not: know traces; look at a clock. Deterministic: the same calls give the same figures.
 * Source: the rules of torch_npu's NPUCachingAllocator (2.7 to 2.15), written down anew.
 * Not modelled: private pools of graphs, memory pools of users, IPC.
 */
#ifndef NPUMEM_ALLOC_MODEL_H
#define NPUMEM_ALLOC_MODEL_H

#include "alloc_conf.h"
#include "cleanup.h"

struct alloc_model;
struct alloc_block; /* one live block of the model */

struct alloc_model_options {
    struct alloc_conf conf;
    uint64_t card_bytes;      /* total of the card: sizes address ranges and fractions; 0: 64 GiB */
    uint64_t available_bytes; /* what this process can get; 0: no end */
    double fraction;          /* set_per_process_memory_fraction(); 0 or 1: no limit */
};

struct alloc_model_stats {
    uint64_t allocated_bytes, active_bytes, reserved_bytes;
    uint64_t peak_allocated_bytes, peak_reserved_bytes;
    uint64_t segments, peak_segments; /* granules count as segments */
    uint64_t driver_calls;            /* reserve, allocate, map, unmap and free */
    uint64_t flushes;                 /* cache emptied because the card or the limit was full */
    uint64_t collections;             /* by garbage_collection_threshold */
    uint64_t failures;                /* requests that failed after the flush: out of memory */
    uint64_t requests;
    uint64_t largest_hole_bytes, holes; /* now; filled by alloc_model_stats() */
};

/* Returns 0; -ENOMEM. Owns: alloc_model_free(). */
int alloc_model_new(const struct alloc_model_options *options, struct alloc_model **ret);
struct alloc_model *alloc_model_free(struct alloc_model *m);
DEFINE_CLEANUP(struct alloc_model *, alloc_model_free)

/* The size of the block that a request of `bytes` gets, before any block is looked at. */
uint64_t alloc_model_round(const struct alloc_conf *conf, uint64_t bytes);

/* Takes a block of at least rounded_bytes (a result of alloc_model_round()). Returns 0; -ENOSPC out
 * of memory as the process would see it (counted); -ENOMEM; -E2BIG on more than 2048
 * streams. Cost: O(log free blocks of about that size). */
int alloc_model_malloc(struct alloc_model *m, uint64_t rounded_bytes, uint64_t stream,
                       struct alloc_block **ret);
/* Its user lets go; another stream may still use it (it stays active). */
void alloc_model_release(struct alloc_model *m, struct alloc_block *block);
/* It may be used again; releases it first when that was not done. The block is no more. */
void alloc_model_reuse(struct alloc_model *m, struct alloc_block *block);
uint64_t alloc_model_block_bytes(const struct alloc_block *block);

/* torch.npu.empty_cache(). */
void alloc_model_empty_cache(struct alloc_model *m);

/* Figures as of now. Cost: holes are counted, linear in free blocks. */
void alloc_model_stats(struct alloc_model *m, struct alloc_model_stats *ret);

#endif
