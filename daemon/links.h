/* SPDX-License-Identifier: Apache-2.0 */
/*
 * links.h - closing links of probes. Each close waits for a grace period of the kernel, some 50 ms;
 * on a kernel without uprobe_multi there is a link for every probe.
 */
#ifndef NPUMEM_DAEMON_LINKS_H
#define NPUMEM_DAEMON_LINKS_H

#include <stddef.h>

/* Returns when all are closed; at the same time, so that they share a grace period. */
void links_close(const int *links, size_t count);

/* Closes them on a thread of its own; takes over the array. */
void links_close_later(int *links, size_t count);

#endif
