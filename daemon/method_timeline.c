/* SPDX-License-Identifier: Apache-2.0 */
/*
 * method_timeline.c - the method Timeline: samples of the store as series in even steps.
 *
 * Owns: which samples are which series. An owner that is in no row of a moment at which its process
 * was sampled held nothing then. The samples are read while the loop does other things, too
 * (series_call.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kv_gather.h"
#include "limits.h"
#include "map.h"
#include "method_context.h"
#include "methods.h"
#include "series_call.h"
#include "timeline.h"
#include "view_rows.h"

#define PERIOD_DEFAULT_NS (3600ull * 1000000000)
#define STEPS_DEFAULT 60
#define LIMIT_DEFAULT 100

/* A process of the window. */
struct life {
    struct map_key key; /* row of process */
    bool is_wanted, is_cache_wanted;
    uint64_t exit_ns;
    uint64_t moment_ns; /* of the owner rows at hand */
    uint32_t first;     /* its series of owners: a chain through next */
    struct process_facts facts;
};

struct owned {
    struct map_key key; /* life and owner; level and device */
    int64_t row;        /* of the timeline; 0: it is not shown */
    uint64_t moment_ns; /* newest one with a row of it */
    uint32_t next;
};

struct gather {
    struct manager *m;
    struct api_call *call;
    struct method_filter filter;
    struct view_context context;
    struct timeline *timeline;
    struct map lives, owned;
    uint64_t since_ns, until_ns, limit, wanted;
};

static int life_find(struct gather *g, struct store_series *from, const struct store_point *p,
                     struct life **ret)
{
    uint32_t n = map_find(&g->lives, (uint64_t)p->process_id, 0);
    int r = 0;

    if (!n) {
        r = map_add(&g->lives, (uint64_t)p->process_id, 0, &n);
        if (r < 0)
            return r;
        struct life *life = map_at(&g->lives, n);
        r = store_series_process(from, p->process_id, &life->facts, &life->exit_ns);
        life->is_wanted = r == 0 && view_filter_process(&g->context, &life->facts);
        life->is_cache_wanted = r == 0 && kv_gather_takes(g->m, &g->context, &life->facts);
        g->wanted += life->is_wanted;
    }
    *ret = map_at(&g->lives, n);
    return r == -ENOENT ? 0 : r;
}

/* Row of a series of the process. 0: it is filtered out, or there are too many. */
static int64_t row_find(struct gather *g, const struct life *life, const struct store_point *p,
                        const char *level, const char *owner, bool is_torch)
{
    int32_t device = is_torch ? view_device_of(&life->facts, p->device) : p->device;

    if (p->kind == STORE_SERIES_RESIDENT)
        device = -1;
    if (device < 0 ? g->context.device_count != 0 : !view_filter_device(&g->context, device))
        return 0;
    return timeline_row(g->timeline, &(struct timeline_place){.process = (uint64_t)p->process_id,
                                                              .tgid = life->facts.tgid,
                                                              .rank = life->facts.rank,
                                                              .device = device,
                                                              .level = level,
                                                              .owner = owner});
}

static int total(struct gather *g, const struct life *life, const struct store_point *p,
                 const char *level, uint64_t bytes)
{
    int64_t row = row_find(g, life, p, level, NULL, p->kind == STORE_SERIES_POOL);

    if (row > 0)
        timeline_sample(g->timeline, row, p->wall_ns, bytes);
    return row < 0 ? (int)row : 0;
}

/* The rows of one moment are through: owners that had none held nothing. */
static void moment_end(struct gather *g, struct life *life, uint64_t wall_ns)
{
    for (uint32_t n = life->first; n;) {
        struct owned *o = map_at(&g->owned, n);
        if (o->moment_ns < life->moment_ns)
            timeline_sample(g->timeline, o->row, life->moment_ns, 0);
        n = o->next;
    }
    life->moment_ns = wall_ns;
}

