/* SPDX-License-Identifier: Apache-2.0 */
/*
 * method_leaks.c - the method Leaks: samples of the store as series, judged.
 *
 * Owns: which samples are which series. Series are in the boot clock of their process, so that a
 * wall clock that jumps bends none. An owner that is in no row of a moment at which its process was
 * sampled held nothing then: that is what retracts a finding.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_conf.h"
#include "leak_blocks.h"
#include "leak_steps.h"
#include "limits.h"
#include "map.h"
#include "method_context.h"
#include "methods.h"
#include "owner.h"
#include "store_series.h"
#include "view_rows.h"

#define WINDOW_DEFAULT_NS (6 * 3600ull * 1000000000)
/* Samples that a judgement needs: less is a start-up as likely as a leak. */
#define SAMPLES_LEAST 60
#define SERIES_MAX 8192
#define MARKS_MAX 4096
#define MARK_NAMES_MAX 64
#define POINTS_PER_DRAIN 16384 /* the ring is emptied while samples are read */

/* A process of the window; the record of a map. */
struct life {
    struct map_key key; /* row of process */
    bool is_wanted;
    struct process_facts facts;
    struct series_grid grid;
    uint64_t moment_ns, first_moment_ns; /* of the owner rows at hand, of the first of them */
    uint64_t last_ns;
    uint32_t first; /* its series: a chain through next */
};

struct one {
    struct map_key key; /* life, kind, device, level, owner */
    struct series series;
    struct leak_series pub;
    uint32_t next, life;
    bool is_judged;
    char owner[ANALYSIS_NAME_BYTES];
};

struct marks {
    char names[MARK_NAMES_MAX][64];
    size_t counts[MARK_NAMES_MAX], name_count;
    const char *wanted; /* NULL: the most frequent */
    uint64_t times[MARKS_MAX];
    size_t time_count;
};

struct gather {
    struct manager *m;
    const struct view_context *context;
    uint64_t since_ns, until_ns; /* wall */
    struct map lives, series;
    struct marks marks;
    struct leak_steps steps;
    uint64_t points;
    bool is_full, is_now;
};

/* --- processes --- */

static struct life *life_of(const struct gather *g, uint32_t number)
{
    return map_at(&g->lives, number);
}

static uint64_t boot_of(const struct gather *g, uint64_t wall_ns)
{
    uint64_t ahead = g->context->wall_ns - g->context->boot_ns;
    return wall_ns > ahead ? wall_ns - ahead : 0;
}

/* A process of this boot, and one that lived at the end of the window. */
static int life_new(struct gather *g, const struct store_point *p, uint32_t *ret)
{
    uint64_t exit_ns = 0, interval = g->m->config.store_sample_interval;
    int r = map_add(&g->lives, (uint64_t)p->process_id, 0, ret);

    if (r < 0)
        return r;
    struct life *life = life_of(g, *ret);
    r = store_process_of(g->m->store, p->process_id, &life->facts, &exit_ns);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    uint64_t first = p->boot_ns, last = boot_of(g, g->until_ns);
    life->is_wanted = view_filter_process(g->context, &life->facts) && first <= last &&
                      (!exit_ns || exit_ns >= g->until_ns);
    life->last_ns = last;
    life->grid = series_grid_over(first, last, interval, 2 * LIMIT_STORE_SAMPLE_FULL_NS);
    return 0;
}

/* --- series --- */

/* What is judged by itself. Segments are judged as the pool's reserved bytes; addresses take no
 * memory; a workspace is held also while nothing uses it. */
static bool is_judged(const struct store_point *p, const char *owner)
{
    if (p->level == LEVEL_PHYSICAL)
        return strcmp(owner, owner_fixed_name(OWNER_ID_PTA_POOL)) != 0;
    if (p->level == LEVEL_BLOCK || p->level == LEVEL_PENDING)
        return strcmp(owner, owner_fixed_name(OWNER_ID_PTA_WORKSPACE)) != 0;
    return p->level == LEVEL_HOST;
}

static enum leak_source source_of(const struct store_point *p)
{
    switch (p->kind) {
    case STORE_SERIES_DEVICE:
        return LEAK_DEVICE;
    case STORE_SERIES_RESIDENT:
        return LEAK_HOST;
    case STORE_SERIES_POOL:
        return LEAK_RESERVED;
    default:
        return p->level == LEVEL_HOST ? LEAK_HOST : LEAK_OWNER;
    }
}

