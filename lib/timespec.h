/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timespec.h - moments as people write them, after systemd.time(7).
 *
 *   now | today | yesterday | tomorrow       midnight of that day, local time, but for now
 *   10 min ago | 2h 5min ago | -2h | +30s    from now; a bare number of seconds
 *   @1796024700 | @1796024700.25             seconds since 1970
 *   2026-11-30T07:32:18Z | ...+02:00         RFC 3339, with fractions
 *   2026-11-30 07:32[:18[.5]] [UTC]          local time without UTC
 *   2026-11-30 | 07:32[:18]                  midnight; today
 *   mark:NAME                                a user mark of that name
 *   peak                                     each device's highest use
 *
 * Wall clock in ns since 1970. Nothing here reads a clock or a time zone: both come in.
 */
#ifndef NPUMEM_TIMESPEC_H
#define NPUMEM_TIMESPEC_H

#include <stdint.h>

enum timespec_kind { TIMESPEC_AT, TIMESPEC_MARK, TIMESPEC_PEAK };

struct timespec_value {
    enum timespec_kind kind;
    int64_t wall_ns;  /* AT */
    const char *mark; /* MARK: borrowed from the text */
};

/* A moment as a calendar and a clock say it; month and day from 1. */
struct calendar_time {
    int year, month, day, hour, minute, second;
};
/* Seconds since 1970 of a local time, as mktime(3) finds them, normalising like it. */
typedef int64_t (*timespec_local_fn)(const struct calendar_time *local);

/*
 * Parses text. now_ns is the wall clock. local_fn NULL: local time is UTC.
 * Returns 0; -EINVAL not a moment; -ERANGE before 1970 or beyond 64 bits of ns.
 */
int timespec_parse(const char *text, int64_t now_ns, timespec_local_fn local_fn,
                   struct timespec_value *ret);

#endif
