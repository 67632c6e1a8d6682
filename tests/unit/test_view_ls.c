/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ls, status and events.
 */
#include "test_view.h"

static struct jsonc *ls(const struct world *w, const struct view_context *c, struct view_ls_query q)
{
    struct json j = {0};
    assert_int_equal(view_ls(w->ledger, c, &q, &j), 0);
    return parse(&j);
}

/* 1, 2, ... 200 MiB in an order that is not sorted (7 generates the numbers modulo 211, a prime);
 * device 0, pid 100; and one 5 MiB of HCCL by pid 200 on device 1. */
static void many(struct world *w)
{
    add_process(w, (struct process_facts){.tgid = 100, .rank = 0});
    add_process(w, (struct process_facts){.tgid = 200, .rank = 1});
    for (uint64_t i = 1, n = 7; i <= 210; i++, n = n * 7 % 211) {
        if (n <= 200)
            alloc_for(w, 100, n << 32, n * MIB, 0, MODULE_APP, 0);
    }
    alloc_for(w, 200, 0x77000000, 5 * MIB, 1, 3, CALLER_HCCL);
}

static void the_largest_come_first_and_totals_count_all(void **state)
{
    struct world *w = *state;
    many(w);
    struct view_context c = context_of(w);
    for (uint32_t limit = 1; limit <= 300; limit += 13) {
        struct jsonc *d = ls(w, &c, (struct view_ls_query){.limit = limit});
        size_t expected = limit < 201 ? limit : 201;
        assert_int_equal(length(d, "blocks"), expected);
        for (size_t i = 0; i < expected && i < 195; i++)
            assert_int_equal(number(item(d, "blocks", i), "size_bytes"), (200 - i) * MIB);
        assert_int_equal(number(d, "matched_blocks"), 201);
        assert_true(truth(d, "truncated") == (limit < 201));
        struct jsonc *total = find(d, "totals", "level", "physical", NULL);
        assert_int_equal(number(total, "bytes"), (200 * 201 / 2 + 5) * MIB);
        json_object_put(d);
    }
    struct jsonc *d = ls(w, &c, (struct view_ls_query){0});
    assert_int_equal(length(d, "blocks"), 201);
    assert_false(truth(d, "truncated"));
    json_object_put(d);
}

static void a_block_says_whose_where_and_how_old(void **state)
{
    struct world *w = *state;
    many(w);
    struct view_context c = context_of(w);
    c.boot_ns = w->now_ns + 1000;
    uint32_t tgid = 200;
    c.tgids = &tgid;
    c.tgid_count = 1;
    struct jsonc *d = ls(w, &c, (struct view_ls_query){.limit = 10});
    assert_int_equal(length(d, "blocks"), 1);
    struct jsonc *b = item(d, "blocks", 0);
    assert_int_equal(number(b, "tgid"), 200);
    assert_int_equal(number(b, "rank"), 1);
    assert_int_equal(number(b, "device"), 1);
    assert_string_equal(text(b, "address"), "0x77000000");
    assert_int_equal(number(b, "size_bytes"), 5 * MIB);
    assert_int_equal(number(b, "requested_bytes"), 5 * MIB);
    assert_string_equal(text(b, "owner"), "CANN@HCCL");
    assert_string_equal(text(b, "level"), "physical");
    assert_string_equal(text(b, "caller"), "0x7002");
    assert_int_equal(number(b, "age_ns"), 1000); /* its event was the last, 1000 ns ago */
    assert_int_equal(number(b, "allocated_ns"), WALL_NS - 1000);
    assert_null(member(b, "last_access_ns"));
    assert_null(member(b, "stream"));
    assert_int_equal(length(b, "frames"), 0);
    json_object_put(d);
}

