/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_io.h - writing and reading recorded traces (schema/trace.h).
 *
 * A trace is read from memory or through a window, so that one of any length takes 1 MiB. Reading
 * never fails because of what is in it: what is odd is counted.
 */
#ifndef NPUMEM_TRACE_IO_H
#define NPUMEM_TRACE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace.h"
#include "err.h"
#include "event.h"
#include "map.h"

#define TRACE_WINDOW_BYTES (1u << 20)

/* A growing buffer that holds a whole trace. Zero it before use. */
struct trace_writer {
    unsigned char *data;
    size_t bytes, capacity;
};
/* Fills in magic, version and sizes. */
void trace_header_init(struct nm_trace_header *header);
/* Return 0 or -ENOMEM. header->magic, version and sizes are filled in. */
int trace_begin(struct trace_writer *w, const struct nm_trace_header *header);
int trace_add(struct trace_writer *w, const struct nm_trace_record *record);
/* A name under a new id; cut at NM_TRACE_NAME_BYTES_MAX. */
int trace_add_name(struct trace_writer *w, uint32_t id, const char *name);
void trace_done(struct trace_writer *w);

/* The part of a name from *at on as a record; *at moves on. Returns false after the last one. */
bool trace_name_part(uint32_t id, const char *name, size_t *at, struct nm_trace_name *ret);

/* The record of an event, as far as a trace has it: blocks, segments, failures. Returns false for
 * the others. Whether memory is a segment of the pool is the caller's to know (is_segment). */
bool trace_from_event(const struct nm_event *event, bool is_segment, struct nm_trace_record *ret);

/* Reads `bytes` at `offset`. Returns the number of bytes, less at the end; negative errno. */
typedef int64_t (*trace_read_fn)(void *userdata, uint64_t offset, void *data, size_t bytes);

struct trace_reader {
    struct nm_trace_header header; /* conf and comm always NUL-ended */
    size_t record_bytes;
    uint64_t count, at; /* records; the next one */
    uint64_t lost_events, out_of_order, unknown_kinds;
    uint64_t implausible; /* sizes that cannot be; left out */
    uint64_t last_ns;
    bool is_cut; /* the last record is not whole, or a part could not be read */
    int error;   /* negative errno of the reading, which ended there */
    /* private */
    const unsigned char *records; /* of a trace in memory, or of the window */
    uint64_t window_first, window_count;
    unsigned char *window;
    trace_read_fn read_fn;
    void *userdata;
};

/* Opens a trace in memory, which is borrowed. Errors: -ENODATA shorter than a header; -EINVAL not a
 * trace, or sizes that cannot be; -ENOTSUP a newer version. reterr says which. */
int trace_open(const void *data, size_t bytes, struct trace_reader *ret, struct error *reterr);
/* The same of `bytes` behind read_fn; also -ENOMEM and what read_fn returns. */
int trace_open_window(trace_read_fn read_fn, void *userdata, uint64_t bytes,
                      struct trace_reader *ret, struct error *reterr);
/* Gives back the window. */
void trace_close(struct trace_reader *r);

/* The next record. Returns 1, 0 at the end. Counts what is odd, never fails. */
int trace_next(struct trace_reader *r, struct nm_trace_record *ret);
/* Back to the first record. */
void trace_rewind(struct trace_reader *r);
/* True when nothing is missing, as far as one can tell by now. */
bool trace_complete(const struct trace_reader *r);
/* The same in words for people: what is missing, "" nothing. Returns text. */
char *trace_missing(const struct trace_reader *r, char *text, size_t size);

/* The names of a trace, collected from its NM_TRACE_NAME records. Zero it before use. */
struct trace_names {
    struct map by_id;
    size_t bytes;
    bool is_open;
};
/* Takes a record in. Returns 0; 1 it is not well-formed and was left out; -ENOMEM. */
int trace_names_add(struct trace_names *names, const struct nm_trace_record *record);
/* NULL: there is none. Borrowed until trace_names_done(). */
const char *trace_name(const struct trace_names *names, uint32_t id);
void trace_names_done(struct trace_names *names);

#endif
