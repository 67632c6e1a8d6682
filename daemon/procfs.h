/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procfs.h - reading /proc/PID: bounded, and of the process that is meant.
 *
 * A process is pinned by a pidfd; what is read from /proc/PID is used only if the pidfd is still
 * alive afterwards, so that a reused pid cannot lend its data.
 */
#ifndef NPUMEM_DAEMON_PROCFS_H
#define NPUMEM_DAEMON_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "err.h"
#include "ledger.h"

/* Opens a pidfd. Errors: -ESRCH no such process. */
int procfs_pidfd(uint32_t tgid);
/* Whether the process behind the pidfd has not exited. */
bool procfs_alive(int pidfd);

/* Reads a whole file of at most max_bytes into *ret (malloc'd, NUL-terminated, caller frees).
 * Returns its length; -EFBIG larger; other negative errno. */
ssize_t procfs_read_file(const char *path, size_t max_bytes, char **ret);
/* The same for /proc/TGID/NAME. */
ssize_t procfs_read(uint32_t tgid, const char *name, size_t max_bytes, char **ret);

/* Who a process is: start, comm, title, container, visible devices, rank by title and environment.
 * Errors: -ESRCH gone, other errno. */
int procfs_facts(uint32_t tgid, struct process_facts *ret);

/* Calls fn for each process of /proc until it returns non-zero. */
int procfs_each(int (*fn)(void *, uint32_t tgid), void *userdata);

#endif
