/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaks_recording.c - what grows in a recorded trace: every change of a sum goes into its series,
 * so that a step's floor is the true one; what is alive is what is at the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_conf.h"
#include "leak_blocks.h"
#include "leak_marks.h"
#include "leak_steps.h"
#include "leaks.h"
#include "owner.h"
#include "trace_replay.h"
#include "view_rows.h"

#define SERIES_MAX 8192
/* Steps that a judgement needs, and the shortest of one: what is over sooner is a start-up as
 * likely as a leak. */
#define STEPS_LEAST 60
#define STEP_LEAST_NS 10000000u

struct one {
    struct series series;
    struct leak_series pub;
    bool is_judged;
};

struct mark {
    uint64_t time_ns;
    char name[64];
};

struct gather {
    struct trace_replay replay;
    const struct recording_query *q;
    struct view_context context;
    struct series_grid grid;
    struct one *items; /* by the number of the sum */
    size_t capacity, count;
    bool is_full;
    struct mark *all_marks;
    size_t mark_count;
    struct leak_marks marks;
    struct leak_steps steps;
    uint64_t since_ns, until_ns; /* of the trace */
};

/* --- series --- */

/* As of a live process: segments are judged as the pool's reserved bytes, a workspace is held also
 * while nothing uses it. */
static bool is_judged(const struct replay_value *v)
{
    if (v->sum != REPLAY_OWNER)
        return true;
    return v->level == LEVEL_PHYSICAL ? v->owner != OWNER_ID_PTA_POOL
                                      : v->owner != OWNER_ID_PTA_WORKSPACE;
}

static struct leak_series describe(const struct gather *g, const struct replay_value *v)
{
    static const enum leak_source sources[] = {
        [REPLAY_OWNER] = LEAK_OWNER,     [REPLAY_ALLOCATED] = LEAK_ALLOCATED,
        [REPLAY_ACTIVE] = LEAK_ACTIVE,   [REPLAY_RESERVED] = LEAK_RESERVED,
        [REPLAY_PHYSICAL] = LEAK_DEVICE,
    };
    const struct ledger_process *p = ledger_find_process(g->replay.ledger, g->replay.state.tgid);
    bool is_owner = v->sum == REPLAY_OWNER;
    bool is_driver = v->sum == REPLAY_PHYSICAL || (is_owner && v->level == LEVEL_PHYSICAL);

    return (struct leak_series){
        .tgid = p->facts.tgid,
        .rank = p->facts.rank,
        .device = is_driver ? v->device : view_device_of(&p->facts, v->device),
        .native_device = v->device,
        .source = sources[v->sum],
        .owner = is_owner ? ledger_owner_name(g->replay.ledger, v->owner) : NULL,
        .level = is_owner ? level_name(v->level) : NULL,
    };
}

static int on_value(void *userdata, uint64_t time_ns, const struct replay_value *v)
{
    struct gather *g = userdata;

    if (v->series > SERIES_MAX) {
        g->is_full = true;
        return 0;
    }
    if (v->series >= g->capacity) {
        size_t capacity = 2 * (size_t)v->series + 16;
        struct one *more = reallocarray(g->items, capacity, sizeof(*more));
        if (!more)
            return -ENOMEM;
        memset(more + g->capacity, 0, (capacity - g->capacity) * sizeof(*more));
        g->items = more;
        g->capacity = capacity;
    }
    struct one *s = &g->items[v->series];
    if (!s->series.count) {
        s->pub = describe(g, v);
        s->is_judged = is_judged(v);
        g->count++;
    }
    return series_add(&s->series, &g->grid, &(struct series_sample){time_ns, v->bytes, v->blocks});
}

static int on_mark(void *userdata, uint64_t time_ns, const char *name)
{
    struct gather *g = userdata;

    if (g->mark_count == LEAK_MARKS_MAX)
        return 0;
    g->all_marks[g->mark_count].time_ns = time_ns;
    snprintf(g->all_marks[g->mark_count++].name, sizeof(g->all_marks->name), "%s", name);
    leak_marks_name(&g->marks, name);
    return 0;
}

/* --- what the judge asks --- */

static uint64_t on_free(void *userdata, int32_t device)
{
    const struct gather *g = userdata;
    const struct nm_trace_header *h = &g->replay.trace->header;
    uint64_t used = 0;

    if (device < 0 || (uint32_t)device != h->device || !h->available_bytes)
        return ANALYSIS_UNKNOWN;
    for (size_t i = 0; i < g->capacity; i++) {
        const struct one *s = &g->items[i];
        if (s->series.count && s->pub.source == LEAK_DEVICE && s->pub.device == device)
            used = s->series.last.bytes;
    }
    return h->available_bytes > used ? h->available_bytes - used : 0;
}

static bool on_expandable(void *userdata, uint32_t tgid)
{
    const struct gather *g = userdata;
    struct alloc_conf conf;

    return alloc_conf_parse(g->replay.trace->header.conf, &conf, NULL) == 0 && conf.is_expandable;
}

