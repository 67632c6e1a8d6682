/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sort.h - order of a million rows by a 64-bit key, in linear time.
 */
#ifndef NPUMEM_ANALYSIS_SORT_H
#define NPUMEM_ANALYSIS_SORT_H

#include <stddef.h>
#include <stdint.h>

struct sort_key {
    uint64_t key;
    uint32_t index;
};

/* Sorts by key; equal keys keep their order. Returns 0; -ENOMEM (the keys are then in some order).
 * Cost: one pass per 8 bits in which the keys differ; a second array while it runs. */
int sort_keys(struct sort_key *keys, size_t count);

#endif
