/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whatif_text.h - a recorded trace to a whole document, for callers that have another JSON library.
 */
#ifndef NPUMEM_ANALYSIS_WHATIF_TEXT_H
#define NPUMEM_ANALYSIS_WHATIF_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "trace_io.h"

struct whatif_job;

/* The document of `whatif`; without settings the usual ones, ranked. run_fn as in whatif.h. NULL
 * with the error set. The caller frees it. */
char *whatif_text(struct trace_reader *trace, const char *const *settings, size_t count,
                  void (*run_fn)(void *userdata, struct trace_reader *trace,
                                 struct whatif_job *jobs, size_t count),
                  void *userdata, const char *host, uint64_t wall_ns, struct error *reterr);

/* Runs job `index` of several; see whatif_job_run(). Thread-safe with a reader per thread. */
int whatif_job_run_at(struct trace_reader *trace, struct whatif_job *jobs, size_t index);

#endif
