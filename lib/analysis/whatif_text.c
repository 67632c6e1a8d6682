/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whatif_text.c - see whatif_text.h.
 */
#include "whatif_text.h"

#include "view.h"
#include "whatif.h"

char *whatif_text(const void *trace, size_t bytes, const char *const *settings, size_t count,
                  const char *host, uint64_t wall_ns, struct error *reterr)
{
    struct alloc_model_options options = {.fraction = 0};
    struct trace_reader reader;
    struct nm_trace_record record;
    struct json j = {0};
    int r = trace_open(trace, bytes, &reader, reterr);

    if (r < 0)
        return NULL;
    while (trace_next(&reader, &record) > 0)
        ;
    struct view_context c = {.wall_ns = wall_ns,
                             .host = host,
                             .complete = trace_complete(&reader) && !reader.out_of_order,
                             .lost_events = reader.lost_events};
    json_object(&j);
    view_header(&c, &j);
    r = whatif_write(&reader, settings, count, &options, &j, reterr);
    json_end(&j);
    if (r == 0 && json_finish(&j) == 0)
        return j.data;
    json_done(&j);
    if (reterr && !reterr->what[0])
        error_set(reterr, ENOMEM, "out of memory");
    return NULL;
}
