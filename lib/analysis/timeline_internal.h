/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline_internal.h - what the gathering (timeline.c) and the writing (timeline_write.c) of
 * series share.
 */
#ifndef NPUMEM_ANALYSIS_TIMELINE_INTERNAL_H
#define NPUMEM_ANALYSIS_TIMELINE_INTERNAL_H

#include "map.h"
#include "timeline.h"

#define TIMELINE_UNKNOWN UINT64_MAX

struct timeline_step {
    uint64_t min, max, last; /* TIMELINE_UNKNOWN: nothing is known of it */
};

struct timeline_row {
    struct map_key key;
    uint64_t process;
    uint32_t tgid;
    int32_t rank, device;
    uint64_t blocks; /* as in timeline_place */
    uint32_t server_tgid;
    int32_t replica;
    char level[24], owner[ANALYSIS_NAME_BYTES];
    struct timeline_step *steps;
    uint64_t last_ns, last; /* TIMELINE_UNKNOWN: none */
    uint64_t peak, peak_ns;
};

struct timeline_mark {
    char name[72];
    uint64_t wall_ns;
};

struct timeline {
    struct timeline_query q;
    uint64_t step_ns;
    struct map rows;
    struct timeline_mark marks[TIMELINE_MARKS_MAX];
    uint32_t mark_count;
    bool is_full;
};

#endif
