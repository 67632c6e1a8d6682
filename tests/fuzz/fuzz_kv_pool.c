/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scheduler whose memory somebody has changed before it is found, and between that and its
 * readings: no read outside, no endless walk, no number that cannot be.
 *
 * The input is {changes before u8, then changes {place u16, form u8, value u64}}; the place is a
 * word of tests/unit/kv_image.h, the form says what it becomes.
 */
#include <stdlib.h>
#include <string.h>

#include "../unit/kv_image.h"
#include "kv_pool.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Walks that take longer than this many looks at the clock are endless. */
#define CLOCK_TICKS 4000u
#define CHANGE_BYTES 11u

static uint64_t ticks;

static uint64_t on_clock(void *userdata)
{
    return ticks++;
}

static void change(const uint8_t *data)
{
    uint64_t words = kv.fake.used / 8, value;
    uint64_t at = FAKE_HEAP + (data[0] | (uint64_t)data[1] << 8) % words * 8;

    memcpy(&value, data + 3, 8);
    switch (data[2] % 4) {
    case 0: /* anything */
        break;
    case 1: /* what another word holds */
        value = fake_get(&kv.fake, FAKE_HEAP + value % words * 8);
        break;
    case 2: /* a pointer to something else */
        value = FAKE_HEAP + value % words * 8;
        break;
    default: /* nearly what it was */
        value = fake_get(&kv.fake, at) + value % 64 - 32;
        break;
    }
    fake_u64(&kv.fake, at, value);
}

static int find(struct kv_pool *ret)
{
    struct memory_reader reader = fake_reader(&kv.fake);
    struct image_limits limits = {.now_ns = on_clock, .deadline_ns = CLOCK_TICKS, .max_pages = 256};
    struct roots_table *table = NULL;
    struct image *image = NULL;
    struct error error;
    int r = -ENOMEM;

    if (roots_table_new(&table) == 0 && image_new(&reader, &limits, &image) == 0) {
        struct scan_input in = {
            .image = image, .table = table, .python_minor = 11, .runtime = kv.fake.runtime};
        r = kv_pool_find(&in, ret, &error);
    }
    image_free(image);
    roots_table_free(table);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct kv_world pristine;
    struct memory_reader reader = fake_reader(&kv.fake);
    struct kv_pool_reading reading;
    struct kv_pool pool;
    unsigned before = size ? data[0] % 4 : 0;

    if (!pristine.fake.used) {
        kv_world(1001, 900, "EngineCoreProc.run_busy_loop");
        pristine = kv;
    }
    kv = pristine;
    ticks = 0;
    for (data++; size > CHANGE_BYTES && before;
         before--, data += CHANGE_BYTES, size -= CHANGE_BYTES)
        change(data);
    if (find(&pool) < 0)
        return 0;
    if (!kv_pool_check(&pool))
        abort(); /* what the child says, the daemon understands */
    for (;; data += CHANGE_BYTES, size -= CHANGE_BYTES) {
        if (kv_pool_read(&pool, &reader, &reading) == 0 &&
            (reading.used_blocks > reading.usable_blocks ||
             reading.usable_blocks != pool.total_blocks - 1))
            abort();
        if (size <= CHANGE_BYTES)
            return 0;
        change(data);
    }
}
