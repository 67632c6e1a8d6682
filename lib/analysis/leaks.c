/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaks.c - see leaks.h: which series grow, and what that is called. leaks_write.c writes it.
 *
 * Invariant: one finding per cause. An owner that grows explains the pool and the process above it;
 * those are named only where no owner does.
 */
#include "leaks_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "cleanup.h"
#include "leak_cycles.h"
#include "leak_steps.h"
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
#define WAKES_MAX 512

static struct leak_finding *finding_add(struct leak_findings *f, const struct leak_series *s,
                                        const char *kind, const struct trend *t)
{
    if (ARRAY_ROOM(f->items, f->capacity, f->count) < 0)
        return NULL;
    struct leak_finding *n = &f->items[f->count++];
    *n = (struct leak_finding){.series = s,
                               .since_ns = s->count ? s->samples[0].time_ns : 0,
                               .kind = kind,
                               .trend = *t,
                               .full_ns = ANALYSIS_UNKNOWN,
                               .full_low_ns = ANALYSIS_UNKNOWN,
                               .full_high_ns = ANALYSIS_UNKNOWN};
    return n;
}

static bool is_short(const struct leak_input *in, const struct leak_series *s)
{
    return s->count < TREND_POINTS_MIN ||
           s->samples[s->count - 1].time_ns - s->samples[0].time_ns < in->least_ns;
}

static int trend_of(const struct leak_input *in, const struct leak_series *s, bool of_blocks,
                    struct trend *ret)
{
    size_t n = s->count;

    *ret = (struct trend){.shape = TREND_TOO_SHORT};
    if (is_short(in, s))
        return 0;
    _cleanup_free_ struct trend_point *p = malloc(n * sizeof(*p));
    if (!p)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) /* a block counts as 1 MiB, the least that is growth */
        p[i] = (struct trend_point){s->samples[i].time_ns, of_blocks
                                                               ? (int64_t)s->samples[i].blocks << 20
                                                               : (int64_t)s->samples[i].bytes};
    return trend_find(p, n, ret);
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

static bool is_same_process(const struct leak_series *a, const struct leak_series *b)
{
    return a->tgid == b->tgid && a->device == b->device;
}

static const struct leak_series *sibling(const struct leak_input *in, const struct leak_series *s,
                                         enum leak_source source)
{
    for (size_t i = 0; i < in->count; i++)
        if (in->series[i].source == source && is_same_process(&in->series[i], s))
            return &in->series[i];
    return NULL;
}

/* The process on the device of a series; of host memory, on the device on which it holds most. */
static const struct leak_series *device_series(const struct leak_input *in,
                                               const struct leak_series *s)
{
    const struct leak_series *best = NULL;

    if (s->source != LEAK_HOST)
        return sibling(in, s, LEAK_DEVICE);
    for (size_t i = 0; i < in->count; i++) {
        const struct leak_series *d = &in->series[i];
        if (d->source == LEAK_DEVICE && d->tgid == s->tgid && d->count &&
            (!best || d->samples[d->count - 1].bytes > best->samples[best->count - 1].bytes))
            best = d;
    }
    return best;
}

/* What the pool has in use. */
static const struct leak_series *used_series(const struct leak_input *in,
                                             const struct leak_series *s)
{
    const struct leak_series *active = sibling(in, s, LEAK_ACTIVE);
    return active ? active : sibling(in, s, LEAK_ALLOCATED);
}

/* What is free in the pool of a series; 0 not known. */
static uint64_t pool_slack(const struct leak_input *in, const struct leak_series *s)
{
    const struct leak_series *reserved = sibling(in, s, LEAK_RESERVED);
    const struct leak_series *active = used_series(in, s);

    if (s->source != LEAK_OWNER || !s->level || strcmp(s->level, "physical") == 0 || !reserved ||
        !active || !reserved->count || !active->count)
        return 0;
    uint64_t has = reserved->samples[reserved->count - 1].bytes;
    uint64_t used = active->samples[active->count - 1].bytes;
    return has > used ? has - used : 0;
}

/* The interval: the fast slope into what the card has free, the slow one into that and the slack of
 * the pool. */
static void time_to_full(const struct leak_input *in, struct leak_finding *f)
{
    uint64_t free_bytes =
        in->free_fn ? in->free_fn(in->userdata, f->series->device) : ANALYSIS_UNKNOWN;

    if (f->series->source == LEAK_HOST || free_bytes == ANALYSIS_UNKNOWN)
        return;
    double slack = (double)pool_slack(in, f->series);
    f->full_ns = time_for((double)free_bytes, f->trend.per_hour);
    f->full_low_ns = time_for((double)free_bytes, f->trend.per_hour_high);
    f->full_high_ns = time_for((double)free_bytes + slack, f->trend.per_hour_low);
}

