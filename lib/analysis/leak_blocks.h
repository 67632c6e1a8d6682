/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leak_blocks.h - what of an owner is alive and was allocated since a time: where and on which
 * streams.
 */
#ifndef NPUMEM_ANALYSIS_LEAK_BLOCKS_H
#define NPUMEM_ANALYSIS_LEAK_BLOCKS_H

#include "leaks.h"
#include "ledger.h"
#include "view.h"

struct leak_blocks_query {
    uint32_t tgid;
    uint16_t device; /* as the level numbers devices */
    enum ledger_level level;
    const char *owner;
    uint64_t since_ns; /* the ledger's clock */
};

/* Fills everything but the frames; *ret_stack: the ledger's number of the stack with most bytes, 0
 * where none is known. Returns 0; -ENOMEM. Cost: linear in the process's live entries. */
int leak_blocks_find(const struct ledger *l, const struct leak_blocks_query *q,
                     struct leak_blocks *ret, uint32_t *ret_stack);

/* The same for the owner that a series is of, with the frames by the context's word. Returns false
 * for a series of no owner, and out of memory. */
bool leak_blocks_of_series(const struct ledger *l, const struct view_context *c,
                           const struct leak_series *s, uint64_t since_ns, struct leak_blocks *ret);

#endif
