/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom_capture.h - the snapshot of an out of memory, from the ledger at that event.
 */
#ifndef NPUMEM_ANALYSIS_OOM_CAPTURE_H
#define NPUMEM_ANALYSIS_OOM_CAPTURE_H

#include "ledger.h"
#include "oom.h"

/* Fills a snapshot of the state after `event`, a failed ALLOC or CREATE: everything but the card.
 * conf: the process's setting of the allocator, for slack. Times stay as the ledger has them (boot
 * clock). Returns 0; -ESRCH unknown process; -ENOMEM. Cost: linear in the live entries of the
 * process. */
int oom_capture(const struct ledger *l, const struct nm_event *event, const struct alloc_conf *conf,
                struct oom_snapshot *ret);

/* Bytes of a card that are in use by nobody: its idle baseline. The card's figure in the ledger
 * must be of the same moment as the rest of it. other_bytes: of processes that the ledger does not
 * have, ANALYSIS_UNKNOWN if the driver does not say. ANALYSIS_UNKNOWN: no figure of the card. */
uint64_t oom_card_rest(const struct ledger *l, uint16_t device, uint64_t other_bytes);

/* Adds what the card says: free bytes are those of the snapshot's moment, because the rest hardly
 * changes. */
void oom_capture_card(const struct ledger *l, uint64_t other_bytes, uint64_t rest_bytes,
                      struct oom_snapshot *s);

/* The device of a failed call: the driver's number of it, -1 not known. */
int oom_event_device(const struct ledger *l, const struct nm_event *event);

#endif
