/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.h - series of samples over a stretch of time, in even steps.
 *
 * A step holds the lowest and the highest value of its time and the one at its end. A missing
 * sample says "as before", but not for longer than carry_ns: then nobody sampled, and the step is
 * not known. Levels are never added to each other.
 */
#ifndef NPUMEM_ANALYSIS_TIMELINE_H
#define NPUMEM_ANALYSIS_TIMELINE_H

#include "analysis.h"
#include "cleanup.h"

#define TIMELINE_STEPS_MAX 240u
#define TIMELINE_ROWS_MAX 2048u
#define TIMELINE_MARKS_MAX 64u

struct timeline;

struct timeline_query {
    uint64_t since_ns, until_ns; /* wall clock; until after since */
    uint32_t steps;              /* 1 to TIMELINE_STEPS_MAX */
    uint64_t carry_ns;           /* longest time that a value holds without a sample */
};

/* What a series is of. Strings are copied; owner NULL: the whole level. */
struct timeline_place {
    uint64_t process; /* tells lives of one pid apart */
    uint32_t tgid;
    int32_t rank, device; /* -1: none, or not known */
    const char *level, *owner;
    /* Of a server's KV cache: its size in blocks, of which those in use are the series. 0: it is of
     * bytes. */
    uint64_t blocks;
    uint32_t server_tgid;
    int32_t replica; /* -1 none */
};

/* Readings that are only known together (kv_history.h). */
struct timeline_range {
    uint64_t begin_ns, end_ns;
    uint64_t least, most, last;
    uint64_t most_ns;
};

/* Returns 0; -EINVAL a query that cannot be; -ENOMEM. Owns: timeline_free(). */
int timeline_new(const struct timeline_query *q, struct timeline **ret);
struct timeline *timeline_free(struct timeline *t);
DEFINE_CLEANUP(struct timeline *, timeline_free)

/* Number of a series, from 1 on. 0: there are TIMELINE_ROWS_MAX (which the document says); -ENOMEM.
 */
int64_t timeline_row(struct timeline *t, const struct timeline_place *place);
/* Times go up; one that does not is taken at the time of the last (a clock jumped). Samples before
 * since_ns give the value at the beginning, those from until_ns on are left out. */
void timeline_sample(struct timeline *t, int64_t row, uint64_t wall_ns, uint64_t bytes);
/* Counts as a whole for every step that it touches. Ranges of a series come in order, and between
 * them nothing is known; a series has samples or ranges. */
void timeline_range(struct timeline *t, int64_t row, const struct timeline_range *range);
/* Every value of a process ends: it is gone. Between its last sample and timeline_finish(). */
void timeline_end(struct timeline *t, uint64_t process, uint64_t wall_ns);
/* Carries every series to until_ns; after the last sample. */
void timeline_finish(struct timeline *t);
/* Marks outside the window are left out, and all beyond TIMELINE_MARKS_MAX. */
void timeline_mark(struct timeline *t, const char *name, uint64_t wall_ns);

/* verdict, since_ns, until_ns, step_ns, steps, marks[], rows[] (highest first, at most limit; 0:
 * all), matched_rows, truncated, kv_cache[] into the open object. A row's min_bytes, max_bytes and
 * last_bytes are arrays with a value per step, null: not known; those of kv_cache[] count blocks.
 * Returns 0; -ENOMEM. */
int timeline_write(const struct timeline *t, uint32_t limit, struct json *j);

#endif
