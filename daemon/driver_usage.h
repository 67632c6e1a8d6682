/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver_usage.h - the driver's own account (/proc/svm) into the ledger.
 */
#ifndef NPUMEM_DAEMON_DRIVER_USAGE_H
#define NPUMEM_DAEMON_DRIVER_USAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "ledger.h"

/* Figures read at one time, to be fed when the ring has been drained up to a later one: then every
 * allocation that they contain is known, and what is left was there before attach. */
struct usage_list;

int usage_list_new(struct usage_list **ret);
struct usage_list *usage_list_free(struct usage_list *l);
DEFINE_CLEANUP(struct usage_list *, usage_list_free)

/* Whether the driver keeps figures of processes at all: then one without a file holds nothing. */
bool usage_is_told(const char *dir);

/* Reads DIR/task/TGID/summary and keeps its sum per (device, module), with the time of reading.
 * Returns 1 read, 0 the driver has no such file, -ENOMEM. */
int usage_list_read(struct usage_list *l, const char *dir, uint32_t tgid, uint64_t now_ns);
/* Feeds everything to the ledger and empties the list. */
void usage_list_feed(struct usage_list *l, struct ledger *ledger);

/* Device bytes of processes on a device that are not live in the ledger, from DIR/devN/summary.
 * false: the driver does not say. */
bool driver_usage_others(const char *dir, uint16_t device, const struct ledger *ledger,
                         uint64_t *ret_bytes);

#endif
