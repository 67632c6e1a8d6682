/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_scan.h - the segments and blocks of torch_npu's caching allocator, as a scan read them.
 */
#ifndef NPUMEM_ANALYSIS_LAYOUT_SCAN_H
#define NPUMEM_ANALYSIS_LAYOUT_SCAN_H

#include "layout.h"
#include "ledger.h"
#include "roots_result.h"

/* Collects those of one device (driver's number) into an empty layout. The table names every block
 * and hole but not where one segment ends and the next begins: a row of blocks of one pool and
 * stream is one segment, unless two holes touch in it or it is of small requests, whose segments
 * have one size. Owner numbers are the scan's owners, details its tensors (SCAN_NONE: no name).
 * Returns 0; -ENOMEM. Owns: layout_done(). Cost: linear in blocks. */
int layout_from_scan(const struct scan_result *r, const struct process_facts *facts, int device,
                     struct layout *ret);

#endif
