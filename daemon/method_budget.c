/* SPDX-License-Identifier: Apache-2.0 */
/*
 * method_budget.c - the method Budget: the plan of each rank's KV cache, and where the servers
 * answer.
 */
#include <string.h>

#include "budget_view.h"
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

static int on_device(void *userdata, const struct ledger_device_use *use)
{
    return use->physical_bytes > 0;
}

/* Each server once, by the first of its living processes that holds device memory. */
static void list_servers(struct manager *m, struct list *list)
{
    for (struct target *t = targets_first(m->targets); t; t = t->next) {
        uint32_t server = t->facts.server_tgid ? t->facts.server_tgid : t->tgid;
        size_t at = 0;
        const char *line = servers_line(m->servers, t->tgid);
        if (t->has_workers || list->count == SERVERS_SHOWN_MAX || !line ||
            (!analysis_runs(line, "vllm") && !analysis_runs(line, "sglang") &&
             strncmp(line, "VLLM::", 6) != 0))
            continue; /* no server that is known to tell */
        if (ledger_each_device(m->ledger, t->tgid, on_device, NULL) <= 0)
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

int method_budget(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    struct method_filter f = {};
    struct budget_query q;
    struct view_context c;
    struct json j = {};
    int r = method_filter_read(call, &f);

    if (r == 0)
        r = method_begin(call, m, &f, METHOD_WITH_CARDS, &c);
    if (r <= 0)
        return r;
    oom_log_turn(m->oom);
    struct list *list = calloc(1, sizeof(*list));
    if (!list)
        return -ENOMEM;
    list_servers(m, list);
    method_budget_query(m, &q);
    q.servers = list->servers;
    q.server_count = list->count;
    method_document_begin(&j);
    r = method_document_reply(call, &j, view_budget(m->ledger, &c, &q, &j));
    free(list);
    return r;
}
