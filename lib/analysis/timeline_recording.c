/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_recording.c - what each owner held over the time of a recorded trace, exact at every
 * change.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "timeline.h"
#include "trace_replay.h"
#include "view_rows.h"

#define STEPS_DEFAULT 60

struct gather {
    struct trace_replay *replay;
    const struct view_context *context;
    const struct process_facts *facts;
    struct timeline *timeline;
    int64_t *rows; /* by the number of the sum; 0: not shown */
    size_t capacity;
};

static int64_t row_new(struct gather *g, const struct replay_value *v)
{
    static const char *const levels[] = {[REPLAY_ALLOCATED] = "allocated",
                                         [REPLAY_ACTIVE] = "active",
                                         [REPLAY_RESERVED] = "reserved",
                                         [REPLAY_PHYSICAL] = "physical"};
    bool is_owner = v->sum == REPLAY_OWNER;
    bool is_driver = v->sum == REPLAY_PHYSICAL || (is_owner && v->level == LEVEL_PHYSICAL);
    int32_t device = is_driver ? v->device : view_device_of(g->facts, v->device);

    if (!view_filter_device(g->context, device))
        return 0;
    return timeline_row(
        g->timeline,
        &(struct timeline_place){.process = g->facts->tgid,
                                 .tgid = g->facts->tgid,
                                 .rank = g->facts->rank,
                                 .device = device,
                                 .level = is_owner ? level_name(v->level) : levels[v->sum],
                                 .owner = is_owner ? ledger_owner_name(g->replay->ledger, v->owner)
                                                   : NULL});
}

static int on_value(void *userdata, uint64_t time_ns, const struct replay_value *v)
{
    struct gather *g = userdata;

    if (v->series >= g->capacity) {
        size_t capacity = 2 * (size_t)v->series + 16;
        int64_t *more = reallocarray(g->rows, capacity, sizeof(*more));
        if (!more)
            return -ENOMEM;
        memset(more + g->capacity, 0xff, (capacity - g->capacity) * sizeof(*more));
        g->rows = more;
        g->capacity = capacity;
    }
    if (g->rows[v->series] < 0) {
        int64_t row = row_new(g, v);
        if (row < 0)
            return (int)row;
        g->rows[v->series] = row;
    }
    timeline_sample(g->timeline, g->rows[v->series], trace_replay_wall_ns(g->replay, time_ns),
                    v->bytes);
    return 0;
}

static int on_mark(void *userdata, uint64_t time_ns, const char *name)
{
    struct gather *g = userdata;
    timeline_mark(g->timeline, name, trace_replay_wall_ns(g->replay, time_ns));
    return 0;
}

static int gather(struct trace_replay *r, const struct recording_query *q, struct timeline **ret,
                  struct error *reterr)
{
    const struct ledger_process *p = ledger_find_process(r->ledger, r->state.tgid);
    struct gather g = {.replay = r, .facts = &p->facts};
    struct view_context c;
    uint64_t since_ns, until_ns;
    int k = trace_replay_period(r, q, &since_ns, &until_ns, reterr);

    if (k < 0)
        return k;
    trace_replay_context(r, q, &c);
    g.context = &c;
    struct timeline_query query = {.since_ns = trace_replay_wall_ns(r, since_ns),
                                   .until_ns = trace_replay_wall_ns(r, until_ns) + 1,
                                   .steps = q->steps ? q->steps : STEPS_DEFAULT};
    query.carry_ns = query.until_ns - query.since_ns; /* a recording misses no change */
    k = timeline_new(&query, ret);
    if (k == -EINVAL)
        return error_set(reterr, EINVAL, "steps: 1 to %u", TIMELINE_STEPS_MAX);
    bool is_wanted = view_filter_process(&c, &p->facts);
    struct replay_watch watch = {.from_ns = since_ns,
                                 .value_fn = is_wanted ? on_value : NULL,
                                 .mark_fn = on_mark,
                                 .userdata = &g};
    g.timeline = *ret;
    if (k == 0)
        k = trace_replay_run(r, until_ns, &watch);
    free(g.rows);
    if (k == 0)
        timeline_finish(*ret);
    return k;
}

int timeline_recording_write(struct trace_reader *trace, const struct recording_query *q,
                             struct json *j, struct error *reterr)
{
    _cleanup_(timeline_freep) struct timeline *t = NULL;
    struct trace_replay r;
    struct view_context c;
    int k = trace_replay_new(trace, &r);

    if (k == 0)
        k = gather(&r, q, &t, reterr);
    if (k == 0) {
        trace_replay_context(&r, q, &c);
        view_header(&c, j);
        k = timeline_write(t, q->limit, j);
        trace_replay_write(&r, j);
    }
    trace_replay_done(&r);
    return k;
}
