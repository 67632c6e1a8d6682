/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - where blocks lie in segments, and what lies between them.
 *
 * Owns: the arithmetic of holes. Adjacent granules of expandable segments are one segment; two
 * ordinary segments never are, however close they lie. Blocks in no segment are counted, not used.
 */
#ifndef NPUMEM_ANALYSIS_LAYOUT_H
#define NPUMEM_ANALYSIS_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAYOUT_NONE UINT32_MAX
/* Segment of requests up to 1 MiB. Source: torch_npu's kSmallBuffer. */
#define LAYOUT_SMALL_SEGMENT_BYTES ((uint64_t)2 << 20)

struct layout_block {
    uint64_t address, bytes, stream, allocated_ns;
    uint32_t owner;   /* the caller's number */
    uint32_t segment; /* set by layout_measure(), LAYOUT_NONE */
    bool is_pending;  /* freed, waits for a stream */
};

struct layout_segment {
    uint64_t address, bytes, allocated_ns;
    uint32_t owner;
    bool is_granule; /* of an expandable segment */
    bool is_small;   /* of the pool of small requests */
    /* set by layout_measure() */
    uint64_t used_bytes, pending_bytes, largest_hole_bytes;
    uint32_t blocks, holes;
    uint32_t pin; /* largest live block, LAYOUT_NONE: empty */
};

struct layout {
    struct layout_segment *segments;
    struct layout_block *blocks;
    size_t segment_count, segment_capacity, block_count, block_capacity;
    uint64_t unplaced_blocks, unplaced_bytes; /* in no known segment */
    uint64_t overlaps;                        /* blocks that begin inside another: loss, or reuse */
};

void layout_done(struct layout *l);
/* Return 0 or -ENOMEM. */
int layout_add_segment(struct layout *l, const struct layout_segment *segment);
int layout_add_block(struct layout *l, const struct layout_block *block);

/* Orders both by address, merges granules and fills what is "set by layout_measure()".
 * hole_fn (may be NULL) is called for every hole, in order of addresses.
 * Returns 0; -ENOMEM. Cost: linear. */
int layout_measure(struct layout *l,
                   void (*hole_fn)(void *userdata, const struct layout_segment *segment,
                                   uint64_t address, uint64_t bytes),
                   void *userdata);

#endif
