/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frag_pool.h - the sums over the segments of one pool, and what a request finds in it.
 *
 * Private to lib/analysis/frag*.c.
 */
#ifndef NPUMEM_ANALYSIS_FRAG_POOL_H
#define NPUMEM_ANALYSIS_FRAG_POOL_H

#include "alloc_conf.h"
#include "layout.h"

enum frag_pool {
    FRAG_LARGE,
    FRAG_SMALL,
    FRAG_LARGE_EXPANDABLE,
    FRAG_SMALL_EXPANDABLE,
    FRAG_PRIVATE,
    FRAG_POOL_COUNT
};
const char *frag_pool_name(enum frag_pool pool);
enum frag_pool frag_pool_of(const struct layout_segment *s);
bool frag_pool_is_small(enum frag_pool pool);

struct frag_sums {
    uint64_t bytes, used_bytes, pending_bytes, free_bytes;
    uint64_t holes, largest_hole_bytes, segments, empty_segments;
    uint64_t nearly_empty_segments, pinned_free_bytes; /* of nearly empty ones */
    uint64_t usable_bytes, fitting_requests;           /* of the request, if there is one */
};

/* What is free in a segment. */
uint64_t frag_free_bytes(const struct layout_segment *s);
/* Something is left in it, and little. */
bool frag_is_nearly_empty(const struct layout_segment *s);

/* Sums of each pool of a measured layout. request_bytes: as the allocator rounds it, 0 none; it is
 * one of an ordinary pool, of any stream. Cost: linear; with a request, in blocks. */
void frag_add_up(const struct layout *l, const struct alloc_conf *conf, uint64_t request_bytes,
                 struct frag_sums ret[FRAG_POOL_COUNT]);

#endif
