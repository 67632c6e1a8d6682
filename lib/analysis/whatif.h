/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whatif.h - a recorded trace through the model of the allocator, under another setting.
 */
#ifndef NPUMEM_ANALYSIS_WHATIF_H
#define NPUMEM_ANALYSIS_WHATIF_H

#include "alloc_model.h"
#include "analysis.h"
#include "trace_io.h"

struct whatif_result {
    char setting[ALLOC_CONF_TEXT_MAX / 4];
    struct alloc_model_stats stats;
    uint64_t unknown_frees;    /* blocks from before the trace, or lost */
    uint64_t reused_addresses; /* allocated again without a free between: loss */
    uint64_t recorded_peak_bytes, recorded_segments; /* what the process really reserved */
    bool is_complete;
};

/* Replays the blocks of the caching allocator in `trace` under options. Where the recorded process
 * emptied its cache, so does the model; where the recorded one only did so because the card was
 * full, the model decides for itself. Returns 0; -ENOMEM. Cost: about 0.15 us per record, 100 bytes
 * per live block. */
int whatif_replay(struct trace_reader *trace, const struct alloc_model_options *options,
                  struct whatif_result *ret);

/* One setting to replay. Jobs share nothing, so that they may run at the same time, each with a
 * reader of its own. */
struct whatif_job {
    const char *setting; /* borrowed */
    const struct alloc_model_options *options;
    struct whatif_result result;
    struct error error;
    int r; /* as whatif_job_run() returned */
};
/* options: without conf; unknown members are taken from the trace's header. Returns 0; -EINVAL a
 * setting that torch_npu refuses (error); -ENOMEM. */
int whatif_job_run(struct trace_reader *trace, struct whatif_job *job);
/* Runs all jobs, the first one (the recorded setting) with `trace`, which then knows what is
 * missing in it. */
typedef void (*whatif_run_fn)(void *userdata, struct trace_reader *trace, struct whatif_job *jobs,
                              size_t count);

/* "settings": [...] with the recorded setting as "baseline" into the open object: the given
 * settings, or with none the sensible grid, the smallest peak first. run_fn NULL: one after
 * another. Returns as whatif_job_run(). */
int whatif_write(struct trace_reader *trace, const char *const *settings, size_t count,
                 const struct alloc_model_options *options, whatif_run_fn run_fn, void *userdata,
                 struct json *j, struct error *reterr);

#endif
