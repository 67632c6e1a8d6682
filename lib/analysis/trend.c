/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trend.c - see trend.h: floors of windows, Theil-Sen's median slope, Mann-Kendall's rank test.
 *
 * No square roots: the library links libc alone, so that tests compare squares.
 */
#include "trend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "sort.h"

#define FLOORS_MAX 200
#define WINDOW_MIN 4 /* points whose lowest is one floor */
#define PARTS 5
#define HOUR_NS 3600e9
/* Squares of z: 3.9 for growth (one false alarm in 10,000 series), 1.96 for the interval. */
#define Z2_GROWTH 15.2
#define Z_INTERVAL2 3.84
/* A part of the window has its share of the growth, within these: less has levelled (or comes in
 * episodes: a longer window will tell), more is a step or a season. */
#define SHARE_LEAST 0.3
#define SHARE_MOST 2.0
/* A leak is a straight line through the floor; half a season that looks like one is not so
 * straight. */
#define R2_LEAST 0.95
#define NOISE_FACTOR 4
#define GROWTH_MIN_BYTES (1 << 20)

struct floors {
    double hours[FLOORS_MAX], bytes[FLOORS_MAX];
    size_t count;
};

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    if (!count)
        return 0;
    qsort(values, count, sizeof(*values), compare_double);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* In order of time, each time once. Returns how many are left, or -ENOMEM. */
static ssize_t order(const struct trend_point *points, size_t count, struct trend_point *ret)
{
    _cleanup_free_ struct sort_key *keys = malloc((count ? count : 1) * sizeof(*keys));
    size_t n = 0;

    if (!keys)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        keys[i] = (struct sort_key){points[i].time_ns, (uint32_t)i};
    if (sort_keys(keys, count) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct trend_point *p = &points[keys[i].index];
        if (n && ret[n - 1].time_ns == p->time_ns)
            ret[n - 1] = *p; /* the later one */
        else
            ret[n++] = *p;
    }
    return (ssize_t)n;
}

static void find_floors(const struct trend_point *p, size_t count, struct floors *ret)
{
    size_t window = count / FLOORS_MAX + 1;

    if (window < WINDOW_MIN)
        window = WINDOW_MIN;
    ret->count = 0;
    for (size_t i = 0; i + window <= count && ret->count < FLOORS_MAX; i += window) {
        size_t low = i;
        for (size_t k = i; k < i + window; k++)
            if (p[k].value < p[low].value)
                low = k;
        ret->hours[ret->count] = (double)(p[low].time_ns - p[0].time_ns) / HOUR_NS;
        ret->bytes[ret->count++] = (double)p[low].value;
    }
}

static double lowest(const struct floors *f, size_t from, size_t to)
{
    double low = f->bytes[from];
    for (size_t i = from; i < to; i++)
        if (f->bytes[i] < low)
            low = f->bytes[i];
    return low;
}

/* Median of the slopes of all pairs, with the interval that the rank test's variance gives. */
static int theil_sen(const struct floors *f, size_t from, struct trend *ret)
{
    size_t n = f->count - from, pairs = n * (n - 1) / 2, at = 0;
    _cleanup_free_ double *slopes = malloc((pairs ? pairs : 1) * sizeof(*slopes));

    if (!slopes)
        return -ENOMEM;
    for (size_t i = from; i < f->count; i++)
        for (size_t k = i + 1; k < f->count; k++)
            if (f->hours[k] > f->hours[i])
                slopes[at++] = (f->bytes[k] - f->bytes[i]) / (f->hours[k] - f->hours[i]);
    ret->per_hour = median(slopes, at);
    if (!at)
        return 0;
    double variance = (double)n * (double)(n - 1) * (double)(2 * n + 5) / 18, wanted, c = 0;
    wanted = variance * Z_INTERVAL2;
    while (c * c < wanted)
        c += 1;
    double low = ((double)at - c) / 2, high = ((double)at + c) / 2;
    ret->per_hour_low = slopes[low > 0 ? (size_t)low : 0];
    ret->per_hour_high = slopes[high < (double)(at - 1) ? (size_t)high : at - 1];
    return 0;
}

