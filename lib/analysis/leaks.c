/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaks.c - see leaks.h.
 *
 * Invariant: one finding per cause. An owner that grows explains the pool and the process above it;
 * those are named only where no owner does.
 */
#include "leaks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "units.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define HOUR_NS 3600e9
#define YEAR_NS (365 * 24 * HOUR_NS)
/* A cache that took this much more than it needs, at least, is worth a word. */
#define CACHE_MIN_BYTES (256 * MIB)
#define CACHE_MIN_PERCENT 3
/* One allocation that holds so much, and in which nothing is seen. */
#define OPAQUE_MIN_BYTES (4 * GIB)
#define OPAQUE_MAX_BLOCKS 4
#define HOST_MIN_BYTES (64 * MIB)
#define CYCLES_MIN 3

struct finding {
    const struct leak_series *series;
    const char *kind;
    struct trend trend;
    double per_cycle;
    bool has_cycle;
    uint64_t full_ns, full_low_ns, full_high_ns; /* ANALYSIS_UNKNOWN: never, or not known */
    char evidence[ANALYSIS_TEXT_BYTES];
};

struct findings {
    struct finding *items;
    size_t count, capacity, too_short;
};

static struct finding *finding_add(struct findings *f, const struct leak_series *s,
                                   const char *kind, const struct trend *t)
{
    if (f->count == f->capacity) {
        size_t wanted = f->capacity ? f->capacity * 2 : 16;
        struct finding *more = reallocarray(f->items, wanted, sizeof(*more));
        if (!more)
            return NULL;
        f->items = more;
        f->capacity = wanted;
    }
    struct finding *n = &f->items[f->count++];
    *n = (struct finding){.series = s,
                          .kind = kind,
                          .trend = *t,
                          .full_ns = ANALYSIS_UNKNOWN,
                          .full_low_ns = ANALYSIS_UNKNOWN,
                          .full_high_ns = ANALYSIS_UNKNOWN};
    return n;
}

static int trend_of(const struct leak_series *s, bool of_blocks, struct trend *ret)
{
    _cleanup_free_ struct trend_point *p = malloc((s->count ? s->count : 1) * sizeof(*p));

    if (!p)
        return -ENOMEM;
    for (size_t i = 0; i < s->count; i++)
        p[i] = (struct trend_point){s->samples[i].time_ns, of_blocks
                                                               ? (int64_t)s->samples[i].blocks << 20
                                                               : (int64_t)s->samples[i].bytes};
    return trend_find(p, s->count, ret);
}

static const char *bytes_text(char *text, double bytes)
{
    return units_format_signed_bytes(text, (int64_t)bytes, UNITS_AUTO);
}

static uint64_t time_for(double bytes, double per_hour)
{
    if (per_hour <= 0)
        return ANALYSIS_UNKNOWN;
    double ns = bytes / per_hour * HOUR_NS;
    return ns > YEAR_NS ? ANALYSIS_UNKNOWN : (uint64_t)ns;
}

static void time_to_full(const struct leak_input *in, struct finding *f)
{
    uint64_t free_bytes =
        in->free_fn ? in->free_fn(in->userdata, f->series->device) : ANALYSIS_UNKNOWN;

    if (f->series->source == LEAK_HOST || free_bytes == ANALYSIS_UNKNOWN)
        return;
    f->full_ns = time_for((double)free_bytes, f->trend.per_hour);
    f->full_low_ns = time_for((double)free_bytes, f->trend.per_hour_high);
    f->full_high_ns = time_for((double)free_bytes, f->trend.per_hour_low);
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Median of what one cycle adds: the floors between marks, each against the one before. */
static int per_cycle(const struct leak_input *in, struct finding *f)
{
    size_t n = in->mark_count, cycles = 0, at = 0;
    const struct leak_series *s = f->series;
    double last = 0;

    if (n < CYCLES_MIN)
        return 0;
    _cleanup_free_ double *added = malloc(n * sizeof(*added));
    _cleanup_free_ uint64_t *marks = malloc(n * sizeof(*marks));
    if (!added || !marks)
        return -ENOMEM;
    memcpy(marks, in->marks, n * sizeof(*marks));
    qsort(marks, n, sizeof(*marks), compare_u64);
    bool has_last = false;
    for (size_t m = 0; m + 1 < n; m++) {
        uint64_t low = UINT64_MAX;
        for (; at < s->count && s->samples[at].time_ns < marks[m + 1]; at++)
            if (s->samples[at].time_ns >= marks[m] && s->samples[at].bytes < low)
                low = s->samples[at].bytes;
        if (low == UINT64_MAX)
            continue;
        if (has_last)
            added[cycles++] = (double)low - last;
        last = (double)low;
        has_last = true;
    }
    if (cycles < CYCLES_MIN)
        return 0;
    qsort(added, cycles, sizeof(*added), compare_double);
    f->per_cycle = added[cycles / 2];
    f->has_cycle = true;
    return 0;
}

static bool is_workspace(const char *owner)
{
    return owner && (strstr(owner, "WORKSPACE") || strstr(owner, "workspace"));
}

static bool is_same_process(const struct leak_series *a, const struct leak_series *b)
{
    return a->tgid == b->tgid && a->device == b->device;
}

static int judge_owner(const struct leak_input *in, const struct leak_series *s,
                       struct findings *fs)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];
    struct trend t, blocks;
    int r = trend_of(s, false, &t);

    if (r < 0)
        return r;
    fs->too_short += t.shape == TREND_TOO_SHORT;
    if (t.shape != TREND_GROWING)
        return 0;
    r = trend_of(s, true, &blocks);
    if (r < 0)
        return r;
    bool piles_up = blocks.shape == TREND_GROWING && !is_workspace(s->owner);
    struct finding *f = finding_add(fs, s, piles_up ? "leak" : "growth", &t);
    if (!f)
        return -ENOMEM;
    snprintf(f->evidence, sizeof(f->evidence), "the floor rose from %s to %s without coming back%s",
             bytes_text(a, (double)t.first), bytes_text(b, (double)t.last),
             piles_up ? ", and so did the number of blocks" : "");
    time_to_full(in, f);
    return per_cycle(in, f);
}

