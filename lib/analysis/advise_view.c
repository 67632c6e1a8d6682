/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advise_view.c - see advise_view.h.
 *
 * Owns: where the evidence of each rule comes from. Must not: advise.
 */
#include "advise_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "layout_ledger.h"
#include "settings.h"

struct gather {
    const struct ledger *l;
    const struct view_row *row;
    struct advise_input *in;
    uint64_t sleep_ns, other_ns; /* newest moment in the phase sleep, in any other */
};

static int on_phase(void *userdata, const struct ledger_phase_use *u)
{
    struct gather *g = userdata;
    uint64_t *newest = ledger_phase_is(g->l, u->class_id, "sleep") ? &g->sleep_ns : &g->other_ns;

    if (u->class_id && u->last_ns > *newest)
        *newest = u->last_ns;
    return 0;
}

struct comm_owner {
    const struct gather *g;
    uint32_t owner, sharing; /* communicators of that owner: two of one name have the same */
    uint64_t bytes;
};

static int on_comm_owner(void *userdata, const struct ledger_owner_total *t)
{
    struct comm_owner *o = userdata;

    if (t->owner == o->owner && t->level == LEVEL_PHYSICAL && t->device == o->g->row->device)
        o->bytes += t->bytes;
    return 0;
}

static int on_sharing(void *userdata, const struct ledger_comm *comm)
{
    struct comm_owner *o = userdata;

    o->sharing += comm->handle && comm->owner == o->owner;
    return 0;
}

static int on_comm(void *userdata, const struct ledger_comm *comm)
{
    struct gather *g = userdata;
    struct comm_owner o = {.g = g, .owner = comm->owner};
    int r;

    if (!comm->handle)
        return 0;
    g->in->communicators++;
    if (!settings_decides_buffer(&g->in->read, comm->buffer_bytes))
        return 0;
    r = ledger_each_owner(g->l, g->in->tgid, on_comm_owner, &o);
    if (r == 0)
        r = ledger_each_comm(g->l, g->in->tgid, on_sharing, &o);
    if (r < 0 || !o.bytes || !o.sharing)
        return r;
    g->in->hccl_default_bytes += o.bytes / o.sharing;
    g->in->hccl_default_count++;
    return 0;
}

static int on_atb(void *userdata, const struct view_atb *a)
{
    struct advise_input *in = userdata;

    in->atb_executions += a->execute_count;
    if (a->workspace_max_bytes > in->atb_workspace_max_bytes)
        in->atb_workspace_max_bytes = a->workspace_max_bytes;
    return 0;
}

/* Free bytes in segments, where all segments and large blocks are known. */
static int take_slack(const struct ledger *l, const struct view_row *row,
                      const struct alloc_conf *conf, struct advise_input *in)
{
    struct layout layout;
    int r = layout_from_ledger(l, in->tgid, (uint16_t)row->device, &layout);

    if (r == 0)
        r = layout_measure(&layout);
    if (r == 0)
        slack_measure(&layout, conf, in->reserved_bytes, in->allocated_bytes, &in->slack);
    layout_done(&layout);
    return r;
}

static void take_pools(const struct view_row *row, struct advise_input *in)
{
    for (size_t i = 0; i < row->pool_count; i++) {
        const struct view_pool *p = &row->pools[i];
        if (p->component == NM_BLOCK_WORKSPACE)
            in->workspace_bytes = (uint64_t)p->reserved_bytes;
        if (p->component != NM_BLOCK_CACHING)
            continue;
        in->reserved_bytes = (uint64_t)p->reserved_bytes;
        in->allocated_bytes = (uint64_t)p->allocated_bytes;
        in->active_bytes = (uint64_t)p->active_bytes;
    }
}

/* What everybody else holds of the row's card. */
static void take_others(const struct ledger *l, const struct view_context *c,
                        const struct view_rows *rows, const struct view_row *row,
                        struct advise_input *in)
{
    uint64_t total, used, unseen = 0, sum = 0;

    if (ledger_card(l, (uint16_t)row->device, &total, &used))
        in->total_bytes = total;
    if (in->reserved_bytes != ANALYSIS_UNKNOWN && row->use.physical_bytes >= in->reserved_bytes)
        in->outside_bytes = row->use.physical_bytes - in->reserved_bytes;
    if (c->other_bytes_fn && !c->other_bytes_fn(c->userdata, (uint16_t)row->device, &unseen))
        return;
    for (size_t i = 0; i < rows->count; i++)
        if (rows->items[i].device == row->device && rows->items[i].alive &&
            rows->items[i].facts.tgid != row->facts.tgid)
            sum += rows->items[i].use.physical_bytes;
    in->others_bytes = sum + unseen;
}

