/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_pool: a scheduler made of bytes (CPython 3.11), found, read again, and changed in between.
 *
 * Live interpreters of every version: tests/late/run.py, kv.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kv_image.h"
#include "kv_pool.h"

static int find(struct kv_pool *ret, struct error *error)
{
    struct memory_reader reader = fake_reader(&kv.fake);
    struct image_limits limits = {0};
    struct roots_table *table;
    struct image *image;

    assert_int_equal(roots_table_new(&table), 0);
    assert_int_equal(image_new(&reader, &limits, &image), 0);
    struct scan_input input = {
        .image = image, .table = table, .python_minor = 11, .runtime = kv.fake.runtime};
    int r = kv_pool_find(&input, ret, error);
    image_free(image);
    roots_table_free(table);
    return r;
}

static int read_again(const struct kv_pool *pool, struct kv_pool_reading *ret)
{
    struct memory_reader reader = fake_reader(&kv.fake);
    return kv_pool_read(pool, &reader, ret);
}

static void found(struct kv_pool *pool)
{
    struct error error = {0};

    kv_world(1001, 900, "EngineCoreProc.run_busy_loop");
    if (find(pool, &error) < 0)
        fail_msg("%s", error.what);
}

static void test_find_and_read(void **state)
{
    struct kv_pool_reading r;
    struct kv_pool pool;

    found(&pool);
    assert_true(kv_pool_check(&pool));
    assert_int_equal(pool.total_blocks, 1001);
    assert_int_equal(pool.block_tokens, 128);
    assert_int_equal(pool.model_len, 4096);
    assert_int_equal(pool.groups, 1);
    assert_int_equal(read_again(&pool, &r), 0);
    assert_int_equal(r.usable_blocks, 1000);
    assert_int_equal(r.used_blocks, 100);
    assert_int_equal(r.running, 1);
    assert_int_equal(r.waiting, 4);
    /* another int in the same place, another list, the same queue with another length */
    fake_u64(&kv.fake, kv_slot(kv.queue, 1), kv_int(0));
    const uint64_t three[] = {kv.pool, kv.pool, kv.pool};
    fake_u64(&kv.fake, kv_slot(kv.scheduler, 3), fake_sequence(&kv.fake, true, 3, three));
    fake_u64(&kv.fake, kv.waiting + 16, 70000);
    assert_int_equal(read_again(&pool, &r), 0);
    assert_int_equal(r.used_blocks, 1000);
    assert_int_equal(r.running, 3);
    assert_int_equal(r.waiting, 70000);
}

/* A plain name, as frames have it before 3.11, and one that no row has. */
static void test_frames(void **state)
{
    struct error error = {0};
    struct kv_pool pool;

    kv_world(1001, 900, "run_busy_loop");
    assert_int_equal(find(&pool, &error), 0);
    kv_world(1001, 900, "Worker.loop");
    assert_int_equal(find(&pool, &error), -ENODATA);
    assert_non_null(strstr(error.what, "no scheduler"));
}

/* By the type of a local, where no frame of the engine is there. */
static void test_types(void **state)
{
    struct error error = {0};
    struct kv_pool pool;

    kv_world(1001, 900, "generate");
    uint64_t type = fake_type(&kv.fake, "EngineCore", FAKE_HEAPTYPE | FAKE_MANAGED_DICT, 0);
    const char *const name[] = {"scheduler"};
    uint64_t core = fake_instance(&kv.fake, type, fake_dict(&kv.fake, 1, name, &kv.scheduler));
    fake_interpreter(&kv.fake, "generate", "engine", core);
    assert_int_equal(find(&pool, &error), 0);
    assert_int_equal(pool.total_blocks, 1001);
}

/* Numbers that cannot be are none. */
static void test_implausible(void **state)
{
    static const struct {
        int64_t total, free;
        int wanted;
    } cases[] = {
        {1, 0, -ENODATA}, /* the null block alone */
        {0, 0, -ENODATA},
        {-5, 0, -ENODATA},
        {(1ll << 31) + 1, 5, -ENODATA},
        {1ll << 31, (1ll << 31) - 1, 0},
    };
    struct error error = {0};
    struct kv_pool_reading r;
    struct kv_pool pool;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        kv_world(cases[i].total, cases[i].free, "EngineCoreProc.run_busy_loop");
        assert_int_equal(find(&pool, &error), cases[i].wanted);
    }
    found(&pool);
    fake_u64(&kv.fake, kv_slot(kv.queue, 1), kv_int(1001)); /* the null block is never free */
    assert_int_equal(read_again(&pool, &r), -ESTALE);
    fake_u64(&kv.fake, kv_slot(kv.queue, 1), kv_int(-1));
    assert_int_equal(read_again(&pool, &r), -ESTALE);
    fake_u64(&kv.fake, kv_slot(kv.queue, 1), kv_int(1000));
    assert_int_equal(read_again(&pool, &r), 0);
    assert_int_equal(r.used_blocks, 0);
    fake_u64(&kv.fake, kv.waiting + 16, UINT64_MAX);
    assert_int_equal(read_again(&pool, &r), -ESTALE);
}

