/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_replay.c - see trace_replay.h. Moments as people say them: trace_moment.c.
 *
 * What a late recording begins with (all at its beginning) is one picture: no sum of it is told
 * before it is whole.
 */
#include "trace_replay.h"

#include <errno.h>
#include <string.h>

#include "alloc_conf.h"
#include "analysis.h"

/* Later and longer than that is a clock that is wrong; wall clocks stay within 63 bits. */
#define WALL_MAX_NS ((uint64_t)1 << 62)
#define SPAN_MAX_NS ((uint64_t)1 << 61)

struct owner_slot {
    struct map_key key; /* id of the trace */
    uint64_t owner;     /* the ledger's number */
};

struct sum_slot {
    struct map_key key; /* owner; sum, level, device */
    uint64_t bytes, blocks;
};

struct run {
    struct trace_replay *r;
    const struct replay_watch *watch;
    bool has_begun; /* the picture of from_ns was told */
};

static void find_end(struct trace_replay *r)
{
    uint64_t last = r->begin_ns;
    struct nm_trace_record e;

    r->end_ns = r->trace->header.end_boot_ns;
    if (r->end_ns)
        return;
    trace_rewind(r->trace);
    while (trace_next(r->trace, &e) > 0)
        if (e.kind != NM_TRACE_NAME && e.time_ns > last)
            last = e.time_ns;
    r->end_ns = last;
}

int trace_replay_new(struct trace_reader *trace, struct trace_replay *ret)
{
    *ret = (struct trace_replay){.trace = trace, .begin_ns = trace->header.begin_boot_ns};
    map_init(&ret->owners, sizeof(struct owner_slot), 6, NULL);
    map_init(&ret->series, sizeof(struct sum_slot), 6, NULL);
    int k = ledger_new(NULL, &ret->ledger);
    if (k == 0)
        k = ledger_replay_begin(&ret->state, ret->ledger, &trace->header);
    find_end(ret);
    if (ret->end_ns < ret->begin_ns)
        ret->end_ns = ret->begin_ns;
    if (ret->end_ns - ret->begin_ns > SPAN_MAX_NS)
        ret->end_ns = ret->begin_ns + SPAN_MAX_NS;
    return k;
}

void trace_replay_done(struct trace_replay *r)
{
    map_clear(&r->owners);
    map_clear(&r->series);
    trace_names_done(&r->names);
    ledger_free(r->ledger);
    r->ledger = NULL;
}

/* --- values --- */

static int tell(struct run *u, uint64_t time_ns, struct replay_value v)
{
    struct trace_replay *r = u->r;
    uint32_t key = (uint32_t)v.sum << 28 | (uint32_t)v.level << 24 | v.device;
    uint32_t n = map_find(&r->series, v.owner, key);
    bool is_new = !n;

    if (is_new && map_add(&r->series, v.owner, key, &n) < 0)
        return -ENOMEM;
    struct sum_slot *slot = map_at(&r->series, n);
    if (!is_new && slot->bytes == v.bytes && slot->blocks == v.blocks)
        return 0;
    slot->bytes = v.bytes;
    slot->blocks = v.blocks;
    v.series = n;
    if (is_new && time_ns > u->watch->from_ns) {
        struct replay_value none = v;
        none.bytes = none.blocks = 0;
        int k = u->watch->value_fn(u->watch->userdata, u->watch->from_ns, &none);
        if (k)
            return k;
    }
    return u->watch->value_fn(u->watch->userdata, time_ns, &v);
}

struct telling {
    struct run *u;
    uint64_t time_ns;
};

static int on_owner(void *userdata, const struct ledger_owner_total *t)
{
    const struct telling *x = userdata;
    return tell(x->u, x->time_ns,
                (struct replay_value){.sum = REPLAY_OWNER,
                                      .level = t->level,
                                      .owner = t->owner,
                                      .device = t->device,
                                      .bytes = t->bytes,
                                      .blocks = t->count});
}

static int on_pool(void *userdata, const struct ledger_pool *p)
{
    const struct telling *x = userdata;
    struct replay_value v = {.device = p->device};
    int k;

    if (p->component != NM_BLOCK_CACHING)
        return 0;
    v.sum = REPLAY_ALLOCATED;
    v.bytes = (uint64_t)p->allocated_bytes;
    k = tell(x->u, x->time_ns, v);
    v.sum = REPLAY_ACTIVE;
    v.bytes = (uint64_t)p->active_bytes;
    if (k == 0)
        k = tell(x->u, x->time_ns, v);
    v.sum = REPLAY_RESERVED;
    v.bytes = (uint64_t)p->reserved_bytes;
    return k ? k : tell(x->u, x->time_ns, v);
}

