/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frag_internal.h - what the files of frag share.
 *
 *   frag.c           what is known of which pool, and the pools' figures
 *   frag_segments.c  the segments of a pool: their holes, what pins them, their map
 */
#ifndef NPUMEM_ANALYSIS_FRAG_INTERNAL_H
#define NPUMEM_ANALYSIS_FRAG_INTERNAL_H

#include "alloc_conf.h"
#include "frag.h"
#include "frag_pool.h"
#include "layout_ledger.h"
#include "layout_scan.h"
#include "view_rows.h"

/* One picture of the pools: the ledger's, or that of a scan. */
struct frag_side {
    struct layout layout;
    struct frag_sums sums[FRAG_POOL_COUNT];
    const char *reasons[FRAG_POOL_COUNT]; /* why holes are not known; NULL: they are */
    const struct scan_result *scan;       /* NULL: the ledger's */
};

struct frag {
    const struct ledger *l;
    const struct view_context *c;
    const struct frag_query *q;
    const struct view_row *row;
    struct json *j;
    struct frag_side events, scanned, *at; /* at: the one that is being written */
    uint64_t scan_ns, request_bytes;       /* ledger's clock; as the allocator rounds it */
    struct alloc_conf conf;
    uint64_t unseen_bytes, unseen_allocated_bytes; /* of segments that no event named */
    uint32_t pieces;                               /* of address maps so far */
};

/* "segments": those of a pool of f->at, the ones with most free bytes first. Returns 0; -ENOMEM. */
int frag_segments_write(struct frag *f, enum frag_pool pool);

#endif
