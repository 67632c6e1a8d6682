/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom_track.h - which failed calls are one failure, and whether it was recovered from.
 *
 * torch_npu tries, empties its cache, and tries again, all in one thread: one failure followed by a
 * success of the same request is a recovered retry (a performance event), two in a row are an out
 * of memory. Other libraries try once. What follows within OOM_TRACK_BURST_NS in the same thread
 * for the same size is the same failure again.
 */
#ifndef NPUMEM_ANALYSIS_OOM_TRACK_H
#define NPUMEM_ANALYSIS_OOM_TRACK_H

#include <stdbool.h>
#include <stdint.h>

#include "event.h"

#define OOM_TRACK_SLOTS 32
/* A second attempt comes after a synchronisation with the device, which takes as long as it takes.
 */
#define OOM_TRACK_RETRY_NS 10000000000ull
#define OOM_TRACK_BURST_NS 2000000000ull

enum oom_track_state {
    OOM_TRACK_FREE = 0,
    OOM_TRACK_FIRST,     /* failed once; what follows decides */
    OOM_TRACK_REAL,      /* failed for good */
    OOM_TRACK_RECOVERED, /* succeeded afterwards */
};

struct oom_track_slot {
    enum oom_track_state state;
    bool is_closed; /* nothing is added to it any more */
    bool is_driver; /* a driver call that no API call was seen above: a failure that is followed by
                       a success is its step from huge pages to small ones, and no event */
    uint8_t kind;   /* enum nm_event_kind of the call */
    uint32_t tgid, tid, failures;
    uint64_t requested_bytes, first_ns, last_ns;
};

struct oom_track {
    struct oom_track_slot slots[OOM_TRACK_SLOTS];
    uint64_t dropped; /* failures that found no slot */
};

/* Returns the slot of a failed call, -1 when all are in use. *ret_new: it is a failure of its own;
 * *ret_closed: slot that it ended, -1 none. */
int oom_track_failure(struct oom_track *t, const struct nm_event *event, bool *ret_new,
                      int *ret_closed);
/* A call that succeeded. Returns the slot that it decided, which is closed then, or -1. */
int oom_track_success(struct oom_track *t, const struct nm_event *event);
/* The next slot that time has closed (ledger's clock), -1 none. */
int oom_track_due(struct oom_track *t, uint64_t now_ns);
/* The next slot of a process that has ended (tgid 0: of any), now closed; -1 none. */
int oom_track_exit(struct oom_track *t, uint32_t tgid);
/* Whether successes have to be shown. */
bool oom_track_waits(const struct oom_track *t);
/* The slot may be used again. */
void oom_track_release(struct oom_track *t, int slot);

#endif
