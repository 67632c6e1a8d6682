/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ps and breakdown. The figures are computed by hand, in MiB; the world is in each test's comment.
 */
#include "test_view.h"

#define T(allocated, reserved, active)                                                             \
    ((struct totals){(allocated) * (int64_t)MIB, (reserved) * (int64_t)MIB,                        \
                     (active) * (int64_t)MIB})

/*
 * Two ranks on device 0.
 * Rank 0, pid 100: two 20 MiB segments of torch, 400 MiB of HCCL. Blocks: A 10 (lives), B 4 (freed,
 * waits for a stream), and 1 MiB net of small ones.
 *   physical 440, reserved 40, active 15, allocated 11.
 * Rank 1, pid 200: 100 MiB of its own.
 * Card: 65536 MiB, 1024 used.
 */
static void two_ranks(struct world *w)
{
    struct nm_small_key small_key = {.tgid = 100, .stream = 0x5000};
    struct nm_small_totals small = {
        .malloc_count = 3, .free_count = 1, .malloc_bytes = 3 * MIB / 2, .free_bytes = MIB / 2};
    struct nm_pool_key pool_key = {.tgid = 100};

    add_process(w, (struct process_facts){.tgid = 100,
                                          .start_time_ns = 1700000000000000000u,
                                          .comm = "VLLM::Worker_TP",
                                          .title = "vllm serve model",
                                          .rank = 0,
                                          .world_size = 2,
                                          .rank_source = "title"});
    add_process(
        w,
        (struct process_facts){
            .tgid = 200, .comm = "worker", .rank = 1, .world_size = 2, .container = "4f1c0ffee"});
    alloc_for(w, 100, 0x100000000, 20 * MIB, 0, MODULE_APP, CALLER_TORCH);
    alloc_for(w, 100, 0x110000000, 20 * MIB, 0, MODULE_APP, CALLER_TORCH);
    alloc_for(w, 100, 0x120000000, 400 * MIB, 0, 3, CALLER_HCCL);
    block_for(w, 100, 0, NM_BLOCK_MALLOC, 0x100000000, 10 * MIB, T(10, 40, 10));
    block_for(w, 100, 0, NM_BLOCK_MALLOC, 0x100a00000, 4 * MIB, T(14, 40, 14));
    block_for(w, 100, 0, NM_BLOCK_FREE, 0x100a00000, 4 * MIB, T(10, 40, 14));
    alloc_for(w, 200, 0x100000000, 100 * MIB, 0, MODULE_APP, 0);
    /* the kernel's newest totals: 1 MiB of small blocks came after the last event */
    struct nm_pool_totals totals = {.time_ns = w->now_ns + 5,
                                    .total_allocated_bytes = 11 * MIB,
                                    .total_reserved_bytes = 40 * MIB,
                                    .total_active_bytes = 15 * MIB,
                                    .event_count = 7};
    assert_int_equal(ledger_small_totals(w->ledger, &small_key, &small), 0);
    assert_int_equal(ledger_pool_totals(w->ledger, &pool_key, &totals), 0);
    ledger_card_usage(w->ledger, 0, 64 * GIB, GIB);
}

static void the_header_says_when_where_and_whether_all(void **state)
{
    struct world *w = *state;
    struct view_context c = context_of(w);
    struct jsonc *d = document(view_ps, w, &c);

    assert_int_equal(number(d, "schema_version"), 1);
    assert_int_equal(number(d, "time_ns"), WALL_NS);
    assert_string_equal(text(d, "host"), "node7");
    assert_true(truth(d, "complete"));
    assert_int_equal(number(d, "lost_events"), 0);
    assert_int_equal(length(d, "ranks"), 0);
    json_object_put(d);

    c.lost_events = 3; /* whoever says "complete" is wrong then */
    d = document(view_breakdown, w, &c);
    assert_false(truth(d, "complete"));
    assert_int_equal(number(d, "lost_events"), 3);
    json_object_put(d);
}

