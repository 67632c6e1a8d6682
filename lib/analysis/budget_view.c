/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget_view.c - see budget_view.h.
 *
 * Owns: which owners and phases stand for which term. Must not: compute a term.
 */
#include "budget_view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

struct gather {
    const struct ledger *l;
    const struct view_row *row;
    struct budget_input *in;
    int64_t weights, kv, graph, hccl; /* bytes; peaks of rows that are empty by now */
    int64_t weights_physical, kv_physical;
    int64_t weights_kept, kv_kept;          /* the same, as an earlier daemon knew them */
    bool has_weights_phase;                 /* this ledger saw a part of it */
    bool has_kept_profile, has_cut_profile; /* seen by an earlier daemon: all of it, a part */
};

/* What an earlier daemon saw the owner of a phase hold. */
static int64_t kept_of(const struct ledger_phase_use *u)
{
    if (u->held_bytes != LEDGER_HELD_UNKNOWN)
        return (int64_t)u->held_bytes;
    return u->held_physical_bytes != LEDGER_HELD_UNKNOWN ? (int64_t)u->held_physical_bytes
                                                         : BUDGET_UNKNOWN;
}

static struct budget_moment moment_of(const struct ledger_mem_info *m)
{
    return (struct budget_moment){
        .is_known = m->time_ns != 0,
        .free_bytes = (int64_t)m->free_bytes,
        .total_bytes = (int64_t)m->total_bytes,
        .physical_bytes = (int64_t)m->physical_bytes,
        .reserved_bytes = m->reserved_bytes,
        .allocated_bytes = m->allocated_bytes,
    };
}

static int on_phase(void *userdata, const struct ledger_phase_use *u)
{
    struct gather *g = userdata;
    struct budget_input *in = g->in;

    if (u->device != g->row->device)
        return 0;
    in->has_phases |= u->class_id != 0 && u->block_count != 0;
    if (ledger_phase_is(g->l, u->class_id, "init")) {
        in->start = moment_of(&u->first);
    } else if (ledger_phase_is(g->l, u->class_id, "weights")) {
        g->has_weights_phase = !u->is_kept || u->is_continued;
        g->weights_kept = kept_of(u);
        if (u->block_count)
            in->load_start_bytes = u->start_allocated_bytes;
    } else if (ledger_phase_is(g->l, u->class_id, "kv_cache")) {
        g->kv_kept = kept_of(u);
    } else if (ledger_phase_is(g->l, u->class_id, "profile")) {
        in->before = moment_of(&u->first);
        in->after = moment_of(&u->last);
        if (u->block_count) {
            in->peak_allocated_bytes = u->peak_allocated_bytes;
            in->profile_start_bytes = u->start_allocated_bytes;
        }
        g->has_kept_profile = u->is_kept && !u->is_continued;
        g->has_cut_profile = u->is_continued;
    } else if (ledger_phase_is(g->l, u->class_id, "graph") && u->first.time_ns != u->last.time_ns) {
        in->capturing = moment_of(&u->first);
        in->captured = moment_of(&u->last);
    }
    return 0;
}

static bool has_word(const char *owner, const char *word)
{
    const char *at = strstr(owner, word);
    char after = at ? at[strlen(word)] : 'x';
    return at && (after == '\0' || after == '@');
}

/* A row that is empty by now counts as what it was: the process may have ended, and cleaned up
 * before. */
static void add(int64_t *sum, const struct ledger_owner_total *t)
{
    uint64_t bytes = t->bytes ? t->bytes : t->peak_bytes;
    *sum = (*sum == BUDGET_UNKNOWN ? 0 : *sum) + (int64_t)bytes;
}

static int on_owner(void *userdata, const struct ledger_owner_total *t)
{
    struct gather *g = userdata;
    const char *owner = ledger_owner_name(g->l, t->owner);
    bool is_block = t->level == LEVEL_BLOCK;

    if (!view_row_has(g->row, t->level, t->device) || (!is_block && t->level != LEVEL_PHYSICAL))
        return 0;
    if (has_word(owner, "@weights")) {
        add(is_block ? &g->weights : &g->weights_physical, t);
        g->in->is_inferred |= t->inferred;
    } else if (has_word(owner, "@kv_cache")) {
        add(is_block ? &g->kv : &g->kv_physical, t);
        g->in->is_inferred |= t->inferred;
    } else if (is_block && (has_word(owner, "@graph") || has_word(owner, "@graph_pool"))) {
        add(&g->graph, t);
    } else if (!is_block && strncmp(owner, "CANN@HCCL", 9) == 0) {
        g->hccl = (g->hccl == BUDGET_UNKNOWN ? 0 : g->hccl) + (int64_t)t->bytes;
    }
    return 0;
}