static void take_collector(const struct view_context *c, const struct advise_query *q,
                           const struct ledger *l, struct advise_input *in)
{
    const struct ledger_process *p = ledger_find_process(l, in->tgid);
    struct advise_gc *gc = &in->gc;

    struct ledger_collected collected;

    if (q->gc_fn)
        q->gc_fn(q->budget.userdata, in->tgid, gc);
    ledger_collected(l, in->tgid, &collected);
    memcpy(gc->freed_bytes, collected.freed_bytes, sizeof(gc->freed_bytes));
    memcpy(gc->freed_blocks, collected.freed_blocks, sizeof(gc->freed_blocks));
    gc->largest_bytes = collected.largest_bytes;
    if (!p)
        return;
    if (p->facts.start_time_ns && p->facts.start_time_ns < c->wall_ns)
        gc->since_ns = c->wall_ns - p->facts.start_time_ns;
}

static int gather(const struct ledger *l, const struct view_context *c,
                  const struct advise_query *q, const struct view_rows *rows,
                  const struct view_row *row, const struct budget_input *plan,
                  struct advise_input *in)
{
    struct gather g = {.l = l, .row = row, .in = in};
    int r;

    advise_input_init(in);
    in->tgid = row->facts.tgid;
    in->rank = row->facts.rank;
    in->device = row->device;
    in->settings = plan->settings;
    in->read = plan->read;
    take_pools(row, in);
    take_others(l, c, rows, row, in);
    take_collector(c, q, l, in);
    ledger_each_phase(l, in->tgid, on_phase, &g);
    in->is_asleep = g.sleep_ns > g.other_ns;
    if (q->reports_fn)
        q->reports_fn(q->budget.userdata, in->tgid, in);
    r = ledger_each_comm(l, in->tgid, on_comm, &g);
    if (r == 0 && c->atb_fn) {
        in->is_atb_known = true;
        r = c->atb_fn(c->userdata, in->tgid, on_atb, in);
    }
    return r < 0 ? r : take_slack(l, row, &in->read.conf, in);
}

static void write_collector(const struct advise_input *in, struct json *j)
{
    static const char *const keys[] = {"collections", "uncollectable", "freed_bytes",
                                       "freed_blocks"};
    const struct advise_gc *gc = &in->gc;
    const uint64_t *const values[] = {gc->collections, gc->uncollectable, gc->freed_bytes,
                                      gc->freed_blocks};

    if (!gc->is_known)
        return;
    json_object(j);
    json_ku64(j, "tgid", in->tgid);
    json_kbool(j, "enabled", gc->is_enabled);
    json_kbool(j, "frozen", gc->is_frozen);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        json_karray(j, keys[i]);
        for (size_t k = 0; k < ADVISE_GENERATIONS; k++)
            json_u64(j, values[i][k]);
        json_end(j);
    }
    json_end(j);
}

struct processes {
    struct advise_input *items;
    size_t count;
};

static int write_all(const struct ledger *l, const struct view_context *c,
                     const struct advise_query *q, const struct view_rows *rows,
                     struct processes *done, struct json *j)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct view_row *row = &rows->items[i];
        struct advise_input *in = &done->items[done->count];
        struct advise_result result;
        struct budget_input plan;
        struct budget_result budget;
        bool is_any;
        if (!row->selected || !row->main || !row->alive || row->device < 0)
            continue;
        int r = budget_from_ledger(l, c, &q->budget, row, &plan, &is_any);
        if (r == 0)
            r = gather(l, c, q, rows, row, &plan, in);
        if (r < 0)
            return r;
        budget_compute(&plan, &budget);
        in->budget = is_any ? &budget : NULL;
        advise_compute(in, &result);
        advise_write(in, &result, j);
        in->budget = NULL;
        done->count++;
    }
    return 0;
}

int view_advise(const struct ledger *l, const struct view_context *c, const struct advise_query *q,
                struct json *j)
{
    struct processes done = {0};
    struct view_rows rows;
    int r = view_rows_collect(l, c, &rows);

    if (r < 0)
        return r;
    done.items = calloc(rows.count + 1, sizeof(*done.items));
    json_object(j);
    view_header(c, j);
    json_karray(j, "advice");
    r = done.items ? write_all(l, c, q, &rows, &done, j) : -ENOMEM;
    json_end(j);
    json_karray(j, "gc");
    for (size_t i = 0; i < done.count; i++)
        write_collector(&done.items[i], j);
    json_end(j);
    json_ku64(j, "processes", done.count);
    json_end(j);
    free(done.items);
    view_rows_done(&rows);
    return r ? r : j->error;
}
