/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_kind.h - what kind of parameter a tensor is, by its element type and its name.
 *
 * Source of the names: torch.nn (Parameter), vllm's FusedMoE (experts, w13_weight, w2_weight) and
 * the quantised linear and MoE layers of vllm-ascend (weight_scale, weight_offset, deq_scale,
 * quant_bias, input_scale), GPTQ and AWQ (qweight, qzeros, scales, g_idx).
 */
#ifndef NPUMEM_SCAN_KIND_H
#define NPUMEM_SCAN_KIND_H

#include "roots_result.h"

struct scan_kind {
    bool is_expert;    /* of a mixture of experts */
    bool is_quantised; /* a weight of 8 bits or fewer, or packed into integers */
    bool is_scale;     /* what a quantised weight is scaled and moved by */
};

/* Whether a tensor counts in sums: it is the first of its storage and the process holds the memory.
 */
bool scan_counts(const struct scan_tensor *t);

/* path: its name, state_dict()'s or the whole one. */
struct scan_kind scan_kind_of(const struct scan_tensor *t, const char *path);

#endif
