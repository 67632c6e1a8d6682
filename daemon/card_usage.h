/* SPDX-License-Identifier: Apache-2.0 */
/*
 * card_usage.h - total and used memory of each card, asked from DCMI in a child process.
 *
 * A hung driver call must not hang the daemon, and a foreign library must not run in it: the child
 * loads libdcmi.so, prints one line per card and ends; it is killed after CARD_TIMEOUT_MS, and then
 * left alone for a while. DCMI counts whole MiB.
 */
#ifndef NPUMEM_DAEMON_CARD_USAGE_H
#define NPUMEM_DAEMON_CARD_USAGE_H

#include <stdint.h>

#include "cleanup.h"
#include "ledger.h"

#define CARD_TIMEOUT_MS 500
#define CARD_FRESH_NS 200000000ull     /* figures younger than this are not asked again */
#define CARD_BACKOFF_NS 30000000000ull /* after a time-out or failure */

struct card_usage;

/* library: configured path, or "" for the places where drivers put it. No library: never asked. */
int card_usage_new(const char *library, struct card_usage **ret);
struct card_usage *card_usage_free(struct card_usage *c);
DEFINE_CLEANUP(struct card_usage *, card_usage_free)

/* Brings the cards' figures in the ledger up to date. Waits for the child, CARD_TIMEOUT_MS at most.
 */
void card_usage_update(struct card_usage *c, struct ledger *ledger, uint64_t now_ns);

/* The next card_usage_update() asks, however fresh the figures are. */
void card_usage_expire(struct card_usage *c);

/* What the child runs: prints "card LOGIC_ID TOTAL_MIB USED_MIB" per device. Returns the exit code.
 */
int card_usage_child(const char *library);

#endif
