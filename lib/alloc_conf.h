/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_conf.h - PYTORCH_NPU_ALLOC_CONF as torch_npu understands it.
 *
 * Owns: the names, ranges and mutual exclusions of its keys. A text that torch_npu would refuse is
 * refused here, with the reason.
 * Source: torch_npu's NPUAllocatorConfig (2.5.1 to 2.10) and torch's rules for the same keys.
 */
#ifndef NPUMEM_ALLOC_CONF_H
#define NPUMEM_ALLOC_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define ALLOC_CONF_NAME "PYTORCH_NPU_ALLOC_CONF"
#define ALLOC_CONF_NO_SPLIT_LIMIT UINT64_MAX
#define ALLOC_CONF_TEXT_MAX 1024
#define ALLOC_CONF_POWERS 16 /* roundup_power2_divisions: 1 MiB, 2 MiB ... 32 GiB */

enum alloc_conf_key {
    ALLOC_CONF_MAX_SPLIT = 1 << 0,
    ALLOC_CONF_GC = 1 << 1,
    ALLOC_CONF_EXPANDABLE = 1 << 2,
    ALLOC_CONF_ROUNDUP = 1 << 3,
    ALLOC_CONF_NON_SPLIT_ROUNDING = 1 << 4,
    ALLOC_CONF_LARGE_SEGMENT = 1 << 5,
    ALLOC_CONF_SEGMENT = 1 << 6,
    ALLOC_CONF_ALIGN = 1 << 7,
    ALLOC_CONF_PAGE = 1 << 8,
    ALLOC_CONF_LAZY = 1 << 9,
    ALLOC_CONF_FRACTION = 1 << 10,
    ALLOC_CONF_HOST = 1 << 11, /* a key of pinned host memory: known, no effect on the device */
    ALLOC_CONF_THROW = 1 << 12,
    ALLOC_CONF_LOCK = 1 << 13,
};

struct alloc_conf {
    unsigned keys;            /* enum alloc_conf_key: those that the text names */
    uint64_t max_split_bytes; /* blocks of at least this are not split */
    double gc_threshold;      /* of the memory fraction's bytes; 0: none */
    bool is_expandable;
    uint8_t divisions[ALLOC_CONF_POWERS]; /* 0 none */
    uint64_t max_non_split_rounding_bytes;
    uint64_t large_segment_bytes; /* segment of requests below 10 MiB */
    uint64_t large_granule_bytes; /* of expandable segments */
    uint64_t base_align_bytes;    /* of large blocks in expandable segments; 0: none */
    bool is_page_1g, is_lazy_reclaim;
    double memory_fraction; /* of the card; 1: no limit */
};

/* What an expandable segment of large requests maps and unmaps at a time. */
static inline uint64_t alloc_conf_granule(const struct alloc_conf *conf)
{
    return conf->is_page_1g ? (uint64_t)1 << 30 : conf->large_granule_bytes;
}

/* What torch_npu does without the variable. */
void alloc_conf_init(struct alloc_conf *ret);

/* Parses "key:value,key:value". An empty text is the default. Returns 0; -EINVAL unknown key, value
 * out of range, or keys that exclude each other (reterr says which); -E2BIG longer than
 * ALLOC_CONF_TEXT_MAX. ret is written on success only. */
int alloc_conf_parse(const char *text, struct alloc_conf *ret, struct error *reterr);

/* The value of a variable in NUL-ended NAME=value texts, NULL if it is not there. Borrowed. */
const char *alloc_conf_variable(const char *environment, size_t bytes, const char *name);

#endif
