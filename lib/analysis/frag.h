/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frag.h - holes: how much of a pool is free, in which pieces, and what keeps a segment from going
 * back.
 *
 * A hole is only called one where every block around it is known. Where it is not (blocks summed
 * in the kernel, memory from before npumemd was attached), the table that a scan of the process has
 * read is shown instead, with its time; without one, figures are null with the reason.
 */
#ifndef NPUMEM_ANALYSIS_FRAG_H
#define NPUMEM_ANALYSIS_FRAG_H

#include "analysis.h"
#include "layout.h"
#include "roots_result.h"
#include "view.h"

/* Segments shown per pool, those with most free bytes first; the document says how many there are.
 */
#define FRAG_SEGMENTS_MAX 64
/* A segment with less than this in use is "nearly empty": what is left pins the rest. */
#define FRAG_NEARLY_EMPTY_PERCENT 25
#define FRAG_PINS_MAX 3      /* blocks named of one segment, the largest first */
#define FRAG_MAP_MAX 200000u /* pieces of the address maps of one document */

struct frag_query {
    uint64_t request_bytes; /* 0: none. A request to fit into what is free */
    bool with_map;          /* every segment with its blocks and holes */
    /* Blocks below this are summed in the kernel; 0: none are, UINT64_MAX: none is seen. */
    uint64_t summed_below_bytes;
    /* What a scan has read of a process, NULL none; *ret_time_ns: the ledger's clock. May be NULL.
     */
    const struct scan_result *(*scan_fn)(void *userdata, uint32_t tgid, uint64_t *ret_time_ns);
    void *userdata;
    /* Of a ledger that a trace was replayed into: not the context says whether blocks may be
     * missing, but is_lossy. is_late: it may have blocks in segments that it does not have. */
    bool is_recording, is_lossy, is_late;
};

/* request_bytes and pools[], every process and device that the context's filters leave, into the
 * open object. Returns 0; -ENOMEM. Cost: linear in live entries. */
int frag_write(const struct ledger *l, const struct view_context *c, const struct frag_query *q,
               struct json *j);
/* The document of `frag`. */
int view_frag(const struct ledger *l, const struct view_context *c, const struct frag_query *q,
              struct json *j);

#endif
