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
    /* Says what the process has of the device's memory; NULL: not known. */
    const struct ledger *ledger;
    bool is_late; /* it was attached late: only the driver knows that */
};

/*
 * One object: blocks and totals of the allocator, owners[], dtypes[], parameters[] (experts,
 * quantised ones, scales), modules[] (the tree), layers[] (its numbered modules), tensors[] largest
 * first, unnamed[]. Sums are over storages, each counted once, and over what a process owns:
 * outputs of captured graphs and given-back memory are shown with their place, not counted. Errors:
 * -ENOMEM. Cost: sorting tensors and blocks.
 */
int view_scan(const struct scan_result *r, const struct view_context *c,
              const struct view_scan_query *q, struct json *j);

/* Private to view_scan*.c: owners[], dtypes[], parameters[], modules[] and layers[]. Errors:
 * -ENOMEM. */
int view_scan_sums(const struct scan_result *r, struct json *j);

#endif
