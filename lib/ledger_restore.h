/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_restore.h - a ledger from sums that were kept of an earlier moment, so that the views of
 * now can show then. It has no entries, and takes no events.
 *
 * Order per process: ledger_process_update(), then owners, devices, pools.
 */
#ifndef NPUMEM_LEDGER_RESTORE_H
#define NPUMEM_LEDGER_RESTORE_H

#include "ledger.h"

/* One owner's sum; the fields of t but owner, which the name gives. before_attach and PTA@small are
 * made from devices and pools: they are remembered for these. Returns 0; -ENOENT unknown process;
 * -EBADMSG implausible; -ENOMEM. */
int ledger_restore_owner(struct ledger *l, uint32_t tgid, const char *name,
                         const struct ledger_owner_total *t);
int ledger_restore_device(struct ledger *l, uint32_t tgid, const struct ledger_device_use *use);
int ledger_restore_pool(struct ledger *l, uint32_t tgid, const struct ledger_pool *pool);

/* What was highest in a phase whose owner has this name ("": in none). Also of a ledger that takes
 * events, once per phase: what these said so far is joined to it. Returns 0; -ENOENT unknown
 * process, or no phase of the ledger's table; -EBADMSG implausible; -ENOMEM. */
int ledger_restore_phase(struct ledger *l, uint32_t tgid, const char *name,
                         const struct ledger_phase_use *kept);

/* Level of a name that level_name() gives; LEVEL_COUNT none. */
enum ledger_level level_parse(const char *name);

#endif
