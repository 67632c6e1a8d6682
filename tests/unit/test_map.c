/* SPDX-License-Identifier: Apache-2.0 */
/* The slab map: finds what was added, forgets what was removed, never moves, gives memory back. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "map.h"

struct record {
    uint64_t a;
    uint32_t b, zero;
    uint64_t value;
};

static uint64_t memory;

static int setup(void **state)
{
    struct map *m = calloc(1, sizeof(*m));
    memory = 0;
    map_init(m, sizeof(struct record), 4, &memory);
    *state = m;
    return 0;
}

static int teardown(void **state)
{
    map_clear(*state);
    free(*state);
    return 0;
}

static uint32_t add(struct map *m, uint64_t a, uint32_t b)
{
    uint32_t number;
    assert_int_equal(map_add(m, a, b, &number), 0);
    return number;
}

static void an_empty_map_finds_nothing_and_costs_nothing(void **state)
{
    struct map *m = *state;
    assert_int_equal(map_find(m, 1, 2), 0);
    assert_int_equal(map_next(m, 0), 0);
    assert_int_equal(memory, 0);
}

static void both_parts_of_the_key_count(void **state)
{
    struct map *m = *state;
    uint32_t one = add(m, 7, 1), two = add(m, 7, 2), three = add(m, 8, 1);
    assert_int_equal(map_find(m, 7, 1), one);
    assert_int_equal(map_find(m, 7, 2), two);
    assert_int_equal(map_find(m, 8, 1), three);
    assert_int_equal(map_find(m, 8, 2), 0);
}

static void a_new_record_is_zero_but_for_its_key(void **state)
{
    struct map *m = *state;
    uint32_t n = add(m, 7, 1);
    ((struct record *)map_at(m, n))->value = 99;
    map_remove(m, n);
    n = add(m, 7, 1);
    const struct record *r = map_at(m, n);
    assert_int_equal(r->a, 7);
    assert_int_equal(r->b, 1);
    assert_int_equal(r->value, 0);
}

static void a_removed_number_is_given_again(void **state)
{
    struct map *m = *state;
    add(m, 1, 0);
    uint32_t n = add(m, 2, 0);
    map_remove(m, n);
    assert_int_equal(map_find(m, 2, 0), 0);
    assert_int_equal(add(m, 3, 0), n);
}

static void records_never_move(void **state)
{
    struct map *m = *state;
    void *first = map_at(m, add(m, 1, 0));
    for (uint64_t i = 2; i < 5000; i++)
        add(m, i, 0);
    assert_ptr_equal(map_at(m, map_find(m, 1, 0)), first);
}

static void a_record_can_get_another_key(void **state)
{
    struct map *m = *state;
    uint32_t n = add(m, 1, 0);
    map_rekey(m, n, 5, 6);
    assert_int_equal(map_find(m, 1, 0), 0);
    assert_int_equal(map_find(m, 5, 6), n);
}

static void the_walk_meets_every_live_record_once(void **state)
{
    struct map *m = *state;
    uint64_t sum = 0;
    for (uint64_t i = 1; i <= 100; i++)
        add(m, i, 0);
    for (uint64_t i = 1; i <= 100; i += 2)
        map_remove(m, map_find(m, i, 0));
    for (uint32_t n = 0; (n = map_next(m, n));)
        sum += ((struct record *)map_at(m, n))->a;
    assert_int_equal(sum, 2550); /* 2 + 4 + ... + 100 */
}

static void an_emptied_map_gives_its_memory_back(void **state)
{
    struct map *m = *state;
    for (uint64_t i = 0; i < 100000; i++)
        add(m, i, 0);
    assert_true(memory > 100000 * sizeof(struct record));
    for (uint64_t i = 0; i < 100000; i++)
        map_remove(m, map_find(m, i, 0));
    assert_true(memory < 64 * 1024);
    add(m, 1, 1);
    assert_int_equal(map_next(m, 0), map_find(m, 1, 1));
    map_clear(m);
    assert_int_equal(memory, 0);
}

static void the_reserved_key_is_refused(void **state)
{
    struct map *m = *state;
    uint32_t number = 77;
    assert_int_equal(map_add(m, 1, UINT32_MAX, &number), -EINVAL);
    assert_int_equal(number, 77);
}

#define KEYS 500

static void random_adds_and_removes_agree_with_an_array(void **state)
{
    struct map *m = *state;
    uint64_t seed = 1;
    bool present[KEYS] = {false};
    uint32_t count = 0;
    for (int i = 0; i < 200000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t k = (uint32_t)(seed >> 33) % KEYS;
        uint32_t n = map_find(m, (uint64_t)k << 21, k & 3);
        assert_int_equal(n != 0, present[k]);
        if (n)
            map_remove(m, n);
        else
            add(m, (uint64_t)k << 21, k & 3);
        present[k] = !present[k];
        count += present[k] ? 1 : -1;
        assert_int_equal(m->count, count);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_empty_map_finds_nothing_and_costs_nothing),
        TEST(both_parts_of_the_key_count),
        TEST(a_new_record_is_zero_but_for_its_key),
        TEST(a_removed_number_is_given_again),
        TEST(records_never_move),
        TEST(a_record_can_get_another_key),
        TEST(the_walk_meets_every_live_record_once),
        TEST(an_emptied_map_gives_its_memory_back),
        TEST(the_reserved_key_is_refused),
        TEST(random_adds_and_removes_agree_with_an_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
