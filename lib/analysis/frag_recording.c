/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frag_recording.c - holes as they were at a moment of a recorded trace.
 */
#include <errno.h>

#include "frag.h"
#include "trace_replay.h"

static int write_document(struct trace_replay *r, const struct recording_query *q, struct json *j)
{
    bool has_small = !(r->trace->header.flags & NM_TRACE_NO_SMALL);
    struct frag_query query = {
        .request_bytes = q->request_bytes,
        .with_map = q->with_map,
        .summed_below_bytes = has_small ? 0 : 1, /* of any size: its small pools are not known */
        .is_recording = true,
        .is_lossy = trace_replay_is_lossy(r),
        .is_late = r->trace->header.flags & NM_TRACE_LATE,
    };
    struct view_context c;

    trace_replay_context(r, q, &c);
    view_header(&c, j);
    int k = frag_write(r->ledger, &c, &query, j);
    trace_replay_write(r, j);
    return k;
}

int frag_recording_write(struct trace_reader *trace, const struct recording_query *q,
                         struct json *j, struct error *reterr)
{
    struct trace_replay r;
    int k = trace_replay_new(trace, &r);
    uint64_t at_ns = r.end_ns;

    if (k == 0 && q->at)
        k = trace_replay_moment(&r, q->at, q->local_fn, &at_ns, reterr);
    if (k == 0)
        k = trace_replay_run(&r, at_ns, NULL);
    if (k == 0)
        k = write_document(&r, q, j);
    trace_replay_done(&r);
    return k;
}
