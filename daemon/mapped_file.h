/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapped_file.h - a file that a process maps, opened and mapped here to be looked at.
 *
 * The files are other people's: one may be cut, or its storage fail, while it is looked at. What is
 * not there any more then reads as zeroes and is_torn says so; the kernel's SIGBUS would end the
 * daemon. A file must be closed by the thread that opened it.
 */
#ifndef NPUMEM_DAEMON_MAPPED_FILE_H
#define NPUMEM_DAEMON_MAPPED_FILE_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "procmaps.h"

struct mapped_file {
    int fd;
    struct stat st;
    const void *data; /* st.st_size bytes; NULL before mapped_file_map() */
    size_t bytes;
    volatile sig_atomic_t is_torn; /* some of data was not there when it was looked at */
    struct mapped_file *next;      /* of this thread's, for the handler */
};

#define MAPPED_FILE_NONE                                                                           \
    {                                                                                              \
        .fd = -1                                                                                   \
    }
#define _cleanup_mapped_file_ _cleanup_(mapped_file_close)

/* From the start of the daemon on, SIGBUS in such a file makes its missing page read as zeroes. */
void mapped_file_guard(void);

/* The inode behind a mapping of the process, also when its name is gone or means another file; fd
 * and st. -EINVAL: not a regular file; else as open(2). */
int mapped_file_open(uint32_t tgid, const struct maps_entry *entry, struct mapped_file *ret);

/* All of it as data and bytes, by pages as they are looked at. -ENODATA: empty; -EFBIG: more than
 * max_bytes. Do not copy or move *f from here on. */
int mapped_file_map(struct mapped_file *f, uint64_t max_bytes);

/* Both. */
int mapped_file_get(uint32_t tgid, const struct maps_entry *entry, uint64_t max_bytes,
                    struct mapped_file *ret);

void mapped_file_close(struct mapped_file *f);

#endif
