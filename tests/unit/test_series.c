/* SPDX-License-Identifier: Apache-2.0 */
/* Samples that were written on change, as even steps: worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "series.h"

static void give(struct series *s, const struct series_grid *g, uint64_t time_ns, uint64_t bytes)
{
    assert_int_equal(series_add(s, g, &(struct series_sample){time_ns, bytes, bytes / 10}), 0);
}

static void check(const struct series *s, size_t count, const uint64_t *times,
                  const uint64_t *bytes)
{
    assert_int_equal(s->count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(s->samples[i].time_ns, times[i]);
        assert_int_equal(s->samples[i].bytes, bytes[i]);
        assert_int_equal(s->samples[i].blocks, bytes[i] / 10);
    }
}

/* What is not written is as before; a step has its lowest value. */
static void carried(void **state)
{
    struct series_grid g = {.first_ns = 1000, .step_ns = 100, .gap_ns = 1000};
    struct series s = {0};

    give(&s, &g, 1010, 50);
    give(&s, &g, 1050, 40);
    give(&s, &g, 1090, 70);
    give(&s, &g, 1350, 90); /* 70 until then */
    assert_int_equal(series_carry(&s, &g, 1520), 0);
    check(&s, 6, (const uint64_t[]){1010, 1100, 1200, 1300, 1400, 1500},
          (const uint64_t[]){40, 70, 70, 70, 90, 90});
    series_done(&s);
}

/* Nobody sampled for a while: nothing is said of that time. */
static void gap(void **state)
{
    struct series_grid g = {.first_ns = 1000, .step_ns = 100, .gap_ns = 300};
    struct series s = {0};

    give(&s, &g, 1000, 50);
    give(&s, &g, 5000, 60);
    assert_int_equal(series_carry(&s, &g, 9000), 0);
    check(&s, 2, (const uint64_t[]){1000, 5000}, (const uint64_t[]){50, 60});
    series_done(&s);
}

/* A clock that jumps back, and a sample from before the grid, disturb no order. */
static void jumps(void **state)
{
    struct series_grid g = {.first_ns = 1000, .step_ns = 100, .gap_ns = 10000};
    struct series s = {0};

    give(&s, &g, 1, 50);
    give(&s, &g, 1200, 60);
    give(&s, &g, 1100, 70);
    give(&s, &g, 1300, 80);
    check(&s, 4, (const uint64_t[]){1000, 1100, 1200, 1300}, (const uint64_t[]){50, 50, 60, 80});
    series_done(&s);
}

static void grids(void **state)
{
    struct series_grid g = series_grid_over(5, 6005, 1, 7);
    struct series s = {0};

    assert_int_equal(g.step_ns, 11);
    for (uint64_t t = 5; t <= 6005; t++)
        give(&s, &g, t, 10);
    assert_true(s.count <= SERIES_STEPS_MAX);
    series_done(&s);
    assert_int_equal(series_grid_over(5, 6005, 100, 7).step_ns, 100);
    assert_int_equal(series_grid_over(9, 5, 0, 7).step_ns, 1); /* an empty window */
    g = series_grid_over(0, UINT64_MAX, 1, UINT64_MAX);
    give(&s, &g, 1, 10);
    give(&s, &g, UINT64_MAX, 20);
    assert_true(s.count <= SERIES_STEPS_MAX + 1);
    series_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carried),
        cmocka_unit_test(gap),
        cmocka_unit_test(jumps),
        cmocka_unit_test(grids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
