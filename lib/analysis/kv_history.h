/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_history.h - how full a server's KV cache was over time.
 *
 * A span is a stretch of time that was read at short intervals. It is short where the fill moves
 * and long where it does not, so that days of it are few: it ends when the fill has moved by more
 * than 1 % of the pool and it has lasted `shortest_ns`, and anyhow after `longest_ns`. How often
 * which fill was read stays in it. What was full only between two readings is not seen.
 */
#ifndef NPUMEM_ANALYSIS_KV_HISTORY_H
#define NPUMEM_ANALYSIS_KV_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json_write.h"
#include "kv_pool.h"

#define KV_HISTORY_FULL_PERCENT 90u
#define KV_HISTORY_FILLS 101u /* percent, rounded up */

struct kv_span {
    uint64_t begin_wall_ns, end_wall_ns; /* of the reading before the first one, and of the last */
    uint64_t readings;                   /* 0: no span */
    uint64_t usable_blocks;              /* all but the null block */
    uint64_t block_tokens, model_len;    /* 0 not told */
    uint64_t least_blocks, most_blocks;  /* used */
    uint64_t last_blocks;                /* at the last reading */
    uint64_t most_wall_ns;
    uint64_t running, waiting;        /* requests, then; KV_POOL_UNKNOWN */
    uint64_t full_ns;                 /* of its time, at KV_HISTORY_FULL_PERCENT or more */
    uint32_t fills[KV_HISTORY_FILLS]; /* readings of each fill */
    uint32_t zero;
};

struct kv_span_rule {
    uint64_t shortest_ns, longest_ns;
    uint64_t gap_ns; /* a longer time without a reading is not known */
};

/* Takes a reading into the span. false: it does not belong to it, and *ret_next is the span that
 * begins with it. block_tokens and model_len of a new span are the caller's to fill. Cost: O(1). */
bool kv_span_take(struct kv_span *span, const struct kv_pool_reading *reading, uint64_t wall_ns,
                  const struct kv_span_rule *rule, struct kv_span *ret_next);

/* All spans of a pool in a window. */
struct kv_history {
    uint64_t first_wall_ns, last_wall_ns; /* 0 none */
    uint64_t known_ns;                    /* between them, without the gaps */
    uint64_t readings, full_ns;
    struct kv_span newest; /* its sizes are those of the pool */
    struct kv_span most;   /* the span with the highest fill */
    uint64_t fills[KV_HISTORY_FILLS];
};
/* In any order. Cost: O(1). */
void kv_history_add(struct kv_history *h, const struct kv_span *span);
/* The fill, 0 to 1, that was not exceeded in so much of the known time; negative: nothing is known.
 */
double kv_history_percentile(const struct kv_history *h, double part);

/* One server's engine in the document of `budget`. */
struct kv_history_row {
    uint32_t tgid, server_tgid; /* the process that has the scheduler; the server's */
    int32_t replica;            /* -1 none */
    bool is_alive;
    uint64_t interval_ns;
    const char *reason; /* why nothing is known; NULL: something is */
    struct kv_history history;
};

/* What the plan of a rank of this engine says; 0 not known. */
struct kv_history_rank {
    uint64_t kv_bytes, total_bytes;
    double utilization;
};

/* One row of kv_history[] into the array that is open. */
void kv_history_write(const struct kv_history_row *row, const struct kv_history_rank *rank,
                      struct json *j);

/* fills[] as text and back, "0:7 49:2": how the store keeps it. text: KV_HISTORY_TEXT_BYTES.
 * Errors: -EBADMSG. */
#define KV_HISTORY_TEXT_BYTES 2048u /* 101 times "100:4294967295 " */
void kv_span_fills_write(const struct kv_span *span, char *text);
int kv_span_fills_parse(const char *text, struct kv_span *ret);

#endif
