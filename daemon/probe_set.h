/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_set.h - the loaded kernel programs and their maps, and links from them to library files.
 *
 * Owns: the BPF object. Picks, once, what this kernel can do: uprobe_multi links (6.6 and later:
 * two links per library, closed in one grace period) or one perf link per function; task storage,
 * atomic counters and loops (5.17 and later) or the legacy build.
 */
#ifndef NPUMEM_DAEMON_PROBE_SET_H
#define NPUMEM_DAEMON_PROBE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "err.h"
#include "event.h"

struct probe_set;

enum probe_link_mode {
    PROBE_LINK_AUTO = 0, /* what the kernel has */
    PROBE_LINK_MULTI = 1,
    PROBE_LINK_PERF = 2,
    PROBE_LINK_PERF_LEGACY = 3, /* as on kernels 5.8 to 5.16 */
};

struct probe_set_config {
    size_t ring_bytes;              /* rounded up to a power of two pages */
    uint64_t block_threshold_bytes; /* 0: every block is an event */
    uint64_t stack_threshold_bytes; /* blocks from this size on name their Python frames */
    bool block_enabled;
    bool python_enabled;     /* look at Python frames */
    bool allow_seccomp_risk; /* see seccomp_risk.h */
    enum probe_link_mode mode;
};

/* Loads the programs. Errors: -EPERM missing capability; -ENOSYS kernel without BPF or ring buffer;
 * -EOPNOTSUPP: it has not got config->mode, or would kill processes under seccomp; other negative
 * errno; reterr says what to do. Cost: about 100 ms. Owns: caller frees. */
int probe_set_new(const struct probe_set_config *config, struct probe_set **ret,
                  struct error *reterr);
struct probe_set *probe_set_free(struct probe_set *set);
DEFINE_CLEANUP(struct probe_set *, probe_set_free)

enum probe_link_mode probe_set_mode(const struct probe_set *set);
const char *probe_link_mode_name(enum probe_link_mode mode);

/* Map descriptors; borrowed. */
int probe_set_ring_fd(const struct probe_set *set);
int probe_set_pools_fd(const struct probe_set *set);
int probe_set_small_fd(const struct probe_set *set);
int probe_set_atb_fd(const struct probe_set *set);

/* Descriptor of a map by name; borrowed. Errors: -ENOENT. */
int probe_set_map_fd(const struct probe_set *set, const char *name);

/* Whether the programs look at Python frames: asked for, and the kernel takes the walk. */
bool probe_set_has_python(const struct probe_set *set);
/* Makes every thread take anew what the maps say of Python processes. Cost: a store. */
void probe_set_python_changed(struct probe_set *set);

/* Sums the per-CPU counters. Errors: negative errno of the map lookup. */
int probe_set_counters(const struct probe_set *set, struct nm_cpu_counters *ret);

/* Changes the detail of block events at once, for all processes. */
void probe_set_block_detail(struct probe_set *set, bool enabled, uint64_t threshold_bytes);

/* Ignores or minds a process again. Errors: -ENOSPC too many. */
int probe_set_exclude(struct probe_set *set, uint32_t tgid, bool exclude);

/* Makes every caching block of a process that is allocated from now on an event, and its frees, or
 * ends that; blocks followed are followed to their end. Users are counted: one call with false for
 * each with true, also when the process has ended. Returns 0; -ENOSPC too many processes. */
int probe_set_detail(struct probe_set *set, uint32_t tgid, bool all);

/* One function to probe: a row of probes.def at a file offset. */
struct probe_point {
    unsigned row;
    uint64_t offset;       /* of the function's first instruction */
    uint64_t entry_offset; /* where the entry probe goes, see elf_probe_offset_hint() */
};

/*
 * Links n points of one file to their programs: return probes first, so that no entry is recorded
 * whose return is not seen. Rows that are entry-only never get a return probe.
 * Returns the number of link descriptors written to *ret_links (malloc'd, caller closes and frees);
 * negative errno with nothing left attached. Cost: some ms.
 */
int probe_set_link(struct probe_set *set, int file_fd, const struct probe_point *points, size_t n,
                   int **ret_links, struct error *reterr);

/*
 * The same for NM_ACCESS rows, in one process only, all at the functions' first instructions.
 * Errors: -ESRCH the process is gone.
 */
int probe_set_link_access(struct probe_set *set, int file_fd, const struct probe_point *points,
                          size_t n, uint32_t tgid, int **ret_links, struct error *reterr);
/* How many windows of accesses are open: 0 costs block events one load. */
void probe_set_access_windows(struct probe_set *set, uint32_t count);

#endif
