/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The composition of a peak: whatever happens afterwards, it is what a copy of all totals would
 * have shown that was taken right after the event that made the peak.
 */
#include "test_ledger.h"

#define DEVICES 2
#define SLOTS 64
#define OWNERS_MAX 64

struct picture {
    struct ledger_owner_total owners[OWNERS_MAX];
    size_t count;
    uint16_t device;
    uint64_t physical;
};

static int picture_owner(void *userdata, const struct ledger_owner_total *t)
{
    struct picture *p = userdata;
    if (t->device != p->device || (!t->bytes && !t->count))
        return 0;
    assert_true(p->count < OWNERS_MAX);
    p->owners[p->count++] = *t;
    if (t->level == LEVEL_PHYSICAL)
        p->physical += t->bytes;
    return 0;
}

static struct picture picture_take(const struct world *w, uint16_t device, enum ledger_when when)
{
    struct picture p = {.device = device};
    assert_int_equal(ledger_each_owner_when(w->ledger, TGID, when, picture_owner, &p), 0);
    return p;
}

static void pictures_equal(const struct picture *a, const struct picture *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->physical, b->physical);
    for (size_t i = 0; i < a->count; i++) {
        assert_int_equal(a->owners[i].owner, b->owners[i].owner);
        assert_int_equal(a->owners[i].level, b->owners[i].level);
        assert_int_equal(a->owners[i].bytes, b->owners[i].bytes);
        assert_int_equal(a->owners[i].count, b->owners[i].count);
    }
}

static uint32_t random_next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* One random step: a segment or a block comes or goes, on one of two devices. */
static void step(struct world *w, uint32_t *seed, uint64_t segments[], int64_t blocks[])
{
    uint32_t slot = random_next(seed) % SLOTS, device = slot % DEVICES;
    uint64_t bytes = (random_next(seed) % 64 + 1) * MIB,
             address = 0x100000000u + slot * 0x10000000ull;
    if (random_next(seed) & 1) {
        if (!segments[slot]) {
            struct nm_event e = event_alloc(w, address, bytes, bytes, device);
            e.call.flags = hal_flags(device, slot % 3 == 0 ? 3 : slot % 3 == 1 ? 7 : MODULE_APP);
            assert_int_equal(send(w, &e), 0);
            segments[slot] = bytes;
        } else {
            assert_int_equal(do_free(w, address), 0);
            segments[slot] = 0;
        }
        return;
    }
    struct nm_event e = world_event(w, NM_EVENT_BLOCK);
    e.block.device = (uint8_t)device;
    e.block.address = address + 0x1000;
    e.block.action = blocks[slot] ? NM_BLOCK_FREE : NM_BLOCK_MALLOC;
    e.block.size_bytes = blocks[slot] ? -blocks[slot] : (int64_t)bytes;
    blocks[slot] += e.block.size_bytes;
    for (uint32_t i = device; i < SLOTS; i += DEVICES)
        e.block.total_allocated_bytes += blocks[i];
    e.block.total_active_bytes = e.block.total_allocated_bytes;
    e.block.total_reserved_bytes = e.block.total_allocated_bytes;
    assert_int_equal(send(w, &e), 0);
}

static void test_peak_is_what_a_copy_would_have_kept(void **state)
{
    struct world *w = *state;
    uint64_t segments[SLOTS] = {0}, highest[DEVICES] = {0};
    int64_t blocks[SLOTS] = {0};
    struct picture kept[DEVICES] = {{.count = 0}};
    uint32_t seed = 7, peaks = 0;
    for (int i = 0; i < 20000; i++) {
        step(w, &seed, segments, blocks);
        for (uint16_t d = 0; d < DEVICES; d++) {
            uint64_t sum = 0;
            for (uint32_t s = d; s < SLOTS; s += DEVICES)
                sum += segments[s];
            if (sum > highest[d]) {
                highest[d] = sum;
                kept[d] = picture_take(w, d, LEDGER_NOW);
                assert_int_equal(kept[d].physical, sum);
                peaks++;
            }
            if (i % 97 == 0 && highest[d]) {
                struct picture then = picture_take(w, d, LEDGER_AT_PEAK);
                pictures_equal(&then, &kept[d]);
                assert_int_equal(device_of(w, d).peak_bytes, highest[d]);
            }
        }
    }
    assert_true(peaks > 30);
}