static void filters_narrow_the_list(void **state)
{
    struct world *w = *state;
    many(w);
    struct view_context c = context_of(w);
    const char *owners[] = {"CANN@*"}, *exact[] = {"CANN@HCCL"}, *none[] = {"CANN@HCC"};
    enum ledger_level block = LEVEL_BLOCK;
    struct jsonc *d = ls(w, &c, (struct view_ls_query){.owners = owners, .owner_count = 1});
    assert_int_equal(length(d, "blocks"), 1);
    json_object_put(d);
    d = ls(w, &c, (struct view_ls_query){.owners = exact, .owner_count = 1});
    assert_int_equal(length(d, "blocks"), 1);
    json_object_put(d);
    d = ls(w, &c, (struct view_ls_query){.owners = none, .owner_count = 1});
    assert_int_equal(length(d, "blocks"), 0);
    assert_int_equal(number(d, "matched_blocks"), 0);
    json_object_put(d);
    d = ls(w, &c, (struct view_ls_query){.min_size_bytes = 199 * MIB});
    assert_int_equal(length(d, "blocks"), 2);
    json_object_put(d);
    d = ls(w, &c, (struct view_ls_query){.levels = &block, .level_count = 1});
    assert_int_equal(length(d, "blocks"), 0);
    json_object_put(d);
    uint16_t device = 1;
    c.devices = &device;
    c.device_count = 1;
    d = ls(w, &c, (struct view_ls_query){0});
    assert_int_equal(length(d, "blocks"), 1);
    json_object_put(d);
}

static void blocks_stand_at_the_device_of_the_driver(void **state)
{
    struct world *w = *state;
    add_process(w,
                (struct process_facts){.tgid = 100, .visible_devices = {2, 6}, .visible_count = 2});
    block_for(w, 100, 1, NM_BLOCK_MALLOC, 0x4000, 4 * MIB,
              (struct totals){4 * MIB, 20 * MIB, 4 * MIB});
    struct view_context c = context_of(w);
    struct jsonc *d = ls(w, &c, (struct view_ls_query){0});
    struct jsonc *b = item(d, "blocks", 0);
    assert_int_equal(number(b, "device"), 6);
    assert_string_equal(text(b, "level"), "allocated");
    assert_string_equal(text(b, "stream"), "0x5000");
    json_object_put(d);
}

static void status_joins_the_manager_with_the_ledger(void **state)
{
    struct world *w = *state;
    many(w);
    do_free(w, 0xdead);
    struct view_context c = context_of(w);
    struct view_probe probe = {"libruntime.so", "aclrtMalloc", "entry", "attached", 12, UINT64_MAX};
    struct view_target targets[] = {{.tgid = 200,
                                     .state = "attached",
                                     .level = "blocks",
                                     .coverage = "full",
                                     .overhead_ratio = 0.0025,
                                     .blocks_read = "full",
                                     .names_read = "none",
                                     .names_reason = "no CPython in this process"},
                                    {.tgid = 999,
                                     .state = "failed",
                                     .level = "none",
                                     .coverage = "none",
                                     .reason = "gone",
                                     .overhead_ratio = -1}};
    struct view_status_input in = {.version = "1.2.3",
                                   .kernel = "6.6.1",
                                   .uptime_ns = 5,
                                   .rss_bytes = 6,
                                   .cpu_ns = 7,
                                   .probes = &probe,
                                   .probe_count = 1,
                                   .targets = targets,
                                   .target_count = 2,
                                   .store_bytes = 4096,
                                   .store_oldest_ns = UINT64_MAX};
    struct json j = {0};
    assert_int_equal(view_status(w->ledger, &c, &in, &j), 0);
    struct jsonc *d = parse(&j);
    assert_string_equal(text(member(d, "daemon"), "version"), "1.2.3");
    assert_int_equal(number(member(d, "daemon"), "rss_bytes"), 6);
    assert_string_equal(text(d, "kernel"), "6.6.1");
    assert_int_equal(number(item(d, "probes", 0), "hits"), 12);
    assert_null(member(item(d, "probes", 0), "cost_ns"));
    assert_int_equal(number(item(d, "targets", 0), "rank"), 1);
    assert_true(json_object_get_double(member(item(d, "targets", 0), "overhead_ratio")) == 0.0025);
    assert_string_equal(text(item(d, "targets", 0), "names_read"), "none");
    assert_string_equal(text(item(d, "targets", 0), "names_reason"), "no CPython in this process");
    assert_null(member(item(d, "targets", 0), "blocks_reason"));
    assert_null(member(item(d, "targets", 1), "names_read"));
    assert_null(member(item(d, "targets", 1), "overhead_ratio"));
    assert_null(member(item(d, "targets", 1), "rank"));
    assert_int_equal(number(member(d, "events"), "received"), 202); /* 201 allocations, one free */
    assert_int_equal(number(member(d, "events"), "unmatched_frees"), 1);
    assert_int_equal(number(member(d, "ledger"), "live_entries"), 201);
    assert_int_equal(number(member(d, "store"), "bytes"), 4096);
    assert_null(member(member(d, "store"), "oldest_ns"));
    json_object_put(d);
}

