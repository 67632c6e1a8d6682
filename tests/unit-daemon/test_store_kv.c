/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of KV caches: written again as they grow, read back by window, retired, changed by others.
 */
#include "store_fixture.h"
#include "store_kv.h"
#include "store_series.h"

struct seen {
    struct kv_span spans[8];
    int64_t processes[8];
    size_t count;
    int stop_after;
};

static int on_span(void *userdata, int64_t process_id, const struct kv_span *span)
{
    struct seen *s = userdata;

    assert_true(s->count < 8);
    s->processes[s->count] = process_id;
    s->spans[s->count++] = *span;
    return s->stop_after && --s->stop_after == 0 ? 5 : 0;
}

static struct seen read_back(struct fixture *f, uint64_t since, uint64_t until)
{
    struct seen s = {0};

    assert_int_equal(store_kv_each(f->store, since, until, on_span, &s), 0);
    return s;
}

static struct kv_span span_of(const struct fixture *f, uint64_t from, uint64_t to, uint64_t most)
{
    uint64_t wall = f->boot_ns + WALL_OFFSET;
    struct kv_span s = {.begin_wall_ns = wall + from * SECOND,
                        .end_wall_ns = wall + to * SECOND,
                        .readings = to - from + 1,
                        .usable_blocks = 1000,
                        .block_tokens = 128,
                        .model_len = 4096,
                        .least_blocks = 1,
                        .most_blocks = most,
                        .last_blocks = 2,
                        .most_wall_ns = wall + to * SECOND,
                        .running = 3,
                        .waiting = KV_POOL_UNKNOWN,
                        .full_ns = 4};
    s.fills[0] = 1;
    s.fills[100] = (uint32_t)(to - from);
    return s;
}

static void test_grows(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(77, 4242);

    process_begin(f, &facts);
    struct kv_span a = span_of(f, 0, 10, 100), b = span_of(f, 10, 20, 900);
    assert_int_equal(store_kv_write(f->store, 77, &a), 0);
    a = span_of(f, 0, 11, 200);
    assert_int_equal(store_kv_write(f->store, 77, &a), 0);
    assert_int_equal(store_kv_write(f->store, 77, &b), 0);
    assert_int_equal(store_kv_write(f->store, 78, &b), -ENOENT);
    struct seen s = read_back(f, 0, UINT64_MAX);
    assert_int_equal(s.count, 2);
    assert_memory_equal(&s.spans[1], &a, sizeof(a));
    assert_memory_equal(&s.spans[0], &b, sizeof(b));
    assert_int_equal(query(f, "SELECT count(*) FROM sample_kv WHERE waiting IS NULL"), 2);
    /* a daemon that comes later */
    store_close(f->store);
    fixture_open(f);
    s = read_back(f, 0, UINT64_MAX);
    assert_int_equal(s.count, 2);
    assert_memory_equal(&s.spans[0], &b, sizeof(b));
}

static void test_window(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(77, 4242), other = facts_make(78, 4243);
    uint64_t wall = f->boot_ns + WALL_OFFSET;

    process_begin(f, &facts);
    process_begin(f, &other);
    for (uint64_t i = 0; i < 3; i++) {
        struct kv_span s = span_of(f, 10 * i, 10 * i + 10, 100 + i);
        assert_int_equal(store_kv_write(f->store, i == 1 ? 78 : 77, &s), 0);
    }
    struct seen s = read_back(f, 0, UINT64_MAX);
    assert_int_equal(s.count, 3);
    assert_int_equal(s.processes[0], s.processes[2]);
    assert_true(s.processes[0] != s.processes[1]);
    for (size_t i = 0; i < 3; i++) /* the newest first */
        assert_int_equal(s.spans[i].most_blocks, 102 - i);
    s = read_back(f, wall + 15 * SECOND, UINT64_MAX);
    assert_int_equal(s.count, 2);
    s = read_back(f, 0, wall + 5 * SECOND);
    assert_int_equal(s.count, 1);
    s = read_back(f, wall + 100 * SECOND, UINT64_MAX);
    assert_int_equal(s.count, 0);
    s = (struct seen){.stop_after = 1};
    assert_int_equal(store_kv_each(f->store, 0, UINT64_MAX, on_span, &s), 5);
    assert_int_equal(store_kv_each(NULL, 0, UINT64_MAX, on_span, &s), -ENOENT);
    assert_int_equal(store_kv_write(NULL, 77, &s.spans[0]), -ENOENT);
}

struct points {
    uint64_t begins[8];
    size_t count;
};