static int device_of(const struct life *life, const struct store_point *p, enum leak_source source)
{
    if (source == LEAK_HOST)
        return -1;
    bool is_torch = p->kind == STORE_SERIES_POOL ||
                    (p->kind == STORE_SERIES_OWNER && view_level_is_torch(p->level));
    return is_torch ? view_device_of(&life->facts, p->device) : p->device;
}

static int one_new(struct gather *g, const struct store_point *p, enum leak_source source,
                   uint32_t life_number, struct one *s)
{
    struct life *life = life_of(g, life_number);
    int r = 0;

    s->life = life_number;
    s->pub = (struct leak_series){.tgid = life->facts.tgid,
                                  .rank = life->facts.rank,
                                  .device = device_of(life, p, source),
                                  .native_device = p->device,
                                  .source = source};
    if (p->kind == STORE_SERIES_RESIDENT)
        snprintf(s->owner, sizeof(s->owner), "RSS");
    s->is_judged = p->kind != STORE_SERIES_OWNER;
    if (s->is_judged)
        return 0;
    r = store_owner_of(g->m->store, p->owner_id, s->owner, sizeof(s->owner));
    s->is_judged = r == 0 && is_judged(p, s->owner);
    s->pub.level = level_name(p->level);
    /* it held nothing when its process was looked at first */
    if (r == 0 && life->first_moment_ns && life->first_moment_ns < p->boot_ns)
        r = series_add(&s->series, &life->grid,
                       &(struct series_sample){.time_ns = life->first_moment_ns});
    return r == -ENOENT ? 0 : r;
}

static int add(struct gather *g, const struct store_point *p, enum leak_source source,
               uint32_t life_number, uint64_t bytes)
{
    struct life *life = life_of(g, life_number);
    uint64_t key = (uint64_t)p->process_id << 32 | (uint32_t)p->owner_id;
    uint32_t kind = (uint32_t)source << 28 | (uint32_t)p->level << 20 | p->device, n;
    int r = 0;

    n = map_find(&g->series, key, kind);
    if (!n) {
        g->is_full |= g->series.count == SERIES_MAX;
        if (g->series.count == SERIES_MAX)
            return 0;
        r = map_add(&g->series, key, kind, &n);
        if (r < 0)
            return r;
        struct one *s = map_at(&g->series, n);
        s->next = life->first;
        life->first = n;
        r = one_new(g, p, source, life_number, s);
        if (r < 0)
            return r;
    }
    return series_add(&((struct one *)map_at(&g->series, n))->series, &life->grid,
                      &(struct series_sample){p->boot_ns, bytes, p->blocks});
}

/* The rows of one moment are through: owners that had none held nothing. */
static int moment_end(struct gather *g, struct life *life)
{
    int r = 0;

    for (uint32_t n = life->first; r == 0 && n;) {
        struct one *s = map_at(&g->series, n);
        if (s->pub.level && s->series.last.time_ns < life->moment_ns && s->series.last.bytes)
            r = series_add(&s->series, &life->grid,
                           &(struct series_sample){.time_ns = life->moment_ns});
        n = s->next;
    }
    return r;
}

static int owner_point(struct gather *g, const struct store_point *p, uint32_t number)
{
    struct life *life = life_of(g, number);
    int r = 0;

    if (life->moment_ns && p->boot_ns != life->moment_ns)
        r = moment_end(g, life);
    if (!life->first_moment_ns)
        life->first_moment_ns = p->boot_ns;
    life->moment_ns = p->boot_ns;
    return r < 0 ? r : add(g, p, source_of(p), number, p->bytes);
}

static int on_point(void *userdata, const struct store_point *p)
{
    struct gather *g = userdata;
    uint32_t number = map_find(&g->lives, (uint64_t)p->process_id, 0);
    int r = 0;

    if (++g->points % POINTS_PER_DRAIN == 0)
        ring_sync(g->m->ring);
    if (!number)
        r = life_new(g, p, &number);
    if (r < 0)
        return r;
    struct life *life = life_of(g, number);
    if (!life->is_wanted || p->boot_ns > life->last_ns)
        return 0;
    if (p->kind == STORE_SERIES_OWNER)
        return owner_point(g, p, number);
    if (p->kind != STORE_SERIES_POOL)
        return add(g, p, source_of(p), number, p->bytes);
    r = add(g, p, LEAK_ALLOCATED, number, p->bytes);
    if (r == 0)
        r = add(g, p, LEAK_ACTIVE, number, p->active_bytes);
    return r < 0 ? r : add(g, p, LEAK_RESERVED, number, p->reserved_bytes);
}

