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

/* Puts the live blocks in: those of at least threshold_bytes and every one that has a name; the
 * rest as one sum. A process of which the blocks were not read is left as it is. Returns the number
 * of blocks. */
int64_t scan_feed(struct ledger *l, uint32_t tgid, const struct scan_result *result,
                  uint64_t threshold_bytes, uint64_t now_ns);

/* Whether the ledger holds more of a process than its allocator says: frees were not seen one by
 * one, so that the reading has to be repeated. */
bool scan_is_stale(const struct ledger *l, uint32_t tgid);

/* Answers everybody who waits for this process. */
void scan_waiters_answer(struct manager *m, uint32_t tgid, const struct scan_result *result,
                         const struct error *error);

#endif
