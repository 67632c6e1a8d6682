/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget_view.h - the input of a budget from the ledger, and the document of `budget`.
 */
#ifndef NPUMEM_ANALYSIS_BUDGET_VIEW_H
#define NPUMEM_ANALYSIS_BUDGET_VIEW_H

#include "budget.h"
#include "kv_history.h"
#include "view_rows.h"

/* What is not in the ledger. */
struct budget_failure {
    uint64_t requested_bytes, short_bytes, physical_bytes; /* ANALYSIS_UNKNOWN */
    char phase[32];
};

/* A server whose own figures may be asked for. */
struct budget_server {
    uint32_t tgid;
    uint16_t port;      /* where it listens for HTTP on this host's loopback; 0 none */
    char network[32];   /* its network namespace, "net:[4026531840]"; empty not known */
    const char *reason; /* why there is no port; NULL there is one */
};

struct budget_query {
    /* Command line of the server that a process belongs to, or its own; NULL not known. Borrowed.
     * May be NULL. */
    const char *(*line_fn)(void *userdata, const struct process_facts *facts);
    /* The newest allocation of the process that failed for good. May be NULL: not known. */
    bool (*failure_fn)(void *userdata, uint32_t tgid, struct budget_failure *ret);
    const struct budget_server *servers;
    size_t server_count;
    const struct kv_history_row *histories; /* of KV caches, for kv_history[] */
    size_t history_count;
    void *userdata;
};

/* Everything of one row; false: nothing of a plan can be in it (no allocator, no phase). Cost:
 * linear in owners. Returns 0; -ENOMEM. */
int budget_from_ledger(const struct ledger *l, const struct view_context *c,
                       const struct budget_query *q, const struct view_row *row,
                       struct budget_input *ret, bool *ret_is_any);

/* The document of `budget`: ranks[], servers[] and kv_history[]. A process that has ended is shown
 * where no living one is on its card. */
int view_budget(const struct ledger *l, const struct view_context *c, const struct budget_query *q,
                struct json *j);

#endif
