/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaks_internal.h - a finding between leaks.c (judges) and leaks_write.c (writes).
 */
#ifndef NPUMEM_ANALYSIS_LEAKS_INTERNAL_H
#define NPUMEM_ANALYSIS_LEAKS_INTERNAL_H

#include "leaks.h"

struct leak_finding {
    const struct leak_series *series;
    uint64_t since_ns; /* what is alive of it and is younger, has grown */
    const char *kind;
    struct trend trend;
    double per_cycle; /* of `cycles` turns, 0: not known */
    size_t cycles;
    const char *cycle_source;
    uint64_t full_ns, full_low_ns, full_high_ns; /* ANALYSIS_UNKNOWN: never, or not known */
    char evidence[ANALYSIS_TEXT_BYTES];
};

struct leak_findings {
    struct leak_finding *items;
    size_t count, capacity, too_short;
};

/* Adds what it finds, in order of the series. Returns 0; -ENOMEM. The caller frees items. */
int leaks_judge(const struct leak_input *in, struct leak_findings *fs);

#endif