static int on_device(void *userdata, const struct ledger_device_use *use)
{
    const struct telling *x = userdata;
    return tell(x->u, x->time_ns,
                (struct replay_value){
                    .sum = REPLAY_PHYSICAL, .device = use->device, .bytes = use->physical_bytes});
}

/* All sums as they are at from_ns. */
static int begin(struct run *u)
{
    struct telling x = {u, u->watch->from_ns};
    int k = ledger_each_owner(u->r->ledger, u->r->state.tgid, on_owner, &x);

    if (k == 0)
        k = ledger_each_pool(u->r->ledger, u->r->state.tgid, on_pool, &x);
    if (k == 0)
        k = ledger_each_device(u->r->ledger, u->r->state.tgid, on_device, &x);
    u->has_begun = true;
    return k;
}

static int tell_changes(struct run *u, uint64_t time_ns)
{
    const struct ledger_replay *s = &u->r->state;
    struct telling x = {u, time_ns};
    int k = 0;

    for (uint32_t i = 0; k == 0 && i < s->change_count; i++) {
        const struct ledger_replay_change *c = &s->changes[i];
        k = tell(u, time_ns,
                 (struct replay_value){.sum = REPLAY_OWNER,
                                       .level = c->level,
                                       .owner = c->owner,
                                       .device = c->device,
                                       .bytes = c->bytes,
                                       .blocks = c->blocks});
    }
    if (k == 0 && s->has_pool)
        k = on_pool(&x, &s->pool);
    if (k == 0 && s->is_segment)
        k = ledger_each_device(u->r->ledger, s->tgid, on_device, &x);
    return k;
}

/* --- records --- */

static int64_t owner_of(struct trace_replay *r, uint32_t id)
{
    uint32_t n = map_find(&r->owners, id, 0);

    if (n)
        return (int64_t)((struct owner_slot *)map_at(&r->owners, n))->owner;
    uint32_t owner = ledger_replay_owner(&r->state, trace_name(&r->names, id));
    if (map_add(&r->owners, id, 0, &n) < 0)
        return -ENOMEM;
    ((struct owner_slot *)map_at(&r->owners, n))->owner = owner;
    return owner;
}

static int on_mark(struct run *u, uint64_t time_ns, uint32_t name)
{
    const struct replay_watch *w = u->watch;
    const char *text = trace_name(&u->r->names, name);
    return w && w->mark_fn && text && time_ns >= w->from_ns ? w->mark_fn(w->userdata, time_ns, text)
                                                            : 0;
}

static int on_record(struct run *u, const struct nm_trace_record *e)
{
    struct trace_replay *r = u->r;
    bool is_watched = u->watch && u->watch->value_fn;
    bool has_owner = e->kind == NM_TRACE_BLOCK_MALLOC && e->owner;
    int64_t owner = has_owner ? owner_of(r, e->owner) : ledger_replay_owner(&r->state, NULL);
    int k = owner < 0 ? -ENOMEM : 0;

    if (k == 0 && is_watched && !u->has_begun && r->at_ns > u->watch->from_ns)
        k = begin(u);
    if (k == 0 && e->kind == NM_TRACE_MARK)
        return on_mark(u, r->at_ns, e->owner);
    if (k == 0)
        k = ledger_replay_apply(&r->state, e, r->at_ns, (uint32_t)owner, r->at_ns <= r->begin_ns);
    if (k < 0)
        return k;
    return is_watched && u->has_begun ? tell_changes(u, r->at_ns) : 0;
}

int trace_replay_run(struct trace_replay *r, uint64_t until_ns, const struct replay_watch *watch)
{
    struct run u = {.r = r, .watch = watch};
    struct nm_trace_record e;
    int k = 0;

    r->at_ns = r->begin_ns;
    trace_rewind(r->trace);
    while (k == 0) {
        uint64_t lost_events = r->trace->lost_events;
        if (trace_next(r->trace, &e) <= 0)
            break;
        if (e.kind == NM_TRACE_NAME) {
            k = trace_names_add(&r->names, &e) == -ENOMEM ? -ENOMEM : 0;
            continue;
        }
        if (e.time_ns > r->at_ns) {
            if (e.time_ns > until_ns && r->end_ns > until_ns) {
                r->trace->lost_events = lost_events; /* what is lost later does not count */
                break;
            }
            r->at_ns = e.time_ns < r->end_ns ? e.time_ns : r->end_ns;
        }
        r->records++;
        k = on_record(&u, &e);
    }
    r->at_ns = until_ns < r->end_ns ? until_ns : r->end_ns;
    if (k == 0 && watch && watch->value_fn && !u.has_begun)
        k = begin(&u);
    return k;
}

