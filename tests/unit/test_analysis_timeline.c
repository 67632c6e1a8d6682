/* SPDX-License-Identifier: Apache-2.0 */
/* timeline: samples into steps, worked out by hand; gaps, clocks that jump, processes that end. */
#include "test_analysis.h"

#include "timeline.h"

#define SINCE 1000u
#define STEP 100u

static struct timeline *make(uint32_t steps, uint64_t carry_ns)
{
    struct timeline_query q = {
        .since_ns = SINCE, .until_ns = SINCE + steps * STEP, .steps = steps, .carry_ns = carry_ns};
    struct timeline *t;
    assert_int_equal(timeline_new(&q, &t), 0);
    return t;
}

static int64_t series(struct timeline *t, uint64_t process, const char *owner)
{
    return timeline_row(t, &(struct timeline_place){.process = process,
                                                    .tgid = (uint32_t)process + 100,
                                                    .rank = 3,
                                                    .device = 1,
                                                    .level = "allocated",
                                                    .owner = owner});
}

static struct jsonc *finished(struct timeline *t, uint32_t limit)
{
    struct json j = {0};
    timeline_finish(t);
    json_object(&j);
    assert_int_equal(timeline_write(t, limit, &j), 0);
    json_end(&j);
    assert_int_equal(json_finish(&j), 0);
    struct jsonc *d = json_tokener_parse(j.data);
    assert_non_null(d);
    json_done(&j);
    timeline_free(t);
    return d;
}

static void steps_are(struct jsonc *d, size_t row, const char *key, const char *wanted)
{
    struct jsonc *r = json_object_array_get_idx(get(d, "rows"), row);
    assert_string_equal(json_object_to_json_string_ext(get(r, key), JSON_C_TO_STRING_PLAIN),
                        wanted);
}

static void a_missing_sample_says_as_before(void **state)
{
    struct timeline *t = make(5, 1000);
    int64_t row = series(t, 1, "PTA@w");
    timeline_sample(t, row, 1010, 50);
    timeline_sample(t, row, 1020, 90);
    timeline_sample(t, row, 1030, 60);
    timeline_sample(t, row, 1350, 10);
    struct jsonc *d = finished(t, 0);
    steps_are(d, 0, "max_bytes", "[90,60,60,60,10]");
    steps_are(d, 0, "min_bytes", "[50,60,60,10,10]");
    steps_are(d, 0, "last_bytes", "[60,60,60,10,10]");
    struct jsonc *r = json_object_array_get_idx(get(d, "rows"), 0);
    assert_int_equal(get_u64(r, "from_bytes", 0), 60);
    assert_int_equal(get_u64(r, "to_bytes", 0), 10);
    assert_int_equal(json_object_get_int64(get(r, "delta_bytes")), -50);
    assert_int_equal(get_u64(r, "peak_bytes", 0), 90);
    assert_int_equal(get_u64(r, "peak_ns", 0), 1020);
    assert_int_equal(get_u64(r, "tgid", 0), 101);
    assert_string_equal(get_text(d, "verdict", ""), "most changed: PTA@w (allocated) -50 B");
    json_object_put(d);
}

static void the_value_at_the_beginning_is_from_before_it(void **state)
{
    struct timeline *t = make(3, 1000);
    int64_t row = series(t, 1, "PTA@w");
    timeline_sample(t, row, 700, 5);
    timeline_sample(t, row, 900, 7);
    timeline_sample(t, row, 1150, 8);
    struct jsonc *d = finished(t, 0);
    steps_are(d, 0, "last_bytes", "[7,8,8]");
    steps_are(d, 0, "max_bytes", "[7,8,8]");
    json_object_put(d);
}

static void a_gap_is_not_known(void **state)
{
    struct timeline *t = make(8, 150);
    int64_t row = series(t, 1, "PTA@w");
    timeline_sample(t, row, 1020, 5);
    timeline_sample(t, row, 1620, 6);
    struct jsonc *d = finished(t, 0);
    steps_are(d, 0, "last_bytes", "[5,5,null,null,null,null,6,6]");
    json_object_put(d);
    /* of a value so old that it held nowhere in the window nothing is said */
    t = make(2, 150);
    timeline_sample(t, series(t, 1, "PTA@w"), 800, 5);
    d = finished(t, 0);
    assert_int_equal(json_object_array_length(get(d, "rows")), 0);
    assert_string_equal(get_text(d, "verdict", ""), "no samples in this time");
    json_object_put(d);
}

static void what_is_after_a_process_is_not_known(void **state)
{
    struct timeline *t = make(5, 10000);
    timeline_sample(t, series(t, 1, "PTA@w"), 1000, 5);
    timeline_sample(t, series(t, 2, "PTA@w"), 1000, 4); /* another life: a series of its own */
    timeline_end(t, 1, 1250);
    struct jsonc *d = finished(t, 0);
    steps_are(d, 0, "last_bytes", "[5,5,5,null,null]");
    steps_are(d, 1, "last_bytes", "[4,4,4,4,4]");
    assert_string_equal(get_text(d, "verdict", ""), "nothing changed");
    json_object_put(d);
}