static void ps_has_identity_and_levels(void **state)
{
    struct world *w = *state;
    two_ranks(w);
    struct view_context c = context_of(w);
    struct jsonc *d = document(view_ps, w, &c);
    assert_int_equal(length(d, "ranks"), 2);

    struct jsonc *r = item(d, "ranks", 0);
    assert_int_equal(number(r, "tgid"), 100);
    assert_int_equal(number(r, "start_time_ns"), 1700000000000000000);
    assert_string_equal(text(r, "comm"), "VLLM::Worker_TP");
    assert_string_equal(text(r, "title"), "vllm serve model");
    assert_string_equal(text(r, "rank_source"), "title");
    assert_int_equal(number(r, "rank"), 0);
    assert_int_equal(number(r, "world_size"), 2);
    assert_int_equal(number(r, "device"), 0);
    assert_int_equal(number(r, "physical_device"), 0);
    assert_null(member(r, "container"));
    assert_int_equal(number(r, "physical_bytes"), 440 * MIB);
    assert_int_equal(number(r, "reserved_bytes"), 40 * MIB);
    assert_int_equal(number(r, "active_bytes"), 15 * MIB);
    assert_int_equal(number(r, "allocated_bytes"), 11 * MIB);
    assert_int_equal(number(r, "before_attach_bytes"), 0);
    assert_int_equal(number(r, "peak_bytes"), 440 * MIB);
    assert_null(member(r, "coverage"));

    r = item(d, "ranks", 1);
    assert_string_equal(text(r, "container"), "4f1c0ffee");
    assert_null(member(r, "physical_device")); /* a container renumbers devices */
    assert_null(member(r, "start_time_ns"));
    assert_int_equal(number(r, "physical_bytes"), 100 * MIB);
    assert_unknown(r, "reserved_bytes"); /* no torch_npu seen: not 0 */
    assert_unknown(r, "allocated_bytes");
    json_object_put(d);
}

static void owners_add_up_at_their_own_level(void **state)
{
    struct world *w = *state;
    two_ranks(w);
    struct view_context c = context_of(w);
    struct jsonc *d = document(view_breakdown, w, &c);
    struct jsonc *r = item(d, "ranks", 0);

    assert_int_equal(owner(r, "PTA@pool", "physical"), 40 * MIB);
    assert_int_equal(owner(r, "CANN@HCCL", "physical"), 400 * MIB);
    assert_int_equal(owners_at(r, "physical"), number(r, "physical_bytes"));
    assert_int_equal(owner(r, "PTA@block", "allocated"), 10 * MIB);
    assert_int_equal(owner(r, "PTA@small", "allocated"), MIB);
    assert_int_equal(owners_at(r, "allocated"), number(r, "allocated_bytes"));
    assert_int_equal(owner(r, "PTA@block", "pending"), 4 * MIB);
    assert_int_equal(number(find(r, "owners", "owner", "PTA@pool", NULL), "blocks"), 2);
    assert_int_equal(number(find(r, "owners", "owner", "PTA@small", NULL), "blocks"), 2);

    assert_int_equal(gap(r, "pool_slack"), 25 * MIB);    /* 40 - 15 */
    assert_int_equal(gap(r, "stream_delayed"), 4 * MIB); /* 15 - 11 */
    assert_int_equal(gap(r, "outside_pools"), 400 * MIB);
    assert_int_equal(gap(r, "before_attach"), 0);
    assert_int_equal(gap(r, "lost"), 0);
    assert_null(member(find(r, "gaps", "name", "driver_side", NULL), "bytes"));
    assert_true(strlen(text(find(r, "gaps", "name", "driver_side", NULL), "reason")) > 10);

    for (size_t i = 0; i < 2; i++) {
        assert_true(truth(item(r, "checks", i), "balanced"));
        assert_int_equal(number(item(r, "checks", i), "difference_bytes"), 0);
    }
    assert_null(member(item(item(d, "ranks", 1), "checks", 1), "balanced")); /* no pool to check */
    assert_string_equal(text(item(r, "pools", 0), "component"), "caching");
    assert_int_equal(number(item(r, "pools", 0), "small_bytes"), MIB);
    json_object_put(d);
}

