/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots_scan.h - one scan of a process: blocks of its allocator, tensors of its Python objects, and
 * names for them.
 */
#ifndef NPUMEM_ROOTS_SCAN_H
#define NPUMEM_ROOTS_SCAN_H

#include "image_ranges.h"
#include "image_read.h"
#include "roots.h"
#include "roots_result.h"

#define SCAN_OBJECTS_MAX 800000u /* visited; 32 bytes each */

struct scan_input {
    struct image *image;
    const struct image_ranges *ranges;
    const struct roots_table *table;
    unsigned python_minor;    /* of CPython 3; 0: there is none that is known */
    const char *python_why;   /* why python_minor is 0, for people; NULL: there is no CPython */
    uint64_t runtime;         /* address of _PyRuntime, 0 unknown */
    uint64_t allocator;       /* address of torch_npu's allocator object, 0 unknown */
    uint64_t maximum_objects; /* 0: SCAN_OBJECTS_MAX */
    bool
        is_thorough; /* look through what the collector tracks even if a framework was recognised */
    bool include_host; /* keep tensors in host memory, too */
};

/*
 * Scans. What is missing is said in the summary's reasons: a scan that found nothing is a success
 * with reasons. Order: blocks, roots of the table, main module and frames, modules of the
 * framework, what the collector tracks; then everything is looked at once more and what is no
 * longer the same is left out. Errors: -ENOMEM. Owns: the caller frees. Cost: bounded by the
 * image's limits and maximum_objects.
 */
int scan_process(const struct scan_input *input, struct scan_result **ret);

#endif
