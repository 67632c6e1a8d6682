/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leak_cycles.c - see leak_cycles.h.
 */
#include "leak_cycles.h"

#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"

#define WAKE_MIN_BYTES ((uint64_t)1 << 30)
/* The levels are those that the series is below (above) for a twentieth of the time: a start-up is
 * neither. */
#define LEVEL_PART 20

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int leak_wakes(const struct series_sample *s, size_t count, uint64_t *ret, size_t max)
{
    _cleanup_free_ uint64_t *sorted = malloc((count ? count : 1) * sizeof(*sorted));
    bool is_low = false;
    size_t n = 0;

    if (!sorted)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        sorted[i] = s[i].bytes;
    if (!count)
        return 0;
    qsort(sorted, count, sizeof(*sorted), compare_u64);
    uint64_t low = sorted[count / LEVEL_PART], high = sorted[count - 1 - count / LEVEL_PART];
    if (high - low < WAKE_MIN_BYTES || high - low < high / 10)
        return 0;
    for (size_t i = 0; i < count && n < max; i++) {
        if (s[i].bytes <= low + (high - low) / 4)
            is_low = true;
        if (is_low && s[i].bytes >= high - (high - low) / 4) {
            ret[n++] = s[i].time_ns;
            is_low = false;
        }
    }
    return (int)n;
}

int leak_per_cycle(const struct series_sample *s, size_t count, const uint64_t *times,
                   size_t time_count, double *ret, size_t *ret_cycles)
{
    size_t cycles = 0, at = 0;
    bool has_last = false;
    double last = 0;

    if (time_count < LEAK_CYCLES_MIN + 2)
        return 0;
    _cleanup_free_ double *added = malloc(time_count * sizeof(*added));
    if (!added)
        return -ENOMEM;
    for (size_t m = 0; m + 1 < time_count; m++) {
        uint64_t low = UINT64_MAX;
        for (; at < count && s[at].time_ns < times[m + 1]; at++)
            if (s[at].time_ns >= times[m] && s[at].bytes < low)
                low = s[at].bytes;
        if (low == UINT64_MAX)
            continue;
        if (has_last)
            added[cycles++] = (double)low - last;
        last = (double)low;
        has_last = true;
    }
    if (cycles < LEAK_CYCLES_MIN)
        return 0;
    qsort(added, cycles, sizeof(*added), compare_double);
    *ret = added[cycles / 2];
    *ret_cycles = cycles;
    return 1;
}
