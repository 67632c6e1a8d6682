/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_kind.c - see scan_kind.h.
 */
#include "scan_kind.h"

#include <string.h>

#include "cleanup.h"

bool scan_counts(const struct scan_tensor *t)
{
    return t->base == SCAN_NONE && t->device_type == TORCH_DEVICE_NPU &&
           (t->place == SCAN_IN_LIVE ||
            (t->is_owner && (t->place == SCAN_PLACE_UNKNOWN || t->place == SCAN_IN_NO_BLOCK)));
}

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

static bool ends_with_any(const char *text, const char *const *ends, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ends_with(text, ends[i]))
            return true;
    return false;
}

struct scan_kind scan_kind_of(const struct scan_tensor *t, const char *path)
{
    static const char *const scales[] = {
        "_scale",      "scales", "_scale_inv", "_scale_second", "_offset", "_offset_second",
        "_zero_point", "qzeros", "quant_bias", "scale_bias",    "g_idx"};
    static const char *const experts[] = {".experts.", "w13_weight", "w2_weight"};
    static const char *const weights[] = {"weight", "qweight", "weight_packed"};
    const char *dtype = torch_dtype_name(t->dtype), *last = strrchr(path, '.');
    struct scan_kind kind = {0};

    if (t->role == SCAN_OTHER)
        return kind;
    last = last ? last + 1 : path;
    for (size_t i = 0; i < ARRAY_SIZE(experts); i++)
        kind.is_expert |= strstr(path, experts[i]) != NULL;
    kind.is_scale = ends_with_any(last, scales, ARRAY_SIZE(scales));
    bool is_narrow = torch_dtype_bits(t->dtype) <= 8 && strcmp(dtype, "bool") != 0;
    bool is_integer = strncmp(dtype, "int", 3) == 0 || strncmp(dtype, "uint", 4) == 0;
    bool is_packed = is_integer && ends_with_any(last, weights, ARRAY_SIZE(weights));
    kind.is_quantised = t->role == SCAN_PARAMETER && !kind.is_scale && (is_narrow || is_packed);
    return kind;
}
