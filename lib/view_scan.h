/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_scan.h - the result of a scan as a JSON document.
 */
#ifndef NPUMEM_VIEW_SCAN_H
#define NPUMEM_VIEW_SCAN_H

#include "roots_result.h"
#include "view.h"

struct view_scan_query {
    uint32_t tgid;
    uint32_t limit;          /* tensors and blocks shown; 0: all */
    uint64_t min_size_bytes; /* of tensors and blocks shown */
    bool with_blocks;        /* blocks[] as well */
};

/*
 * One object: blocks and totals of the allocator, owners[], dtypes[], modules[] (the tree, two
 * levels below its root and every numbered layer), tensors[] largest first, unnamed[]. Sums are
 * over storages, each counted once, and over what a process owns: outputs of captured graphs and
 * given-back memory are shown with their place, not counted. Errors: -ENOMEM. Cost: sorting tensors
 * and blocks.
 */
int view_scan(const struct scan_result *r, const struct view_context *c,
              const struct view_scan_query *q, struct json *j);

#endif
