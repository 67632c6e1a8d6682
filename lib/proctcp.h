/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proctcp.h - listening sockets from the text of /proc/PID/net/tcp and tcp6.
 */
#ifndef NPUMEM_PROCTCP_H
#define NPUMEM_PROCTCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the text has a socket that listens on this port and that a connection to the loopback
 * address reaches (bound to loopback or to any address). *ret_inode names it. Lines that cannot be
 * read are passed over. Cost: linear. */
bool proctcp_listener(const char *text, size_t bytes, uint16_t port, uint64_t *ret_inode);

#endif
