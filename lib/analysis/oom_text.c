/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom_text.c - see oom_text.h.
 */
#include "oom_text.h"

#include "oom.h"
#include "view.h"

char *oom_text(const char *text, size_t bytes, const char *host, uint64_t wall_ns,
               struct error *reterr)
{
    struct view_context c = {.wall_ns = wall_ns, .host = host, .complete = true};
    struct oom_snapshot s;
    struct oom_result result;
    struct json j = {0};

    if (oom_message_parse(text, bytes, &s, reterr) < 0)
        return NULL;
    oom_judge(&s, &result);
    json_object(&j);
    view_header(&c, &j);
    oom_write(&s, &result, &j);
    json_end(&j);
    if (json_finish(&j) < 0) {
        json_done(&j);
        error_set(reterr, ENOMEM, "out of memory");
        return NULL;
    }
    return j.data;
}