/* --- what it is, for documents --- */

uint64_t trace_replay_wall_ns(const struct trace_replay *r, uint64_t time_ns)
{
    uint64_t wall = r->trace->header.begin_wall_ns;

    if (wall > WALL_MAX_NS)
        wall = WALL_MAX_NS;
    return time_ns > r->begin_ns ? wall + (time_ns - r->begin_ns) : wall;
}

uint64_t trace_replay_time_ns(const struct trace_replay *r, uint64_t wall_ns)
{
    uint64_t begin = trace_replay_wall_ns(r, r->begin_ns);
    return wall_ns > begin ? r->begin_ns + (wall_ns - begin) : r->begin_ns;
}

static size_t on_frames(void *userdata, uint32_t tgid, uint32_t stack, const char **ret, size_t max)
{
    struct trace_replay *r = userdata;
    const char *text = trace_name(&r->names, stack);
    size_t count = 0;
    char *save = NULL;

    snprintf(r->frames, sizeof(r->frames), "%s", text ? text : "");
    for (char *frame = strtok_r(r->frames, ";", &save); frame && count < max;
         frame = strtok_r(NULL, ";", &save))
        ret[count++] = frame;
    return count;
}

static const char *on_environment(void *userdata, uint32_t tgid, size_t *ret_bytes,
                                  const char **ret_source)
{
    struct trace_replay *r = userdata;

    if (!r->trace->header.conf[0])
        return NULL;
    int n = snprintf(r->frames, sizeof(r->frames), "%s=%s", ALLOC_CONF_NAME, r->trace->header.conf);
    *ret_bytes = (size_t)n + 1;
    *ret_source = "live";
    return r->frames;
}

static bool is_at_end(const struct trace_replay *r)
{
    return r->at_ns >= r->end_ns;
}

static uint64_t lost_events(const struct trace_replay *r)
{
    uint64_t all = r->trace->header.lost_events, here = r->trace->lost_events;
    return is_at_end(r) && all > here ? all : here;
}

/* Frees of what was there before and is not known are none. */
static bool has_odd_frees(const struct trace_replay *r)
{
    uint32_t partial = NM_TRACE_LATE | NM_TRACE_NO_SMALL;
    return r->state.unknown_frees && !(r->trace->header.flags & partial);
}

bool trace_replay_is_lossy(const struct trace_replay *r)
{
    return lost_events(r) || r->trace->implausible || r->trace->unknown_kinds || r->trace->error ||
           r->state.reused_addresses || has_odd_frees(r) ||
           ledger_stats(r->ledger)->dropped_entries;
}

void trace_replay_context(struct trace_replay *r, const struct recording_query *q,
                          struct view_context *ret)
{
    *ret = (struct view_context){
        .wall_ns = trace_replay_wall_ns(r, r->at_ns),
        .boot_ns = r->at_ns,
        .host = q->host,
        .complete = trace_complete(r->trace) && !trace_replay_is_lossy(r),
        .lost_events = lost_events(r),
        .tgids = q->tgids,
        .tgid_count = q->tgid_count,
        .ranks = q->ranks,
        .rank_count = q->rank_count,
        .devices = q->devices,
        .device_count = q->device_count,
        .containers = q->containers,
        .container_count = q->container_count,
        .frames_fn = on_frames,
        .environment_fn = on_environment,
        .userdata = r,
    };
}

void trace_replay_write(const struct trace_replay *r, struct json *j)
{
    const struct nm_trace_header *h = &r->trace->header;
    char missing[ANALYSIS_TEXT_BYTES];

    trace_missing(r->trace, missing, sizeof(missing));
    if (!missing[0] && trace_replay_is_lossy(r))
        snprintf(missing, sizeof(missing), "its records contradict each other");
    json_kobject(j, "recording");
    json_ku64(j, "tgid", h->tgid);
    json_kstr(j, "comm", h->comm);
    json_kindex(j, "rank", h->rank);
    json_ku64(j, "begin_ns", trace_replay_wall_ns(r, r->begin_ns));
    json_ku64(j, "end_ns", trace_replay_wall_ns(r, r->end_ns));
    json_ku64(j, "at_ns", trace_replay_wall_ns(r, r->at_ns));
    json_kstr(j, "setting", h->conf);
    json_ku64(j, "records", r->records);
    json_ku64(j, "unknown_frees", r->state.unknown_frees);
    json_ku64(j, "reused_addresses", r->state.reused_addresses);
    json_ku64(j, "lost_events", lost_events(r));
    json_kstr(j, "missing", missing[0] ? missing : NULL);
    json_end(j);
}
