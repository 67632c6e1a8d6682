/* SPDX-License-Identifier: Apache-2.0 */
/* npualloc: the table of blocks of an allocator made of bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>

#include "npualloc.h"
#include "scan_image.h"

static struct fake fake;

static int table_read_by(struct memory_reader reader, struct fake *f, struct npualloc *ret,
                         struct error *error)
{
    struct image_limits limits = {0};
    struct image_ranges *ranges;
    struct image *image;

    assert_int_equal(image_ranges_new(FAKE_MAPS, sizeof(FAKE_MAPS) - 1, &ranges), 0);
    assert_int_equal(image_new(&reader, &limits, &image), 0);
    int r = npualloc_read(image, ranges, f->allocator, 3, ret, error);
    image_free(image);
    image_ranges_free(ranges);
    return r;
}

static int table_read(struct fake *f, struct npualloc *ret, struct error *error)
{
    return table_read_by(fake_reader(f), f, ret, error);
}

static void test_live_and_free_blocks(void **state)
{
    struct npualloc a;
    struct error error;

    fake_worker(&fake);
    assert_int_equal(table_read(&fake, &a, &error), 0);
    assert_true(a.is_complete);
    assert_int_equal(a.table_count, 6);
    assert_int_equal(a.block_count, 9);
    assert_int_equal(a.device_count, 1);
    assert_int_equal(a.devices[0].live_bytes, (9 << 20) + 512 + 1024 + 2048);
    assert_int_equal(a.devices[0].free_bytes, (3 << 20) + 1536);
    assert_int_equal(a.devices[0].largest_free_bytes, 2 << 20);
    assert_int_equal(a.devices[0].reserved_bytes,
                     a.devices[0].live_bytes + a.devices[0].free_bytes);
    assert_int_equal(a.blocks[0].address, FAKE_DEVICE_MEMORY);
    assert_int_equal(a.blocks[0].bytes, 4 << 20);
    assert_int_equal(a.blocks[0].requested_bytes, (4 << 20) - 100);
    assert_int_equal(a.blocks[0].stream, 0x5151);
    assert_int_equal(a.blocks[0].state, NPUALLOC_LIVE);
    assert_int_equal(a.blocks[0].is_small, 0);
    assert_int_equal(a.blocks[2].state, NPUALLOC_FREE);
    assert_int_equal(a.blocks[5].is_small, 1);
    const struct npualloc_block *b = npualloc_find(&a, 0, FAKE_DEVICE_MEMORY + (5 << 20));
    assert_ptr_equal(b, &a.blocks[1]);
    assert_null(npualloc_find(&a, 1, FAKE_DEVICE_MEMORY));
    assert_null(npualloc_find(&a, 0, FAKE_DEVICE_MEMORY - 1));
    npualloc_done(&a);
}

/* A block that is in no pool's set and that nobody holds waits for a stream. */
static void test_a_block_outside_its_pool_is_pending(void **state)
{
    static const int64_t sizes[] = {1024, -2048};
    struct npualloc a;
    struct error error;

    fake_init(&fake);
    fake_segment(&fake, fake.small_pool, 2, sizes);
    fake_allocator_finish(&fake);
    fake_u64(&fake, fake.small_pool + 16, 0); /* its set is empty */
    fake_u64(&fake, fake.small_pool + 24, fake.small_pool + 8);
    fake_u64(&fake, fake.small_pool + 40, 0);
    assert_int_equal(table_read(&fake, &a, &error), 0);
    assert_int_equal(a.block_count, 2);
    assert_int_equal(a.blocks[1].state, NPUALLOC_PENDING);
    assert_int_equal(a.devices[0].pending_bytes, 2048);
    assert_false(a.is_complete); /* the statistics of this image say that nothing is pending */
    npualloc_done(&a);
}

static void test_contradictions_are_refused(void **state)
{
    struct npualloc a;
    struct error error;

    fake_worker(&fake); /* one entry more than there are */
    fake_u64(&fake, fake.allocator + 72, 7);
    assert_true(table_read(&fake, &a, &error) < 0);
    assert_true(error.what[0]);

    fake_worker(&fake); /* a record that does not hold its key */
    fake_u64(&fake, fake.records[1] + 72, FAKE_DEVICE_MEMORY + 512);
    assert_true(table_read(&fake, &a, &error) < 0);

    fake_worker(&fake); /* a neighbour that does not point back */
    fake_u64(&fake, fake.records[1] + 88, fake.records[4]);
    assert_true(table_read(&fake, &a, &error) < 0);

    fake_worker(&fake); /* blocks over each other */
    fake_u64(&fake, fake.records[0] + 48, 8 << 20);
    assert_true(table_read(&fake, &a, &error) < 0);

    fake_worker(&fake); /* not an allocator at all */
    fake_u64(&fake, fake.allocator, FAKE_HEAP);
    assert_int_equal(table_read(&fake, &a, &error), -ENODATA);
    assert_string_equal(error.what, "there is no allocator object where its symbol points");

    fake_init(&fake); /* nothing allocated */
    fake_allocator_finish(&fake);
    assert_int_equal(table_read(&fake, &a, &error), -ENODATA);
    assert_string_equal(error.what, "the allocator has no block yet");
}

