/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access_internal.h - shared by access_window.c (the life of a window), access_blocks.c (its
 * blocks) and access_files.c (its probes).
 */
#ifndef NPUMEM_DAEMON_ACCESS_INTERNAL_H
#define NPUMEM_DAEMON_ACCESS_INTERNAL_H

#include <sys/types.h>
#include <systemd/sd-event.h>

#include "access_window.h"
#include "manager.h"
#include "map.h"

/* A block that was there when the window began; by (address, device). */
struct access_held {
    uint64_t key; /* struct map_key.a */
    uint32_t key_b;
    uint32_t owner; /* of the ledger, OWNER_UNKNOWN where only a scan knows the block */
    uint64_t size_bytes, allocated_ns;
    uint32_t stack, zero;
};

/* Library files of a process that were looked at. */
#define ACCESS_FILES_MAX 64u
struct access_files {
    struct {
        dev_t dev;
        ino_t ino;
    } seen[ACCESS_FILES_MAX];
    size_t count;
};

struct access_window {
    struct accesses *owner;
    struct access_request request;
    uint32_t serial;
    bool is_scanned; /* a scan has begun since it opened */
    bool is_counting;
    int blocks_fd, pages_fd; /* the kernel's tables of this window */
    struct map held;
    uint64_t hidden_bytes; /* held before and not known block by block */
    struct access_files files;
    int *links;
    size_t link_count;
    unsigned functions;
    uint64_t begin_ns, end_ns; /* end_ns: as planned, or when the process ended */
    uint64_t lost_before;
    struct inefficient *found;
    sd_event_source *timer, *look_timer;
    struct access_window *next;
};

struct accesses {
    struct manager *m;
    struct access_window *first;
    uint32_t serial;
    unsigned count;
};

/* access_blocks.c */
/* Makes the kernel's tables and lets it follow the blocks of the process. Returns negative errno.
 */
int access_blocks_open(struct access_window *w);
/* Takes them away again; also half made ones. */
void access_blocks_close(struct access_window *w);
/* Enters what is held: of the ledger, and of a scan (may be NULL). */
int access_blocks_hold(struct access_window *w, const struct scan_result *scan);
/* From here on uses are counted. */
int access_blocks_begin(struct access_window *w);
/* A life that has ended. */
void access_blocks_life(struct access_window *w, const struct nm_access *life);
/* The lives that have not; the kernel's account of the window into *ret. */
void access_blocks_end(struct access_window *w, struct nm_access_window *ret);

/* access_files.c: probes every mapped library that has NM_ACCESS rows and was not looked at before.
 * Returns the number of functions probed so far; what cannot be attached is logged and left out. */
int access_files_attach(struct access_window *w);

#endif
