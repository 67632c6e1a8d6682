/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver_usage.h - the driver's own account (/proc/svm) into the ledger.
 */
#ifndef NPUMEM_DAEMON_DRIVER_USAGE_H
#define NPUMEM_DAEMON_DRIVER_USAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "ledger.h"

/* Reads DIR/task/TGID/summary and feeds every (device, module) sum to the ledger.
 * Returns 1 read, 0 the driver has no such file. */
int driver_usage_read(const char *dir, uint32_t tgid, struct ledger *ledger, uint64_t now_ns);

/* Device bytes of processes on a device that are not live in the ledger, from DIR/devN/summary.
 * false: the driver does not say. */
bool driver_usage_others(const char *dir, uint16_t device, const struct ledger *ledger,
                         uint64_t *ret_bytes);

#endif
