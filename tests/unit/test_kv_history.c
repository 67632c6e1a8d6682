/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of a pool's fill, and what a window of them says; figures by hand. */
#include "test_analysis.h"

#include "kv_history.h"

#define S 1000000000ull
#define START (1700000000 * S)

static const struct kv_span_rule rule = {10 * S, 600 * S, 5 * S};

/* Spans that end are put here. */
static struct kv_span ended[512];
static size_t count;
static struct kv_span open_span;

/* figures: second, used blocks, requests that run and that wait */
static void put(const uint64_t figures[4], uint64_t usable)
{
    struct kv_pool_reading r = {figures[1], usable, figures[2], figures[3]};
    struct kv_span next;

    if (kv_span_take(&open_span, &r, START + figures[0] * S, &rule, &next))
        return;
    if (open_span.readings)
        ended[count++] = open_span;
    open_span = next;
}

static void at(uint64_t seconds, uint64_t used, uint64_t usable)
{
    put((const uint64_t[]){seconds, used, used / 10, 3}, usable);
}

static void reset(void)
{
    count = 0;
    open_span = (struct kv_span){0};
}

/* What does not move is one row in ten minutes; what moves one in ten seconds. */
static void test_spans(void **state)
{
    reset();
    for (unsigned i = 0; i <= 1800; i++)
        at(i, 500 + i % 2, 1000); /* 0.1 % */
    assert_int_equal(count, 2);
    assert_int_equal(ended[0].begin_wall_ns, START);
    assert_int_equal(ended[0].end_wall_ns, START + 600 * S);
    assert_int_equal(ended[1].begin_wall_ns, START + 600 * S);
    assert_int_equal(open_span.end_wall_ns, START + 1800 * S);
    reset();
    for (unsigned i = 0; i <= 100; i++)
        at(i, i * 10, 1000); /* 1 % a second */
    assert_int_equal(count, 9);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(ended[i].begin_wall_ns, START + i * 10 * S);
        assert_int_equal(ended[i].end_wall_ns, START + (i + 1) * 10 * S);
        assert_int_equal(ended[i].most_blocks, (i + 1) * 100);
        assert_int_equal(ended[i].least_blocks, i ? i * 100 + 10 : 0);
        assert_int_equal(ended[i].running, (i + 1) * 10);
    }
    assert_int_equal(ended[8].full_ns, S);       /* the reading of 900 */
    assert_int_equal(open_span.full_ns, 10 * S); /* 910 to 1000 */
}

/* The fullest of a span, with its time and requests; a burst stays in it. */
static void test_peak(void **state)
{
    reset();
    at(0, 10, 1000);
    at(1, 950, 1000);
    at(2, 20, 1000);
    assert_int_equal(count, 0);
    assert_int_equal(open_span.most_blocks, 950);
    assert_int_equal(open_span.most_wall_ns, START + S);
    assert_int_equal(open_span.running, 95);
    assert_int_equal(open_span.least_blocks, 10);
    assert_int_equal(open_span.last_blocks, 20);
    assert_int_equal(open_span.full_ns, S);
}

/* What ends a span: a gap, another pool, a clock that went back. */
static void test_breaks(void **state)
{
    reset();
    at(0, 10, 1000);
    at(5, 10, 1000);
    at(11, 10, 1000); /* 6 s without */
    assert_int_equal(count, 1);
    assert_int_equal(open_span.begin_wall_ns, START + 11 * S);
    at(12, 10, 500);
    assert_int_equal(count, 2);
    assert_int_equal(open_span.usable_blocks, 500);
    assert_int_equal(open_span.begin_wall_ns, START + 12 * S);
    at(3, 10, 500);
    assert_int_equal(count, 3);
    assert_int_equal(open_span.begin_wall_ns, START + 3 * S);
}

