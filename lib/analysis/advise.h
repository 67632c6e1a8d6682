/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advise.h - the settings that would help a running process, ranked by what they save.
 *
 * Each rule needs evidence of its own from this process. Nothing is advised that is set already,
 * that another setting of the process excludes, or whose present value cannot be known (the
 * environment was not read): then the confidence is lower.
 */
#ifndef NPUMEM_ANALYSIS_ADVISE_H
#define NPUMEM_ANALYSIS_ADVISE_H

#include "budget.h"
#include "slack.h"

#define ADVISE_GENERATIONS 3

/* Python's garbage collector: its own counters, and memory that it gave back. */
struct advise_gc {
    bool is_known, is_enabled, is_frozen;
    uint32_t threshold; /* of the oldest generation */
    uint64_t collections[ADVISE_GENERATIONS], uncollectable[ADVISE_GENERATIONS];
    uint64_t since_ns; /* age of the process: what the collections are counted over; 0 not known */
    /* Device blocks freed while a collection of that generation ran: a cycle had kept them. */
    uint64_t freed_bytes[ADVISE_GENERATIONS], freed_blocks[ADVISE_GENERATIONS];
    uint64_t largest_bytes; /* given back by one collection of the oldest generation */
};

struct advise_input {
    uint32_t tgid;
    int32_t rank, device; /* -1 not known */
    struct analysis_settings settings;
    struct settings read; /* what they say, settings_read() */

    /* The caching allocator; ANALYSIS_UNKNOWN. */
    uint64_t reserved_bytes, allocated_bytes, active_bytes;
    struct slack slack;
    uint64_t total_bytes, others_bytes;   /* of the card; of other processes on it */
    uint64_t outside_bytes;               /* of this process on it, outside the caching allocator */
    uint64_t recovered_retries, failures; /* of allocations, as reported */
    uint64_t retry_bytes;                 /* the largest of those that were recovered */
    bool is_asleep;
    uint64_t workspace_bytes; /* reserved by the workspace allocator; ANALYSIS_UNKNOWN */

    uint32_t communicators;
    uint64_t hccl_default_bytes; /* of those whose size HCCL_BUFFSIZE decides */
    uint32_t hccl_default_count;

    bool is_atb_known;
    uint64_t atb_executions, atb_workspace_max_bytes;

    struct advise_gc gc;
    const struct budget_result *budget; /* NULL none */
};

/* An input of which nothing is known. Whoever sets `settings` reads them, too. */
void advise_input_init(struct advise_input *ret);

struct advise_result {
    struct advice_list advice; /* the largest saving first, within a confidence */
    char complaint[ANALYSIS_TEXT_BYTES];
};

/* Pure; cost O(1). */
void advise_compute(const struct advise_input *in, struct advise_result *ret);

/* The rows of one process into the array that is open: its advice, each with tgid, rank, device. */
void advise_write(const struct advise_input *in, const struct advise_result *r, struct json *j);

#endif
