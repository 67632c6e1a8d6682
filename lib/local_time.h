/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_time.h - the time zone of the host, for those who parse times that people write.
 *
 * A header alone: the library itself asks for no time zone, its callers hand this to
 * timespec_parse().
 */
#ifndef NPUMEM_LOCAL_TIME_H
#define NPUMEM_LOCAL_TIME_H

#include <time.h>

#include "timespec.h"

/* timespec_local_fn of the zone that TZ or /etc/localtime names. */
static inline int64_t local_seconds(const struct calendar_time *t)
{
    struct tm tm = {
        .tm_year = t->year - 1900,
        .tm_mon = t->month - 1,
        .tm_mday = t->day,
        .tm_hour = t->hour,
        .tm_min = t->minute,
        .tm_sec = t->second,
        .tm_isdst = -1,
    };
    return mktime(&tm);
}

#endif
