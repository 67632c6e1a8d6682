/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.h - two sides compared: net deltas by process, level, owner and call path.
 *
 * A side is a moment of the ledger, one rank of it, or a recorded trace. Amounts are added to a
 * table side by side; what a place has on one side only counts as 0 on the other. Levels are never
 * added to each other.
 */
#ifndef NPUMEM_ANALYSIS_DIFF_H
#define NPUMEM_ANALYSIS_DIFF_H

#include "analysis.h"
#include "ledger.h"
#include "trace_io.h"
#include "view.h"

enum diff_side { DIFF_FROM, DIFF_TO };

/* Where bytes are. Numbers are of diff_process() and diff_name(); 0 none. */
struct diff_place {
    uint32_t process;
    int32_t device; /* driver's number; -1: not told apart */
    uint32_t level; /* enum ledger_level */
    uint32_t owner, frames;
};

struct diff_amount {
    uint64_t bytes, blocks;
    uint64_t peak_bytes; /* highest on this side; only of a trace */
};

struct diff;

/* Returns 0; -ENOMEM. */
int diff_new(struct diff **ret);
struct diff *diff_free(struct diff *d);
DEFINE_CLEANUP(struct diff *, diff_free)

/* Number of a text (copied); 0 for "" and NULL. Negative: -ENOMEM. */
int64_t diff_name(struct diff *d, const char *text);
/* Number of a process of one side. On the other side it is the same process (same tgid and start),
 * else, after a restart, the one of the same rank and world. Negative: -ENOMEM. */
int64_t diff_process(struct diff *d, enum diff_side side, const struct process_facts *facts);
/* From here on every process of a side is the one that is compared: for two ranks. */
void diff_pair(struct diff *d);
/* Row of a place, from 1 on; stable. Negative: -ENOMEM. Cost: O(1). */
int64_t diff_row(struct diff *d, const struct diff_place *place);
/* Adds to a row. */
void diff_add(struct diff *d, enum diff_side side, int64_t row, const struct diff_amount *amount);

/* Every owner of the processes and devices that the context's filters leave. Returns the number of
 * processes; -ENOMEM. Add DIFF_FROM before DIFF_TO. */
int diff_add_ledger(struct diff *d, enum diff_side side, const struct ledger *l,
                    const struct view_context *c);
/* Blocks that are alive and were allocated after since_ns (the ledger's clock), by owner and
 * frames, as DIFF_TO. Returns 0; -ENOMEM. */
int diff_add_since(struct diff *d, const struct ledger *l, const struct view_context *c,
                   uint64_t since_ns);

/* What a trace did not tell. */
struct diff_trace {
    uint64_t records;
    uint64_t unknown_frees;    /* of blocks from before it, or lost */
    uint64_t reused_addresses; /* taken again without a free between: loss */
    uint64_t peak_allocated_bytes, peak_reserved_bytes;
};
/* What is alive at the end of a trace, by owner and frames, with the highest of each. Returns 0;
 * -ENOMEM. Cost: about 0.1 us per record, 40 bytes per live block. */
int diff_add_trace(struct diff *d, enum diff_side side, struct trace_reader *trace,
                   struct diff_trace *ret);
/* What was alive when it began, as DIFF_FROM, and at its end, as DIFF_TO. */
int diff_add_trace_grown(struct diff *d, struct trace_reader *trace, struct diff_trace *ret);

struct diff_query {
    const char *note; /* at the end of the verdict; NULL none */
    uint32_t limit;   /* rows, the largest |delta| first; 0: all */
    bool with_equal;  /* also rows without a difference */
    bool with_frames; /* rows have frames */
    bool has_peaks;   /* amounts have peaks */
};
/* verdict, levels[], rows[], matched_rows, truncated into the open object. Returns 0; -ENOMEM. */
int diff_write(const struct diff *d, const struct diff_query *q, struct json *j);
/* rows[] alone, under another key. */
int diff_write_rows(const struct diff *d, const struct diff_query *q, const char *key,
                    struct json *j);

#endif
