/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_file.h - a recorded trace in a file, for the verbs that work on one.
 */
#ifndef NPUMEM_CLI_TRACE_FILE_H
#define NPUMEM_CLI_TRACE_FILE_H

#include "err.h"
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

#endif