/* By the marks; without them by the times at which the process woke up. */
static int per_cycle(const struct leak_input *in, struct leak_finding *f)
{
    const struct leak_series *device = device_series(in, f->series);
    uint64_t wakes[WAKES_MAX];
    int n = 0, r;

    r = leak_per_cycle(f->series->samples, f->series->count, in->marks, in->mark_count,
                       &f->per_cycle, &f->cycles);
    f->cycle_source = r > 0 ? in->mark_name : NULL;
    if (r != 0 || !device)
        return r < 0 ? r : 0;
    n = leak_wakes(device->samples, device->count, wakes, WAKES_MAX);
    if (n <= 0)
        return n;
    r = leak_per_cycle(f->series->samples, f->series->count, wakes, (size_t)n, &f->per_cycle,
                       &f->cycles);
    f->cycle_source = r > 0 ? "sleep and wake" : NULL;
    return r < 0 ? r : 0;
}

static bool is_workspace(const char *owner)
{
    return owner && (strstr(owner, "WORKSPACE") || strstr(owner, "workspace"));
}

static int judge_owner(const struct leak_input *in, const struct leak_series *s,
                       struct leak_findings *fs)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];
    struct trend t, blocks;
    int r = trend_of(in, s, false, &t);

    if (r < 0)
        return r;
    if (t.shape != TREND_GROWING)
        return 0;
    r = trend_of(in, s, true, &blocks);
    if (r < 0)
        return r;
    bool is_pending = s->level && strcmp(s->level, "pending") == 0;
    bool piles_up = blocks.shape == TREND_GROWING && !is_workspace(s->owner) && !is_pending;
    struct leak_finding *f = finding_add(fs, s, piles_up ? "leak" : "growth", &t);
    if (!f)
        return -ENOMEM;
    if (is_pending)
        snprintf(
            f->evidence, sizeof(f->evidence),
            "freed blocks that wait for another stream rose from %s to %s: they come back when "
            "that stream is done and its owner allocates again",
            bytes_text(a, (double)t.first), bytes_text(b, (double)t.last));
    else
        snprintf(f->evidence, sizeof(f->evidence),
                 "the floor rose from %s to %s without coming back%s",
                 bytes_text(a, (double)t.first), bytes_text(b, (double)t.last),
                 piles_up ? ", and so did the number of blocks" : "");
    time_to_full(in, f);
    return per_cycle(in, f);
}

static bool has_growth(const struct leak_findings *fs, const struct leak_series *s)
{
    for (size_t i = 0; i < fs->count; i++)
        if (is_same_process(fs->items[i].series, s) && fs->items[i].series->source != LEAK_HOST &&
            strcmp(fs->items[i].kind, "opaque") != 0)
            return true;
    return false;
}

/* Reserved grew by much, and most of that was never in use at one time. */
static int judge_reserved(const struct leak_input *in, const struct leak_series *s,
                          struct leak_findings *fs)
{
    const struct leak_series *active = used_series(in, s);
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];
    uint64_t low = UINT64_MAX;
    struct trend t, used = {.shape = TREND_FLAT};
    int r = trend_of(in, s, false, &t);

    if (r == 0 && active)
        r = trend_of(in, active, false, &used);
    if (r < 0)
        return r;
    if (!s->count || t.shape == TREND_TOO_SHORT || used.shape == TREND_GROWING)
        return 0;
    for (size_t i = 0; i < s->count; i++)
        if (s->samples[i].bytes < low)
            low = s->samples[i].bytes;
    uint64_t now = s->samples[s->count - 1].bytes, grown = now > low ? now - low : 0, high = 0;
    for (size_t i = 0; active && i < active->count; i++)
        if (active->samples[i].bytes > high)
            high = active->samples[i].bytes;
    uint64_t unused = high && now > high ? now - high : 0; /* never in use at once */
    if (unused < CACHE_MIN_BYTES || grown < CACHE_MIN_BYTES ||
        grown < now / 100 * CACHE_MIN_PERCENT || unused < grown / 2)
        return 0;
    bool grows = t.shape == TREND_GROWING;
    if (!grows)
        t.per_hour = t.per_hour_low = t.per_hour_high = 0;
    struct leak_finding *f = finding_add(fs, s, "cache_growth", &t);
    if (!f)
        return -ENOMEM;
    snprintf(
        f->evidence, sizeof(f->evidence),
        "reserved went from %s to %s%s while what is used comes back to its floor: not a leak%s",
        bytes_text(a, (double)low), bytes_text(b, (double)now),
        grows ? "" : " and has levelled off",
        in->expandable_fn && in->expandable_fn(in->userdata, s->tgid)
            ? ""
            : "; expandable_segments keeps the cache from growing");
    if (grows)
        time_to_full(in, f);
    return per_cycle(in, f);
}

/* The pool or the process grows and no owner explains it. */
static int judge_total(const struct leak_input *in, const struct leak_series *s,
                       struct leak_findings *fs)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];
    struct trend t;

    if (has_growth(fs, s))
        return 0;
    int r = trend_of(in, s, false, &t);
    if (r < 0 || t.shape != TREND_GROWING)
        return r;
    struct leak_finding *f = finding_add(fs, s, "growth", &t);
    if (!f)
        return -ENOMEM;
    snprintf(f->evidence, sizeof(f->evidence), "%s rose from %s to %s; no single owner explains it",
             s->source == LEAK_DEVICE ? "physical memory" : "allocated memory",
             bytes_text(a, (double)t.first), bytes_text(b, (double)t.last));
    time_to_full(in, f);
    return per_cycle(in, f);
}