static void the_card_closes_the_sum(void **state)
{
    struct world *w = *state;
    two_ranks(w);
    struct view_context c = context_of(w);
    struct jsonc *d = document(view_breakdown, w, &c);
    assert_int_equal(length(d, "devices"), 1);
    struct jsonc *card = item(d, "devices", 0);
    assert_int_equal(number(card, "total_bytes"), 64 * GIB);
    assert_int_equal(number(card, "used_bytes"), 1024 * MIB);
    assert_int_equal(number(card, "attributed_bytes"), 540 * MIB);
    assert_int_equal(number(card, "other_processes_bytes"), 0);
    assert_int_equal(number(card, "unattributed_bytes"), 484 * MIB); /* 1024 - 540 */
    assert_true(truth(card, "balanced"));
    json_object_put(d);

    /* one rank asked for: the other is an "other process", the rest stays */
    int32_t rank = 0;
    c.ranks = &rank;
    c.rank_count = 1;
    d = document(view_breakdown, w, &c);
    assert_int_equal(length(d, "ranks"), 1);
    card = item(d, "devices", 0);
    assert_int_equal(number(card, "attributed_bytes"), 440 * MIB);
    assert_int_equal(number(card, "other_processes_bytes"), 100 * MIB);
    assert_int_equal(number(card, "unattributed_bytes"), 484 * MIB);
    json_object_put(d);
}

static void more_than_the_card_uses_is_not_balanced(void **state)
{
    struct world *w = *state;
    two_ranks(w);
    ledger_card_usage(w->ledger, 0, 64 * GIB, 500 * MIB);
    struct view_context c = context_of(w);
    struct jsonc *d = document(view_breakdown, w, &c);
    struct jsonc *card = item(d, "devices", 0);
    assert_int_equal(number(card, "unattributed_bytes"), -40 * (int64_t)MIB);
    assert_false(truth(card, "balanced"));
    json_object_put(d);
}

static bool others(void *userdata, uint16_t device, uint64_t *ret_bytes)
{
    *ret_bytes = 200 * MIB + device;
    return *(bool *)userdata;
}

static void processes_outside_are_counted_or_unknown(void **state)
{
    struct world *w = *state;
    two_ranks(w);
    bool known = true;
    struct view_context c = context_of(w);
    c.other_bytes_fn = others;
    c.userdata = &known;
    struct jsonc *d = document(view_breakdown, w, &c);
    assert_int_equal(number(item(d, "devices", 0), "other_processes_bytes"), 200 * MIB);
    assert_int_equal(number(item(d, "devices", 0), "unattributed_bytes"), 284 * MIB);
    json_object_put(d);

    known = false;
    d = document(view_breakdown, w, &c);
    assert_unknown(item(d, "devices", 0), "other_processes_bytes");
    assert_int_equal(number(item(d, "devices", 0), "unattributed_bytes"), 484 * MIB);
    json_object_put(d);
}

static void a_card_without_figures_is_unknown(void **state)
{
    struct world *w = *state;
    add_process(w, (struct process_facts){.tgid = 100, .rank = -1, .world_size = -1});
    alloc_for(w, 100, 0x1000, 7 * MIB, 3, MODULE_APP, 0);
    struct view_context c = context_of(w);
    struct jsonc *d = document(view_breakdown, w, &c), *card = item(d, "devices", 0);
    assert_int_equal(number(card, "device"), 3);
    assert_int_equal(number(card, "attributed_bytes"), 7 * MIB);
    assert_unknown(card, "used_bytes");
    assert_null(member(card, "unattributed_bytes"));
    assert_null(member(card, "balanced"));
    assert_null(member(item(d, "ranks", 0), "rank"));
    json_object_put(d);
}