/* --- marks --- */

static int on_mark_name(void *userdata, const char *name, uint64_t wall_ns, uint64_t boot_ns)
{
    struct marks *m = userdata;
    size_t i = 0;

    while (i < m->name_count && strcmp(m->names[i], name) != 0)
        i++;
    if (i == MARK_NAMES_MAX)
        return 0;
    if (i == m->name_count)
        snprintf(m->names[m->name_count++], sizeof(m->names[0]), "%s", name);
    m->counts[i]++;
    return 0;
}

static int on_mark_time(void *userdata, const char *name, uint64_t wall_ns, uint64_t boot_ns)
{
    struct marks *m = userdata;

    if (strcmp(name, m->wanted) != 0 || m->time_count == MARKS_MAX)
        return 0;
    if (!m->time_count || boot_ns > m->times[m->time_count - 1])
        m->times[m->time_count++] = boot_ns;
    return 0;
}

/* The mark that was asked for, or the one that was set most often. */
static int marks_read(struct gather *g)
{
    struct marks *m = &g->marks;
    size_t best = 0;
    int r = store_marks_each(g->m->store, g->since_ns, on_mark_name, m);

    for (size_t i = 1; i < m->name_count; i++)
        best = m->counts[i] > m->counts[best] ? i : best;
    if (!m->wanted && m->name_count)
        m->wanted = m->names[best];
    return r < 0 || !m->wanted ? r : store_marks_each(g->m->store, g->since_ns, on_mark_time, m);
}

/* --- what the judge asks --- */

static uint64_t on_free(void *userdata, int32_t device)
{
    struct gather *g = userdata;
    uint64_t total, used;

    if (device < 0 || !g->is_now || !ledger_card(g->m->ledger, (uint16_t)device, &total, &used))
        return ANALYSIS_UNKNOWN;
    return total > used ? total - used : 0;
}

static bool on_expandable(void *userdata, uint32_t tgid)
{
    struct gather *g = userdata;
    const char *source, *text, *value;
    struct alloc_conf conf;
    size_t bytes;

    text = g->context->environment_fn(g->context->userdata, tgid, &bytes, &source);
    value = text ? alloc_conf_variable(text, bytes, ALLOC_CONF_NAME) : NULL;
    return value && alloc_conf_parse(value, &conf, NULL) == 0 && conf.is_expandable;
}

static bool on_blocks(void *userdata, const struct leak_series *s, uint64_t since_ns,
                      struct leak_blocks *ret)
{
    struct gather *g = userdata;
    struct leak_blocks_query q = {.tgid = s->tgid,
                                  .device = (uint16_t)s->native_device,
                                  .owner = s->owner,
                                  .since_ns = since_ns};
    uint32_t stack;

    if (!g->is_now || s->source != LEAK_OWNER || !s->level)
        return false;
    while (q.level < LEVEL_COUNT && strcmp(level_name(q.level), s->level) != 0)
        q.level++;
    if (leak_blocks_find(g->m->ledger, &q, ret, &stack) < 0)
        return false;
    if (stack)
        ret->frame_count = g->context->frames_fn(g->context->userdata, s->tgid, stack, ret->frames,
                                                 LEAK_FRAMES_MAX);
    return true;
}

/* --- the document --- */

static int lists_fill(struct gather *g, struct leak_series *list, size_t *ret_count)
{
    size_t count = 0;
    int r = 0;

    for (uint32_t n = 0; r == 0 && (n = map_next(&g->lives, n));)
        if (life_of(g, n)->is_wanted)
            r = moment_end(g, life_of(g, n));
    for (uint32_t n = 0; r == 0 && (n = map_next(&g->series, n));) {
        struct one *s = map_at(&g->series, n);
        const struct life *life = life_of(g, s->life);
        bool fits = s->pub.device < 0 || view_filter_device(g->context, s->pub.device);
        r = series_carry(&s->series, &life->grid, life->last_ns);
        if (!s->is_judged || !fits || (s->pub.device < 0 && g->context->device_count))
            continue;
        s->pub.samples = s->series.samples;
        s->pub.count = s->series.count;
        s->pub.owner = s->owner[0] ? s->owner : NULL;
        list[count++] = s->pub;
    }
    *ret_count = count;
    return r;
}

