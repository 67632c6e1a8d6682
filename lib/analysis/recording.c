/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recording.c - see recording.h.
 */
#include "recording.h"

#include <string.h>

#include "json_write.h"

int recording_text(recording_fn fn, struct trace_reader *trace, const struct recording_query *q,
                   char **ret, struct error *reterr)
{
    struct json j = {0};

    json_object(&j);
    int k = fn(trace, q, &j, reterr);
    json_end(&j);
    if (k == 0)
        k = json_finish(&j);
    if (k == 0) {
        *ret = j.data;
        return 0;
    }
    json_done(&j);
    if (reterr && !reterr->what[0])
        error_set(reterr, -k, "%s", k == -ENOMEM ? "out of memory" : strerror(-k));
    return k;
}