/* Attached when 900 MiB were allocated: the first event says so. One 100 MiB block came since. */
static void late_attach_is_an_owner_of_its_own(void **state)
{
    struct world *w = *state;
    add_process(w, (struct process_facts){.tgid = 100, .rank = 0});
    block_for(w, 100, 0, NM_BLOCK_MALLOC, 0x5000, 100 * MIB, T(1000, 1200, 1000));
    assert_int_equal(ledger_driver_usage(w->ledger, 100, 0, MODULE_APP, 1500 * MIB, w->now_ns), 0);
    struct view_context c = context_of(w);
    struct jsonc *d = document(view_breakdown, w, &c), *r = item(d, "ranks", 0);

    assert_int_equal(number(r, "allocated_bytes"), 1000 * MIB);
    assert_int_equal(owner(r, "before_attach", "allocated"), 900 * MIB);
    assert_null(member(find(r, "owners", "owner", "before_attach", "allocated"), "blocks"));
    assert_int_equal(gap(r, "before_attach_blocks"), 900 * MIB);
    assert_int_equal(number(r, "physical_bytes"), 1500 * MIB);
    assert_int_equal(number(r, "before_attach_bytes"), 1500 * MIB);
    assert_int_equal(owner(r, "before_attach", "physical"), 1500 * MIB);
    assert_int_equal(gap(r, "before_attach"), 1500 * MIB);
    assert_int_equal(gap(r, "outside_pools"), 300 * MIB);
    assert_int_equal(gap(r, "driver_side"), 0);
    assert_true(truth(item(r, "checks", 0), "balanced"));
    assert_true(truth(item(r, "checks", 1), "balanced"));
    json_object_put(d);
}

static void late(void *userdata, uint32_t tgid, struct view_coverage *ret)
{
    ret->text = "physical";
    ret->reason = "block function not found";
    ret->late = tgid == 100;
}

/* The workspace of a process that was attached late is not 0 but unknown, until it is used. */
static void a_workspace_is_known_from_its_first_use(void **state)
{
    struct world *w = *state;
    add_process(w, (struct process_facts){.tgid = 100, .rank = 0});
    block_for(w, 100, 0, NM_BLOCK_MALLOC, 0x5000, 100 * MIB, T(1000, 1200, 1000));
    assert_int_equal(ledger_driver_usage(w->ledger, 100, 0, MODULE_APP, 1500 * MIB, w->now_ns), 0);
    struct view_context c = context_of(w);
    struct jsonc *d = document(view_breakdown, w, &c);
    assert_int_equal(number(item(d, "ranks", 0), "workspace_bytes"), 0); /* seen from its start */
    json_object_put(d);
    c.coverage_fn = late;
    d = document(view_breakdown, w, &c);
    assert_unknown(item(d, "ranks", 0), "workspace_bytes");
    json_object_put(d);
    struct nm_event e = world_event(w, NM_EVENT_BLOCK);
    e.tgid = e.tid = 100;
    e.block.address = 0x9000;
    e.block.size_bytes = 24 * MIB;
    e.block.component = NM_BLOCK_WORKSPACE;
    e.block.action = NM_BLOCK_MALLOC;
    e.block.total_allocated_bytes = 24 * MIB;
    e.block.total_reserved_bytes = 24 * MIB;
    e.block.total_active_bytes = 24 * MIB;
    assert_int_equal(send(w, &e), 0);
    d = document(view_breakdown, w, &c);
    assert_int_equal(number(item(d, "ranks", 0), "workspace_bytes"), 24 * MIB);
    assert_int_equal(number(item(d, "ranks", 0), "reserved_bytes"), 1224 * MIB);
    json_object_put(d);
}