static int on_point(void *userdata, struct store_series *series, const struct store_point *p)
{
    struct points *s = userdata;
    struct process_facts facts;
    uint64_t exit_ns;

    if (p->kind != STORE_SERIES_KV)
        return 0;
    assert_int_equal(store_series_process(series, p->process_id, &facts, &exit_ns), 0);
    assert_int_equal(facts.tgid, p->span->most_blocks);
    assert_int_equal(p->span->begin_wall_ns, p->wall_ns);
    assert_true(s->count < 8);
    s->begins[s->count++] = p->wall_ns;
    return 0;
}

static struct points points_of(struct fixture *f, uint64_t since)
{
    struct store_series *series;
    struct points s = {0};

    assert_int_equal(store_series_open(f->store, since, &series), 0);
    assert_int_equal(store_series_next(series, 1000, on_point, &s), 0);
    store_series_close(series);
    return s;
}

/* In a series: in the order of their begins, whoever was written last; those that touch it. */
static void test_series(void **state)
{
    struct fixture *f = *state;
    uint64_t wall = f->boot_ns + WALL_OFFSET;
    struct process_facts one = facts_make(77, 4242), other = facts_make(78, 4243);

    process_begin(f, &one);
    process_begin(f, &other);
    struct kv_span a = span_of(f, 0, 600, 77), b = span_of(f, 100, 300, 78),
                   c = span_of(f, 600, 700, 77);
    assert_int_equal(store_kv_write(f->store, 78, &b), 0);
    assert_int_equal(store_kv_write(f->store, 77, &c), 0);
    assert_int_equal(store_kv_write(f->store, 77, &a), 0);
    struct points s = points_of(f, 0);
    assert_int_equal(s.count, 3);
    assert_int_equal(s.begins[0], wall);
    assert_int_equal(s.begins[1], wall + 100 * SECOND);
    assert_int_equal(s.begins[2], wall + 600 * SECOND);
    s = points_of(f, wall + 301 * SECOND);
    assert_int_equal(s.count, 2);
    assert_int_equal(s.begins[0], wall);
    assert_int_equal(points_of(f, wall + 701 * SECOND).count, 0);
    assert_int_equal(points_of(f, UINT64_MAX).count, 0);
    execute(f, "UPDATE sample_kv SET most_blocks=1001 WHERE most_blocks=78");
    s = points_of(f, 0);
    assert_int_equal(s.count, 2);
    assert_int_equal(s.begins[1], wall + 600 * SECOND);
}

/* Age and the end of the process take them. */
static void test_retired(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(77, 4242);

    process_begin(f, &facts);
    struct kv_span old = span_of(f, 0, 10, 100), new = span_of(f, 3600, 3610, 200);
    assert_int_equal(store_kv_write(f->store, 77, &old), 0);
    assert_int_equal(store_kv_write(f->store, 77, &new), 0);
    store_close(f->store);
    f->options.max_age_ns = 3600 * SECOND;
    fixture_open(f);
    f->boot_ns += 3605 * SECOND;
    assert_int_equal(store_maintain(f->store), 0);
    struct seen s = read_back(f, 0, UINT64_MAX);
    assert_int_equal(s.count, 1);
    assert_int_equal(s.spans[0].most_blocks, 200);
    execute(f, "PRAGMA foreign_keys=ON; DELETE FROM process");
    assert_int_equal(query(f, "SELECT count(*) FROM sample_kv"), 0);
}

/* Rows that somebody else wrote are not taken when they cannot be. */
static void test_foreign_rows(void **state)
{
    static const char *const changes[] = {
        "usable_blocks=0",    "most_blocks=1001",
        "least_blocks=101",   "last_blocks=-1,readings=0",
        "end_wall_ns=-5",     "usable_blocks=99999999999",
        "block_tokens=1<<40", "most_blocks=-1,least_blocks=5",
        "fills=''",           "fills='0:1 101:10'",
    };
    struct fixture *f = *state;
    struct process_facts facts = facts_make(77, 4242);

    process_begin(f, &facts);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct kv_span one = span_of(f, 0, 10, 100);
        char sql[128];
        assert_int_equal(store_kv_write(f->store, 77, &one), 0);
        snprintf(sql, sizeof(sql), "UPDATE sample_kv SET %s", changes[i]);
        execute(f, sql);
        struct seen s = read_back(f, 0, UINT64_MAX);
        if (s.count)
            fail_msg("%s was taken", changes[i]);
        execute(f, "DELETE FROM sample_kv");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_grows, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_series, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_window, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_retired, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_foreign_rows, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