/* A series of an owner that is met for the first time: its name is asked for once. */
static int owned_new(struct gather *g, struct store_series *from, struct life *life,
                     const struct store_point *p, struct owned *o)
{
    char owner[ANALYSIS_NAME_BYTES];
    int r = store_series_owner(from, p->owner_id, owner, sizeof(owner));

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    o->row = row_find(g, life, p, level_name(p->level), owner, view_level_is_torch(p->level));
    return o->row < 0 ? (int)o->row : 0;
}

static int owner_point(struct gather *g, struct store_series *from, struct life *life,
                       const struct store_point *p)
{
    uint64_t key = (uint64_t)p->process_id << 32 | (uint32_t)p->owner_id;
    uint32_t place = (uint32_t)p->level << 16 | p->device, n;
    int r = 0;

    if (p->wall_ns != life->moment_ns)
        moment_end(g, life, p->wall_ns);
    if (p->level == LEVEL_RESERVED_VA || p->level == LEVEL_POOL_SUB)
        return 0;
    n = map_find(&g->owned, key, place);
    if (!n) {
        r = map_add(&g->owned, key, place, &n);
        if (r == 0)
            r = owned_new(g, from, life, p, map_at(&g->owned, n));
        if (r < 0)
            return r;
        if (((struct owned *)map_at(&g->owned, n))->row) {
            ((struct owned *)map_at(&g->owned, n))->next = life->first;
            life->first = n;
        }
    }
    struct owned *o = map_at(&g->owned, n);
    o->moment_ns = p->wall_ns;
    if (o->row)
        timeline_sample(g->timeline, o->row, p->wall_ns, p->bytes);
    return 0;
}

/* Of a server, and of none of its devices. */
static int cache_point(struct gather *g, const struct life *life, const struct store_point *p)
{
    const struct kv_span *s = p->span;

    if (!life->is_cache_wanted || g->context.device_count)
        return 0;
    int64_t row = timeline_row(
        g->timeline, &(struct timeline_place){.process = (uint64_t)p->process_id,
                                              .tgid = life->facts.tgid,
                                              .rank = -1,
                                              .device = -1,
                                              .level = "kv_cache",
                                              .blocks = s->usable_blocks,
                                              .server_tgid = kv_gather_server(&life->facts),
                                              .replica = life->facts.replica});
    timeline_range(g->timeline, row,
                   &(struct timeline_range){.begin_ns = s->begin_wall_ns,
                                            .end_ns = s->end_wall_ns,
                                            .least = s->least_blocks,
                                            .most = s->most_blocks,
                                            .last = s->last_blocks,
                                            .most_ns = s->most_wall_ns});
    return row < 0 ? (int)row : 0;
}

static int on_point(void *userdata, struct store_series *from, const struct store_point *p)
{
    struct gather *g = userdata;
    struct life *life;
    int r;

    if (p->wall_ns >= g->until_ns)
        return 0;
    r = life_find(g, from, p, &life);
    if (r == 0 && p->kind == STORE_SERIES_KV)
        return cache_point(g, life, p);
    if (r < 0 || !life->is_wanted)
        return r;
    switch (p->kind) {
    case STORE_SERIES_OWNER:
        return owner_point(g, from, life, p);
    case STORE_SERIES_DEVICE:
        return total(g, life, p, "physical", p->bytes);
    case STORE_SERIES_RESIDENT:
        return total(g, life, p, "resident", p->bytes);
    case STORE_SERIES_KV:
        break;
    case STORE_SERIES_POOL:
        r = total(g, life, p, "allocated", p->bytes);
        if (r == 0)
            r = total(g, life, p, "reserved", p->reserved_bytes);
        return r < 0 ? r : total(g, life, p, "active", p->active_bytes);
    }
    return 0;
}

static int on_mark(void *userdata, const char *name, uint64_t wall_ns, uint64_t boot_ns)
{
    struct gather *g = userdata;
    timeline_mark(g->timeline, name, wall_ns);
    return 0;
}

static struct gather *gather_free(struct gather *g)
{
    map_clear(&g->lives);
    map_clear(&g->owned);
    timeline_free(g->timeline);
    free(g);
    return NULL;
}
DEFINE_CLEANUP(struct gather *, gather_free)

