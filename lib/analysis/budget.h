/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.h - why the KV cache got the memory it got, term by term.
 *
 * vLLM's plan, as vllm-ascend 0.23 makes it (docs/ANALYSES.md has the sources):
 *
 *     budget    = card total * gpu_memory_utilization
 *     non_torch = (total - free - reserved after the profile run) - (the same at start)
 *     peak      = highest allocated in the profile run - allocated just before it
 *     available = budget - weights - peak - non_torch         this is what the KV cache gets
 *
 * What the plan leaves out, and what therefore must fit into 1 - utilization, has rows of its own:
 * graph capture, the framework's input buffers, the slack of the pool, and what comes later.
 *
 * Levels: weights, peak, buffers and kv_cache are of the allocator (allocated), non_torch, graph,
 * slack and others of the card. The plan itself adds these up; nothing else here does.
 */
#ifndef NPUMEM_ANALYSIS_BUDGET_H
#define NPUMEM_ANALYSIS_BUDGET_H

#include "settings.h"

#define BUDGET_UNKNOWN INT64_MIN

enum budget_term_id {
    BUDGET_CARD_TOTAL,
    BUDGET_BUDGET,      /* total * utilization */
    BUDGET_OTHERS,      /* what others, and the idle card, held when the process asked first */
    BUDGET_WEIGHTS,     /* planned */
    BUDGET_PEAK,        /* planned: peak of the profile run */
    BUDGET_NON_TORCH,   /* planned */
    BUDGET_AVAILABLE,   /* what the plan leaves */
    BUDGET_KV_CACHE,    /* what KV took */
    BUDGET_GRAPH,       /* not planned from here on */
    BUDGET_BUFFERS,     /* allocated before the weights */
    BUDGET_LOADED,      /* allocated while loading, and not weights */
    BUDGET_SLACK,       /* reserved and not allocated after the profile run */
    BUDGET_LATER,       /* non-torch memory that came after the profile run */
    BUDGET_OTHERS_GREW, /* of non_torch: what others took while this one started */
    BUDGET_TERM_COUNT
};

/* The card as the process was told it, and what it held then. */
struct budget_moment {
    bool is_known;
    int64_t free_bytes, total_bytes, physical_bytes, reserved_bytes, allocated_bytes;
};

enum budget_verdict {
    BUDGET_FITS,
    BUDGET_NEGATIVE, /* the plan leaves nothing */
    BUDGET_REFUSED,  /* less was free at the start than the budget: vLLM does not start */
    BUDGET_OVERRUN,  /* the plan left more than there was: an allocation failed */
    BUDGET_INCOMPLETE,
};

struct budget_input {
    uint32_t tgid, server_tgid; /* server: 0 none */
    int32_t rank, device;       /* -1 not known */
    char comm[16];
    bool has_ended;
    bool is_late;    /* observed only since after its start */
    bool has_blocks; /* its allocator's blocks are seen */
    bool has_phases; /* ... and the phases that it allocated them in */

    int64_t total_bytes;         /* of the card, where no moment has it; BUDGET_UNKNOWN */
    struct budget_moment start;  /* first question in the phase init */
    struct budget_moment before; /* first in the profile run */
    struct budget_moment after;  /* last in the profile run */
    struct budget_moment captured, capturing;     /* last and first of the graph capture */
    int64_t peak_allocated_bytes;                 /* highest in the profile run; BUDGET_UNKNOWN */
    int64_t profile_start_bytes;                  /* allocated before its first block */
    int64_t load_start_bytes;                     /* ... of the phase weights */
    int64_t weights_bytes, kv_bytes, graph_bytes; /* by owner; BUDGET_UNKNOWN none of that name */
    bool is_inferred;                             /* one of these owners is */
    /* now, where no moment has it; BUDGET_UNKNOWN */
    int64_t physical_bytes, reserved_bytes, allocated_bytes;
    int64_t hccl_bytes;
    uint32_t communicators;
    uint32_t sized_otherwise; /* of them: not by HCCL_BUFFSIZE */

    /* The newest real failure of an allocation, after the last success. */
    bool has_failure;
    uint64_t failure_requested_bytes, failure_short_bytes; /* ANALYSIS_UNKNOWN */
    uint64_t failure_physical_bytes; /* of the process then; ANALYSIS_UNKNOWN */
    char failure_phase[32];

    struct analysis_settings settings;
    struct settings read; /* what they say, settings_read() */
};

/* An input of which nothing is known. Whoever sets `settings` reads them, too. */
void budget_input_init(struct budget_input *ret);

struct budget_term {
    int64_t bytes; /* BUDGET_UNKNOWN: reason says why */
    bool is_inferred;
    const char *source, *reason; /* NULL none */
};

struct budget_result {
    enum budget_verdict verdict;
    double utilization;          /* 0 not known */
    bool is_utilization_assumed; /* nothing but a default says it */
    const char *utilization_source;
    struct budget_term terms[BUDGET_TERM_COUNT];
    int64_t sum_bytes;       /* weights + peak + non_torch + graph + kv_cache; BUDGET_UNKNOWN */
    int64_t unplanned_bytes; /* the rows that the plan leaves out, as far as known */
    char reason[ANALYSIS_TEXT_BYTES], complaint[ANALYSIS_TEXT_BYTES];
    uint64_t short_bytes; /* of a failure; ANALYSIS_UNKNOWN */
    bool is_short_inferred;
    struct advice_list advice; /* the term to change first */
};

/* Pure; cost O(1). */
void budget_compute(const struct budget_input *in, struct budget_result *ret);

/* One row of `ranks` into the array that is open. */
void budget_write(const struct budget_input *in, const struct budget_result *r, struct json *j);

#endif
