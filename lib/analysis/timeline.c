/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.c - see timeline.h.
 *
 * Invariant: the steps of a row before `filled` are final; its value `last` holds from last_ns on.
 */
#include "timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "map.h"
#include "sort.h"
#include "units.h"

#define UNKNOWN UINT64_MAX

struct step {
    uint64_t min, max, last; /* UNKNOWN: nothing is known of it */
};

struct row {
    struct map_key key;
    uint64_t process;
    uint32_t tgid;
    int32_t rank, device;
    char level[24], owner[ANALYSIS_NAME_BYTES];
    struct step *steps;
    uint64_t last_ns, last; /* UNKNOWN: none */
    uint64_t peak, peak_ns;
};

struct mark {
    char name[72];
    uint64_t wall_ns;
};

struct timeline {
    struct timeline_query q;
    uint64_t step_ns;
    struct map rows;
    struct mark marks[TIMELINE_MARKS_MAX];
    uint32_t mark_count;
    bool is_full;
};

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
    map_init(&t->rows, sizeof(struct row), 6, NULL);
    *ret = t;
    return 0;
}

struct timeline *timeline_free(struct timeline *t)
{
    if (!t)
        return NULL;
    for (uint32_t n = 0; (n = map_next(&t->rows, n));)
        free(((struct row *)map_at(&t->rows, n))->steps);
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

static bool is_same(const struct row *r, const struct timeline_place *p)
{
    return r->process == p->process && r->device == p->device && strcmp(r->level, p->level) == 0 &&
           strcmp(r->owner, p->owner ? p->owner : "") == 0;
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
    struct step *steps = calloc(t->q.steps, sizeof(*steps));
    if (!steps || map_add(&t->rows, hash, collision, &n) < 0) {
        free(steps);
        return -ENOMEM;
    }
    memset(steps, 0xff, t->q.steps * sizeof(*steps));
    struct row *r = map_at(&t->rows, n);
    r->process = p->process;
    r->tgid = p->tgid;
    r->rank = p->rank;
    r->device = p->device;
    snprintf(r->level, sizeof(r->level), "%s", p->level);
    snprintf(r->owner, sizeof(r->owner), "%s", p->owner ? p->owner : "");
    r->steps = steps;
    r->last = UNKNOWN;
    return n;
}

/* A value that holds from one moment to another, both within the window. */
static void step_fill(struct timeline *t, struct row *r, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t first = (from_ns - t->q.since_ns) / t->step_ns,
             last = (to_ns - t->q.since_ns) / t->step_ns;

    for (uint64_t i = first; i <= last && i < t->q.steps; i++) {
        struct step *s = &r->steps[i];
        s->last = r->last;
        if (s->min == UNKNOWN || r->last < s->min)
            s->min = r->last;
        if (s->max == UNKNOWN || r->last > s->max)
            s->max = r->last;
    }
    if (r->last > r->peak || !r->peak_ns) {
        r->peak = r->last;
        r->peak_ns = from_ns;
    }
}

/* Carries the last value to just before a moment, as far as it holds. */
static void carry(struct timeline *t, struct row *r, uint64_t to_ns)
{
    uint64_t end = r->last_ns + t->q.carry_ns, from = r->last_ns;

    if (r->last == UNKNOWN)
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

static struct row *row_move(struct timeline *t, int64_t row, uint64_t *wall_ns)
{
    struct row *r = map_at(&t->rows, (uint32_t)row);

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
    struct row *r = row_move(t, row, &wall_ns);
    r->last = bytes;
    if (wall_ns >= t->q.since_ns && wall_ns < t->q.until_ns)
        step_fill(t, r, wall_ns, wall_ns);
}

void timeline_end(struct timeline *t, uint64_t process, uint64_t wall_ns)
{
    for (uint32_t n = 0; (n = map_next(&t->rows, n));) {
        uint64_t at = wall_ns;
        if (((const struct row *)map_at(&t->rows, n))->process == process)
            row_move(t, n, &at)->last = UNKNOWN;
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
    struct mark *m = &t->marks[t->mark_count++];
    snprintf(m->name, sizeof(m->name), "%s", name);
    m->wall_ns = wall_ns;
}

/* --- writing --- */

static void values(struct json *j, const char *key, const struct timeline *t, const struct row *r,
                   size_t member)
{
    json_karray(j, key);
    for (uint32_t i = 0; i < t->q.steps; i++) {
        uint64_t value = *(const uint64_t *)((const char *)&r->steps[i] + member);
        if (value == UNKNOWN)
            json_null(j);
        else
            json_u64(j, value);
    }
    json_end(j);
}

/* First and last value that is known. Returns false: none. */
static bool ends(const struct timeline *t, const struct row *r, uint64_t *ret_first,
                 uint64_t *ret_last)
{
    bool has = false;

    for (uint32_t i = 0; i < t->q.steps; i++) {
        if (r->steps[i].last == UNKNOWN)
            continue;
        /* the first step's value at its beginning is its lowest or its highest: take its end */
        if (!has)
            *ret_first = r->steps[i].last;
        *ret_last = r->steps[i].last;
        has = true;
    }
    return has;
}

static void write_row(const struct timeline *t, const struct row *r, struct json *j)
{
    uint64_t first = 0, last = 0;

    ends(t, r, &first, &last);
    json_object(j);
    json_ku64(j, "tgid", r->tgid);
    json_kindex(j, "rank", r->rank);
    json_kindex(j, "device", r->device);
    json_kstr(j, "level", r->level);
    json_kstr(j, "owner", r->owner[0] ? r->owner : NULL);
    json_ku64(j, "from_bytes", first);
    json_ku64(j, "to_bytes", last);
    json_ki64(j, "delta_bytes", (int64_t)last - (int64_t)first);
    json_ku64(j, "peak_bytes", r->peak);
    json_ku64(j, "peak_ns", r->peak_ns);
    values(j, "min_bytes", t, r, offsetof(struct step, min));
    values(j, "max_bytes", t, r, offsetof(struct step, max));
    values(j, "last_bytes", t, r, offsetof(struct step, last));
    json_end(j);
}

/* Rows that have a value, the highest first. */
static int64_t order(const struct timeline *t, struct sort_key **ret)
{
    struct sort_key *keys = calloc(t->rows.count + 1u, sizeof(*keys));
    uint64_t first, last;
    size_t count = 0;

    if (!keys)
        return -ENOMEM;
    for (uint32_t n = 0; (n = map_next(&t->rows, n));) {
        const struct row *r = map_at(&t->rows, n);
        if (ends(t, r, &first, &last) && r->peak)
            keys[count++] = (struct sort_key){UINT64_MAX - r->peak, n};
    }
    if (sort_keys(keys, count) < 0) {
        free(keys);
        return -ENOMEM;
    }
    *ret = keys;
    return (int64_t)count;
}

static void write_verdict(const struct timeline *t, const struct sort_key *keys, int64_t count,
                          struct json *j)
{
    const struct row *most = NULL;
    char text[ANALYSIS_TEXT_BYTES], size[UNITS_TEXT_BYTES];
    int64_t most_delta = 0;

    for (int64_t i = 0; i < count; i++) {
        const struct row *r = map_at(&t->rows, keys[i].index);
        uint64_t first = 0, last = 0;
        ends(t, r, &first, &last);
        int64_t delta = (int64_t)last - (int64_t)first;
        if (r->owner[0] && llabs(delta) > llabs(most_delta)) {
            most = r;
            most_delta = delta;
        }
    }
    if (!count)
        snprintf(text, sizeof(text), "no samples in this time");
    else if (!most)
        snprintf(text, sizeof(text), "nothing changed");
    else
        snprintf(text, sizeof(text), "most changed: %s (%s) %s%s", most->owner, most->level,
                 most_delta > 0 ? "+" : "",
                 units_format_signed_bytes(size, most_delta, UNITS_AUTO));
    json_kstr(j, "verdict", text);
}

int timeline_write(const struct timeline *t, uint32_t limit, struct json *j)
{
    _cleanup_free_ struct sort_key *keys = NULL;
    int64_t count = order(t, &keys);

    if (count < 0)
        return (int)count;
    write_verdict(t, keys, count, j);
    json_ku64(j, "since_ns", t->q.since_ns);
    json_ku64(j, "until_ns", t->q.until_ns);
    json_ku64(j, "step_ns", t->step_ns);
    json_ku64(j, "steps", t->q.steps);
    json_karray(j, "marks");
    for (uint32_t i = 0; i < t->mark_count; i++) {
        json_object(j);
        json_kstr(j, "name", t->marks[i].name);
        json_ku64(j, "time_ns", t->marks[i].wall_ns);
        json_ku64(j, "step", (t->marks[i].wall_ns - t->q.since_ns) / t->step_ns);
        json_end(j);
    }
    json_end(j);
    json_ku64(j, "matched_rows", (uint64_t)count);
    json_kbool(j, "truncated", t->is_full || (limit && count > limit));
    json_karray(j, "rows");
    for (int64_t i = 0; i < count && (!limit || i < limit); i++)
        write_row(t, map_at(&t->rows, keys[i].index), j);
    json_end(j);
    return 0;
}