/* Each step that led there is looked at each time. */
static void test_changed(void **state)
{
    struct kv_pool_reading r;
    struct kv_pool pool;
    const uint64_t steps[] = {
        kv.scheduler + 8,                           /* its type */
        kv.scheduler - 24,                          /* its dict */
        fake_get(&kv.fake, kv.scheduler - 24) + 32, /* the dict's keys */
        kv_slot(kv.scheduler, 5),                   /* the manager */
        kv_slot(kv.scheduler, 3) - 8,               /* the key of running */
        kv_slot(kv.pool, 0),                        /* the number of blocks */
        kv_slot(kv.pool, 1),                        /* the queue */
        kv.queue + 8,
    };

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        found(&pool); /* the same objects at the same places */
        fake_u64(&kv.fake, steps[i], fake_get(&kv.fake, steps[i]) + 16);
        assert_int_equal(read_again(&pool, &r), -ESTALE);
    }
    /* what a number's object is, which may be on its way to another */
    found(&pool);
    fake_u64(&kv.fake, kv.free_value + 8, kv.plain);
    assert_int_equal(read_again(&pool, &r), -EAGAIN);
    found(&pool);
    fake_u64(&kv.fake, kv_slot(kv.queue, 1), 12345);
    assert_int_equal(read_again(&pool, &r), -ESTALE);
}

/* An int that is replaced between two reads of one reading. */
static unsigned reads_left;
static int replacing_read(void *userdata, uint64_t address, void *buffer, size_t bytes)
{
    if (address == kv_slot(kv.queue, 1) && reads_left && --reads_left % 2 == 0)
        fake_u64(&kv.fake, kv_slot(kv.queue, 1), kv_int(500 + reads_left));
    return fake_read(userdata, address, buffer, bytes);
}

static void test_torn(void **state)
{
    struct memory_reader reader = {.read = replacing_read, .userdata = &kv.fake};
    struct kv_pool_reading r;
    struct kv_pool pool;

    found(&pool);
    reads_left = 2; /* replaced once, between the first and the second look */
    assert_int_equal(kv_pool_read(&pool, &reader, &r), 0);
    assert_int_equal(r.used_blocks, 1000 - 500);
    reads_left = 1000; /* each time */
    assert_int_equal(kv_pool_read(&pool, &reader, &r), -EAGAIN);
    reads_left = 0;
}

/* What comes through the child's pipe. */
static void test_check(void **state)
{
    struct kv_pool pool, bad;

    found(&pool);
    for (unsigned i = 0; i < 9; i++) {
        bad = pool;
        switch (i) {
        case 0:
            bad.python_minor = 200;
            break;
        case 1:
            bad.word_count = KV_POOL_WORDS_MAX + 1;
            break;
        case 2:
            bad.word_count = 0;
            break;
        case 3:
            bad.count_count = KV_POOL_COUNTS_MAX + 1;
            break;
        case 4:
            bad.total_blocks = 1;
            break;
        case 5:
            bad.words[1].address = bad.words[0].address;
            break;
        case 6:
            bad.counts[0].slot = 3;
            break;
        case 7:
            bad.counts[0].what = 77;
            break;
        case 8:
            bad.counts[0].what = KV_POOL_RUNNING;
            break;
        }
        assert_false(kv_pool_check(&bad));
    }
}

/* Any word of the image changed: found and read it ends, and is within what can be. */
static void test_hostile(void **state)
{
    static const uint64_t with[] = {0, UINT64_MAX, 1ull << 46, FAKE_HEAP + 64, 1ull << 20};
    struct error error = {0};
    struct kv_pool_reading r;
    struct kv_pool pool;

    kv_world(1001, 900, "EngineCoreProc.run_busy_loop");
    uint64_t end = FAKE_HEAP + kv.fake.used;
    for (uint64_t address = FAKE_HEAP; address < end; address += 8)
        for (unsigned i = 0; i < 5; i++) {
            uint64_t old = fake_get(&kv.fake, address);
            fake_u64(&kv.fake, address, i < 4 ? with[i] : old + 8);
            if (find(&pool, &error) == 0) {
                assert_true(kv_pool_check(&pool));
                if (read_again(&pool, &r) == 0)
                    assert_true(r.used_blocks <= r.usable_blocks);
            }
            fake_u64(&kv.fake, address, old);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find_and_read), cmocka_unit_test(test_frames),
        cmocka_unit_test(test_types),         cmocka_unit_test(test_implausible),
        cmocka_unit_test(test_changed),       cmocka_unit_test(test_torn),
        cmocka_unit_test(test_check),         cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
