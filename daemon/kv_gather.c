/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_gather.c - see kv_gather.h.
 */
#include "kv_gather.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis.h"
#include "procfacts.h"
#include "store_kv.h"
#include "store_series.h"
#include "view_rows.h"

#define SPANS_PER_DRAIN 16384 /* the ring is emptied while spans are read */

struct gather {
    struct manager *m;
    const struct view_context *context;
    bool is_window;
    struct kv_history_row *rows;
    size_t count;
    int64_t process_id; /* of the spans at hand */
    bool is_wanted;     /* ... and whether they belong to the last row */
    uint64_t spans;
};

static const struct target *target_of(struct manager *m, const struct process_facts *facts)
{
    const struct target *t = targets_find(m->targets, facts->tgid);

    return t && t->facts.start_ticks == facts->start_ticks ? t : NULL;
}

/* The process itself, or one of its ranks. */
static bool filter_takes(const struct gather *g, const struct process_facts *facts, bool is_alive)
{
    if (view_filter_process(g->context, facts))
        return true;
    for (struct target *t = targets_first(g->m->targets); is_alive && t; t = t->next)
        if (t->facts.engine_tgid == facts->tgid && view_filter_process(g->context, &t->facts))
            return true;
    return false;
}

/* An engine is the child of its server; another process that has a scheduler is the server. */
static uint32_t server_of(const struct process_facts *facts)
{
    struct title_facts title;

    title_parse(facts->title, &title);
    return title.kind == TITLE_ENGINE && facts->parent_tgid ? facts->parent_tgid : facts->tgid;
}

static void row_add(struct gather *g, const struct process_facts *facts, bool is_alive,
                    const char *reason)
{
    if (g->count == KV_GATHER_ROWS_MAX)
        memmove(&g->rows[0], &g->rows[1], --g->count * sizeof(g->rows[0]));
    g->rows[g->count++] = (struct kv_history_row){
        .tgid = facts->tgid,
        .server_tgid = server_of(facts),
        .replica = facts->replica,
        .is_alive = is_alive,
        .interval_ns = g->m->config.store_kv_interval,
        .reason = reason,
    };
}

static int on_span(void *userdata, int64_t process_id, const struct kv_span *span)
{
    struct gather *g = userdata;

    if (++g->spans % SPANS_PER_DRAIN == 0)
        ring_sync(g->m->ring);
    if (process_id != g->process_id) {
        struct process_facts facts = {0};
        uint64_t exit_ns = 0;
        int r = store_process_of(g->m->store, process_id, &facts, &exit_ns);
        if (r < 0 && r != -ENOENT)
            return r;
        const struct target *t = r == 0 && !exit_ns ? target_of(g->m, &facts) : NULL;
        g->process_id = process_id;
        g->is_wanted =
            r == 0 && (g->is_window || t) && filter_takes(g, t ? &t->facts : &facts, t != NULL);
        if (g->is_wanted)
            row_add(g, t ? &t->facts : &facts, t != NULL, NULL);
    }
    if (g->is_wanted)
        kv_history_add(&g->rows[g->count - 1].history, span);
    return 0;
}

static bool has_row(const struct gather *g, uint32_t tgid)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->rows[i].is_alive && g->rows[i].tgid == tgid)
            return true;
    return false;
}

static int on_device(void *userdata, const struct ledger_device_use *use)
{
    return use->physical_bytes > 0;
}

/* Whether a scheduler is to be expected in it: an engine, or a vLLM that holds the memory itself.
 */
static bool is_engine(struct manager *m, const struct target *t)
{
    const char *line = servers_line(m->servers, t->tgid);

    return t->facts.role == TITLE_ENGINE ||
           (t->facts.role == TITLE_OTHER && line && analysis_runs(line, "vllm") &&
            ledger_each_device(m->ledger, t->tgid, on_device, NULL) > 0);
}

static void silent_add(struct gather *g)
{
    const char *off = !g->m->store ? "it is kept in the store, and there is none"
                      : !g->m->kv  ? "switched off (store.kv_history)"
                                   : NULL;

    for (struct target *t = targets_first(g->m->targets); t; t = t->next) {
        if (!is_engine(g->m, t) || has_row(g, t->tgid) || !filter_takes(g, &t->facts, true))
            continue;
        const char *reason = off ? off : kv_watch_reason(g->m->kv, t->tgid);
        row_add(g, &t->facts, true, reason ? reason : "nothing was read in this time");
    }
}

int kv_gather(struct manager *m, const struct view_context *c, uint64_t since_wall_ns,
              uint64_t until_wall_ns, struct kv_history_row **ret, size_t *ret_count)
{
    struct gather g = {
        .m = m, .context = c, .is_window = since_wall_ns || until_wall_ns, .process_id = -1};
    int r;

    g.rows = calloc(KV_GATHER_ROWS_MAX, sizeof(*g.rows));
    if (!g.rows)
        return -ENOMEM;
    kv_watch_flush(m->kv);
    r = store_kv_each(m->store, since_wall_ns, until_wall_ns ? until_wall_ns : UINT64_MAX, on_span,
                      &g);
    if (r < 0 && r != -ENOENT) {
        free(g.rows);
        return r;
    }
    silent_add(&g);
    *ret = g.rows;
    *ret_count = g.count;
    return 0;
}
