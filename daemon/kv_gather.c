/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_gather.c - see kv_gather.h.
 */
#include "kv_gather.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "map.h"
#include "procfacts.h"
#include "store_kv.h"
#include "store_series.h"
#include "view_rows.h"

#define SPANS_PER_DRAIN 16384 /* the ring is emptied while spans are read */

/* A process that has spans. */
struct life {
    struct map_key key; /* row of process */
    uint32_t row;       /* of rows; NO_ROW it is not wanted */
    uint32_t zero;
};
#define NO_ROW UINT32_MAX

struct gather {
    struct manager *m;
    const struct view_context *context;
    bool is_window;
    struct kv_history_row *rows;
    size_t count;
    struct map lives; /* struct life */
    uint64_t spans;
};

static const struct target *target_of(struct manager *m, const struct process_facts *facts)
{
    const struct target *t = targets_find(m->targets, facts->tgid);

    return t && t->facts.start_ticks == facts->start_ticks ? t : NULL;
}

bool kv_gather_takes(struct manager *m, const struct view_context *c,
                     const struct process_facts *facts)
{
    if (view_filter_process(c, facts))
        return true;
    for (struct target *t = target_of(m, facts) ? targets_first(m->targets) : NULL; t; t = t->next)
        if (t->facts.engine_tgid == facts->tgid && view_filter_process(c, &t->facts))
            return true;
    return false;
}

/* An engine is the child of its server; another process that has a scheduler is the server. */
uint32_t kv_gather_server(const struct process_facts *facts)
{
    struct title_facts title;

    title_parse(facts->title, &title);
    return title.kind == TITLE_ENGINE && facts->parent_tgid ? facts->parent_tgid : facts->tgid;
}

/* Returns its number, NO_ROW: there are too many. */
static uint32_t row_add(struct gather *g, const struct process_facts *facts, bool is_alive,
                        const char *reason)
{
    if (g->count == KV_GATHER_ROWS_MAX)
        return NO_ROW;
    g->rows[g->count++] = (struct kv_history_row){
        .tgid = facts->tgid,
        .server_tgid = kv_gather_server(facts),
        .replica = facts->replica,
        .is_alive = is_alive,
        .interval_ns = g->m->config.store_kv_interval,
        .reason = reason,
    };
    return (uint32_t)g->count - 1;
}

static int life_fill(struct gather *g, struct life *life)
{
    struct process_facts facts = {0};
    uint64_t exit_ns = 0;
    int r = store_process_of(g->m->store, (int64_t)life->key.a, &facts, &exit_ns);
    const struct target *t = r == 0 && !exit_ns ? target_of(g->m, &facts) : NULL;
    const struct process_facts *known = t ? &t->facts : &facts;

    life->row = NO_ROW;
    if (r == 0 && (g->is_window || t) && kv_gather_takes(g->m, g->context, known))
        life->row = row_add(g, known, t != NULL, NULL);
    return r == -ENOENT ? 0 : r;
}

static int on_span(void *userdata, int64_t process_id, const struct kv_span *span)
{
    struct gather *g = userdata;
    uint32_t n = map_find(&g->lives, (uint64_t)process_id, 0);
    int r = 0;

    if (++g->spans % SPANS_PER_DRAIN == 0)
        ring_sync(g->m->ring);
    if (!n) {
        r = map_add(&g->lives, (uint64_t)process_id, 0, &n);
        if (r == 0)
            r = life_fill(g, map_at(&g->lives, n));
        if (r < 0)
            return r;
    }
    const struct life *life = map_at(&g->lives, n);
    if (life->row != NO_ROW)
        kv_history_add(&g->rows[life->row].history, span);
    return 0;
}

static bool has_row(const struct gather *g, uint32_t tgid)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->rows[i].is_alive && g->rows[i].tgid == tgid)
            return true;
    return false;
}

/* Whether a scheduler is to be expected in it: an engine, or a vLLM that holds the memory itself.
 */
static bool is_engine(struct manager *m, const struct target *t)
{
    const char *framework = servers_framework(servers_line(m->servers, t->tgid));

    return t->facts.role == TITLE_ENGINE ||
           (t->facts.role == TITLE_OTHER && framework && strcmp(framework, "vllm") == 0 &&
            ledger_holds_memory(m->ledger, t->tgid));
}

static void silent_add(struct gather *g)
{
    const char *off = !g->m->store ? "it is kept in the store, and there is none"
                      : !g->m->kv  ? "switched off (store.kv_history)"
                                   : NULL;

    for (struct target *t = targets_first(g->m->targets); t; t = t->next) {
        if (!is_engine(g->m, t) || has_row(g, t->tgid) ||
            !kv_gather_takes(g->m, g->context, &t->facts))
            continue;
        const char *reason = off ? off : kv_watch_reason(g->m->kv, t->tgid);
        row_add(g, &t->facts, true, reason ? reason : "nothing was read in this time");
    }
}

/* Nothing of a process that lives is from before the oldest of them. 0: not known of one. */
static uint64_t oldest_start_ns(struct manager *m)
{
    uint64_t oldest = UINT64_MAX;

    for (struct target *t = targets_first(m->targets); t; t = t->next)
        if (t->facts.start_time_ns < oldest)
            oldest = t->facts.start_time_ns;
    return oldest;
}

int kv_gather(struct manager *m, const struct view_context *c, uint64_t since_wall_ns,
              uint64_t until_wall_ns, struct kv_history_row **ret, size_t *ret_count)
{
    struct gather g = {.m = m, .context = c, .is_window = since_wall_ns || until_wall_ns};
    int r;

    map_init(&g.lives, sizeof(struct life), 5, NULL);
    g.rows = calloc(KV_GATHER_ROWS_MAX, sizeof(*g.rows));
    if (!g.rows)
        return -ENOMEM;
    kv_watch_flush(m->kv);
    if (!g.is_window)
        since_wall_ns = oldest_start_ns(m);
    r = store_kv_each(m->store, since_wall_ns, until_wall_ns ? until_wall_ns : UINT64_MAX, on_span,
                      &g);
    map_clear(&g.lives);
    if (r < 0 && r != -ENOENT) {
        free(g.rows);
        return r;
    }
    silent_add(&g);
    *ret = g.rows;
    *ret_count = g.count;
    return 0;
}
