/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slack.h - what is free in the caching allocator's segments, and which setting could give back how
 * much of it, as the blocks lie.
 */
#ifndef NPUMEM_ANALYSIS_SLACK_H
#define NPUMEM_ANALYSIS_SLACK_H

#include "alloc_conf.h"
#include "analysis.h"
#include "layout.h"

#define SLACK_SPLITS 3
/* Values of max_split_size_mb that are advised, the largest first. */
extern const uint32_t slack_split_mb[SLACK_SPLITS];

/* Bytes in segments of large requests; each ANALYSIS_UNKNOWN where not all of the pool is seen. */
struct slack {
    uint64_t pinned_free_bytes; /* free in segments that a block keeps */
    uint64_t unmap_bytes;       /* of that, whole granules of expandable segments, at least */
    uint64_t empty_bytes;       /* segments without any block */
    uint64_t split_bytes[SLACK_SPLITS]; /* of pinned, in segments of slack_split_mb[] and more */
};

void slack_init(struct slack *ret);

/* Measures a layout that layout_measure() has seen. conf: of the process, whose expandable segments
 * would have granules of that size. reserved_bytes, allocated_bytes: the allocator's own totals;
 * where segments and blocks do not add up to them, nothing is known. Returns whether it is. Cost:
 * linear. */
bool slack_measure(const struct layout *l, const struct alloc_conf *conf, uint64_t reserved_bytes,
                   uint64_t allocated_bytes, struct slack *ret);

/* The largest max_split_size_mb by which segments with at_least_bytes free would have stayed whole,
 * the largest of all where that is not known; 0: none would. */
uint32_t slack_split(const struct slack *s, uint64_t at_least_bytes);

#endif