static void a_clock_that_jumps_bends_nothing(void **state)
{
    struct timeline *t = make(4, 10000);
    int64_t row = series(t, 1, "PTA@w");
    timeline_sample(t, row, 1200, 5);
    timeline_sample(t, row, 1050, 9); /* back: taken at the time of the last */
    timeline_sample(t, row, UINT64_MAX, 11);
    timeline_sample(t, row, 0, 6);
    struct jsonc *d = finished(t, 0);
    steps_are(d, 0, "max_bytes", "[null,null,9,6]");
    steps_are(d, 0, "last_bytes", "[null,null,6,6]");
    json_object_put(d);
}

static void rows_are_sorted_and_bounded(void **state)
{
    struct timeline *t = make(2, 1000);
    for (unsigned i = 0; i < TIMELINE_ROWS_MAX + 5; i++) {
        char owner[32];
        snprintf(owner, sizeof(owner), "PTA@%u", i);
        int64_t row = series(t, 1, owner);
        assert_int_equal(row > 0, i < TIMELINE_ROWS_MAX);
        timeline_sample(t, row, 1000, i);
    }
    assert_int_equal(series(t, 1, "PTA@7"), series(t, 1, "PTA@7"));
    timeline_mark(t, "early", 999);
    timeline_mark(t, "first", 1000);
    timeline_mark(t, "second", 1199);
    timeline_mark(t, "late", 1200);
    struct jsonc *d = finished(t, 2);
    assert_int_equal(json_object_array_length(get(d, "rows")), 2);
    assert_true(json_object_get_boolean(get(d, "truncated")));
    steps_are(d, 0, "max_bytes", "[2047,2047]");
    steps_are(d, 1, "max_bytes", "[2046,2046]");
    struct jsonc *marks = get(d, "marks");
    assert_int_equal(json_object_array_length(marks), 2);
    assert_string_equal(get_text(json_object_array_get_idx(marks, 1), "name", ""), "second");
    assert_int_equal(get_u64(json_object_array_get_idx(marks, 1), "step", 9), 1);
    json_object_put(d);
}

static void queries_that_cannot_be_are_refused(void **state)
{
    struct timeline *t;
    struct timeline_query q = {.since_ns = 5, .until_ns = 5, .steps = 1};
    assert_int_equal(timeline_new(&q, &t), -EINVAL);
    q = (struct timeline_query){.since_ns = 1, .until_ns = 5, .steps = 0};
    assert_int_equal(timeline_new(&q, &t), -EINVAL);
    q.steps = TIMELINE_STEPS_MAX + 1;
    assert_int_equal(timeline_new(&q, &t), -EINVAL);
    /* more steps than nanoseconds */
    q.steps = TIMELINE_STEPS_MAX;
    assert_int_equal(timeline_new(&q, &t), 0);
    timeline_sample(t, series(t, 1, "x"), 3, 7);
    json_object_put(finished(t, 0));
}

static void feed(struct timeline *t, struct jsonc *cache)
{
    struct jsonc *spans = get(cache, "spans");
    int64_t row = timeline_row(
        t, &(struct timeline_place){.process = get_u64(cache, "tgid", 0),
                                    .tgid = (uint32_t)get_u64(cache, "tgid", 0),
                                    .rank = -1,
                                    .device = -1,
                                    .level = "kv_cache",
                                    .blocks = get_u64(cache, "blocks", 0),
                                    .server_tgid = (uint32_t)get_u64(cache, "server_tgid", 0),
                                    .replica = json_object_get_int(get(cache, "replica"))});

    assert_true(row > 0);
    for (size_t i = 0; i < json_object_array_length(spans); i++) {
        struct jsonc *s = json_object_array_get_idx(spans, i);
        timeline_range(t, row,
                       &(struct timeline_range){.begin_ns = get_u64(s, "begin_ns", 0),
                                                .end_ns = get_u64(s, "end_ns", 0),
                                                .least = get_u64(s, "least", 0),
                                                .most = get_u64(s, "most", 0),
                                                .last = get_u64(s, "last", 0),
                                                .most_ns = get_u64(s, "most_ns", 0)});
    }
}

/* Of KV caches: their spans. */
static int run(struct jsonc *input, struct json *j)
{
    struct timeline_query q = {.since_ns = get_u64(input, "since_ns", 0),
                               .until_ns = get_u64(input, "until_ns", 0),
                               .steps = (uint32_t)get_u64(input, "steps", 0),
                               .carry_ns = 1000000};
    struct jsonc *caches = get(input, "caches");
    struct timeline *t;

    assert_int_equal(timeline_new(&q, &t), 0);
    for (size_t i = 0; i < json_object_array_length(caches); i++)
        feed(t, json_object_array_get_idx(caches, i));
    timeline_finish(t);
    int r = timeline_write(t, 1, j);
    timeline_free(t);
    return r;
}

static void golden(void **state)
{
    golden_run("timeline", run, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_sample_says_as_before),
        cmocka_unit_test(the_value_at_the_beginning_is_from_before_it),
        cmocka_unit_test(a_gap_is_not_known),
        cmocka_unit_test(what_is_after_a_process_is_not_known),
        cmocka_unit_test(a_clock_that_jumps_bends_nothing),
        cmocka_unit_test(rows_are_sorted_and_bounded),
        cmocka_unit_test(queries_that_cannot_be_are_refused),
        cmocka_unit_test(golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
