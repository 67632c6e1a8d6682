/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inefficient_internal.h - shared by inefficient.c (what is a finding) and inefficient_write.c (the
 * document).
 */
#ifndef NPUMEM_ANALYSIS_INEFFICIENT_INTERNAL_H
#define NPUMEM_ANALYSIS_INEFFICIENT_INTERNAL_H

#include "inefficient.h"

enum inefficient_kind {
    INEFFICIENT_EARLY,
    INEFFICIENT_LATE,
    INEFFICIENT_IDLE,
    INEFFICIENT_KIND_COUNT
};

struct inefficient_finding {
    enum inefficient_kind kind;
    bool by_operations, by_time;
    uint32_t idle_us, idle_op;
    double idle_ratio; /* of the time that it was held within the window */
    uint64_t byte_seconds;
    struct inefficient_block block;
};

struct inefficient {
    struct inefficient_bounds bounds;
    struct inefficient_finding *findings;
    size_t count, capacity;
    struct {
        uint64_t blocks, bytes, byte_seconds;
    } totals[INEFFICIENT_KIND_COUNT];
    uint64_t block_count, used_count, bad_count;
    uint64_t held_byte_seconds;
};

/* For qsort: what costs the most first. */
int inefficient_compare(const void *a, const void *b);

#endif
