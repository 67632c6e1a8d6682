/* SPDX-License-Identifier: Apache-2.0 */
/*
 * method_context.h - what every method that answers with a document has in common: filters, the
 * context of a view, moments, the reply.
 *
 * A method: method_filter_read(), its own api_param_*(); method_begin(), or for one that answers of
 * earlier moments method_moment_find() and what follows it; method_document_begin(), the view,
 * method_document_reply(). method_frag() is one.
 */
#ifndef NPUMEM_DAEMON_METHOD_CONTEXT_H
#define NPUMEM_DAEMON_METHOD_CONTEXT_H

#include "budget_view.h"
#include "json_write.h"
#include "manager.h"
#include "view.h"

#define METHOD_FILTER_MAX 64

/* Filter lists of one call, in the types that views take. */
struct method_filter {
    uint32_t tgids[METHOD_FILTER_MAX];
    int32_t ranks[METHOD_FILTER_MAX];
    uint16_t devices[METHOD_FILTER_MAX];
    const char *containers[METHOD_FILTER_MAX]; /* borrowed from the call */
    size_t tgid_count, rank_count, device_count, container_count;
};

/* Reads tgid, rank, device and container. Returns 0; negative after the error reply. */
int method_filter_read(struct api_call *call, struct method_filter *ret);

/* A filter that names processes must find one: an empty answer to a wrong pid would read as "holds
 * nothing". Returns 0; 1 after the error reply. */
int method_check_tgids(const struct ledger *l, struct api_call *call,
                       const struct method_filter *f);

/* The context of this moment, with everything that the manager can tell beside the ledger. The
 * filter (NULL: none) must outlive it. */
void method_context_init(struct manager *m, const struct method_filter *f,
                         struct view_context *ret);

enum method_figures { METHOD_LEDGER, METHOD_WITH_CARDS };
/* What lies between the parameters and the view of a method that answers of now: api_params_done(),
 * manager_sync(), method_check_tgids(), method_context_init(). The filter (NULL: none) must outlive
 * the context. Returns 1; 0 or negative after the error reply. Cost: that of manager_sync(), or
 * manager_sync_cards(). */
int method_begin(struct api_call *call, struct manager *m, const struct method_filter *f,
                 enum method_figures figures, struct view_context *ret);

/* {"document": ...}: the object is left open for the view. */
void method_document_begin(struct json *j);
/* Closes it and replies, unless r (of the view) is negative, which becomes the method's return.
 * Frees the writer. */
int method_document_reply(struct api_call *call, struct json *j, int r);

/* The same for a call that was deferred, of method `what`: a negative r becomes the error that it
 * would be as a handler's return. The call is gone afterwards. */
void method_document_answer(struct api_call *call, const char *what, struct json *j, int r);

/* What a budget asks beside the ledger (method_budget.c); without servers. */
void method_budget_query(struct manager *m, struct budget_query *ret);

/* The ledger of a moment: the live one, or what the store's samples say of an earlier one. */
struct method_moment {
    const struct ledger *ledger; /* borrowed or `restored` */
    struct ledger *restored;
    struct view_moment view;
};
/* Resolves the text of parameter `name` (NULL or "now": now, after manager_sync_cards()). Returns
 * 1; 0 after the error reply; negative errno. Owns: method_moment_done(). */
int method_moment_find(struct api_call *call, struct manager *m, const char *name, const char *at,
                       struct method_moment *ret);
void method_moment_done(struct method_moment *moment);
/* Makes a context of now one of that moment: what is only known of now is taken out. */
void method_context_at(struct view_context *c, const struct method_moment *moment);

#endif
