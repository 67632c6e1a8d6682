/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leak_cycles.h - work that repeats (marks, sleep and wake), and what each turn of it adds.
 */
#ifndef NPUMEM_ANALYSIS_LEAK_CYCLES_H
#define NPUMEM_ANALYSIS_LEAK_CYCLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "series.h"

#define LEAK_CYCLES_MIN 3

/* Times at which a series rises from its low level to its high one (a process wakes up): at most
 * max of them into ret. Returns their number; 0 where the two levels are less than a tenth of the
 * high one, or 1 GiB, apart; -ENOMEM. Cost: O(n log n). */
int leak_wakes(const struct series_sample *samples, size_t count, uint64_t *ret, size_t max);

/* The median of what one turn adds to the floor: the floors between times, each against the one
 * before. Returns 1; 0 fewer than LEAK_CYCLES_MIN; -ENOMEM. */
int leak_per_cycle(const struct series_sample *samples, size_t count, const uint64_t *times,
                   size_t time_count, double *ret, size_t *ret_cycles);

#endif
