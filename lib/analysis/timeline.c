/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.c - see timeline.h.
 *
 * Invariant: the steps of a row before `filled` are final; its value `last` holds from last_ns on.
 */
#include "timeline_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int timeline_new(const struct timeline_query *q, struct timeline **ret)
{
    struct timeline *t;

    if (q->until_ns <= q->since_ns || !q->steps || q->steps > TIMELINE_STEPS_MAX)
        return -EINVAL;
    t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->q = *q;
    t->step_ns = (q->until_ns - q->since_ns + q->steps - 1) / q->steps;
    map_init(&t->rows, sizeof(struct timeline_row), 6, NULL);
    *ret = t;
    return 0;
}

struct timeline *timeline_free(struct timeline *t)
{
    if (!t)
        return NULL;
    for (uint32_t n = 0; (n = map_next(&t->rows, n));)
        free(((struct timeline_row *)map_at(&t->rows, n))->steps);
    map_clear(&t->rows);
    free(t);
    return NULL;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; text && *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    return (hash ^ 0xff) * 1099511628211ull;
}

static bool is_same(const struct timeline_row *r, const struct timeline_place *p)
{
    return r->process == p->process && r->device == p->device && r->blocks == p->blocks &&
           strcmp(r->level, p->level) == 0 && strcmp(r->owner, p->owner ? p->owner : "") == 0;
}

int64_t timeline_row(struct timeline *t, const struct timeline_place *p)
{
    uint64_t hash = hash_text(
        hash_text(14695981039346656037ull ^ p->process * 0x9e3779b97f4a7c15u ^ (uint32_t)p->device,
                  p->level),
        p->owner);
    uint32_t n, collision = 0;

    while ((n = map_find(&t->rows, hash, collision))) {
        if (is_same(map_at(&t->rows, n), p))
            return n;
        collision++;
    }
    if (t->rows.count == TIMELINE_ROWS_MAX) {
        t->is_full = true;
        return 0;
    }
    struct timeline_step *steps = calloc(t->q.steps, sizeof(*steps));
    if (!steps || map_add(&t->rows, hash, collision, &n) < 0) {
        free(steps);
        return -ENOMEM;
    }
    memset(steps, 0xff, t->q.steps * sizeof(*steps));
    struct timeline_row *r = map_at(&t->rows, n);
    r->process = p->process;
    r->tgid = p->tgid;
    r->rank = p->rank;
    r->device = p->device;
    r->blocks = p->blocks;
    r->server_tgid = p->server_tgid;
    r->replica = p->replica;
    snprintf(r->level, sizeof(r->level), "%s", p->level);
    snprintf(r->owner, sizeof(r->owner), "%s", p->owner ? p->owner : "");
    r->steps = steps;
    r->last = TIMELINE_UNKNOWN;
    return n;
}

/* Values of a time within the window, the first and the last moment included. */
static void steps_take(struct timeline *t, struct timeline_row *r, uint64_t from_ns, uint64_t to_ns,
                       const struct timeline_step *values)
{
    uint64_t first = (from_ns - t->q.since_ns) / t->step_ns,
             last = (to_ns - t->q.since_ns) / t->step_ns;

    for (uint64_t i = first; i <= last && i < t->q.steps; i++) {
        struct timeline_step *s = &r->steps[i];
        s->last = values->last;
        if (s->min == TIMELINE_UNKNOWN || values->min < s->min)
            s->min = values->min;
        if (s->max == TIMELINE_UNKNOWN || values->max > s->max)
            s->max = values->max;
    }
}

static void peak_take(struct timeline_row *r, uint64_t value, uint64_t wall_ns)
{
    if (value > r->peak || !r->peak_ns) {
        r->peak = value;
        r->peak_ns = wall_ns;
    }
}

/* A value that holds from one moment to another, both within the window. */
static void step_fill(struct timeline *t, struct timeline_row *r, uint64_t from_ns, uint64_t to_ns)
{
    steps_take(t, r, from_ns, to_ns, &(struct timeline_step){r->last, r->last, r->last});
    peak_take(r, r->last, from_ns);
}

/* Carries the last value to just before a moment, as far as it holds. */
static void carry(struct timeline *t, struct timeline_row *r, uint64_t to_ns)
{
    uint64_t end = r->last_ns + t->q.carry_ns, from = r->last_ns;

    if (r->last == TIMELINE_UNKNOWN)
        return;
    if (end > to_ns)
        end = to_ns;
    if (from < t->q.since_ns)
        from = t->q.since_ns;
    if (end > t->q.until_ns)
        end = t->q.until_ns;
    if (end > from)
        step_fill(t, r, from, end - 1);
}

static struct timeline_row *row_move(struct timeline *t, int64_t row, uint64_t *wall_ns)
{
    struct timeline_row *r = map_at(&t->rows, (uint32_t)row);

    if (*wall_ns < r->last_ns)
        *wall_ns = r->last_ns;
    carry(t, r, *wall_ns);
    r->last_ns = *wall_ns;
    return r;
}

void timeline_sample(struct timeline *t, int64_t row, uint64_t wall_ns, uint64_t bytes)
{
    if (row <= 0 || wall_ns >= t->q.until_ns)
        return;
    struct timeline_row *r = row_move(t, row, &wall_ns);
    r->last = bytes;
    if (wall_ns >= t->q.since_ns && wall_ns < t->q.until_ns)
        step_fill(t, r, wall_ns, wall_ns);
}

void timeline_range(struct timeline *t, int64_t row, const struct timeline_range *range)
{
    uint64_t from = range->begin_ns, to = range->end_ns;

    if (row <= 0 || from >= t->q.until_ns || to < t->q.since_ns)
        return;
    struct timeline_row *r = map_at(&t->rows, (uint32_t)row);
    if (from < t->q.since_ns)
        from = t->q.since_ns;
    if (to >= t->q.until_ns)
        to = t->q.until_ns - 1;
    steps_take(t, r, from, to, &(struct timeline_step){range->least, range->most, range->last});
    peak_take(r, range->most, range->most_ns);
}

void timeline_end(struct timeline *t, uint64_t process, uint64_t wall_ns)
{
    for (uint32_t n = 0; (n = map_next(&t->rows, n));) {
        uint64_t at = wall_ns;
        if (((const struct timeline_row *)map_at(&t->rows, n))->process == process)
            row_move(t, n, &at)->last = TIMELINE_UNKNOWN;
    }
}

void timeline_finish(struct timeline *t)
{
    for (uint32_t n = 0; (n = map_next(&t->rows, n));)
        carry(t, map_at(&t->rows, n), t->q.until_ns);
}

void timeline_mark(struct timeline *t, const char *name, uint64_t wall_ns)
{
    if (wall_ns < t->q.since_ns || wall_ns >= t->q.until_ns || t->mark_count == TIMELINE_MARKS_MAX)
        return;
    struct timeline_mark *m = &t->marks[t->mark_count++];
    snprintf(m->name, sizeof(m->name), "%s", name);
    m->wall_ns = wall_ns;
}
