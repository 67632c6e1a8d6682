/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h - from the kernel's buffers into the ledger.
 *
 * Owns: the consumer side of the ring buffer, the accounting of loss, and the reading of the maps
 * that the kernel sums in. The callback does what ledger_apply() does and nothing else: no malloc,
 * no formatting, no SQL; subscribers get copies from a bounded queue later.
 */
#ifndef NPUMEM_DAEMON_RING_H
#define NPUMEM_DAEMON_RING_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "cleanup.h"
#include "err.h"
#include "ledger.h"
#include "probe_set.h"

struct ring;
struct python;
struct recorder;
struct accesses;

#define RING_QUEUE_EVENTS 8192 /* copies kept for subscribers of the event stream */

struct ring_stats {
    uint64_t received;      /* events taken from the ring */
    uint64_t sequence_gaps; /* events missing in the per-CPU sequences */
    struct nm_cpu_counters kernel;
    uint64_t queue_dropped; /* copies that subscribers were too slow for */
};

int ring_new(sd_event *event, struct probe_set *set, struct ledger *ledger, uint64_t poll_ns,
             struct ring **ret, struct error *reterr);
/* Who names Python frames; borrowed. Without it events keep the phase that the kernel gave them. */
void ring_set_python(struct ring *r, struct python *python);
/* Who is shown every event after it was applied, and every loss; borrowed. */
void ring_set_recorder(struct ring *r, struct recorder *recorder);
/* Who is told the lives of blocks in windows of accesses; borrowed. */
void ring_set_accesses(struct ring *r, struct accesses *accesses);
struct ring *ring_free(struct ring *r);
DEFINE_CLEANUP(struct ring *, ring_free)

/* Takes everything that is in the ring now. Returns the number of events. */
int ring_drain(struct ring *r);
/* Small-block sums, allocator totals, then all events and the counters, into the ledger. */
void ring_sync(struct ring *r);
/* Removes the kernel's sums of a process that has ended. */
void ring_forget(struct ring *r, uint32_t tgid);

const struct ring_stats *ring_stats(const struct ring *r);

/* Shows every event to fn after it was applied; NULL ends that. fn may call this. */
void ring_watch(struct ring *r, void (*fn)(void *userdata, const struct nm_event *event),
                void *userdata);

/* Copies of events for subscribers: on turns keeping on or off; take returns the number copied. */
void ring_keep(struct ring *r, bool on);
size_t ring_take(struct ring *r, struct nm_event *ret, size_t max);

#endif
