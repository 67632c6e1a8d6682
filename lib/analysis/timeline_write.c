/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_write.c - series over time as a document.
 */
#include "timeline_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sort.h"
#include "units.h"

static void values(struct json *j, const char *key, const struct timeline *t,
                   const struct timeline_row *r, size_t member)
{
    json_karray(j, key);
    for (uint32_t i = 0; i < t->q.steps; i++) {
        uint64_t value = *(const uint64_t *)((const char *)&r->steps[i] + member);
        if (value == TIMELINE_UNKNOWN)
            json_null(j);
        else
            json_u64(j, value);
    }
    json_end(j);
}

/* First and last value that is known. Returns false: none. */
static bool ends(const struct timeline *t, const struct timeline_row *r, uint64_t *ret_first,
                 uint64_t *ret_last)
{
    bool has = false;

    for (uint32_t i = 0; i < t->q.steps; i++) {
        if (r->steps[i].last == TIMELINE_UNKNOWN)
            continue;
        /* the first step's value at its beginning is its lowest or its highest: take its end */
        if (!has)
            *ret_first = r->steps[i].last;
        *ret_last = r->steps[i].last;
        has = true;
    }
    return has;
}

static void write_row(const struct timeline *t, const struct timeline_row *r, struct json *j)
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
    values(j, "min_bytes", t, r, offsetof(struct timeline_step, min));
    values(j, "max_bytes", t, r, offsetof(struct timeline_step, max));
    values(j, "last_bytes", t, r, offsetof(struct timeline_step, last));
    json_end(j);
}

/* A cache that nobody used is told of, too. */
static void write_cache(const struct timeline *t, const struct timeline_row *r, struct json *j)
{
    uint64_t first = 0, last = 0;

    if (!r->blocks || !ends(t, r, &first, &last))
        return;
    json_object(j);
    json_ku64(j, "server_tgid", r->server_tgid);
    json_ku64(j, "tgid", r->tgid);
    json_kindex(j, "replica", r->replica);
    json_ku64(j, "blocks", r->blocks);
    json_kdouble(j, "from_ratio", (double)first / (double)r->blocks);
    json_kdouble(j, "to_ratio", (double)last / (double)r->blocks);
    json_kdouble(j, "peak_ratio", (double)r->peak / (double)r->blocks);
    json_ku64(j, "peak_blocks", r->peak);
    json_ku64(j, "peak_ns", r->peak_ns);
    values(j, "min_blocks", t, r, offsetof(struct timeline_step, min));
    values(j, "max_blocks", t, r, offsetof(struct timeline_step, max));
    values(j, "last_blocks", t, r, offsetof(struct timeline_step, last));
    json_end(j);
}

/* Rows of bytes that have a value, the highest first. */
static int64_t order(const struct timeline *t, struct sort_key **ret)
{
    struct sort_key *keys = calloc(t->rows.count + 1u, sizeof(*keys));
    uint64_t first, last;
    size_t count = 0;

    if (!keys)
        return -ENOMEM;
    for (uint32_t n = 0; (n = map_next(&t->rows, n));) {
        const struct timeline_row *r = map_at(&t->rows, n);
        if (!r->blocks && ends(t, r, &first, &last) && r->peak)
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
    const struct timeline_row *most = NULL;
    char text[ANALYSIS_TEXT_BYTES], size[UNITS_TEXT_BYTES];
    int64_t most_delta = 0;

    for (int64_t i = 0; i < count; i++) {
        const struct timeline_row *r = map_at(&t->rows, keys[i].index);
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
    json_karray(j, "kv_cache");
    for (uint32_t n = 0; (n = map_next(&t->rows, n));)
        write_cache(t, map_at(&t->rows, n), j);
    json_end(j);
    return 0;
}
