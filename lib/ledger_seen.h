/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_seen.h - blocks that were found by reading the allocator of a running process, not by an
 * event.
 *
 * They are entries like those of events: a free of their address removes them, and what was "before
 * attach" shrinks by them. Order per process: begin when the reading begins; then totals and blocks
 * of every device; then end. In between, frees of addresses that nobody knows are remembered, so
 * that a block that went meanwhile is not put in.
 */
#ifndef NPUMEM_LEDGER_SEEN_H
#define NPUMEM_LEDGER_SEEN_H

#include "ledger.h"

struct ledger_seen_block {
    uint64_t address, bytes, requested_bytes, stream;
    uint16_t device;   /* torch's index */
    const char *owner; /* NULL: nothing names it */
    bool is_cut;       /* the reading did not see all names: an earlier one's stays */
};

struct ledger_seen_totals {
    uint64_t allocated_bytes, reserved_bytes, active_bytes;
    uint64_t small_bytes; /* live blocks below the threshold that are not put in one by one */
};

/* Returns 0; 1 no such process, or gone; -ENOMEM. */
int ledger_seen_begin(struct ledger *l, uint32_t tgid, uint64_t now_ns);
/* The allocator's own totals of one device, of the time of ledger_seen_begin() or later. */
int ledger_seen_pool(struct ledger *l, uint32_t tgid, uint16_t device,
                     const struct ledger_seen_totals *totals, uint64_t now_ns);
/* Returns 0 put in or known already (its owner is taken over where the event had none:
 * frames and tags say more than the place where a tensor is kept); 1 not: it was freed or is
 * another one by now; errors as above. */
int ledger_seen_block(struct ledger *l, uint32_t tgid, const struct ledger_seen_block *block);
/* Whether a block is known one by one. */
bool ledger_seen_has(const struct ledger *l, uint32_t tgid, uint64_t address, uint16_t device);
/* Blocks of an earlier reading that this one did not find are dropped. Returns how many. */
int64_t ledger_seen_end(struct ledger *l, uint32_t tgid, uint64_t now_ns);

#endif