static void test_history(void **state)
{
    struct kv_history h = {0};

    reset();
    for (unsigned i = 0; i < 100; i++) /* 50 readings of 10 %, 40 of 50.5 %, 8 of 70 %, 2 of 95 % */
        at(i, i < 50 ? 100 : i < 90 ? 505 : i < 98 ? 700 : 950, 1000);
    at(160, 0, 1000); /* a gap; empty */
    for (size_t i = 0; i < count; i++)
        kv_history_add(&h, &ended[i]);
    kv_history_add(&h, &open_span);
    assert_int_equal(h.readings, 101);
    assert_int_equal(h.known_ns, 99 * S);
    assert_int_equal(h.first_wall_ns, START);
    assert_int_equal(h.last_wall_ns, START + 160 * S);
    assert_int_equal(h.full_ns, 2 * S);
    assert_int_equal(h.most.most_blocks, 950);
    assert_int_equal(h.most.most_wall_ns, START + 98 * S);
    assert_true(kv_history_percentile(&h, 0.009) == 0);
    assert_true(kv_history_percentile(&h, 0.5) == 0.1);
    assert_true(kv_history_percentile(&h, 0.51) == 0.51); /* 50.5, rounded up */
    assert_true(kv_history_percentile(&h, 0.9) == 0.51);
    assert_true(kv_history_percentile(&h, 0.95) == 0.7);
    assert_true(kv_history_percentile(&h, 0.99) == 0.95);
    assert_true(kv_history_percentile(&(struct kv_history){0}, 0.5) < 0);
}

static void test_fills_as_text(void **state)
{
    static const char *const bad[] = {"",     "5",    "5:",      "5:0",          "101:3",
                                      "-1:3", "5:3x", "5:3 5",   "1:4 2",        "5:2 5:1",
                                      "5:4",  "x",    "5:3,6:1", "5:99999999999"};
    char text[KV_HISTORY_TEXT_BYTES];
    struct kv_span s = {.readings = 3};

    assert_int_equal(kv_span_fills_parse("0:2 100:1", &s), 0);
    assert_int_equal(s.fills[0], 2);
    assert_int_equal(s.fills[100], 1);
    kv_span_fills_write(&s, text);
    assert_string_equal(text, "0:2 100:1");
    for (size_t i = 0; i < KV_HISTORY_FILLS; i++)
        s.fills[i] = UINT32_MAX;
    kv_span_fills_write(&s, text);
    struct kv_span back = {.readings = (uint64_t)KV_HISTORY_FILLS * UINT32_MAX};
    assert_int_equal(kv_span_fills_parse(text, &back), 0);
    assert_memory_equal(back.fills, s.fills, sizeof(s.fills));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct kv_span one = {.readings = 3};
        if (kv_span_fills_parse(bad[i], &one) == 0)
            fail_msg("\"%s\" was taken", bad[i]);
    }
}

/* A golden case: readings [second, used, running, waiting] of a pool, and the plan of its ranks. */
static int golden(struct jsonc *input, struct json *j)
{
    struct kv_history_row *row = calloc(1, sizeof(*row));
    struct jsonc *readings = get(input, "readings");
    uint64_t usable = get_u64(input, "usable_blocks", 0);
    struct kv_history_rank rank = {
        get_u64(input, "kv_bytes", 0), get_u64(input, "card_bytes", 0),
        json_object_get_double(get(input, "utilization")) /* 0 where there is none */};

    assert_non_null(row);
    *row = (struct kv_history_row){.tgid = 1201,
                                   .server_tgid = 1200,
                                   .replica = (int32_t)get_u64(input, "replica", UINT64_MAX),
                                   .is_alive = strcmp(get_text(input, "state", ""), "exited") != 0,
                                   .interval_ns = S,
                                   .reason = get_text(input, "reason", NULL)};
    reset();
    for (size_t i = 0; readings && i < json_object_array_length(readings); i++) {
        struct jsonc *r = json_object_array_get_idx(readings, i);
        uint64_t figures[4];
        for (size_t k = 0; k < 4; k++)
            figures[k] = json_object_get_uint64(json_object_array_get_idx(r, k));
        put(figures, usable);
        open_span.block_tokens = get_u64(input, "block_tokens", 0);
        open_span.model_len = get_u64(input, "model_len", 0);
    }
    for (size_t i = 0; i < count; i++)
        kv_history_add(&row->history, &ended[i]);
    kv_history_add(&row->history, &open_span);
    json_karray(j, "kv_history");
    kv_history_write(row, &rank, j);
    json_end(j);
    free(row);
    return 0;
}

static void test_document(void **state)
{
    golden_run("kv_history", golden, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spans),         cmocka_unit_test(test_peak),
        cmocka_unit_test(test_breaks),        cmocka_unit_test(test_history),
        cmocka_unit_test(test_fills_as_text), cmocka_unit_test(test_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
