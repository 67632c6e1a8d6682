/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npualloc.h - the block table of torch_npu's caching allocator, read from another process.
 *
 * Every block with its address, size, requested size, stream and state: the live ones from the
 * allocator's hash table, their neighbours in the segments, the free ones from its pools. Private
 * pools of graphs are included. The layout is not assumed: each offset is searched and must fit all
 * entries, and the whole must agree with the allocator's own statistics, else there is a reason
 * and no table.
 * Source: order of the members in torch_npu's NPUCachingAllocator (Block, BlockPool), the container
 * layouts of libstdc++ and of the flat hash map that torch carries; verified live on 2.7.1,
 * 2.10.0 and 2.14.0.
 */
#ifndef NPUMEM_NPUALLOC_H
#define NPUMEM_NPUALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "image_ranges.h"
#include "image_read.h"

#define NPUALLOC_SYMBOL "_ZN7c10_npu19NPUCachingAllocator9allocatorE"
#define NPUALLOC_DEVICES_MAX 64
#define NPUALLOC_BLOCKS_MAX (1u << 20)
#define NPUALLOC_SLOTS_MAX (1u << 24)

enum npualloc_state {
    NPUALLOC_LIVE = 0,    /* somebody holds it */
    NPUALLOC_FREE = 1,    /* a hole: reserved, not used */
    NPUALLOC_PENDING = 2, /* given back, but a stream may still use it */
    NPUALLOC_UNMAPPED = 3 /* address range without memory (expandable segments) */
};

struct npualloc_block {
    uint64_t address, bytes, requested_bytes, stream;
    uint64_t pool;      /* address of its pool: which blocks can be merged */
    uint64_t block;     /* address of the allocator's record */
    uint8_t device;     /* as the process counts it */
    uint8_t state;      /* enum npualloc_state */
    uint8_t is_private; /* of a private pool (graph capture, MemPool) */
    uint8_t is_small;   /* of the pool for small requests */
};

/* What the allocator's own statistics say of one device. */
struct npualloc_device {
    uint8_t device;
    bool has_stats;
    uint64_t allocated_bytes, reserved_bytes, active_bytes; /* by its statistics */
    uint64_t live_bytes, free_bytes, pending_bytes;         /* sums of blocks */
    uint64_t live_blocks, free_blocks, pending_blocks;
    uint64_t largest_free_bytes;
};

struct npualloc {
    struct npualloc_block *blocks; /* by device and address */
    size_t block_count;
    struct npualloc_device devices[NPUALLOC_DEVICES_MAX];
    unsigned device_count;
    uint64_t table_count; /* the hash table's own number of entries */
    bool is_complete;  /* live + free + pending is what the statistics call reserved, everywhere */
    unsigned attempts; /* reads until two things agreed that should */
};

/*
 * Reads the table. `allocator` is the address of the allocator object: what NPUALLOC_SYMBOL points
 * to, or the allocator of any NPU tensor's storage. A torn read (counts or sums that disagree) is
 * repeated up to `attempts_max` times from fresh memory; a small one more often, as long as no
 * reading was consistent.
 * Returns 0; -ENODATA there is no such table there; -EBADMSG it contradicts itself; -EAGAIN it
 * changes faster than it can be read; errors that ended reading; -ENOMEM. reterr says what did not
 * fit. Owns: npualloc_done(). Cost: about one read per two blocks.
 */
int npualloc_read(struct image *image, const struct image_ranges *ranges, uint64_t allocator,
                  unsigned attempts_max, struct npualloc *ret, struct error *reterr);
void npualloc_done(struct npualloc *a);

/* The block that contains an address, NULL none. Cost: binary search per device. */
const struct npualloc_block *npualloc_find(const struct npualloc *a, int device, uint64_t address);

#endif
