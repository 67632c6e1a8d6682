/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_io.h - writing and reading recorded traces (schema/trace.h) in memory.
 */
#ifndef NPUMEM_TRACE_IO_H
#define NPUMEM_TRACE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace.h"
#include "err.h"
#include "event.h"

/* A growing buffer that holds a whole trace. Zero it before use. */
struct trace_writer {
    unsigned char *data;
    size_t bytes, capacity;
};
/* Return 0 or -ENOMEM. header->magic, version and sizes are filled in. */
int trace_begin(struct trace_writer *w, const struct nm_trace_header *header);
int trace_add(struct trace_writer *w, const struct nm_trace_record *record);
void trace_done(struct trace_writer *w);

/* The record of an event, as far as a trace has it: blocks, segments, failures. Returns false for
 * the others. Whether memory is a segment of the pool is the caller's to know (is_segment). */
bool trace_from_event(const struct nm_event *event, bool is_segment, struct nm_trace_record *ret);

struct trace_reader {
    struct nm_trace_header header; /* conf always NUL-ended */
    const unsigned char *records;  /* borrowed */
    size_t record_bytes, count, at;
    uint64_t lost_events, out_of_order, unknown_kinds;
    uint64_t last_ns;
    bool is_cut; /* the last record is not whole */
};

/* Opens a trace in memory. Errors: -ENODATA shorter than a header; -EINVAL not a trace, or sizes
 * that cannot be; -ENOTSUP a newer version. reterr says which. Borrows data. */
int trace_open(const void *data, size_t bytes, struct trace_reader *ret, struct error *reterr);
/* The next record. Returns 1, 0 at the end. Counts what is odd, never fails. */
int trace_next(struct trace_reader *r, struct nm_trace_record *ret);
/* Back to the first record. */
void trace_rewind(struct trace_reader *r);
/* True when nothing is missing, as far as one can tell by now. */
bool trace_complete(const struct trace_reader *r);

#endif
