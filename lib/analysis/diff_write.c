/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_write.c - the verdict and the rows of a comparison; see diff.h.
 */
#include "diff_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sort.h"
#include "units.h"
#include "view_rows.h"

static int64_t delta_of(const struct diff_row_record *r)
{
    return (int64_t)r->amount[DIFF_TO].bytes - (int64_t)r->amount[DIFF_FROM].bytes;
}

static bool is_shown(const struct diff_row_record *r, const struct diff_query *q)
{
    const struct diff_amount *from = &r->amount[DIFF_FROM], *to = &r->amount[DIFF_TO];

    if (q->with_equal)
        return true;
    return from->bytes != to->bytes || from->blocks != to->blocks ||
           (q->has_peaks && from->peak_bytes != to->peak_bytes);
}

/* Rows by |delta|, the largest first; equal ones by peak difference, then in order of first sight.
 * Returns their number; -ENOMEM. */
static int64_t rows_order(const struct diff *d, const struct diff_query *q, struct sort_key **ret)
{
    struct sort_key *keys = calloc(d->rows.count + 1u, sizeof(*keys));
    size_t count = 0;

    if (!keys)
        return -ENOMEM;
    for (uint32_t n = 0; (n = map_next(&d->rows, n));) {
        const struct diff_row_record *r = map_at(&d->rows, n);
        if (!is_shown(r, q))
            continue;
        int64_t delta = delta_of(r), peak = (int64_t)r->amount[DIFF_TO].peak_bytes -
                                            (int64_t)r->amount[DIFF_FROM].peak_bytes;
        /* below every delta that is not 0 */
        uint64_t weight = delta ? (uint64_t)llabs(delta) | 1ull << 62 : (uint64_t)llabs(peak);
        keys[count++] = (struct sort_key){UINT64_MAX - weight, n};
    }
    if (sort_keys(keys, count) < 0) {
        free(keys);
        return -ENOMEM;
    }
    *ret = keys;
    return (int64_t)count;
}

static void write_frames(const char *frames, struct json *j)
{
    json_karray(j, "frames");
    while (frames && frames[0]) {
        size_t length = strcspn(frames, ";");
        json_strn(j, frames, length);
        frames += length + (frames[length] == ';');
    }
    json_end(j);
}

static void tgid_write(struct json *j, const char *key, uint32_t tgid)
{
    json_ki64_or_null(j, key, tgid != 0, tgid);
}

static void write_row(const struct diff *d, const struct diff_row_record *r,
                      const struct diff_query *q, struct json *j)
{
    const struct diff_process_record *p =
        r->place.process ? &d->processes[r->place.process - 1] : NULL;
    const struct diff_amount *from = &r->amount[DIFF_FROM], *to = &r->amount[DIFF_TO];

    json_object(j);
    json_ki64_or_null(j, "rank", p && !d->is_pair && p->rank >= 0, p ? p->rank : 0);
    tgid_write(j, "from_tgid", p ? p->tgid[DIFF_FROM] : 0);
    tgid_write(j, "to_tgid", p ? p->tgid[DIFF_TO] : 0);
    json_kindex(j, "device", r->place.device);
    json_kstr(j, "level", level_name((enum ledger_level)r->place.level));
    json_kstr(j, "owner", diff_text_of(d, r->place.owner));
    if (q->with_frames)
        write_frames(diff_text_of(d, r->place.frames), j);
    json_ku64(j, "from_bytes", from->bytes);
    json_ku64(j, "to_bytes", to->bytes);
    json_ki64(j, "delta_bytes", delta_of(r));
    json_ku64(j, "from_blocks", from->blocks);
    json_ku64(j, "to_blocks", to->blocks);
    if (q->has_peaks) {
        json_ku64(j, "from_peak_bytes", from->peak_bytes);
        json_ku64(j, "to_peak_bytes", to->peak_bytes);
    }
    json_end(j);
}

int diff_write_rows(const struct diff *d, const struct diff_query *q, const char *key,
                    struct json *j)
{
    _cleanup_free_ struct sort_key *keys = NULL;
    int64_t count = rows_order(d, q, &keys);

    if (count < 0)
        return (int)count;
    json_karray(j, key);
    for (int64_t i = 0; i < count && (!q->limit || i < q->limit); i++)
        write_row(d, map_at(&d->rows, keys[i].index), q, j);
    json_end(j);
    return 0;
}

/* --- the verdict --- */