static void late_attach_without_the_driver_is_unknown_not_zero(void **state)
{
    struct world *w = *state;
    add_process(w, (struct process_facts){.tgid = 100, .rank = 0});
    alloc_for(w, 100, 0x1000, 7 * MIB, 0, MODULE_APP, 0);
    ledger_card_usage(w->ledger, 0, 64 * GIB, 60 * MIB);
    struct view_context c = context_of(w);
    c.coverage_fn = late;
    struct jsonc *d = document(view_breakdown, w, &c), *r = item(d, "ranks", 0);
    assert_unknown(r, "physical_bytes");
    assert_unknown(r, "before_attach_bytes");
    assert_unknown(r, "peak_bytes");
    assert_int_equal(number(r, "seen_bytes"), 7 * MIB);
    assert_string_equal(text(r, "coverage"), "physical");
    assert_string_equal(text(r, "coverage_reason"), "block function not found");
    assert_null(member(find(r, "gaps", "name", "before_attach", NULL), "bytes"));
    assert_null(member(item(r, "checks", 0), "balanced"));
    /* what is not seen is no guess: it stays unattributed, and the device says why */
    assert_int_equal(number(item(d, "devices", 0), "attributed_bytes"), 7 * MIB);
    assert_int_equal(number(item(d, "devices", 0), "unattributed_bytes"), 53 * MIB);
    assert_true(strlen(text(member(item(d, "devices", 0), "unknown"), "attributed_bytes")) > 10);
    json_object_put(d);

    /* the driver's figure makes it known */
    ledger_driver_usage(w->ledger, 100, 0, MODULE_APP, 50 * MIB, w->now_ns);
    d = document(view_breakdown, w, &c);
    assert_int_equal(number(item(d, "ranks", 0), "physical_bytes"), 50 * MIB);
    assert_int_equal(number(item(d, "ranks", 0), "before_attach_bytes"), 43 * MIB);
    json_object_put(d);
}

/* A worker that may use card 5 only counts it as 0. */
static void visible_devices_are_translated(void **state)
{
    struct world *w = *state;
    add_process(w, (struct process_facts){
                       .tgid = 100, .rank = 0, .visible_devices = {5}, .visible_count = 1});
    alloc_for(w, 100, 0x1000, 64 * MIB, 5, MODULE_APP, CALLER_TORCH);
    block_for(w, 100, 0, NM_BLOCK_MALLOC, 0x1000, 32 * MIB, T(32, 64, 32));
    struct view_context c = context_of(w);
    struct jsonc *d = document(view_breakdown, w, &c), *r = item(d, "ranks", 0);
    assert_int_equal(length(d, "ranks"), 1);
    assert_int_equal(number(r, "device"), 5);
    assert_int_equal(number(r, "visible_device"), 0);
    assert_int_equal(number(r, "physical_bytes"), 64 * MIB);
    assert_int_equal(number(r, "reserved_bytes"), 64 * MIB);
    assert_int_equal(owner(r, "PTA@block", "allocated"), 32 * MIB);
    json_object_put(d);

    uint16_t device = 0; /* the filter is by the driver's number */
    c.devices = &device;
    c.device_count = 1;
    d = document(view_ps, w, &c);
    assert_int_equal(length(d, "ranks"), 0);
    json_object_put(d);
}

/* Its main device is 1; it also holds a context's 107 MiB on device 0. */
static void a_process_has_one_row_per_device_and_one_main_row(void **state)
{
    struct world *w = *state;
    add_process(w, (struct process_facts){.tgid = 100, .rank = 1});
    alloc_for(w, 100, 0x1000000, 107 * MIB, 0, 7, 0);
    alloc_for(w, 100, 0x9000000, 2 * GIB, 1, MODULE_APP, 0);
    struct nm_event pinned = world_event(w, NM_EVENT_ALLOC);
    pinned.call.address = 0x7f0000000000;
    pinned.call.requested = 3 * MIB;
    pinned.call.call_flags = NM_CALL_HOST | NM_CALL_API_SEEN;
    pinned.call.api = PROBE_ACL_MALLOC_HOST;
    assert_int_equal(send(w, &pinned), 0);
    struct view_context c = context_of(w);
    struct jsonc *d = document(view_breakdown, w, &c);
    struct jsonc *first = item(d, "ranks", 0), *second = item(d, "ranks", 1);
    assert_int_equal(length(d, "ranks"), 2);
    assert_int_equal(number(first, "device"), 0);
    assert_false(truth(first, "main"));
    assert_int_equal(number(first, "physical_bytes"), 107 * MIB);
    assert_int_equal(owner(first, "CANN@RUNTIME", "physical"), 107 * MIB);
    assert_unknown(first, "host_bytes");
    assert_int_equal(owners_at(first, "host"), 0);
    assert_true(truth(second, "main"));
    assert_int_equal(number(second, "physical_bytes"), 2 * GIB);
    assert_int_equal(number(second, "host_bytes"), 3 * MIB);
    assert_int_equal(owners_at(second, "host"), 3 * MIB);
    assert_int_equal(number(item(d, "devices", 1), "attributed_bytes"), 2 * GIB);
    json_object_put(d);
}