/* Each of the first readings of the head sees an element that is not in the table yet. */
struct busy {
    struct memory_reader below;
    unsigned torn_left;
};

static int busy_read(void *userdata, uint64_t address, void *buffer, size_t bytes)
{
    struct busy *b = userdata;
    uint64_t count = fake.allocator + 72, value;
    int r = b->below.read(b->below.userdata, address, buffer, bytes);

    if (r < 0 || !b->torn_left || count < address || count + 8 > address + bytes)
        return r;
    b->torn_left--;
    memcpy(&value, (char *)buffer + (count - address), sizeof(value));
    value++;
    memcpy((char *)buffer + (count - address), &value, sizeof(value));
    return r;
}

static void test_a_small_table_is_read_until_it_holds_still(void **state)
{
    struct busy busy = {.below = fake_reader(&fake), .torn_left = 40};
    struct memory_reader reader = {.read = busy_read, .userdata = &busy};
    struct npualloc a;
    struct error error;

    fake_worker(&fake);
    assert_int_equal(table_read_by(reader, &fake, &a, &error), 0);
    assert_int_equal(a.attempts, 41);
    assert_true(a.is_complete);
    npualloc_done(&a);
    busy.torn_left = 1000; /* it never does: that ends, too */
    assert_int_equal(table_read_by(reader, &fake, &a, &error), -EAGAIN);
    assert_in_range(busy.torn_left, 1000 - 100, 1000 - 10);
}

/* As libtorch_npu's constructor leaves a table, in a process that never asks for device memory. */
static void new_table(uint64_t at)
{
    fake_u64(&fake, at, fake_alloc(&fake, 24 * 4));
    fake_u64(&fake, at + 8, 0);
    fake_u64(&fake, at + 16, 0x3f0000000000033f);
    fake_u64(&fake, at + 24, 0);
}

static void test_an_allocator_that_was_never_used(void **state)
{
    struct npualloc a;
    struct error error;

    fake_init(&fake);
    fake_allocator_finish(&fake);
    new_table(fake.allocator + 48);
    assert_int_equal(table_read(&fake, &a, &error), -ENODATA);
    assert_string_equal(error.what, "the allocator has no block yet");

    fake_worker(
        &fake); /* a table in use that is torn is no empty allocator, whatever is beside it */
    new_table(fake.allocator + 144);
    assert_int_equal(table_read(&fake, &a, &error), 0);
    npualloc_done(&a);
    fake_u64(&fake, fake.allocator + 72, 7);
    assert_int_equal(table_read(&fake, &a, &error), -EAGAIN);
}

/* Sums that the statistics do not have are said, and the blocks stay. */
static void test_totals_that_disagree(void **state)
{
    struct npualloc a;
    struct error error;

    fake_worker(&fake);
    uint64_t reserved = fake.device_allocator + 48 + 5 * 96;
    for (unsigned pool = 0; pool < 3; pool += 2)
        for (unsigned figure = 0; figure < 3; figure++)
            fake_u64(&fake, reserved + 32 * pool + 8 * figure,
                     fake_get(&fake, reserved + 32 * pool + 8 * figure) + (2 << 20));
    assert_int_equal(table_read(&fake, &a, &error), 0);
    assert_false(a.is_complete);
    assert_int_equal(a.attempts, 3);
    assert_int_equal(a.block_count, 9);
    npualloc_done(&a);
}

/* torch_npu 2.14: a hash map of 32 bytes stands between the reserved and the active bytes. */
static void test_statistics_of_2_14(void **state)
{
    struct npualloc a;
    struct error error;
    unsigned char kinds[2 * 96];
    float load = 0.5f;

    fake_worker(&fake);
    uint64_t gap = fake.device_allocator + 48 + 6 * 96;
    memcpy(kinds, fake.bytes + (gap - FAKE_HEAP), sizeof(kinds));
    fake_put(&fake, gap + 32, kinds, sizeof(kinds));
    fake_u64(&fake, gap, FAKE_LIB + 0x10400);
    fake_u64(&fake, gap + 8, 0);
    fake_u64(&fake, gap + 16, 63);
    fake_put(&fake, gap + 20, &load, 4);
    fake_u64(&fake, gap + 24, 0);
    assert_int_equal(table_read(&fake, &a, &error), 0);
    assert_true(a.is_complete);
    assert_int_equal(a.devices[0].active_bytes, a.devices[0].live_bytes);
    npualloc_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live_and_free_blocks),
        cmocka_unit_test(test_a_block_outside_its_pool_is_pending),
        cmocka_unit_test(test_contradictions_are_refused),
        cmocka_unit_test(test_an_allocator_that_was_never_used),
        cmocka_unit_test(test_a_small_table_is_read_until_it_holds_still),
        cmocka_unit_test(test_totals_that_disagree),
        cmocka_unit_test(test_statistics_of_2_14),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