static int on_process(void *userdata, const struct ledger_process *p)
{
    struct gather *g = userdata;
    bool is_wanted = p->alive && view_filter_process(g->context, &p->facts);
    return is_wanted ? leak_steps_add(&g->steps, g->m->ledger, p) : 0;
}

/* What earlier steps left behind can only be told of now. */
static int steps_find(struct gather *g)
{
    int r = 0;

    leak_steps_init(&g->steps, g->marks.times, g->is_now ? g->marks.time_count : 0);
    if (g->is_now && g->marks.time_count)
        r = ledger_each_process(g->m->ledger, on_process, g);
    if (r == 0)
        leak_steps_end(&g->steps);
    return r;
}

static int judge(struct gather *g, struct json *j)
{
    struct leak_series *list = calloc((size_t)g->series.count + 1, sizeof(*list));
    struct leak_input in = {
        .series = list,
        .marks = g->marks.times,
        .mark_count = g->marks.time_count,
        .mark_name = g->marks.wanted,
        .steps = &g->steps,
        .least_ns = SAMPLES_LEAST * g->m->config.store_sample_interval,
        .free_fn = on_free,
        .expandable_fn = on_expandable,
        .blocks_fn = on_blocks,
        .userdata = g,
    };
    int r = list ? lists_fill(g, list, &in.count) : -ENOMEM;

    if (r == 0)
        r = steps_find(g);
    if (r == 0)
        r = leaks_write(&in, j);
    leak_steps_done(&g->steps);
    free(list);
    return r;
}

static int document(struct gather *g, struct json *j)
{
    int r;

    map_init(&g->lives, sizeof(struct life), 6, NULL);
    map_init(&g->series, sizeof(struct one), 8, NULL);
    r = store_series_each(g->m->store, g->since_ns, on_point, g);
    if (r == 0)
        r = marks_read(g);
    json_object(j);
    view_header(g->context, j);
    json_ku64(j, "since_ns", g->since_ns);
    json_ku64(j, "until_ns", g->until_ns);
    json_kstr(j, "mark", g->marks.wanted);
    json_kbool(j, "truncated", g->is_full);
    if (r == 0)
        r = judge(g, j);
    json_end(j);
    for (uint32_t n = 0; (n = map_next(&g->series, n));)
        series_done(&((struct one *)map_at(&g->series, n))->series);
    map_clear(&g->series);
    map_clear(&g->lives);
    return r;
}

int method_leaks(struct api_call *call, void *userdata)
{
    _cleanup_free_ struct gather *g = calloc(1, sizeof(*g));
    struct method_filter f = {};
    struct view_context c;
    struct json j = {};
    int r = g ? method_filter_read(call, &f) : -ENOMEM;

    if (r >= 0)
        r = api_param_u64(call, "since_ns", INT64_MAX, &g->since_ns);
    if (r >= 0)
        r = api_param_u64(call, "until_ns", INT64_MAX, &g->until_ns);
    if (r >= 0)
        r = api_param_str(call, "mark", &g->marks.wanted);
    if (r >= 0)
        r = api_params_done(call);
    if (r < 0)
        return r;
    g->m = userdata;
    if (!g->m->store)
        return api_error(call, "Failed", "leaks: there is no store to look back in",
                         "store.enabled=yes in npumemd.conf");
    manager_sync_cards(g->m);
    if (method_check_tgids(g->m->ledger, call, &f))
        return 0;
    method_context_init(g->m, &f, &c);
    g->context = &c;
    g->is_now = !g->until_ns || g->until_ns >= c.wall_ns;
    if (g->is_now)
        g->until_ns = c.wall_ns;
    if (!g->since_ns)
        g->since_ns = g->until_ns > WINDOW_DEFAULT_NS ? g->until_ns - WINDOW_DEFAULT_NS : 0;
    if (g->since_ns >= g->until_ns)
        return api_error(call, "BadParameter", "since: not before until, or in the future",
                         "npumem leaks --since -6h");
    method_document_begin(&j);
    return method_document_reply(call, &j, document(g, &j));
}