static int64_t first_known(int64_t a, int64_t b, int64_t c)
{
    return a != BUDGET_UNKNOWN ? a : b != BUDGET_UNKNOWN ? b : c;
}

static int on_comm(void *userdata, const struct ledger_comm *comm)
{
    struct gather *g = userdata;
    g->in->communicators++;
    g->in->sized_otherwise += !settings_decides_buffer(&g->in->read, comm->buffer_bytes);
    return 0;
}

static void take_totals(const struct ledger *l, const struct view_row *row, struct budget_input *in)
{
    uint64_t total, used;

    if (row->device >= 0 && ledger_card(l, (uint16_t)row->device, &total, &used))
        in->total_bytes = (int64_t)total;
    if (row->physical_known)
        in->physical_bytes = (int64_t)row->use.physical_bytes;
    for (size_t i = 0; i < row->pool_count; i++) {
        if (row->pools[i].component != NM_BLOCK_CACHING)
            continue;
        in->has_blocks = true;
        in->reserved_bytes = row->pools[i].reserved_bytes;
        in->allocated_bytes = row->pools[i].allocated_bytes;
    }
}

static void take_settings(const struct view_context *c, const struct budget_query *q,
                          const struct view_row *row, struct budget_input *in)
{
    struct budget_failure failure;
    const char *source;

    if (c->environment_fn)
        in->settings.environment = c->environment_fn(c->userdata, row->facts.tgid,
                                                     &in->settings.environment_bytes, &source);
    in->settings.title = q->line_fn ? q->line_fn(q->userdata, &row->facts) : NULL;
    if (!q->failure_fn || !q->failure_fn(q->userdata, row->facts.tgid, &failure))
        return;
    in->has_failure = true;
    in->failure_requested_bytes = failure.requested_bytes;
    in->failure_short_bytes = failure.short_bytes;
    in->failure_physical_bytes = failure.physical_bytes;
    memcpy(in->failure_phase, failure.phase, sizeof(in->failure_phase));
}

int budget_from_ledger(const struct ledger *l, const struct view_context *c,
                       const struct budget_query *q, const struct view_row *row,
                       struct budget_input *ret, bool *ret_is_any)
{
    struct gather g = {
        .l = l,
        .row = row,
        .in = ret,
        .weights = BUDGET_UNKNOWN,
        .kv = BUDGET_UNKNOWN,
        .graph = BUDGET_UNKNOWN,
        .hccl = BUDGET_UNKNOWN,
        .weights_physical = BUDGET_UNKNOWN,
        .kv_physical = BUDGET_UNKNOWN,
        .weights_kept = BUDGET_UNKNOWN,
        .kv_kept = BUDGET_UNKNOWN,
    };
    int r;

    budget_input_init(ret);
    ret->tgid = row->facts.tgid;
    ret->server_tgid = row->facts.server_tgid ? row->facts.server_tgid : row->facts.tgid;
    ret->rank = row->facts.rank;
    ret->device = row->device;
    ret->is_late = row->coverage.late;
    ret->has_ended = !row->alive;
    memcpy(ret->comm, row->facts.comm, sizeof(ret->comm));
    take_totals(l, row, ret);
    ledger_each_phase(l, ret->tgid, on_phase, &g);
    if (ret->is_late && !g.has_kept_profile && (g.has_cut_profile || !g.has_weights_phase)) {
        /* it came into the middle of the profile run, or after it: the first it saw is not the
         * first, and its highest may have been where nobody looked */
        ret->before.is_known = ret->after.is_known = false;
        ret->peak_allocated_bytes = ret->profile_start_bytes = BUDGET_UNKNOWN;
    }
    r = ledger_each_owner(l, ret->tgid, on_owner, &g);
    if (r < 0)
        return r;
    ret->weights_bytes = first_known(g.weights, g.weights_physical, g.weights_kept);
    ret->kv_bytes = first_known(g.kv, g.kv_physical, g.kv_kept);
    ret->graph_bytes = g.graph;
    ret->hccl_bytes = g.hccl;
    take_settings(c, q, row, ret);
    settings_read(&ret->settings, &ret->read);
    ledger_each_comm(l, ret->tgid, on_comm, &g);
    *ret_is_any = ret->has_blocks || ret->has_phases || ret->start.is_known ||
                  ret->kv_bytes != BUDGET_UNKNOWN;
    return 0;
}

