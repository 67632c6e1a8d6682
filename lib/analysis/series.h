/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series.h - samples that were written when something changed, as a series of even steps.
 *
 * A step holds the lowest value of its time: the floor is what an analysis of growth looks at. A
 * step without a sample has the value of the one before ("a missing sample says: as before"), but
 * not over a gap in which nobody sampled.
 */
#ifndef NPUMEM_ANALYSIS_SERIES_H
#define NPUMEM_ANALYSIS_SERIES_H

#include <stddef.h>
#include <stdint.h>

#define SERIES_STEPS_MAX 600

struct series_sample {
    uint64_t time_ns;
    uint64_t bytes, blocks;
};

/* The steps of one process. */
struct series_grid {
    uint64_t first_ns, step_ns; /* step_ns is not 0 */
    uint64_t gap_ns;            /* longest time that a value is carried */
};
/* A grid over a window of time: at most SERIES_STEPS_MAX steps, none shorter than interval_ns. */
struct series_grid series_grid_over(uint64_t first_ns, uint64_t last_ns, uint64_t interval_ns,
                                    uint64_t gap_ns);

struct series {
    struct series_sample *samples;
    size_t count, capacity;
    struct series_sample last; /* as it was given; time_ns 0: none yet */
};

void series_done(struct series *s);

/* Adds a sample. Times go up; one that does not, or lies before the grid, is taken at the time of
 * the last (a clock jumped). Returns 0; -ENOMEM. Cost: O(1) amortised over the grid's steps. */
int series_add(struct series *s, const struct series_grid *grid,
               const struct series_sample *sample);
/* Carries the last value up to a time. Returns 0; -ENOMEM. */
int series_carry(struct series *s, const struct series_grid *grid, uint64_t until_ns);

#endif
