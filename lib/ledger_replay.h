/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_replay.h - a ledger from the records of a trace, so that the views of now can show what a
 * recorded process held at a moment. It takes no events.
 *
 * What a trace lost shows as frees of unknown blocks, and as addresses that are taken again: then
 * the block before has ended. The pool's totals are sums of what the trace has.
 */
#ifndef NPUMEM_LEDGER_REPLAY_H
#define NPUMEM_LEDGER_REPLAY_H

#include "ledger.h"
#include "trace.h"

struct process;

/* A sum that the newest record changed. */
struct ledger_replay_change {
    enum ledger_level level;
    uint16_t device; /* as the level counts devices */
    uint32_t owner;
    uint64_t bytes, blocks; /* now */
};
#define LEDGER_REPLAY_CHANGES 2 /* at most; of two changes of one sum the last counts */

struct ledger_replay {
    struct ledger *ledger; /* borrowed, and empty at first */
    uint32_t tgid;
    uint64_t unknown_frees;    /* of blocks from before the trace, or lost */
    uint64_t reused_addresses; /* taken again without a free between: loss */
    struct ledger_replay_change changes[LEDGER_REPLAY_CHANGES];
    uint32_t change_count;
    struct ledger_pool pool; /* that the newest record changed; if has_pool */
    bool has_pool;
    bool is_segment; /* the newest record changed the segments */
    /* private */
    struct process *process;
    uint64_t done_address; /* the newest record was the end of this block; 0 not */
};

/* The process that the header names. Returns 0; -ENOMEM. */
int ledger_replay_begin(struct ledger_replay *r, struct ledger *l,
                        const struct nm_trace_header *header);
/* The ledger's number of an owner's name; NULL: that of a block without a name. */
uint32_t ledger_replay_owner(struct ledger_replay *r, const char *name);
/* Takes a record of a block or segment at a time that goes up; others change nothing. was_there:
 * it was allocated at some time before (its age is not known). owner: of ledger_replay_owner(). The
 * entry's stack is the trace's id. Returns 0; 1 not applied; -ENOMEM. Cost: O(1), about 0.1 us. */
int ledger_replay_apply(struct ledger_replay *r, const struct nm_trace_record *record,
                        uint64_t time_ns, uint32_t owner, bool was_there);

#endif
