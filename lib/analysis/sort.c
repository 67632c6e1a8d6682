/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sort.c - a radix sort from the lowest digit; digits that all keys share are skipped.
 */
#include "sort.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

#define DIGIT_BITS 8
#define DIGITS (1u << DIGIT_BITS)

int sort_keys(struct sort_key *keys, size_t count)
{
    uint64_t all = 0, any;
    struct sort_key *from = keys, *to;

    if (count < 2)
        return 0;
    any = keys[0].key;
    for (size_t i = 0; i < count; i++)
        all |= keys[i].key ^ any;
    if (!all)
        return 0;
    _cleanup_free_ struct sort_key *spare = malloc(count * sizeof(*spare));
    _cleanup_free_ size_t *starts = malloc(DIGITS * sizeof(*starts));
    if (!spare || !starts)
        return -ENOMEM;
    to = spare;
    for (unsigned shift = (unsigned)__builtin_ctzll(all); shift < 64; shift += DIGIT_BITS) {
        if (!(all >> shift & (DIGITS - 1)))
            continue;
        memset(starts, 0, DIGITS * sizeof(*starts));
        for (size_t i = 0; i < count; i++)
            starts[from[i].key >> shift & (DIGITS - 1)]++;
        for (size_t d = 0, sum = 0; d < DIGITS; d++) {
            size_t n = starts[d];
            starts[d] = sum;
            sum += n;
        }
        for (size_t i = 0; i < count; i++)
            to[starts[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
        struct sort_key *swap = from;
        from = to;
        to = swap;
    }
    if (from != keys)
        memcpy(keys, from, count * sizeof(*keys));
    return 0;
}
