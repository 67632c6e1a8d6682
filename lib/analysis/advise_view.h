/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advise_view.h - the input of advice from the ledger, and the document of `advise`.
 */
#ifndef NPUMEM_ANALYSIS_ADVISE_VIEW_H
#define NPUMEM_ANALYSIS_ADVISE_VIEW_H

#include "advise.h"
#include "budget_view.h"

struct advise_query {
    struct budget_query budget; /* its userdata is that of the functions below, too */
    /* Reports of failed allocations of the process: failures, recovered_retries, retry_bytes of
     * ret. May be NULL. */
    void (*reports_fn)(void *userdata, uint32_t tgid, struct advise_input *ret);
    /* Counters of the process's garbage collector, without what the ledger has; is_known false:
     * there is none, or it cannot be read. May be NULL. */
    void (*gc_fn)(void *userdata, uint32_t tgid, struct advise_gc *ret);
};

/* The document of `advise`: advice[] of every process that the context's filters leave, gc[] with
 * the counters of their collectors. Cost: linear in live entries. */
int view_advise(const struct ledger *l, const struct view_context *c, const struct advise_query *q,
                struct json *j);

#endif
