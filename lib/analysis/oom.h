/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom.h - why an allocation failed: the verdict over one moment.
 *
 * slack = reserved - allocated, outside = total - reserved - free. In this order:
 *   NOT_MEMORY     the code is not one of memory (streams or events exhausted)
 *   BOGUS_SIZE     the request is larger than the card
 *   FOREIGN        other processes hold well more than a card that idles
 *   FRAGMENTATION  slack covers the request but no hole does (whether a setting would have made
 *                  enough of it usable is another question: the advice answers it)
 *   BUDGET         capacity, hit while the KV cache is being made
 *   CAPACITY       otherwise
 * A number that is not known is ANALYSIS_UNKNOWN and takes no part; nothing is assumed in its
 * place but the idle baseline, and the answer says so.
 */
#ifndef NPUMEM_ANALYSIS_OOM_H
#define NPUMEM_ANALYSIS_OOM_H

#include "analysis.h"
#include "slack.h"

enum oom_verdict {
    OOM_CAPACITY,
    OOM_FRAGMENTATION,
    OOM_FOREIGN,
    OOM_BOGUS_SIZE,
    OOM_BUDGET,
    OOM_NOT_MEMORY,
};
const char *oom_verdict_name(enum oom_verdict verdict);

#define OOM_HOLDERS_MAX 32
#define OOM_BLOCKS_MAX 20 /* of the largest, and of the newest */
#define OOM_OWNERS_MAX 24
#define OOM_FRAMES_MAX 32
#define OOM_FRAME_BYTES 80

struct oom_holder {
    uint32_t tgid; /* 0: processes that were not seen one by one */
    int32_t rank;  /* -1 unknown */
    bool is_victim, is_orphan;
    uint64_t bytes; /* physical, on the device of the failure */
    char comm[16], container[72];
};

struct oom_block {
    uint64_t address, size_bytes, allocated_ns, stream;
    char owner[ANALYSIS_NAME_BYTES];
    const char *level;
};

struct oom_owner {
    char name[ANALYSIS_NAME_BYTES];
    const char *level;
    uint64_t bytes, blocks;
};

struct oom_snapshot {
    uint64_t id, time_ns, last_time_ns; /* wall clock; 0 not known */
    uint32_t tgid, tid, failures;       /* failures: calls folded into this one */
    int32_t rank, device;               /* -1 unknown */
    char comm[16], api[64];
    int64_t code; /* as the library returned it; 0 not known */
    bool is_recovered;
    bool is_vllm; /* its own title says so */

    uint64_t requested_bytes;
    bool is_requested_minimum; /* the granule that failed; what was asked for is at least this */
    uint64_t total_bytes, free_bytes, baseline_bytes; /* of the card */
    uint64_t allowed_bytes;                           /* the process's own limit on reserved */
    uint64_t physical_bytes, reserved_bytes, allocated_bytes, active_bytes;
    uint64_t largest_hole_bytes, holes; /* of the pool that the request is for */
    struct slack slack;                 /* of the pool of large requests, at the failing call */
    char phase[32];                     /* kv_cache, weights, ...; empty not known */
    bool is_phase_inferred;
    char frames[OOM_FRAMES_MAX][OOM_FRAME_BYTES]; /* of the failed call, the innermost first */
    size_t frame_count;

    /* Others of the card; holders_known: the list is all of them. */
    struct oom_holder holders[OOM_HOLDERS_MAX];
    size_t holder_count;
    bool holders_known;
    struct oom_block top[OOM_BLOCKS_MAX], recent[OOM_BLOCKS_MAX];
    size_t top_count, recent_count;
    struct oom_owner owners[OOM_OWNERS_MAX];
    size_t owner_count;
    struct analysis_settings settings;
};

/* A snapshot of which nothing is known. */
void oom_snapshot_init(struct oom_snapshot *ret);

struct oom_result {
    enum oom_verdict verdict;
    uint64_t slack_bytes, outside_bytes, foreign_bytes, short_bytes; /* may be unknown */
    uint64_t pieces_bytes; /* slack without segments that stayed empty through a flush */
    uint64_t unmap_bytes;  /* of that: what expandable segments would have given back, at least */
    uint64_t baseline_bytes;
    bool is_baseline_assumed;
    char complaint[ANALYSIS_TEXT_BYTES]; /* about a setting that cannot be used */
    char reason[ANALYSIS_TEXT_BYTES];
    struct advice_list advice;
};

/* The verdict, its reason and what to set. Cost: O(holders + owners). */
void oom_judge(const struct oom_snapshot *s, struct oom_result *ret);
/* oom_advice.c: fills ret->advice from the rest. */
void oom_advise(const struct oom_snapshot *s, struct oom_result *ret);

/* The members of `oom show` into the object that is open. */
void oom_write(const struct oom_snapshot *s, const struct oom_result *r, struct json *j);

/* Reads torch_npu's message out of any text (a log, a traceback): the numbers that it names, the
 * device, and codes of libraries around it. Old and new wording. Returns 0; -ENODATA: there is no
 * such message (reterr says what is looked for). */
int oom_message_parse(const char *text, size_t bytes, struct oom_snapshot *ret,
                      struct error *reterr);

#endif
