/* SPDX-License-Identifier: Apache-2.0 */
/*
 * method_budget.c - the method Budget: the plan of each rank's KV cache, and where the servers
 * answer.
 */
#include <string.h>

#include "budget_view.h"
#include "kv_gather.h"
#include "method_context.h"
#include "methods.h"
#include "servers.h"

static const char *on_line(void *userdata, const struct process_facts *facts)
{
    struct manager *m = userdata;
    return servers_line(m->servers, facts->tgid);
}

static bool on_failure(void *userdata, uint32_t tgid, struct budget_failure *ret)
{
    struct manager *m = userdata;
    return oom_log_newest(m->oom, tgid, ret);
}

struct list {
    struct manager *m;
    struct budget_server servers[SERVERS_SHOWN_MAX];
    size_t count;
};

/* Each server once, by the first of its living processes that holds device memory. */
static void list_servers(struct manager *m, struct list *list)
{
    for (struct target *t = targets_first(m->targets); t; t = t->next) {
        uint32_t server = t->facts.server_tgid ? t->facts.server_tgid : t->tgid;
        size_t at = 0;
        const char *line = servers_line(m->servers, t->tgid);
        if (t->has_workers || list->count == SERVERS_SHOWN_MAX || !line ||
            (!servers_framework(line) && strncmp(line, "VLLM::", 6) != 0))
            continue; /* no server that is known to tell */
        if (!ledger_holds_memory(m->ledger, t->tgid))
            continue;
        while (at < list->count && list->servers[at].tgid != server)
            at++;
        if (at < list->count)
            continue;
        servers_find_port(m->servers, t->tgid, server, &list->servers[list->count++]);
    }
}

void method_budget_query(struct manager *m, struct budget_query *ret)
{
    *ret = (struct budget_query){.line_fn = on_line, .failure_fn = on_failure, .userdata = m};
}

static int document(struct manager *m, const struct view_context *c, uint64_t since_ns,
                    uint64_t until_ns, struct json *j)
{
    _cleanup_free_ struct kv_history_row *rows = NULL;
    _cleanup_free_ struct list *list = calloc(1, sizeof(*list));
    struct budget_query q;
    size_t count = 0;
    int r = list ? kv_gather(m, c, since_ns, until_ns, &rows, &count) : -ENOMEM;

    if (r < 0)
        return r;
    list_servers(m, list);
    method_budget_query(m, &q);
    q.servers = list->servers;
    q.server_count = list->count;
    q.histories = rows;
    q.history_count = count;
    return view_budget(m->ledger, c, &q, j);
}

int method_budget(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    uint64_t since_ns = 0, until_ns = 0;
    struct method_filter f = {};
    struct view_context c;
    struct json j = {};
    int r = method_filter_read(call, &f);

    if (r >= 0)
        r = api_param_u64(call, "since_ns", INT64_MAX, &since_ns);
    if (r >= 0)
        r = api_param_u64(call, "until_ns", INT64_MAX, &until_ns);
    if (r >= 0)
        r = method_begin(call, m, &f, METHOD_WITH_CARDS, &c);
    if (r <= 0)
        return r;
    if (until_ns && since_ns >= until_ns)
        return api_error(call, "BadParameter", "since, until: no time between them",
                         "since_ns before until_ns");
    oom_log_turn(m->oom);
    method_document_begin(&j);
    return method_document_reply(call, &j, document(m, &c, since_ns, until_ns, &j));
}