static int judge_host(const struct leak_input *in, const struct leak_series *s,
                      struct leak_findings *fs)
{
    const struct leak_series *device = device_series(in, s);
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES], flat[80] = "";
    struct trend t, on_device = {.shape = TREND_TOO_SHORT};
    int r = trend_of(in, s, false, &t);

    if (r < 0 || t.shape != TREND_GROWING || t.growth < (int64_t)HOST_MIN_BYTES)
        return r;
    if (device)
        r = trend_of(in, device, false, &on_device);
    struct leak_finding *f = r == 0 ? finding_add(fs, s, "host_growth", &t) : NULL;
    if (!f)
        return r < 0 ? r : -ENOMEM;
    if (on_device.shape == TREND_FLAT)
        snprintf(flat, sizeof(flat), "; its device memory is flat at %s",
                 bytes_text(c, (double)on_device.last));
    snprintf(f->evidence, sizeof(f->evidence), "%s of the process rose from %s to %s%s",
             s->owner ? s->owner : "host memory", bytes_text(a, (double)t.first),
             bytes_text(b, (double)t.last), flat);
    return per_cycle(in, f);
}

/* A few allocations hold much, never change, and report nothing of what they are used for. */
static int judge_opaque(const struct leak_series *s, struct leak_findings *fs)
{
    const struct series_sample *last = s->count ? &s->samples[s->count - 1] : NULL;
    struct trend t = {.shape = TREND_FLAT};
    char a[UNITS_TEXT_BYTES];

    if (!last || (s->level && strcmp(s->level, "physical") != 0) ||
        last->bytes < OPAQUE_MIN_BYTES || !last->blocks || last->blocks > OPAQUE_MAX_BLOCKS ||
        strstr(s->owner, "weights") || strcmp(s->owner, "PTA@pool") == 0 ||
        strcmp(s->owner, "before_attach") == 0)
        return 0;
    for (size_t i = s->count / 2; i < s->count; i++)
        if (s->samples[i].bytes != last->bytes)
            return 0;
    t.first = t.last = (int64_t)last->bytes;
    struct leak_finding *f = finding_add(fs, s, "opaque", &t);
    if (!f)
        return -ENOMEM;
    snprintf(
        f->evidence, sizeof(f->evidence),
        "%s in %llu allocation%s is opaque to allocation probes: what grows inside cannot be seen",
        bytes_text(a, (double)last->bytes), (unsigned long long)last->blocks,
        last->blocks == 1 ? "" : "s");
    return 0;
}

static bool has_finding(const struct leak_findings *fs, const struct leak_series *s)
{
    for (size_t i = 0; i < fs->count; i++)
        if (is_same_process(fs->items[i].series, s) && fs->items[i].series->owner &&
            strcmp(fs->items[i].series->owner, s->owner) == 0 &&
            strcmp(fs->items[i].kind, "opaque") != 0)
            return true;
    return false;
}

/* Steps say it sooner than a trend: an owner of which many steps left something. */
static int judge_steps(const struct leak_input *in, struct leak_findings *fs)
{
    char a[UNITS_TEXT_BYTES];

    for (uint32_t n = 0; in->steps && (n = map_next(&in->steps->survivors, n));) {
        const struct leak_survivor *v = map_at(&in->steps->survivors, n);
        double per_hour = v->step_ns ? (double)v->bytes_per_step / (double)v->step_ns * HOUR_NS : 0;
        struct trend t = {.shape = TREND_GROWING,
                          .per_hour = per_hour,
                          .per_hour_low = per_hour,
                          .per_hour_high = per_hour,
                          .last = (int64_t)v->bytes,
                          .span_ns = v->step_ns * v->step_count};
        if (!v->is_leak || has_finding(fs, &v->of))
            continue;
        struct leak_finding *f =
            finding_add(fs, &v->of, is_workspace(v->of.owner) ? "growth" : "leak", &t);
        if (!f)
            return -ENOMEM;
        f->since_ns = v->first_ns;
        f->per_cycle = (double)v->bytes_per_step;
        f->cycles = v->step_count;
        f->cycle_source = in->mark_name;
        snprintf(f->evidence, sizeof(f->evidence),
                 "%u of %u steps left blocks that are alive after the next step: %s in %llu",
                 v->steps, v->step_count, bytes_text(a, (double)v->bytes),
                 (unsigned long long)v->blocks);
        time_to_full(in, f);
    }
    return 0;
}

int leaks_judge(const struct leak_input *in, struct leak_findings *fs)
{
    int r = 0;

    for (size_t i = 0; i < in->count; i++)
        fs->too_short += is_short(in, &in->series[i]);
    for (size_t i = 0; r == 0 && i < in->count; i++)
        if (in->series[i].source == LEAK_OWNER)
            r = judge_owner(in, &in->series[i], fs);
    if (r == 0)
        r = judge_steps(in, fs);
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
            r = judge_host(in, &in->series[i], fs);
        else if (in->series[i].source == LEAK_OWNER)
            r = judge_opaque(&in->series[i], fs);
    }
    return r;
}