static int document(struct gather *g, struct json *j)
{
    int r = store_marks_each(g->m->store, g->since_ns, on_mark, g);

    for (uint32_t n = 0; (n = map_next(&g->lives, n));) {
        struct life *life = map_at(&g->lives, n);
        moment_end(g, life, life->moment_ns);
        if (life->exit_ns)
            timeline_end(g->timeline, life->key.a, life->exit_ns);
    }
    timeline_finish(g->timeline);
    json_object(j);
    view_header(&g->context, j);
    if (r == 0)
        r = timeline_write(g->timeline, (uint32_t)g->limit, j);
    json_end(j);
    return r;
}

static void on_read(void *userdata, int r)
{
    struct gather *g = userdata;
    struct json j = {};

    if (r == 0 && g->filter.tgid_count && !g->wanted) {
        api_error(g->call, "NoSuchProcess", "nothing is kept of that process and time",
                  "npumem ps; an earlier --since");
        return;
    }
    method_document_begin(&j);
    if (r == 0)
        r = document(g, &j);
    method_document_answer(g->call, "timeline", &j, r);
}

static void on_done(void *userdata)
{
    gather_free(userdata);
}

/* The window and its steps. Returns 1; 0 after the error reply; negative errno. */
static int window(struct gather *g, struct timeline_query *q)
{
    if (!q->until_ns)
        q->until_ns = g->context.wall_ns;
    if (!q->since_ns)
        q->since_ns = q->until_ns > PERIOD_DEFAULT_NS ? q->until_ns - PERIOD_DEFAULT_NS : 0;
    q->carry_ns = 2 * LIMIT_STORE_SAMPLE_FULL_NS;
    g->since_ns = q->since_ns;
    g->until_ns = q->until_ns;
    int r = timeline_new(q, &g->timeline);
    if (r == -EINVAL)
        return api_error(g->call, "BadParameter", "since, until: no time between them",
                         "since_ns before until_ns, steps from 1 on");
    return r < 0 ? r : 1;
}

/* The value at the beginning was sampled up to so long before it. */
static int read_begin(struct gather *g)
{
    uint64_t before = LIMIT_STORE_SAMPLE_FULL_NS + g->m->config.store_sample_interval;
    struct series_query query = {
        .store = g->m->store,
        .since_wall_ns = g->since_ns > before ? g->since_ns - before : 0,
        .point_fn = on_point,
        .ended_fn = on_read,
        .userdata = g,
    };

    map_init(&g->lives, sizeof(struct life), 5, NULL);
    map_init(&g->owned, sizeof(struct owned), 6, NULL);
    return series_call_begin(g->m->reads, g->call, &query, on_done);
}

int method_timeline(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    _cleanup_(gather_freep) struct gather *g = calloc(1, sizeof(*g));
    struct timeline_query q = {};
    uint64_t steps = STEPS_DEFAULT;
    int r = g ? method_filter_read(call, &g->filter) : -ENOMEM;

    if (r < 0)
        return r;
    *g = (struct gather){.m = m, .call = call, .filter = g->filter, .limit = LIMIT_DEFAULT};
    r = api_param_u64(call, "since_ns", INT64_MAX, &q.since_ns);
    if (r >= 0)
        r = api_param_u64(call, "until_ns", INT64_MAX, &q.until_ns);
    if (r >= 0)
        r = api_param_u64(call, "steps", TIMELINE_STEPS_MAX, &steps);
    if (r >= 0)
        r = api_param_u64(call, "limit", UINT32_MAX, &g->limit);
    if (r >= 0)
        r = api_params_done(call);
    if (r < 0)
        return r;
    if (!m->store)
        return api_error(call, "Failed", "samples are kept in the store, and there is none",
                         "store.enabled=yes");
    manager_sync(m);
    kv_watch_flush(m->kv);
    method_context_init(m, &g->filter, &g->context);
    q.steps = (uint32_t)steps;
    r = window(g, &q);
    if (r <= 0)
        return r;
    r = read_begin(g);
    if (r == 0)
        TAKE_PTR(g);
    return r;
}
