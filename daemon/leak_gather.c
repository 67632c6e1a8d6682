/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leak_gather.c - see leak_gather.h.
 *
 * Owns: which samples are which series. Series are in the boot clock of their process, so that a
 * wall clock that jumps bends none. An owner that is in no row of a moment at which its process was
 * sampled held nothing then: that is what retracts a finding.
 */
#include "leak_gather.h"

#include <errno.h>
#include <string.h>

#include "limits.h"
#include "owner.h"
#include "view_rows.h"

#define SERIES_MAX 8192

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

/* --- processes --- */

static struct life *life_of(const struct leak_gather *g, uint32_t number)
{
    return map_at(&g->lives, number);
}

static uint64_t boot_of(const struct leak_gather *g, uint64_t wall_ns)
{
    uint64_t ahead = g->context->wall_ns - g->context->boot_ns;
    return wall_ns > ahead ? wall_ns - ahead : 0;
}

/* A process of this boot, and one that lived at the end of the window. */
static int life_new(struct leak_gather *g, struct store_series *from, const struct store_point *p,
                    uint32_t *ret)
{
    uint64_t exit_ns = 0;
    int r = map_add(&g->lives, (uint64_t)p->process_id, 0, ret);

    if (r < 0)
        return r;
    struct life *life = life_of(g, *ret);
    r = store_series_process(from, p->process_id, &life->facts, &exit_ns);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    uint64_t first = p->boot_ns, last = boot_of(g, g->until_ns);
    life->is_wanted = view_filter_process(g->context, &life->facts) && first <= last &&
                      (!exit_ns || exit_ns >= g->until_ns);
    life->last_ns = last;
    life->grid = series_grid_over(first, last, g->interval_ns, 2 * LIMIT_STORE_SAMPLE_FULL_NS);
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

static int one_new(struct leak_gather *g, struct store_series *from, const struct store_point *p,
                   enum leak_source source, uint32_t life_number, struct one *s)
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
    r = store_series_owner(from, p->owner_id, s->owner, sizeof(s->owner));
    s->is_judged = r == 0 && is_judged(p, s->owner);
    s->pub.level = level_name(p->level);
    /* it held nothing when its process was looked at first */
    if (r == 0 && life->first_moment_ns && life->first_moment_ns < p->boot_ns)
        r = series_add(&s->series, &life->grid,
                       &(struct series_sample){.time_ns = life->first_moment_ns});
    return r == -ENOENT ? 0 : r;
}

static int add(struct leak_gather *g, struct store_series *from, const struct store_point *p,
               enum leak_source source, uint32_t life_number, uint64_t bytes)
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
        r = one_new(g, from, p, source, life_number, s);
        if (r < 0)
            return r;
    }
    return series_add(&((struct one *)map_at(&g->series, n))->series, &life->grid,
                      &(struct series_sample){p->boot_ns, bytes, p->blocks});
}

/* The rows of one moment are through: owners that had none held nothing. */
static int moment_end(struct leak_gather *g, struct life *life)
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

static int owner_point(struct leak_gather *g, struct store_series *from,
                       const struct store_point *p, uint32_t number)
{
    struct life *life = life_of(g, number);
    int r = 0;

    if (life->moment_ns && p->boot_ns != life->moment_ns)
        r = moment_end(g, life);
    if (!life->first_moment_ns)
        life->first_moment_ns = p->boot_ns;
    life->moment_ns = p->boot_ns;
    return r < 0 ? r : add(g, from, p, source_of(p), number, p->bytes);
}

int leak_gather_point(struct leak_gather *g, struct store_series *from, const struct store_point *p)
{
    uint32_t number = map_find(&g->lives, (uint64_t)p->process_id, 0);
    int r = 0;

    if (p->kind == STORE_SERIES_KV)
        return 0; /* what of a cache is in use is no memory that grows */
    if (!number)
        r = life_new(g, from, p, &number);
    if (r < 0)
        return r;
    struct life *life = life_of(g, number);
    if (!life->is_wanted || p->boot_ns > life->last_ns)
        return 0;
    if (p->kind == STORE_SERIES_OWNER)
        return owner_point(g, from, p, number);
    if (p->kind != STORE_SERIES_POOL)
        return add(g, from, p, source_of(p), number, p->bytes);
    r = add(g, from, p, LEAK_ALLOCATED, number, p->bytes);
    if (r == 0)
        r = add(g, from, p, LEAK_ACTIVE, number, p->active_bytes);
    return r < 0 ? r : add(g, from, p, LEAK_RESERVED, number, p->reserved_bytes);
}

void leak_gather_init(struct leak_gather *g, const struct view_context *context,
                      uint64_t interval_ns, uint64_t until_wall_ns)
{
    *g = (struct leak_gather){
        .context = context, .interval_ns = interval_ns, .until_ns = until_wall_ns};
    map_init(&g->lives, sizeof(struct life), 6, NULL);
    map_init(&g->series, sizeof(struct one), 8, NULL);
}

size_t leak_gather_count(const struct leak_gather *g)
{
    return g->series.count;
}

int leak_gather_list(struct leak_gather *g, struct leak_series *list, size_t *ret_count)
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

void leak_gather_done(struct leak_gather *g)
{
    for (uint32_t n = 0; (n = map_next(&g->series, n));)
        series_done(&((struct one *)map_at(&g->series, n))->series);
    map_clear(&g->series);
    map_clear(&g->lives);
}
