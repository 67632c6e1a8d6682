/* SPDX-License-Identifier: Apache-2.0 */
/*
 * method_advise.c - the method Advise.
 */
#include <string.h>

#include "advise_view.h"
#include "method_context.h"
#include "methods.h"

static void on_reports(void *userdata, uint32_t tgid, struct advise_input *ret)
{
    struct manager *m = userdata;
    oom_log_count(m->oom, tgid, &ret->failures, &ret->recovered_retries, &ret->retry_bytes);
}

static void on_collector(void *userdata, uint32_t tgid, struct advise_gc *ret)
{
    struct manager *m = userdata;
    struct python_collector c;

    if (!python_collector(m->python, tgid, &c))
        return;
    ret->is_known = true;
    ret->is_enabled = c.is_enabled;
    ret->is_frozen = c.is_frozen;
    ret->threshold = c.threshold[ADVISE_GENERATIONS - 1];
    memcpy(ret->collections, c.collections, sizeof(ret->collections));
    memcpy(ret->uncollectable, c.uncollectable, sizeof(ret->uncollectable));
}

int method_advise(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    struct method_filter f = {};
    struct advise_query q = {.reports_fn = on_reports, .gc_fn = on_collector};
    struct view_context c;
    struct json j = {};
    int r = method_filter_read(call, &f);

    if (r == 0)
        r = method_begin(call, m, &f, METHOD_WITH_CARDS, &c);
    if (r <= 0)
        return r;
    oom_log_turn(m->oom);
    method_budget_query(m, &q.budget);
    method_document_begin(&j);
    return method_document_reply(call, &j, view_advise(m->ledger, &c, &q, &j));
}
