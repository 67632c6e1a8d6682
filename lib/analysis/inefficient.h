/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inefficient.h - memory that is held without being used, from a window of accesses
 * (schema/access.h).
 *
 *   early_allocation    between its allocation and its first use
 *   late_deallocation   between its last use and its free
 *   temporary_idleness  between two uses; of a block from before the window that the window shows
 *                       no use of, the whole window
 *
 * Each is looked for in two senses, and a finding says in which it was found:
 *   operations  something of the stream was freed before a block's first use (it could have been
 *               allocated behind that), or allocated after its last use (that could have used its
 *               memory), or more than `operations` lie between two uses. Source: the rules of the
 *               ecosystem's offline analyser, made exact for threads and streams; a result that its
 *               own operation writes is used from its first operation on.
 *   time        at least `idle_ns` of work time.
 * A block that is still held at the end is late when what is left of the window since its last use
 * is beyond the bounds and twice its own longest gap: what is used once in every step is not.
 * Cost: a sum is kept of every block, a finding of the inefficient ones, at most
 * INEFFICIENT_FINDINGS_MAX of them, those that cost the most.
 */
#ifndef NPUMEM_ANALYSIS_INEFFICIENT_H
#define NPUMEM_ANALYSIS_INEFFICIENT_H

#include "access.h"
#include "analysis.h"

/* Source: the ecosystem's analyser, which flags a block beyond 3000 operations. */
#define INEFFICIENT_OPERATIONS_DEFAULT 3000u
#define INEFFICIENT_IDLE_NS_DEFAULT 1000000000ull
#define INEFFICIENT_FINDINGS_MAX 65536u

struct inefficient;

struct inefficient_bounds {
    uint64_t idle_ns;
    uint32_t operations;
    uint64_t min_size_bytes;
};

struct inefficient_block {
    struct nm_access life;
    uint64_t size_bytes;
    uint64_t allocated_ns; /* CLOCK_BOOTTIME; 0 not known */
    uint32_t owner, stack; /* numbers of the caller */
    int32_t device;        /* -1 not known */
};

/* What the window was. */
struct inefficient_window {
    uint32_t tgid;
    int32_t rank;                 /* -1 not known */
    uint64_t begin_ns, end_ns;    /* CLOCK_BOOTTIME */
    uint64_t asked_ns;            /* how long it was to be */
    bool is_ended_early;          /* the process is gone */
    struct nm_access_window seen; /* the kernel's account */
    uint64_t lost_events;         /* events lost meanwhile: lives may be missing */
    uint64_t hidden_bytes;        /* held before the window and not known block by block */
    unsigned functions;           /* probed; 0: no library of operators or copies is mapped */
};

struct inefficient_text {
    /* Of the caller's numbers; may be NULL. */
    const char *(*owner_fn)(void *userdata, uint32_t owner);
    size_t (*frames_fn)(void *userdata, uint32_t tgid, uint32_t stack, const char **ret,
                        size_t max);
    /* The tensor that a block of before the window held then, into ret; false: none is known. */
    bool (*name_fn)(void *userdata, const struct inefficient_window *w,
                    const struct inefficient_block *block, char *ret, size_t size);
    /* Wall time of a CLOCK_BOOTTIME. */
    uint64_t (*wall_fn)(void *userdata, uint64_t boot_ns);
    void *userdata;
};

/* Owns: the caller frees with inefficient_free(). */
int inefficient_new(const struct inefficient_bounds *bounds, struct inefficient **ret);
struct inefficient *inefficient_free(struct inefficient *i);

/* One life. Returns 0; -ENOMEM. Cost: O(1) amortised. */
int inefficient_add(struct inefficient *i, const struct inefficient_block *block);

/* "window", "verdict", "totals", "findings" (at most limit, those that cost the most first),
 * "hidden", "matched_findings" into the object that is open. Returns 0 or -ENOMEM. */
int inefficient_write(struct inefficient *i, const struct inefficient_window *w,
                      const struct inefficient_text *text, uint32_t limit, struct json *j);

#endif
