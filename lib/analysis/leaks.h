/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaks.h - what grows: which owner, how fast, and when it runs out.
 *
 *   leak          live blocks pile up: bytes and number of an owner grow for good
 *   growth        bytes grow for good, their number does not, or the owner is a workspace, or what
 *                 grows is freed and waits for another stream
 *   cache_growth  the pool reserves more and more (or did, and has levelled off) while what is
 *                 used of it comes back to its floor: fragmentation of a cache, not a leak
 *   host_growth   the process's host memory grows (resident or pinned)
 *   opaque        a large allocation without events inside: what happens in it cannot be seen
 * Memory that came back retracts a finding: it is not there the next time.
 */
#ifndef NPUMEM_ANALYSIS_LEAKS_H
#define NPUMEM_ANALYSIS_LEAKS_H

#include "analysis.h"
#include "series.h"
#include "trend.h"

enum leak_source {
    LEAK_OWNER,     /* one owner at the level of blocks or of physical memory */
    LEAK_ALLOCATED, /* the pool: torch's allocated bytes */
    LEAK_ACTIVE,    /* the pool: allocated, or freed and waiting for a stream */
    LEAK_RESERVED,  /* the pool: its reserved bytes */
    LEAK_DEVICE,    /* physical bytes of the process */
    LEAK_HOST,      /* resident or pinned host memory */
};

struct leak_series {
    uint32_t tgid;
    int32_t rank, device;  /* -1 not known */
    int32_t native_device; /* as the level numbers devices, for blocks_fn */
    enum leak_source source;
    const char *owner; /* LEAK_OWNER, LEAK_HOST ("RSS", "PTA@pinned") */
    const char *level; /* of LEAK_OWNER: physical, allocated, pending; NULL not known */
    const struct series_sample *samples; /* in order of time */
    size_t count;
};

#define LEAK_FRAMES_MAX 128
#define LEAK_STREAMS_MAX 4

/* What of a series is alive now and was allocated since a time. */
struct leak_steps;

struct leak_blocks {
    uint64_t blocks, bytes;
    uint64_t frames_bytes; /* of those with the frames that have most */
    const char *frames[LEAK_FRAMES_MAX];
    size_t frame_count;
    uint64_t streams[LEAK_STREAMS_MAX]; /* that have most, in this order */
    size_t stream_count;
};

struct leak_input {
    const struct leak_series *series;
    size_t count;
    const uint64_t *marks; /* times that repeat, in order: steps, sleep and wake */
    size_t mark_count;
    const char *mark_name;          /* NULL none */
    const struct leak_steps *steps; /* what is alive of earlier steps; NULL: no marks, or not now */
    uint64_t least_ns;              /* a series that is shorter is not judged */
    /* All may be NULL. Free bytes of a device, ANALYSIS_UNKNOWN; whether a process has expandable
     * segments; what of a series was allocated since a time of the samples' clock, false unknown.
     */
    uint64_t (*free_fn)(void *userdata, int32_t device);
    bool (*expandable_fn)(void *userdata, uint32_t tgid);
    bool (*blocks_fn)(void *userdata, const struct leak_series *series, uint64_t since_ns,
                      struct leak_blocks *ret);
    void *userdata;
};

/* "findings": [...], the fastest growth first, "survivors": [...] of earlier steps, the most bytes
 * first, and "judged": {series, too_short} into the object that is open. Returns 0; -ENOMEM. */
int leaks_write(const struct leak_input *in, struct json *j);

#endif
