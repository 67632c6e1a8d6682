/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_internal.h - what diff*.c share. Nobody else includes it.
 *
 *   diff.c         the table
 *   diff_ledger.c  from the ledger
 *   diff_trace.c   from a trace
 *   diff_write.c   the verdict and the rows
 *   diff_parameters.c  the tensors of two ranks; uses the texts only
 */
#ifndef NPUMEM_ANALYSIS_DIFF_INTERNAL_H
#define NPUMEM_ANALYSIS_DIFF_INTERNAL_H

#include "diff.h"
#include "map.h"

struct diff_text {
    struct map_key key;
    char *text;
};

struct diff_row_record {
    struct map_key key;
    struct diff_place place;
    uint32_t zero;
    struct diff_amount amount[2];
};

struct diff_process_record {
    uint32_t tgid[2]; /* 0: not on that side */
    uint32_t start_ticks;
    int32_t rank, world_size;
    char comm[16];
};

struct diff {
    struct map names, rows;
    struct diff_process_record *processes;
    uint32_t process_count, process_capacity;
    bool is_pair;
};

/* NULL for 0. */
const char *diff_text_of(const struct diff *d, uint32_t name);
/* A process of DIFF_FROM that is this one on the other side, NULL none. */
struct diff_process_record *diff_process_find(struct diff *d, const struct process_facts *facts,
                                              bool by_rank);

#endif
