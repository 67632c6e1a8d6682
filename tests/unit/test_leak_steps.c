/* SPDX-License-Identifier: Apache-2.0 */
/* What is alive of earlier steps: worked out by hand over a ledger. */
#include "leak_steps.h"
#include "test_ledger.h"

struct book {
    struct world *w;
    struct totals totals;
    uint64_t marks[128];
    size_t mark_count;
};

static void take(struct book *b, uint64_t address, int64_t bytes)
{
    b->totals.allocated += bytes;
    b->totals.active += bytes;
    b->totals.reserved = b->totals.active;
    assert_int_equal(do_block(b->w, NM_BLOCK_MALLOC, address, bytes, b->totals), 0);
}

static void give(struct book *b, uint64_t address, int64_t bytes)
{
    b->totals.allocated -= bytes;
    assert_int_equal(do_block(b->w, NM_BLOCK_FREE, address, bytes, b->totals), 0);
    b->totals.active -= bytes;
    assert_int_equal(do_block(b->w, NM_BLOCK_BLOCK_FREE, address, bytes, b->totals), 0);
}

static void mark(struct book *b)
{
    b->marks[b->mark_count++] = b->w->now_ns += 1000;
}

static void find(struct book *b, struct leak_steps *ret)
{
    leak_steps_init(ret, b->marks, b->mark_count);
    assert_int_equal(leak_steps_add(ret, b->w->ledger, ledger_find_process(b->w->ledger, TGID)), 0);
    leak_steps_end(ret);
}

/* Ten steps that leave 3 MiB each, and a block that lives for one step. */
static void leak(void **state)
{
    struct book b = {.w = *state};
    struct leak_steps s;

    take(&b, 0x1000, 100 * MIB); /* before the first step */
    for (uint64_t i = 0; i < 11; i++) {
        mark(&b);
        if (i)
            give(&b, 0x90000000 + (i - 1) * 0x1000000, 7 * MIB);
        take(&b, 0x10000000 + i * 0x1000000, 3 * MIB);
        take(&b, 0x90000000 + i * 0x1000000, 7 * MIB);
    }
    find(&b, &s); /* marks 0 to 10: steps 1 to 8 can be told of, step 0 warms up */
    assert_int_equal(s.survivors.count, 1);
    const struct leak_survivor *v = map_at(&s.survivors, map_next(&s.survivors, 0));
    assert_int_equal(v->step_count, 8);
    assert_int_equal(v->steps, 8);
    assert_int_equal(v->blocks, 8);
    assert_int_equal(v->bytes, 24 * MIB);
    assert_int_equal(v->bytes_per_step, 3 * MIB);
    assert_true(v->is_leak);
    assert_string_equal(v->of.owner, "PTA@block");
    assert_string_equal(v->of.level, "allocated");
    leak_steps_done(&s);
}

/* One step fills a cache: it survives, and is no leak; freed, it survives no more. */
static void cache(void **state)
{
    struct book b = {.w = *state};
    struct leak_steps s;

    for (uint64_t i = 0; i < 12; i++) {
        mark(&b);
        if (i == 4)
            take(&b, 0x10000000, 500 * MIB);
    }
    find(&b, &s);
    const struct leak_survivor *v = map_at(&s.survivors, map_next(&s.survivors, 0));
    assert_int_equal(v->bytes, 500 * MIB);
    assert_int_equal(v->steps, 1);
    assert_int_equal(v->bytes_per_step, 0);
    assert_false(v->is_leak);
    leak_steps_done(&s);
    give(&b, 0x10000000, 500 * MIB);
    find(&b, &s);
    assert_int_equal(s.survivors.count, 0);
    leak_steps_done(&s);
}

/* No marks, too few, many more than are looked at. */
static void counts(void **state)
{
    struct book b = {.w = *state};
    struct leak_steps s;

    take(&b, 0x1000, MIB);
    for (unsigned i = 0; i < 3; i++) {
        find(&b, &s);
        assert_int_equal(s.survivors.count, 0);
        leak_steps_done(&s);
        mark(&b);
        take(&b, 0x100000 * (i + 1), MIB);
    }
    for (uint64_t i = 0; i < 120; i++) {
        mark(&b);
        take(&b, 0x10000000 + i * 0x1000000, MIB);
    }
    find(&b, &s);
    const struct leak_survivor *v = map_at(&s.survivors, map_next(&s.survivors, 0));
    assert_int_equal(v->step_count, LEAK_STEPS_MAX);
    assert_int_equal(v->blocks, LEAK_STEPS_MAX);
    leak_steps_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(leak, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(cache, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(counts, world_setup, world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
