/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff_parameters.h - two ranks compared parameter by parameter, as scans have read them: a weight
 * that one of them holds doubled or unsharded, or that the other does not have.
 */
#ifndef NPUMEM_ANALYSIS_DIFF_PARAMETERS_H
#define NPUMEM_ANALYSIS_DIFF_PARAMETERS_H

#include "analysis.h"
#include "roots_result.h"

/* A tensor that is no parameter is only told of when one side lacks it and it has this size. */
#define DIFF_OTHER_MIN_BYTES (1u << 20)

/* "parameters": {...} into the open object: verdict, compared, equal, from_bytes, to_bytes,
 * delta_bytes, tensors[] (those that differ, the largest |delta| first, at most limit; 0: all).
 * Tensors are joined by their name as state_dict() says it, others by their path; bytes are of
 * their storages, so that a view into an unsharded weight counts with all of it. Returns 0;
 * -ENOMEM. Cost: linear in tensors. */
int diff_parameters_write(const struct scan_result *from, const struct scan_result *to,
                          uint32_t limit, struct json *j);

#endif
