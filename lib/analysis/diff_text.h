/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_text.h - two recordings, or the beginning and the end of one, to a whole document.
 */
#ifndef NPUMEM_ANALYSIS_DIFF_TEXT_H
#define NPUMEM_ANALYSIS_DIFF_TEXT_H

#include <stdbool.h>

#include "err.h"
#include "trace_io.h"

struct json; /* json_write.h, whose names and json-c's cannot be in one file */

/* compared, from{}, to{}, and what diff_write() writes, into the open object; what is missing is
 * known at the end. Returns 0; -ENOMEM. Cost: see diff_add_trace(). */
int diff_recordings_write(struct trace_reader *from, struct trace_reader *to, uint32_t limit,
                          bool with_equal, bool *ret_complete, struct json *j);

/* The document of `diff`. to NULL: what `from` began and ended with. limit as in diff_query. NULL
 * with the error set. The caller frees it. */
char *diff_text(struct trace_reader *from, struct trace_reader *to, uint32_t limit, bool with_equal,
                const char *host, uint64_t wall_ns, struct error *reterr);

#endif
