/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_file.h - a recorded trace in a file, for the verbs that work on one.
 */
#ifndef NPUMEM_CLI_TRACE_FILE_H
#define NPUMEM_CLI_TRACE_FILE_H

#include "ask.h"
#include "err.h"
#include "recording.h"
#include "trace_io.h"

struct trace_file {
    int fd;
    struct trace_reader reader;
};
#define TRACE_FILE_NONE                                                                            \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* Opens a trace. Returns 0; negative errno with reterr set: no such file, no trace, cut before its
 * first record. The reader stays valid until trace_file_close(); ret must not move. */
int trace_file_open(const char *path, struct trace_file *ret, struct error *reterr);
void trace_file_close(struct trace_file *f);

/* Name of this host and the time, for documents that are made here. */
struct local_moment {
    char host[64];
    uint64_t wall_ns;
};
struct local_moment local_moment(void);

/* Prints a document that was made here, and puts it; NULL: there is none. Returns an exit code. */
int document_show(const struct args *args, struct json_object *document, const char *key,
                  ask_render_fn render);
/* The whole of a verb on --from: one of recording.h. Returns an exit code. */
int trace_file_show(const struct args *args, recording_fn fn, ask_render_fn render);

#endif
