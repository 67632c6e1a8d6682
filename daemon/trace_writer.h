/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_writer.h - one trace file, written by a thread of its own, so that a slow or full disk
 * never holds up the event loop.
 *
 * Records are copied into pieces of TRACE_WRITER_PIECE bytes that wait for the thread, at most
 * TRACE_WRITER_WAITING of them: what does not fit is refused, and the caller counts it as lost.
 */
#ifndef NPUMEM_DAEMON_TRACE_WRITER_H
#define NPUMEM_DAEMON_TRACE_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "cleanup.h"
#include "err.h"
#include "trace.h"

#define TRACE_WRITER_PIECE (256u << 10)
#define TRACE_WRITER_WAITING 64u /* 16 MiB: 0.3 s of a million events a second */

struct trace_writer_file;

struct trace_writer_stats {
    uint64_t records;   /* taken */
    uint64_t bytes;     /* of the file, with the header, once all is written */
    uint64_t refused;   /* records that found no room, or came after the end */
    uint64_t max_bytes; /* 0 no bound */
    int error;          /* of the disk, negative errno; nothing more is written then */
    bool is_full;       /* it reached max_bytes */
};

/* Makes the file, which must not exist, and its header with NM_TRACE_OPEN. ended (may be NULL) is
 * called from the event loop when everything is on disk or the disk has refused. Errors: of
 * open(2), write(2) and of threads, with reterr set. */
int trace_writer_new(sd_event *event, const char *path, const struct nm_trace_header *header,
                     uint64_t max_bytes, void (*ended)(void *userdata), void *userdata,
                     struct trace_writer_file **ret, struct error *reterr);
/* Waits until what was taken is written. */
struct trace_writer_file *trace_writer_free(struct trace_writer_file *w);
DEFINE_CLEANUP(struct trace_writer_file *, trace_writer_free)

/* Takes a record. Returns true; false: refused and counted. Never waits. Cost: a copy. */
bool trace_writer_put(struct trace_writer_file *w, const void *record);
/* The same beyond the bound of what waits (not of the file), for what comes all at once. */
bool trace_writer_put_all(struct trace_writer_file *w, const void *records, size_t count);
/* Hands what was taken to the thread; to be called about once a second. */
void trace_writer_flush(struct trace_writer_file *w);
/* Whether it takes nothing more: it has reached its bound, the disk refuses, or it was ended. */
bool trace_writer_is_over(const struct trace_writer_file *w);
/* No more records: the thread writes what waits and this header, then ended() is called. */
void trace_writer_end(struct trace_writer_file *w, const struct nm_trace_header *header);

void trace_writer_stats(struct trace_writer_file *w, struct trace_writer_stats *ret);

#endif