static struct jsonc *event_object(const struct world *w, const struct nm_event *e)
{
    struct view_context c = context_of(w);
    struct json j = {0};
    assert_int_equal(view_event(&c, e, &j), 0);
    return parse(&j);
}

static void an_event_shows_what_it_has(void **state)
{
    struct world *w = *state;
    struct nm_event e = event_alloc(w, 0xabc000, 100, 4096, 3);
    e.result = 0;
    e.call.hal = PROBE_HAL_ALLOC;
    struct jsonc *d = event_object(w, &e);
    assert_string_equal(text(d, "kind"), "alloc");
    assert_string_equal(text(d, "api"), "aclrtMalloc");
    assert_string_equal(text(d, "hal"), "halMemAlloc");
    assert_string_equal(text(d, "address"), "0xabc000");
    assert_int_equal(number(d, "requested_bytes"), 100);
    assert_int_equal(number(d, "physical_bytes"), 4096);
    /* that word is the phase of an allocation */
    assert_false(json_object_object_get_ex(d, "duration_ns", NULL));
    assert_int_equal(number(d, "time_ns"), WALL_NS);
    json_object_put(d);

    e = event_free(w, 0xabc000);
    d = event_object(w, &e);
    assert_int_equal(number(d, "duration_ns"), 5);
    json_object_put(d);

    e = world_event(w, NM_EVENT_COMM_INIT);
    e.call.flags = 3 | (uint64_t)8 << 32;
    d = event_object(w, &e);
    assert_string_equal(text(d, "kind"), "comm_init");
    assert_int_equal(number(d, "rank"), 3);
    assert_int_equal(number(d, "world_size"), 8);
    json_object_put(d);

    e = world_event(w, NM_EVENT_BLOCK);
    e.block.action = NM_BLOCK_BLOCK_FREE;
    e.block.size_bytes = -512;
    e.block.component = NM_BLOCK_WORKSPACE;
    d = event_object(w, &e);
    assert_string_equal(text(d, "action"), "block_free");
    assert_string_equal(text(d, "component"), "workspace");
    assert_int_equal(number(d, "size_bytes"), -512);
    json_object_put(d);
}

static void every_kind_has_a_name_and_no_two_the_same(void **state)
{
    for (unsigned a = 0; a < NM_EVENT_KIND_COUNT; a++) {
        assert_string_not_equal(view_event_kind(a), "unknown");
        for (unsigned b = 0; b < a; b++)
            assert_string_not_equal(view_event_kind(a), view_event_kind(b));
    }
    assert_string_equal(view_event_kind(NM_EVENT_KIND_COUNT), "unknown");
    assert_string_equal(view_event_kind(255), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_largest_come_first_and_totals_count_all),
        TEST(a_block_says_whose_where_and_how_old),
        TEST(filters_narrow_the_list),
        TEST(blocks_stand_at_the_device_of_the_driver),
        TEST(status_joins_the_manager_with_the_ledger),
        TEST(an_event_shows_what_it_has),
        TEST(every_kind_has_a_name_and_no_two_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