static const struct leak_series *sibling(const struct leak_input *in, const struct leak_series *s,
                                         enum leak_source source)
{
    for (size_t i = 0; i < in->count; i++)
        if (in->series[i].source == source && is_same_process(&in->series[i], s))
            return &in->series[i];
    return NULL;
}

static bool has_growth(const struct findings *fs, const struct leak_series *s)
{
    for (size_t i = 0; i < fs->count; i++)
        if (is_same_process(fs->items[i].series, s) && fs->items[i].series->source != LEAK_HOST &&
            strcmp(fs->items[i].kind, "opaque") != 0)
            return true;
    return false;
}

/* Reserved grew by much, allocated did not: now and then, or not any more. */
static int judge_reserved(const struct leak_input *in, const struct leak_series *s,
                          struct findings *fs)
{
    const struct leak_series *allocated = sibling(in, s, LEAK_ALLOCATED);
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];
    uint64_t low = UINT64_MAX;
    struct trend t, used = {.shape = TREND_FLAT};
    int r = trend_of(s, false, &t);

    if (r == 0 && allocated)
        r = trend_of(allocated, false, &used);
    if (r < 0)
        return r;
    if (!s->count || t.shape == TREND_TOO_SHORT || used.shape == TREND_GROWING)
        return 0;
    for (size_t i = 0; i < s->count; i++)
        if (s->samples[i].bytes < low)
            low = s->samples[i].bytes;
    uint64_t now = s->samples[s->count - 1].bytes, grown = now > low ? now - low : 0;
    uint64_t floor = used.last > 0 ? (uint64_t)used.last : 0;
    uint64_t unused = allocated && now > floor ? now - floor : 0;
    if (grown < CACHE_MIN_BYTES || grown < now / 100 * CACHE_MIN_PERCENT || unused < grown / 2)
        return 0;
    bool grows = t.shape == TREND_GROWING;
    if (!grows)
        t.per_hour = t.per_hour_low = t.per_hour_high = 0;
    struct finding *f = finding_add(fs, s, "cache_growth", &t);
    if (!f)
        return -ENOMEM;
    snprintf(f->evidence, sizeof(f->evidence),
             "reserved went from %s to %s%s while allocated comes back to its floor: not a leak; "
             "expandable_segments keeps the cache from growing",
             bytes_text(a, (double)low), bytes_text(b, (double)now),
             grows ? "" : " and has levelled off");
    if (grows)
        time_to_full(in, f);
    return per_cycle(in, f);
}

/* The pool or the process grows and no owner explains it. */
static int judge_total(const struct leak_input *in, const struct leak_series *s,
                       struct findings *fs)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];
    struct trend t;

    if (has_growth(fs, s))
        return 0;
    int r = trend_of(s, false, &t);
    if (r < 0 || t.shape != TREND_GROWING)
        return r;
    struct finding *f = finding_add(fs, s, "growth", &t);
    if (!f)
        return -ENOMEM;
    snprintf(f->evidence, sizeof(f->evidence), "%s rose from %s to %s; no single owner explains it",
             s->source == LEAK_DEVICE ? "physical memory" : "allocated memory",
             bytes_text(a, (double)t.first), bytes_text(b, (double)t.last));
    time_to_full(in, f);
    return per_cycle(in, f);
}

static int judge_host(const struct leak_series *s, struct findings *fs)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];
    struct trend t;
    int r = trend_of(s, false, &t);

    if (r < 0 || t.shape != TREND_GROWING || t.growth < (int64_t)HOST_MIN_BYTES)
        return r;
    struct finding *f = finding_add(fs, s, "host_growth", &t);
    if (!f)
        return -ENOMEM;
    snprintf(f->evidence, sizeof(f->evidence), "%s of the process rose from %s to %s",
             s->owner ? s->owner : "host memory", bytes_text(a, (double)t.first),
             bytes_text(b, (double)t.last));
    return 0;
}

