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

#include "environ.h"
#include "err.h"
#include "ledger.h"
#include "procmaps.h"

/* Opens a pidfd. Errors: -ESRCH no such process. */
int procfs_pidfd(uint32_t tgid);
/* Whether the process behind the pidfd has not exited. */
bool procfs_alive(int pidfd);

/* Reads a whole file of at most max_bytes into *ret (malloc'd, NUL-terminated, caller frees).
 * Returns its length; -EFBIG larger; other negative errno. */
ssize_t procfs_read_file(const char *path, size_t max_bytes, char **ret);
/* The same for /proc/TGID/NAME. */
ssize_t procfs_read(uint32_t tgid, const char *name, size_t max_bytes, char **ret);

/* The first max_bytes of /proc/TGID/NAME, which may be longer. */
ssize_t procfs_read_some(uint32_t tgid, const char *name, size_t max_bytes, char **ret);

/* Opens the file behind a mapping: the mapped inode itself where the kernel allows, else the name
 * under the process's own root. Returns a descriptor or negative errno. */
int procfs_open_mapping(uint32_t tgid, const struct maps_entry *entry);
/* Path of the executable as the mappings show it; "" unknown. */
void procfs_exe(uint32_t tgid, char *ret, size_t ret_bytes);

/* What is kept of a process between two looks at it, so that the next costs less. Zeroed: nothing.
 */
struct procfs_memory {
    struct environ_place place;
    struct environ_text environment;
};

/*
 * Who a process is: start, comm, title, parents, container, user, visible devices, and the rank as
 * its title, environment and command line tell it (siblings are not looked at). memory and before
 * (its facts at the last look) may be NULL. Errors: -ESRCH gone, other errno.
 */
int procfs_facts(uint32_t tgid, struct procfs_memory *memory, const struct process_facts *before,
                 struct process_facts *ret);

/* Resident memory of a process, and what of it is of files and shared. Errors: -ESRCH, other errno;
 * -EBADMSG. Cost: about 5 us. */
int procfs_resident(uint32_t tgid, uint64_t *ret_resident_bytes, uint64_t *ret_shared_bytes);

/* Calls fn for each process of /proc until it returns non-zero. */
int procfs_each(int (*fn)(void *, uint32_t tgid), void *userdata);

#endif