static bool on_blocks(void *userdata, const struct leak_series *s, uint64_t since_ns,
                      struct leak_blocks *ret)
{
    const struct gather *g = userdata;

    return leak_blocks_of_series(g->replay.ledger, &g->context, s, since_ns, ret);
}

/* --- the document --- */

static int series_list(struct gather *g, struct leak_series *list, size_t *ret_count)
{
    size_t count = 0;
    int k = 0;

    for (size_t i = 0; k == 0 && i < g->capacity; i++) {
        struct one *s = &g->items[i];
        if (!s->series.count)
            continue;
        k = series_carry(&s->series, &g->grid, g->until_ns);
        if (!s->is_judged || !view_filter_device(&g->context, s->pub.device))
            continue;
        s->pub.samples = s->series.samples;
        s->pub.count = s->series.count;
        list[count++] = s->pub;
    }
    *ret_count = count;
    return k;
}

static int steps_find(struct gather *g, const struct ledger_process *p)
{
    int k = 0;

    leak_steps_init(&g->steps, g->marks.times, g->marks.time_count);
    if (g->marks.time_count)
        k = leak_steps_add(&g->steps, g->replay.ledger, p);
    if (k == 0)
        leak_steps_end(&g->steps);
    return k;
}

static int judge(struct gather *g, struct json *j)
{
    const struct ledger_process *p = ledger_find_process(g->replay.ledger, g->replay.state.tgid);
    struct leak_series *list = calloc(g->count + 1, sizeof(*list));
    struct leak_input in = {
        .series = list,
        .marks = g->marks.times,
        .mark_count = g->marks.time_count,
        .mark_name = g->marks.wanted,
        .steps = &g->steps,
        .least_ns = STEPS_LEAST * g->grid.step_ns,
        .free_fn = on_free,
        .expandable_fn = on_expandable,
        .blocks_fn = on_blocks,
        .userdata = g,
    };
    bool is_wanted = p && view_filter_process(&g->context, &p->facts);
    int k = list ? 0 : -ENOMEM;

    if (k == 0 && is_wanted)
        k = series_list(g, list, &in.count);
    if (k == 0)
        k = is_wanted ? steps_find(g, p) : 0;
    if (!is_wanted)
        leak_steps_init(&g->steps, NULL, 0);
    if (k == 0)
        k = leaks_write(&in, j);
    leak_steps_done(&g->steps);
    free(list);
    return k;
}

static int write_document(struct gather *g, struct json *j)
{
    view_header(&g->context, j);
    json_ku64(j, "since_ns", trace_replay_wall_ns(&g->replay, g->since_ns));
    json_ku64(j, "until_ns", trace_replay_wall_ns(&g->replay, g->until_ns));
    json_kstr(j, "mark", g->marks.wanted);
    json_kbool(j, "truncated", g->is_full);
    int k = judge(g, j);
    trace_replay_write(&g->replay, j);
    return k;
}

static int gather(struct gather *g, struct error *reterr)
{
    struct replay_watch watch = {.value_fn = on_value, .mark_fn = on_mark, .userdata = g};
    int k = trace_replay_period(&g->replay, g->q, &g->since_ns, &g->until_ns, reterr);

    if (k < 0)
        return k;
    g->all_marks = calloc(LEAK_MARKS_MAX, sizeof(*g->all_marks));
    if (!g->all_marks)
        return -ENOMEM;
    g->grid = series_grid_over(g->since_ns, g->until_ns, STEP_LEAST_NS, UINT64_MAX);
    watch.from_ns = g->since_ns;
    g->marks.wanted = g->q->mark;
    k = trace_replay_run(&g->replay, g->until_ns, &watch);
    leak_marks_choose(&g->marks);
    for (size_t i = 0; i < g->mark_count; i++)
        leak_marks_time(&g->marks, g->all_marks[i].name, g->all_marks[i].time_ns);
    if (k == 0 && g->q->mark && !g->marks.time_count)
        return error_set(reterr, ENOENT, "mark %.64s: there is none of that name in the recording",
                         g->q->mark);
    return k;
}

int leaks_recording_write(struct trace_reader *trace, const struct recording_query *q,
                          struct json *j, struct error *reterr)
{
    struct gather *g = calloc(1, sizeof(*g));
    int k = g ? trace_replay_new(trace, &g->replay) : -ENOMEM;

    if (!g)
        return k;
    g->q = q;
    if (k == 0)
        k = gather(g, reterr);
    if (k == 0) {
        trace_replay_context(&g->replay, q, &g->context);
        k = write_document(g, j);
    }
    for (size_t i = 0; i < g->capacity; i++)
        series_done(&g->items[i].series);
    trace_replay_done(&g->replay);
    free(g->items);
    free(g->all_marks);
    free(g);
    return k;
}