static void lost_frees_show_against_the_driver(void **state)
{
    struct world *w = *state;
    add_process(w, (struct process_facts){.tgid = 100, .rank = 0});
    alloc_for(w, 100, 0x1000, 30 * MIB, 0, MODULE_APP, 0);
    ledger_driver_usage(w->ledger, 100, 0, MODULE_APP, 10 * MIB, w->now_ns);
    struct view_context c = context_of(w);
    struct jsonc *d = document(view_breakdown, w, &c);
    assert_int_equal(gap(item(d, "ranks", 0), "lost"), 0); /* an old figure, not a loss */
    json_object_put(d);
    c.lost_events = 2;
    d = document(view_breakdown, w, &c);
    assert_int_equal(gap(item(d, "ranks", 0), "lost"), 20 * MIB);
    json_object_put(d);
}

static void filters_combine(void **state)
{
    struct world *w = *state;
    two_ranks(w);
    struct view_context c = context_of(w);
    const char *prefix = "4f1c", *host = "";
    uint32_t tgid = 100;

    c.containers = &prefix;
    c.container_count = 1;
    struct jsonc *d = document(view_ps, w, &c);
    assert_int_equal(length(d, "ranks"), 1);
    assert_int_equal(number(item(d, "ranks", 0), "tgid"), 200);
    json_object_put(d);
    c.containers = &host;
    d = document(view_ps, w, &c);
    assert_int_equal(length(d, "ranks"), 1);
    assert_int_equal(number(item(d, "ranks", 0), "tgid"), 100);
    json_object_put(d);
    c.containers = &prefix;
    c.tgids = &tgid;
    c.tgid_count = 1;
    d = document(view_ps, w, &c);
    assert_int_equal(length(d, "ranks"), 0);
    json_object_put(d);
}

static void an_exited_process_holds_nothing_and_shows_on_demand(void **state)
{
    struct world *w = *state;
    two_ranks(w);
    ledger_process_exit(w->ledger, 200, 0, w->now_ns);
    struct view_context c = context_of(w);
    struct jsonc *d = document(view_breakdown, w, &c);
    assert_int_equal(length(d, "ranks"), 1);
    assert_int_equal(number(item(d, "devices", 0), "attributed_bytes"), 440 * MIB);
    json_object_put(d);
    c.include_exited = true;
    d = document(view_ps, w, &c);
    assert_int_equal(length(d, "ranks"), 2);
    assert_string_equal(text(item(d, "ranks", 1), "state"), "exited");
    assert_int_equal(number(item(d, "ranks", 1), "physical_bytes"), 0);
    json_object_put(d);
}

static void a_document_stands_inside_a_reply(void **state)
{
    struct world *w = *state;
    two_ranks(w);
    struct view_context c = context_of(w);
    struct json j = {0};
    json_object(&j);
    json_key(&j, "document");
    assert_int_equal(view_breakdown(w->ledger, &c, &j), 0);
    json_end(&j);
    struct jsonc *o = parse(&j);
    assert_int_equal(length(member(o, "document"), "ranks"), 2);
    json_object_put(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_header_says_when_where_and_whether_all),
        TEST(ps_has_identity_and_levels),
        TEST(owners_add_up_at_their_own_level),
        TEST(the_card_closes_the_sum),
        TEST(more_than_the_card_uses_is_not_balanced),
        TEST(processes_outside_are_counted_or_unknown),
        TEST(a_card_without_figures_is_unknown),
        TEST(late_attach_is_an_owner_of_its_own),
        TEST(a_workspace_is_known_from_its_first_use),
        TEST(late_attach_without_the_driver_is_unknown_not_zero),
        TEST(visible_devices_are_translated),
        TEST(a_process_has_one_row_per_device_and_one_main_row),
        TEST(lost_frees_show_against_the_driver),
        TEST(filters_combine),
        TEST(an_exited_process_holds_nothing_and_shows_on_demand),
        TEST(a_document_stands_inside_a_reply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
