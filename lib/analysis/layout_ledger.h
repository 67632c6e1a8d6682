/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_ledger.h - the segments and blocks of torch_npu's caching allocator, as the ledger has
 * them.
 */
#ifndef NPUMEM_ANALYSIS_LAYOUT_LEDGER_H
#define NPUMEM_ANALYSIS_LAYOUT_LEDGER_H

#include "layout.h"
#include "ledger.h"

/* Collects those of one process and device (driver's number) into an empty layout; owner numbers
 * are the ledger's, details its stacks. Blocks that the kernel summed are not in it. Returns 0;
 * -ENOMEM. Cost: linear in live entries. Owns: layout_done(). */
int layout_from_ledger(const struct ledger *l, uint32_t tgid, uint16_t device, struct layout *ret);

#endif
