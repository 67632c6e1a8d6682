/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advise_internal.h - what the files of rules share.
 */
#ifndef NPUMEM_ANALYSIS_ADVISE_INTERNAL_H
#define NPUMEM_ANALYSIS_ADVISE_INTERNAL_H

#include "advise.h"

#define ADVISE_MIB ((uint64_t)1 << 20)
/* Below this a saving is not worth a restart. */
#define ADVISE_WORTH_BYTES (256 * ADVISE_MIB)

struct rules {
    const struct advise_input *in;
    const struct settings *settings;
    struct advice_list *list;
};

/* The verb that shows more, for the newest row. */
void advise_more_in(const struct rules *r, const char *verb);
/* How sure a rule may be whose present value may not be known. */
const char *advise_confidence(const struct rules *r, const char *best);

/* PYTORCH_NPU_ALLOC_CONF and set_per_process_memory_fraction(). */
void advise_allocator(struct rules *r);

#endif