/* Mann-Kendall: pairs that rise less pairs that fall; the sign of the answer, squared against z. */
static int rank_test(const struct floors *f, size_t from)
{
    double s = 0, n = (double)(f->count - from);

    for (size_t i = from; i < f->count; i++)
        for (size_t k = i + 1; k < f->count; k++)
            s += (f->bytes[k] > f->bytes[i]) - (f->bytes[k] < f->bytes[i]);
    double variance = n * (n - 1) * (2 * n + 5) / 18;
    if (s * s < Z2_GROWTH * variance)
        return 0;
    return s > 0 ? 1 : -1;
}

/* r squared and the median distance from the line. */
static int fit(const struct floors *f, size_t from, struct trend *ret, double *ret_noise)
{
    size_t n = f->count - from;
    double away[FLOORS_MAX], mean = 0, total = 0, rest = 0, offset;

    for (size_t i = 0; i < n; i++) {
        away[i] = f->bytes[from + i] - ret->per_hour * f->hours[from + i];
        mean += f->bytes[from + i] / (double)n;
    }
    offset = median(away, n);
    for (size_t i = 0; i < n; i++) {
        double line = offset + ret->per_hour * f->hours[from + i], d = f->bytes[from + i] - line;
        total += (f->bytes[from + i] - mean) * (f->bytes[from + i] - mean);
        rest += d * d;
        away[i] = d < 0 ? -d : d;
    }
    ret->r2 = total > 0 && rest < total ? 1 - rest / total : 0;
    *ret_noise = median(away, n);
    return 0;
}

/* What each part of the window adds to the floor. */
static enum trend_shape shape_of_parts(const struct floors *f, size_t from)
{
    double low[PARTS], share;
    size_t n = f->count - from;

    for (size_t i = 0; i < PARTS; i++)
        low[i] = lowest(f, from + n * i / PARTS, from + n * (i + 1) / PARTS);
    share = (low[PARTS - 1] - low[0]) / (PARTS - 1);
    if (share <= 0)
        return TREND_FLAT;
    for (size_t i = 0; i + 1 < PARTS; i++) {
        double step = low[i + 1] - low[i];
        if (step < share * SHARE_LEAST || step > share * SHARE_MOST)
            return TREND_LEVELLED;
    }
    return TREND_GROWING;
}

/* The first part may be a warm-up: it is left out when it adds far more than the others. */
static size_t warm_up_end(const struct floors *f)
{
    size_t fifth = f->count / PARTS;
    double first = lowest(f, fifth, 2 * fifth) - lowest(f, 0, 1);
    double rest = lowest(f, 4 * fifth, f->count) - lowest(f, fifth, 2 * fifth);

    return first > 0 && first > rest ? fifth : 0;
}

int trend_find(const struct trend_point *points, size_t count, struct trend *ret)
{
    _cleanup_free_ struct trend_point *p = malloc((count ? count : 1) * sizeof(*p));
    struct floors f = {.count = 0};
    double noise;

    *ret = (struct trend){.shape = TREND_TOO_SHORT};
    if (!p)
        return -ENOMEM;
    ssize_t n = order(points, count, p);
    if (n < 0)
        return (int)n;
    if (n < TREND_POINTS_MIN)
        return 0;
    find_floors(p, (size_t)n, &f);
    size_t from = warm_up_end(&f), tail = f.count - (f.count - from) / PARTS;
    int rank = rank_test(&f, from);
    ret->span_ns = p[n - 1].time_ns - p[0].time_ns;
    ret->first = (int64_t)f.bytes[from];
    ret->last = (int64_t)lowest(&f, tail < f.count ? tail : f.count - 1, f.count);
    for (size_t i = 0; i < f.count; i++)
        if ((int64_t)f.bytes[i] > ret->highest)
            ret->highest = (int64_t)f.bytes[i];
    ret->growth = ret->last - ret->first;
    ret->shape = TREND_FLAT;
    if (rank < 0)
        ret->shape = TREND_SHRINKING;
    else if (rank > 0 || ret->growth > GROWTH_MIN_BYTES)
        ret->shape = shape_of_parts(&f, from);
    if (ret->shape != TREND_GROWING)
        return 0; /* most series; the slope of every pair is what costs */
    int r = theil_sen(&f, from, ret);
    if (r < 0)
        return r;
    fit(&f, from, ret, &noise);
    double risen = ret->per_hour * (f.hours[f.count - 1] - f.hours[from]);
    if (rank <= 0 || ret->r2 < R2_LEAST || risen < GROWTH_MIN_BYTES || risen < NOISE_FACTOR * noise)
        ret->shape = TREND_FLAT;
    return 0;
}
