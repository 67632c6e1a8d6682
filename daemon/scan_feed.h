/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_feed.h - what a scan found, into the ledger; and the clients that wait for a scan.
 */
#ifndef NPUMEM_DAEMON_SCAN_FEED_H
#define NPUMEM_DAEMON_SCAN_FEED_H

#include "api.h"
#include "ledger.h"
#include "roots_result.h"

struct manager;

struct python;

struct scan_feed {
    uint32_t tgid, start_ticks;
    uint64_t threshold_bytes;
    struct python *python; /* knows what the kernel has summed by phase; NULL: nothing is */
};

/* Puts the live blocks in: those of at least threshold_bytes and every one that has a name, but for
 * those that the kernel sums by the phase they were allocated in; the rest as one sum. A process of
 * which the blocks were not read is left as it is. Returns the number of blocks, or -ENOMEM. */
int64_t scan_feed(struct ledger *l, const struct scan_feed *feed, const struct scan_result *result,
                  uint64_t now_ns);

/* By how much the read blocks of a process are more than its allocator's totals leave room for:
 * small ones were freed, which are not seen one by one. Not 0: read it again, at once from
 * SCAN_STALE_BYTES on; below, when it stays, since sums and totals are of two moments. */
uint64_t scan_stale_bytes(const struct ledger *l, uint32_t tgid);
#define SCAN_STALE_BYTES (16u << 20)
#define SCAN_STALE_LOOKS 3u

/* Answers everybody who waits for this process. */
void scan_waiters_answer(struct manager *m, uint32_t tgid, const struct scan_result *result,
                         const struct error *error);

#endif
