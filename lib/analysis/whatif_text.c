/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whatif_text.c - see whatif_text.h.
 */
#include "whatif_text.h"

#include "document.h"
#include "whatif.h"

int whatif_job_run_at(struct trace_reader *trace, struct whatif_job *jobs, size_t index)
{
    return whatif_job_run(trace, &jobs[index]);
}

char *whatif_text(struct trace_reader *trace, const char *const *settings, size_t count,
                  whatif_run_fn run_fn, void *userdata, const char *host, uint64_t wall_ns,
                  struct error *reterr)
{
    struct alloc_model_options options = {.fraction = 0};
    struct json members = {0};
    char *text = NULL;
    int r;

    json_object(&members);
    r = whatif_write(trace, settings, count, &options, run_fn, userdata, &members, reterr);
    json_end(&members);
    if (r == 0 && json_finish(&members) == 0) {
        struct view_context c = {.wall_ns = wall_ns,
                                 .host = host,
                                 .complete = trace_complete(trace),
                                 .lost_events = trace->lost_events};
        text = document_text(&c, &members);
    }
    json_done(&members);
    if (!text && reterr && !reterr->what[0])
        error_set(reterr, ENOMEM, "out of memory");
    return text;
}
