/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series.c - see series.h.
 *
 * Invariant: at most one sample per step, in order of time.
 */
#include "series.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"

struct series_grid series_grid_over(uint64_t first_ns, uint64_t last_ns, uint64_t interval_ns,
                                    uint64_t gap_ns)
{
    uint64_t step = last_ns > first_ns ? (last_ns - first_ns) / SERIES_STEPS_MAX + 1 : 1;
    return (struct series_grid){first_ns, step > interval_ns ? step : interval_ns, gap_ns};
}

void series_done(struct series *s)
{
    free(s->samples);
    memset(s, 0, sizeof(*s));
}

static uint64_t step_of(const struct series_grid *grid, uint64_t time_ns)
{
    return time_ns > grid->first_ns ? (time_ns - grid->first_ns) / grid->step_ns : 0;
}

/* A value at a time: a new step, or the floor of the one that it is in. */
static int put(struct series *s, const struct series_grid *grid, const struct series_sample *sample)
{
    struct series_sample *top = s->count ? &s->samples[s->count - 1] : NULL;

    if (top && step_of(grid, top->time_ns) == step_of(grid, sample->time_ns)) {
        if (sample->bytes < top->bytes) {
            top->bytes = sample->bytes;
            top->blocks = sample->blocks;
        }
        return 0;
    }
    if (ARRAY_ROOM(s->samples, s->capacity, s->count) < 0)
        return -ENOMEM;
    s->samples[s->count++] = *sample;
    return 0;
}

int series_carry(struct series *s, const struct series_grid *grid, uint64_t until_ns)
{
    uint64_t at = step_of(grid, s->last.time_ns), end = step_of(grid, until_ns);
    int r = 0;

    if (!s->last.time_ns || until_ns <= s->last.time_ns ||
        until_ns - s->last.time_ns > grid->gap_ns)
        return 0;
    while (r == 0 && ++at <= end) {
        struct series_sample held = s->last;
        held.time_ns = grid->first_ns + at * grid->step_ns;
        if (held.time_ns < until_ns)
            r = put(s, grid, &held);
    }
    return r;
}

int series_add(struct series *s, const struct series_grid *grid, const struct series_sample *sample)
{
    struct series_sample next = *sample;

    if (next.time_ns < grid->first_ns)
        next.time_ns = grid->first_ns;
    if (next.time_ns < s->last.time_ns)
        next.time_ns = s->last.time_ns;
    int r = series_carry(s, grid, next.time_ns);
    if (r == 0)
        r = put(s, grid, &next);
    s->last = next;
    return r;
}