struct pool_at {
    int64_t allocated, reserved, active;
    unsigned count;
};

static int pool_take(void *userdata, const struct ledger_pool *pool)
{
    struct pool_at *p = userdata;
    p->allocated += pool->allocated_bytes;
    p->reserved += pool->reserved_bytes;
    p->active += pool->active_bytes;
    p->count++;
    return 0;
}

static void test_pools_at_the_peak(void **state)
{
    struct world *w = *state;
    struct pool_at now = {0}, then = {0};
    do_alloc(w, 0x10000000, 64 * MIB, 0);
    do_block(w, NM_BLOCK_MALLOC, 0x10000000, 30 * MIB,
             (struct totals){30 * MIB, 64 * MIB, 40 * MIB});
    do_alloc(w, 0x20000000, 64 * MIB, 0); /* the peak */
    do_block(w, NM_BLOCK_MALLOC, 0x20000000, 50 * MIB,
             (struct totals){80 * MIB, 128 * MIB, 90 * MIB});
    do_free(w, 0x20000000);
    ledger_each_pool_when(w->ledger, TGID, LEDGER_AT_PEAK, pool_take, &then);
    ledger_each_pool(w->ledger, TGID, pool_take, &now);
    assert_int_equal(then.count, 1);
    assert_int_equal(then.allocated, 30 * MIB);
    assert_int_equal(then.active, 40 * MIB);
    assert_int_equal(now.allocated, 80 * MIB);
}

static void test_a_pool_that_came_after_the_peak_is_not_in_it(void **state)
{
    struct world *w = *state;
    struct pool_at then = {0};
    do_alloc(w, 0x10000000, 64 * MIB, 0);
    do_free(w, 0x10000000);
    do_block(w, NM_BLOCK_MALLOC, 0x20000000, 2 * MIB, (struct totals){2 * MIB, 2 * MIB, 2 * MIB});
    ledger_each_pool_when(w->ledger, TGID, LEDGER_AT_PEAK, pool_take, &then);
    assert_int_equal(then.count, 0);
}

static void test_before_attach_is_part_of_the_peak(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x10000000, 1 * MIB, 0);
    assert_int_equal(ledger_driver_usage(w->ledger, TGID, 0, MODULE_APP, 11 * MIB, w->now_ns + 1),
                     0);
    w->now_ns += 10;
    do_free(w, 0x40000000); /* one of before */
    assert_int_equal(ledger_driver_usage(w->ledger, TGID, 0, MODULE_APP, 5 * MIB, w->now_ns + 1),
                     0);
    assert_int_equal(device_of(w, 0).physical_bytes, 5 * MIB);
    struct picture then = picture_take(w, 0, LEDGER_AT_PEAK);
    assert_int_equal(then.physical, 11 * MIB);
    assert_int_equal(device_of(w, 0).peak_before_attach_bytes, 10 * MIB);
}

static void test_freed_memory_from_before_makes_no_peak(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x10000000, 1 * MIB, 0);
    assert_int_equal(ledger_driver_usage(w->ledger, TGID, 0, MODULE_APP, 51 * MIB, w->now_ns + 1),
                     0);
    w->now_ns += 10;
    do_free(w, 0x40000000); /* of unknown size, until the driver's next figure */
    do_alloc(w, 0x20000000, 10 * MIB, 0);
    assert_int_equal(device_of(w, 0).peak_bytes, 51 * MIB);
    assert_int_equal(ledger_driver_usage(w->ledger, TGID, 0, MODULE_APP, 31 * MIB, w->now_ns + 1),
                     0);
    w->now_ns += 10;
    do_alloc(w, 0x30000000, 40 * MIB, 0);
    assert_int_equal(device_of(w, 0).peak_bytes, 71 * MIB);
    struct picture then = picture_take(w, 0, LEDGER_AT_PEAK);
    assert_int_equal(then.physical, 71 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_peak_is_what_a_copy_would_have_kept),
        TEST(test_pools_at_the_peak),
        TEST(test_a_pool_that_came_after_the_peak_is_not_in_it),
        TEST(test_before_attach_is_part_of_the_peak),
        TEST(test_freed_memory_from_before_makes_no_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
