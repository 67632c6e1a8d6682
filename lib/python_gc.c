/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_gc.c - counters of an interpreter's garbage collector; see python_layout.h.
 *
 * The collector's state is one structure in the interpreter, the same in 3.9 to 3.13; only its
 * place differs (schema/python_offsets.def). It says itself whether it was found: it holds the
 * address of its own first generation.
 */
#include "python_layout.h"

#include <errno.h>
#include <string.h>

/* Source: CPython pycore_gc.h, struct _gc_runtime_state, 3.9 to 3.13. */
#define GC_ENABLED 12
#define GC_GENERATIONS 24 /* three of: head (two words), threshold, count */
#define GC_GENERATION_BYTES 24
#define GC_THRESHOLD 16
#define GC_GENERATION0 96 /* address of the first of them */
#define GC_PERMANENT 104  /* head of what gc.freeze() put aside: its own address when empty */
#define GC_STATS 128      /* three of: collections, collected, uncollectable (words) */
#define GC_STATS_BYTES 24
#define GC_BYTES 204 /* up to and with `collecting` */

static uint64_t word_at(const uint8_t *bytes, size_t at)
{
    uint64_t value;
    memcpy(&value, bytes + at, sizeof(value));
    return value;
}

static uint32_t int_at(const uint8_t *bytes, size_t at)
{
    uint32_t value;
    memcpy(&value, bytes + at, sizeof(value));
    return value;
}

static int memory_read(const struct python_runtime *rt, uint64_t address, void *ret, size_t bytes)
{
    if (!address || address >= IMAGE_ADDRESS_MAX || address % 8)
        return -EFAULT;
    return rt->reader.read(rt->reader.userdata, address, ret, bytes);
}

static int collector_add(const struct python_runtime *rt, uint64_t interpreter,
                         struct python_collector *sum)
{
    uint64_t at = interpreter + rt->layout.walk.interpreter_gc;
    uint8_t bytes[GC_BYTES];

    if (memory_read(rt, at, bytes, sizeof(bytes)) < 0)
        return -EBADMSG;
    if (word_at(bytes, GC_GENERATION0) != at + GC_GENERATIONS || int_at(bytes, GC_ENABLED) > 1 ||
        int_at(bytes, NM_PY_GC_COLLECTING) > 1)
        return -EBADMSG;
    sum->is_frozen |= word_at(bytes, GC_PERMANENT) != at + GC_PERMANENT;
    sum->is_enabled |= int_at(bytes, GC_ENABLED) == 1;
    for (size_t i = 0; i < PYTHON_GENERATIONS; i++) {
        const uint8_t *stats = bytes + GC_STATS + i * GC_STATS_BYTES;
        if (word_at(stats, 0) >> 62 || word_at(stats, 8) >> 62 || word_at(stats, 16) >> 62)
            return -EBADMSG; /* they count from 0 */
        sum->collections[i] += word_at(stats, 0);
        sum->collected[i] += word_at(stats, 8);
        sum->uncollectable[i] += word_at(stats, 16);
        if (!sum->interpreters)
            sum->threshold[i] =
                int_at(bytes, GC_GENERATIONS + i * GC_GENERATION_BYTES + GC_THRESHOLD);
    }
    sum->interpreters++;
    return 0;
}

int python_collector_read(const struct python_runtime *rt, struct python_collector *ret)
{
    struct python_collector sum = {0};
    uint64_t interpreter;
    int r = memory_read(rt, rt->address + rt->layout.runtime_interpreters, &interpreter,
                        sizeof(interpreter));

    if (!rt->layout.walk.interpreter_gc)
        return -ENOTSUP;
    for (unsigned i = 0; r == 0 && interpreter; i++) {
        if (i == PYTHON_INTERPRETERS_MAX)
            return -EBADMSG;
        r = collector_add(rt, interpreter, &sum);
        if (r == 0)
            r = memory_read(rt, interpreter + rt->layout.walk.interpreter_next, &interpreter,
                            sizeof(interpreter));
    }
    if (r < 0 || !sum.interpreters)
        return -EBADMSG;
    *ret = sum;
    return 0;
}