/* A few allocations hold much, never change, and report nothing of what they are used for. */
static int judge_opaque(const struct leak_series *s, struct findings *fs)
{
    const struct leak_sample *last = s->count ? &s->samples[s->count - 1] : NULL;
    struct trend t = {.shape = TREND_FLAT};
    char a[UNITS_TEXT_BYTES];

    if (!last || last->bytes < OPAQUE_MIN_BYTES || !last->blocks ||
        last->blocks > OPAQUE_MAX_BLOCKS || strstr(s->owner, "weights") ||
        strcmp(s->owner, "PTA@pool") == 0 || strcmp(s->owner, "before_attach") == 0)
        return 0;
    for (size_t i = s->count / 2; i < s->count; i++)
        if (s->samples[i].bytes != last->bytes)
            return 0;
    struct finding *f = finding_add(fs, s, "opaque", &t);
    if (!f)
        return -ENOMEM;
    snprintf(
        f->evidence, sizeof(f->evidence),
        "%s in %llu allocation%s is opaque to allocation probes: what grows inside cannot be seen",
        bytes_text(a, (double)last->bytes), (unsigned long long)last->blocks,
        last->blocks == 1 ? "" : "s");
    return 0;
}

static int judge(const struct leak_input *in, struct findings *fs)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < in->count; i++)
        if (in->series[i].source == LEAK_OWNER)
            r = judge_owner(in, &in->series[i], fs);
    for (size_t i = 0; r == 0 && i < in->count; i++)
        if (in->series[i].source == LEAK_RESERVED)
            r = judge_reserved(in, &in->series[i], fs);
    for (size_t i = 0; r == 0 && i < in->count; i++)
        if (in->series[i].source == LEAK_ALLOCATED)
            r = judge_total(in, &in->series[i], fs);
    for (size_t i = 0; r == 0 && i < in->count; i++)
        if (in->series[i].source == LEAK_DEVICE)
            r = judge_total(in, &in->series[i], fs);
    for (size_t i = 0; r == 0 && i < in->count; i++) {
        if (in->series[i].source == LEAK_HOST)
            r = judge_host(&in->series[i], fs);
        else if (in->series[i].source == LEAK_OWNER)
            r = judge_opaque(&in->series[i], fs);
    }
    return r;
}

static int compare_finding(const void *a, const void *b)
{
    double x = ((const struct finding *)a)->trend.per_hour;
    double y = ((const struct finding *)b)->trend.per_hour;
    return (x < y) - (x > y);
}

static void write_number(struct json *j, const char *key, int64_t value)
{
    json_key(j, key);
    if (value < 0)
        json_null(j);
    else
        json_i64(j, value);
}

static const char *owner_of(const struct leak_series *s)
{
    static const char *const names[] = {
        [LEAK_ALLOCATED] = "allocated",
        [LEAK_RESERVED] = "reserved",
        [LEAK_DEVICE] = "physical",
        [LEAK_HOST] = "host",
    };
    return s->owner ? s->owner : names[s->source] ? names[s->source] : "unknown";
}

static void write_finding(const struct finding *f, struct json *j)
{
    json_object(j);
    json_ku64(j, "tgid", f->series->tgid);
    write_number(j, "rank", f->series->rank);
    write_number(j, "device", f->series->device);
    json_kstr(j, "owner", owner_of(f->series));
    json_kstr(j, "kind", f->kind);
    json_ki64(j, "bytes_per_hour", (int64_t)f->trend.per_hour);
    json_ki64(j, "bytes_per_hour_low", (int64_t)f->trend.per_hour_low);
    json_ki64(j, "bytes_per_hour_high", (int64_t)f->trend.per_hour_high);
    json_key(j, "bytes_per_cycle");
    if (f->has_cycle)
        json_i64(j, (int64_t)f->per_cycle);
    else
        json_null(j);
    json_kdouble(j, "r2", f->trend.r2);
    json_ki64(j, "from_bytes", f->trend.first);
    json_ki64(j, "to_bytes", f->trend.last);
    json_ku64(j, "window_ns", f->trend.span_ns);
    analysis_u64(j, "time_to_full_ns", f->full_ns);
    analysis_u64(j, "time_to_full_low_ns", f->full_low_ns);
    analysis_u64(j, "time_to_full_high_ns", f->full_high_ns);
    json_karray(j, "frames");
    json_end(j);
    json_kstr(j, "evidence", f->evidence);
    json_end(j);
}

int leaks_write(const struct leak_input *in, struct json *j)
{
    struct findings fs = {0};
    int r = judge(in, &fs);

    if (r == 0) {
        if (fs.count)
            qsort(fs.items, fs.count, sizeof(*fs.items), compare_finding);
        json_karray(j, "findings");
        for (size_t i = 0; i < fs.count; i++)
            write_finding(&fs.items[i], j);
        json_end(j);
        json_kobject(j, "judged");
        json_ku64(j, "series", in->count);
        json_ku64(j, "too_short", fs.too_short);
        json_end(j);
    }
    free(fs.items);
    return r;
}
