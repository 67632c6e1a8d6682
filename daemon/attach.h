/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.h - which library files carry live probes.
 *
 * Owns: one record per file (inode) that a process maps and schema/libraries.def names, with its
 * links. A uprobe belongs to an inode, so one record serves every process that maps it. The same
 * inode seen through another overlay mount is recognised by its probes being live already, and
 * never linked twice. A file that is overwritten in place loses its probes at once: they would
 * stand in the middle of instructions of whatever maps it next. Must not: know processes beyond the
 * one through which a file is opened.
 */
#ifndef NPUMEM_DAEMON_ATTACH_H
#define NPUMEM_DAEMON_ATTACH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "cleanup.h"
#include "elf_image.h"
#include "err.h"
#include "probe_set.h"
#include "procmaps.h"

struct attach;

enum attach_state {
    ATTACH_LIVE,   /* probes are in */
    ATTACH_EMPTY,  /* nothing of probes.def is in this file */
    ATTACH_FAILED, /* see error */
};

struct attach_file {
    dev_t dev;
    ino_t ino;
    struct timespec mtime; /* a file rewritten in place is another file */
    off_t size;
    char *path;  /* as first seen */
    int library; /* row of libraries.def */
    enum attach_state state;
    struct error error; /* FAILED; or why the block function is missing */
    uint8_t build_id[ELF_BUILD_ID_MAX];
    size_t build_id_bytes;
    struct probe_point *points;
    size_t point_count;
    char first_bytes[4]; /* of the file at the first entry point: differ in memory once probed */
    bool has_block, has_hal, has_acl;
    const char *block_layout;
    struct attach_file *alias_of; /* the same inode under another device number, or touched since */
    int watches[2];               /* file_watch.h, while it is LIVE */
    size_t watch_count;
    bool is_overwritten; /* FAILED, and no process that maps it from now on has this one */
    int *links;
    size_t link_count;
    uint32_t users;     /* targets that map it */
    uint64_t unused_ns; /* CLOCK_MONOTONIC since when there are none */
    uint64_t attach_ns; /* boot time when its probes went live */
    uint64_t link_cost_ns;
    struct attach_file *next;
};

/* The record that has the links of a file. */
static inline struct attach_file *attach_file_original(struct attach_file *f)
{
    return f->alias_of ? f->alias_of : f;
}

/* keep_ns: how long a file that no process maps any more keeps its probes, and its mount busy. */
int attach_new(sd_event *event, struct probe_set *set, uint64_t keep_ns, struct attach **ret);
/* Closes all links; the last thing before exit. */
struct attach *attach_free(struct attach *a);
DEFINE_CLEANUP(struct attach *, attach_free)

/*
 * The record of the file behind one mapping of a process; probes it at first sight.
 * entry is an executable mapping whose path matched library. Returns 0 and *ret (also when the file
 * is empty or failed: see its state); -ENOENT, -ESRCH, -EACCES if it cannot be opened.
 */
int attach_mapping(struct attach *a, uint32_t tgid, const struct maps_entry *entry, int library,
                   struct attach_file **ret, struct error *reterr);

/* Drops one user; files that nobody uses are detached some time later. */
void attach_release(struct attach *a, struct attach_file *file);

/* attach_resolve.c: finds what can be probed in the image of f->library: points, has_*. Errors of
 * the block function are kept in f->error, not returned. */
int attach_file_resolve(struct attach_file *f, const struct elf_image *e);

const struct attach_file *attach_first(const struct attach *a); /* then ->next */

#endif
