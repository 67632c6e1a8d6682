/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - the time of a clock in ns. */
#ifndef NPUMEM_DAEMON_CLOCK_H
#define NPUMEM_DAEMON_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

#endif
