/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npualloc_internal.h - what the npualloc*.c files share.
 *
 *   npualloc_table.c  the hash table and the layout of a block
 *   npualloc_pool.c   free blocks: neighbours, pools, private pools, statistics
 *   npualloc.c        one reading of all, its checks and its repetitions
 */
#ifndef NPUMEM_NPUALLOC_INTERNAL_H
#define NPUMEM_NPUALLOC_INTERNAL_H

#include "map.h"
#include "npualloc.h"

/* Offsets in the allocator's record of a block, found by search. */
struct npualloc_layout {
    uint16_t address, bytes, requested, pool, live, previous, next;
    bool has_requested;
};

/* An entry of the hash table. */
struct npualloc_entry {
    uint64_t record, address;
};

struct npualloc_walk {
    struct image *image;
    const struct image_ranges *ranges;
    uint64_t allocator;
    uint64_t entries, slots_mask; /* the hash table */
    uint8_t lookups;
    uint64_t table_count;
    struct npualloc_entry
        *live; /* what the hash table lists, by record, since that reads fastest */
    size_t live_count;
    struct npualloc_layout layout;
    struct map seen;  /* records taken, struct npualloc_seen */
    struct map pools; /* pools seen, the same */
    struct npualloc *out;
    size_t block_capacity;
};

struct npualloc_seen {
    uint64_t key;
    uint32_t key_b;
    uint32_t index; /* block: index in out->blocks */
};

/* Finds the table in the allocator object and lists it. *ret_stable false: torn. */
int npualloc_table_find(struct npualloc_walk *w, struct error *reterr);
int npualloc_table_list(struct npualloc_walk *w, bool *ret_stable, struct error *reterr);
int npualloc_layout_find(struct npualloc_walk *w, struct error *reterr);

/* Takes a live block. Errors: -EAGAIN its record is not that of the entry. */
int npualloc_take(struct npualloc_walk *w, const struct npualloc_entry *entry);
/* Takes its neighbours to both sides that are not live. */
int npualloc_take_chain(struct npualloc_walk *w, uint64_t record);
/* Takes the free blocks of every pool of every device; fills the devices' statistics. */
int npualloc_take_pools(struct npualloc_walk *w);

/* The record of a device, made at first sight; NULL: there are too many. */
struct npualloc_device *npualloc_device_get(struct npualloc *a, uint8_t device);

#endif
