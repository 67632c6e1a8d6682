/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaks.h - what grows: which owner, how fast, and when it runs out.
 *
 *   leak          live blocks pile up: bytes and number of an owner grow for good
 *   growth        bytes grow for good, their number does not, or the owner is a workspace
 *   cache_growth  the pool reserves more and more (or did, and has levelled off) while what is
 * allocated comes back to its floor: fragmentation of a cache, not a leak host_growth   the
 * process's host memory grows (resident or pinned) opaque        a large allocation without events
 * inside: what happens in it cannot be seen Memory that came back retracts a finding: it is not
 * there the next time.
 */
#ifndef NPUMEM_ANALYSIS_LEAKS_H
#define NPUMEM_ANALYSIS_LEAKS_H

#include "analysis.h"
#include "trend.h"

enum leak_source {
    LEAK_OWNER,     /* one owner at the level of blocks or of physical memory */
    LEAK_ALLOCATED, /* the pool: torch's allocated bytes */
    LEAK_RESERVED,  /* the pool: its reserved bytes */
    LEAK_DEVICE,    /* physical bytes of the process */
    LEAK_HOST,      /* resident or pinned host memory */
};

struct leak_sample {
    uint64_t time_ns;
    uint64_t bytes, blocks;
};

struct leak_series {
    uint32_t tgid;
    int32_t rank, device; /* -1 not known */
    enum leak_source source;
    const char *owner; /* LEAK_OWNER, LEAK_HOST ("RSS", "pinned") */
    const struct leak_sample *samples;
    size_t count;
};

struct leak_input {
    const struct leak_series *series;
    size_t count;
    const uint64_t *marks; /* times that repeat: steps, sleep and wake */
    size_t mark_count;
    /* Free bytes of a device, ANALYSIS_UNKNOWN; may be NULL. */
    uint64_t (*free_fn)(void *userdata, int32_t device);
    void *userdata;
};

/* "findings": [...] and "judged": {series, too_short} into the object that is open; the fastest
 * growth first. Returns 0; -ENOMEM. */
int leaks_write(const struct leak_input *in, struct json *j);

#endif
