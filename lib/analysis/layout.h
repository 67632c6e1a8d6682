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
    uint32_t detail;  /* the caller's: a stack, a tensor */
    uint32_t segment; /* set by layout_measure(), LAYOUT_NONE */
    bool is_pending;  /* freed, waits for a stream */
};

#define LAYOUT_STREAMS_MIXED UINT64_MAX

struct layout_segment {
    uint64_t address, bytes, allocated_ns;
    uint32_t owner;
    bool is_granule; /* of an expandable segment */
    bool is_small;   /* of the pool of small requests */
    bool is_private; /* of a pool of its own (captured graphs, MemPool) */
    /* set by layout_measure() */
    uint64_t used_bytes, pending_bytes, largest_hole_bytes;
    uint64_t head_bytes; /* of used: of a block that begins before the segment */
    uint64_t stream;     /* of its blocks; LAYOUT_STREAMS_MIXED: several, or none */
    uint32_t blocks, holes;
    uint32_t first; /* its first block; the others follow */
    uint32_t pin;   /* largest block in it, LAYOUT_NONE: empty */
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
 * Returns 0; -ENOMEM. Cost: linear. */
int layout_measure(struct layout *l);

/* A piece of a segment: (a part of) a block, or a hole. */
struct layout_piece {
    uint64_t address, bytes;
    const struct layout_block *block; /* NULL: a hole, or the end of a block from before it */
    bool is_hole;
    bool is_last; /* it reaches the segment's end */
};
/* Calls fn for each piece of a measured segment, in order of addresses, until it returns non-zero;
 * returns that. The pieces' bytes add up to the segment's. */
int layout_each_piece(const struct layout *l, const struct layout_segment *segment,
                      int (*fn)(void *userdata, const struct layout_piece *piece), void *userdata);

#endif