static bool is_wanted(const struct view_rows *rows, const struct view_row *row, bool is_named)
{
    if (!row->selected || !row->main || row->device < 0)
        return false;
    if (row->alive || is_named)
        return true;
    for (size_t i = 0; i < rows->count; i++) {
        const struct view_row *other = &rows->items[i];
        if (other != row && other->main && other->device == row->device &&
            (other->alive || other > row)) /* a later one has ended there, too */
            return false;
    }
    return true;
}

static void write_servers(const struct budget_query *q, struct json *j)
{
    json_karray(j, "servers");
    for (size_t i = 0; i < q->server_count; i++) {
        const struct budget_server *s = &q->servers[i];
        json_object(j);
        json_ku64(j, "tgid", s->tgid);
        json_ku64_or_null(j, "metrics_port", s->port != 0, s->port);
        json_kstr(j, "network", s->network[0] ? s->network : NULL);
        json_kstr(j, "reason", s->reason);
        json_end(j);
    }
    json_end(j);
}

/* What the plan of a rank says of the cache of the engine that it belongs to. */
struct planned {
    uint32_t tgid, engine_tgid;
    struct kv_history_rank rank;
};

static void planned_take(const struct view_row *row, const struct budget_result *result,
                         struct planned *ret)
{
    int64_t kv = result->terms[BUDGET_KV_CACHE].bytes;
    int64_t total = result->terms[BUDGET_CARD_TOTAL].bytes;

    *ret = (struct planned){
        .tgid = row->facts.tgid,
        .engine_tgid = row->facts.engine_tgid,
        .rank = {.kv_bytes = kv > 0 ? (uint64_t)kv : 0,
                 .total_bytes = total > 0 ? (uint64_t)total : 0,
                 .utilization = result->utilization},
    };
}

/* The largest cache of the ranks that are shown decides. */
static void write_histories(const struct view_context *c, const struct budget_query *q,
                            const struct planned *planned, size_t count, struct json *j)
{
    json_karray(j, "kv_history");
    for (size_t i = 0; i < q->history_count; i++) {
        const struct kv_history_row *row = &q->histories[i];
        const struct planned *of = NULL;
        for (size_t k = 0; row->is_alive && k < count; k++)
            if ((planned[k].tgid == row->tgid || planned[k].engine_tgid == row->tgid) &&
                (!of || planned[k].rank.kv_bytes > of->rank.kv_bytes))
                of = &planned[k];
        if (c->device_count && !of)
            continue;
        kv_history_write(row, of ? &of->rank : &(struct kv_history_rank){0}, j);
    }
    json_end(j);
}

int view_budget(const struct ledger *l, const struct view_context *c, const struct budget_query *q,
                struct json *j)
{
    struct view_context with_exited = *c;
    struct view_rows rows;
    size_t count = 0;
    int r;

    with_exited.include_exited = with_exited.exited_in_full = true;
    r = view_rows_collect(l, &with_exited, &rows);
    if (r < 0)
        return r;
    struct planned *planned = calloc(rows.count + 1, sizeof(*planned));
    if (!planned) {
        view_rows_done(&rows);
        return -ENOMEM;
    }
    json_object(j);
    view_header(c, j);
    json_karray(j, "ranks");
    for (size_t i = 0; i < rows.count && r == 0; i++) {
        struct budget_input in;
        struct budget_result result;
        bool is_any;
        if (!is_wanted(&rows, &rows.items[i], c->tgid_count != 0))
            continue;
        r = budget_from_ledger(l, c, q, &rows.items[i], &in, &is_any);
        if (r < 0 || (!is_any && !c->tgid_count))
            continue;
        budget_compute(&in, &result);
        budget_write(&in, &result, j);
        if (rows.items[i].alive)
            planned_take(&rows.items[i], &result, &planned[count++]);
    }
    json_end(j);
    write_servers(q, j);
    write_histories(c, q, planned, count, j);
    json_end(j);
    free(planned);
    view_rows_done(&rows);
    return r ? r : j->error;
}
