/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recording.h - the analyses of a recorded trace to whole documents: those of frag, leaks and
 * timeline, with the same rows as of a live process.
 *
 * time_ns of a document is the moment of the recording that it is about.
 */
#ifndef NPUMEM_ANALYSIS_RECORDING_H
#define NPUMEM_ANALYSIS_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "timespec.h"
#include "trace_io.h"

struct json; /* json_write.h, whose names and json-c's cannot be in one file */

struct recording_query {
    const char *host;
    /* Filters as in view_context. */
    const uint32_t *tgids;
    size_t tgid_count;
    const int32_t *ranks;
    size_t rank_count;
    const uint16_t *devices;
    size_t device_count;
    const char *const *containers;
    size_t container_count;
    /* Moments as people say them (timespec.h), from the end of the recording back; NULL: its
     * beginning, its end. */
    const char *at, *since, *until;
    timespec_local_fn local_fn; /* NULL: local time is UTC */
    uint64_t request_bytes;     /* frag */
    bool with_map;
    const char *mark;      /* leaks; NULL: the most frequent */
    uint32_t steps, limit; /* timeline; 0: 60, and all */
};

/* Writes the members of a document into the open object. Returns 0; -EINVAL a moment that is none,
 * or not in the recording; -ENOENT no such mark; -ENOMEM; the first two with reterr set. Cost: see
 * trace_replay_run(); memory: what is alive, and for leaks 14 KiB, for timeline 2 KiB per sum. */
typedef int (*recording_fn)(struct trace_reader *trace, const struct recording_query *q,
                            struct json *j, struct error *reterr);
int frag_recording_write(struct trace_reader *trace, const struct recording_query *q,
                         struct json *j, struct error *reterr);
int leaks_recording_write(struct trace_reader *trace, const struct recording_query *q,
                          struct json *j, struct error *reterr);
int timeline_recording_write(struct trace_reader *trace, const struct recording_query *q,
                             struct json *j, struct error *reterr);

/* A whole document of one of these, which the caller frees. Returns what it did, with reterr set.
 */
int recording_text(recording_fn fn, struct trace_reader *trace, const struct recording_query *q,
                   char **ret, struct error *reterr);

#endif
