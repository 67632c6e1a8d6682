/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frag.h - holes: how much of a pool is free, in which pieces, and what keeps a segment from going
 * back.
 */
#ifndef NPUMEM_ANALYSIS_FRAG_H
#define NPUMEM_ANALYSIS_FRAG_H

#include "analysis.h"
#include "layout.h"
#include "view.h"

/* Segments shown per pool, those with most free bytes first; the document says how many there are.
 */
#define FRAG_SEGMENTS_MAX 64
/* A segment with less than this in use is "nearly empty": what is left pins the rest. */
#define FRAG_NEARLY_EMPTY_PERCENT 25

enum frag_pool { FRAG_LARGE, FRAG_SMALL, FRAG_EXPANDABLE, FRAG_POOL_COUNT };

/* What is known of the process beside its layout. */
struct frag_process {
    uint32_t tgid;
    int32_t rank, device;                     /* -1 not known */
    uint64_t reserved_bytes, allocated_bytes; /* by the allocator; ANALYSIS_UNKNOWN */
    uint64_t now_ns;                          /* the clock of the layout's times */
    const char *(*owner_fn)(void *userdata, uint32_t owner);
    void *userdata;
};

/* One row per pool of a layout that layout_measure() has been through, into the array that is open.
 * Returns 0; -ENOMEM. Cost: linear in segments. */
int frag_write_pools(const struct layout *l, const struct frag_process *p, struct json *j);

struct frag_query {
    uint64_t request_bytes; /* 0: none. A request to fit into what is free */
};

/* The document of `frag`: every process and device that the context's filters leave. */
int view_frag(const struct ledger *l, const struct view_context *c, const struct frag_query *q,
              struct json *j);

#endif