struct level_sum {
    struct diff_amount side[2];
    const struct diff_row_record *most; /* of the rows in the direction of the whole, or of any */
    uint64_t rows;
};

static void sum_levels(const struct diff *d, struct level_sum *sums)
{
    for (uint32_t n = 0; (n = map_next(&d->rows, n));) {
        const struct diff_row_record *r = map_at(&d->rows, n);
        struct level_sum *s = &sums[r->place.level];
        for (int side = 0; side < 2; side++) {
            s->side[side].bytes += r->amount[side].bytes;
            s->side[side].blocks += r->amount[side].blocks;
        }
        s->rows++;
        if (delta_of(r) && (!s->most || llabs(delta_of(r)) > llabs(delta_of(s->most))))
            s->most = r;
    }
}

static int64_t sum_delta(const struct level_sum *s)
{
    return (int64_t)s->side[DIFF_TO].bytes - (int64_t)s->side[DIFF_FROM].bytes;
}

static char *signed_text(char *text, int64_t bytes)
{
    text[0] = '+';
    units_format_signed_bytes(bytes < 0 ? text : text + 1, bytes, UNITS_AUTO);
    return text;
}

static void verdict_text(const struct diff *d, const struct level_sum *sums, char *text,
                         size_t size)
{
    static const enum ledger_level order[] = {LEVEL_BLOCK, LEVEL_PHYSICAL, LEVEL_HOST};
    char from[UNITS_TEXT_BYTES], to[UNITS_TEXT_BYTES], delta[UNITS_TEXT_BYTES + 1],
        most[UNITS_TEXT_BYTES + 1];
    const struct level_sum *s = NULL;
    size_t i, at;

    for (i = 0; i < sizeof(order) / sizeof(order[0]) && !s; i++)
        s = sums[order[i]].rows ? &sums[order[i]] : NULL;
    if (!s) {
        snprintf(text, size, "neither side holds anything");
        return;
    }
    const char *level = level_name(order[i - 1]);
    units_format_bytes(from, s->side[DIFF_FROM].bytes, UNITS_AUTO);
    units_format_bytes(to, s->side[DIFF_TO].bytes, UNITS_AUTO);
    if (!s->most) {
        snprintf(text, size, "no difference: %s %s on both sides", to, level);
        return;
    }
    at = (size_t)snprintf(
        text, size, "%s %s (%s -> %s); most: %s %s", level, signed_text(delta, sum_delta(s)), from,
        to, diff_text_of(d, s->most->place.owner), signed_text(most, delta_of(s->most)));
    const struct diff_process_record *p =
        s->most->place.process ? &d->processes[s->most->place.process - 1] : NULL;
    if (p && !d->is_pair && p->rank >= 0 && at < size)
        snprintf(text + at, size - at, " on rank %d", p->rank);
    else if (p && !d->is_pair && at < size)
        snprintf(text + at, size - at, " in process %u",
                 p->tgid[DIFF_TO] ? p->tgid[DIFF_TO] : p->tgid[DIFF_FROM]);
}

int diff_write(const struct diff *d, const struct diff_query *q, struct json *j)
{
    struct level_sum sums[LEVEL_COUNT] = {0};
    _cleanup_free_ struct sort_key *keys = NULL;
    int64_t count = rows_order(d, q, &keys);
    char text[ANALYSIS_TEXT_BYTES];

    if (count < 0)
        return (int)count;
    sum_levels(d, sums);
    verdict_text(d, sums, text, sizeof(text));
    if (q->note)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "; %s", q->note);
    json_kstr(j, "verdict", text);
    json_karray(j, "levels");
    for (unsigned level = 0; level < LEVEL_COUNT; level++) {
        if (!sums[level].rows)
            continue;
        json_object(j);
        json_kstr(j, "level", level_name((enum ledger_level)level));
        json_ku64(j, "from_bytes", sums[level].side[DIFF_FROM].bytes);
        json_ku64(j, "to_bytes", sums[level].side[DIFF_TO].bytes);
        json_ki64(j, "delta_bytes", sum_delta(&sums[level]));
        json_ku64(j, "from_blocks", sums[level].side[DIFF_FROM].blocks);
        json_ku64(j, "to_blocks", sums[level].side[DIFF_TO].blocks);
        json_end(j);
    }
    json_end(j);
    json_ku64(j, "matched_rows", (uint64_t)count);
    json_kbool(j, "truncated", q->limit && count > q->limit);
    return diff_write_rows(d, q, "rows", j);
}
