/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_replay.h - a recorded trace as a ledger at any moment of it, and as the changes of its sums
 * until then: what the analyses of moments and of time take.
 *
 * Time is the trace's own clock; it never goes back, whatever a record says.
 */
#ifndef NPUMEM_ANALYSIS_TRACE_REPLAY_H
#define NPUMEM_ANALYSIS_TRACE_REPLAY_H

#include "ledger_replay.h"
#include "recording.h"
#include "trace_io.h"
#include "view.h"

struct trace_replay {
    struct trace_reader *trace; /* borrowed */
    struct ledger *ledger;
    struct ledger_replay state;
    struct trace_names names;
    uint64_t begin_ns, end_ns; /* of the trace */
    uint64_t at_ns;            /* up to here it was replayed */
    uint64_t records;          /* without names */
    /* private */
    struct map owners, series;
    char frames[NM_TRACE_NAME_BYTES_MAX + 1];
};

/* Finds out how long the trace is; of one without an end all records are looked at. Returns 0;
 * -ENOMEM. */
int trace_replay_new(struct trace_reader *trace, struct trace_replay *ret);
void trace_replay_done(struct trace_replay *r);

enum replay_sum {
    REPLAY_OWNER, /* of an owner and level */
    REPLAY_ALLOCATED,
    REPLAY_ACTIVE,
    REPLAY_RESERVED, /* of the caching pool */
    REPLAY_PHYSICAL, /* of all segments of a device */
};

struct replay_value {
    uint32_t series; /* number of the sum, from 1 on, stable */
    enum replay_sum sum;
    enum ledger_level level; /* of REPLAY_OWNER */
    uint32_t owner;          /* of REPLAY_OWNER: the ledger's number */
    uint16_t device;         /* as the level, or the pool, counts devices */
    uint64_t bytes, blocks;
};

struct replay_watch {
    uint64_t from_ns; /* values as they are then, and every change from then on */
    /* May be NULL. What they return other than 0 ends the replay. */
    int (*value_fn)(void *userdata, uint64_t time_ns, const struct replay_value *value);
    int (*mark_fn)(void *userdata, uint64_t time_ns, const char *name);
    void *userdata;
};

/* Replays from the beginning up to a moment, that included; once. A sum that comes later than
 * from_ns is told as 0 at from_ns first. watch NULL: none. Returns 0; -ENOMEM; what a function of
 * watch did. Cost: about 0.3 us per record, 80 bytes per live block. */
int trace_replay_run(struct trace_replay *r, uint64_t until_ns, const struct replay_watch *watch);

/* Wall clock of a time of the trace, and back. */
uint64_t trace_replay_wall_ns(const struct trace_replay *r, uint64_t time_ns);
uint64_t trace_replay_time_ns(const struct trace_replay *r, uint64_t wall_ns);
/* The moment that was replayed, as a view's context; complete as far as the trace tells. Borrows
 * both. */
void trace_replay_context(struct trace_replay *r, const struct recording_query *q,
                          struct view_context *ret);
/* Events are missing before that moment, or contradict each other. */
bool trace_replay_is_lossy(const struct trace_replay *r);
/* "recording": {...}, what was read and what is missing, into the open object. */
void trace_replay_write(const struct trace_replay *r, struct json *j);

/* A moment of the trace as people say it: as timespec.h, from the end of the trace back. Returns 0;
 * -EINVAL no moment, or not in the trace; -ENOENT no such mark; -ENOMEM. */
int trace_replay_moment(struct trace_replay *r, const char *text, timespec_local_fn local_fn,
                        uint64_t *ret_time_ns, struct error *reterr);
/* [since, until] of the query; all of the trace where it says nothing. */
int trace_replay_period(struct trace_replay *r, const struct recording_query *q,
                        uint64_t *ret_since_ns, uint64_t *ret_until_ns, struct error *reterr);

#endif
