/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshot of a failed allocation: what is free in the pool and in which pieces, worked out by
 * hand, and who holds the card when there are more than can be named. */
#include "test_ledger.h"

#include "oom_capture.h"

#define OOM_CODE 207001
#define WHOLE (300 * MIB)
#define KEPT (40 * MIB)

static void segment(struct world *w, uint64_t address, uint64_t bytes)
{
    struct nm_event e = event_alloc(w, address, bytes, bytes, 0);
    e.call.caller = CALLER_TORCH;
    assert_int_equal(send(w, &e), 0);
}

/* Segments that a block keeps, and one without any; the newest block's totals are those given. */
static void make_pool(struct world *w, unsigned segments, bool has_empty, uint64_t unseen_bytes)
{
    uint64_t reserved = segments * WHOLE + (has_empty ? 100 * MIB : 0) + unseen_bytes;

    if (has_empty)
        segment(w, 0x100000000, 100 * MIB);
    for (unsigned i = 0; i < segments; i++) {
        uint64_t address = 0x200000000 + (uint64_t)i * 2 * WHOLE, allocated = (i + 1) * KEPT;
        segment(w, address, WHOLE);
        struct totals after = {(int64_t)allocated, (int64_t)reserved, (int64_t)allocated};
        assert_int_equal(do_block(w, NM_BLOCK_MALLOC, address, KEPT, after), 0);
    }
}

static void refuse(struct world *w, const char *setting, struct oom_snapshot *ret)
{
    struct nm_event e = event_alloc(w, 0, 1024 * MIB, 0, 0);
    struct alloc_conf conf;

    e.result = OOM_CODE;
    assert_int_equal(alloc_conf_parse(setting, &conf, NULL), 0);
    send(w, &e);
    assert_int_equal(oom_capture(w->ledger, &e, &conf, ret), 0);
    assert_int_equal(ret->requested_bytes, 1024 * MIB);
}

/* A hole of 260 MiB has 13 granules of 20, of which 12 are whole however it lies; 6 of 40. */
static void pieces(void **state)
{
    struct world *w = *state;
    struct oom_snapshot s;

    make_pool(w, 3, false, 0);
    refuse(w, "", &s);
    assert_int_equal(s.reserved_bytes - s.allocated_bytes, 3 * 260 * MIB);
    assert_int_equal(s.largest_hole_bytes, 260 * MIB);
    assert_int_equal(s.holes, 3);
    assert_int_equal(s.slack.pinned_free_bytes, 3 * 260 * MIB);
    assert_int_equal(s.slack.unmap_bytes, 3 * 240 * MIB);
    assert_int_equal(s.slack.empty_bytes, 0);
    assert_int_equal(s.slack.split_bytes[0], 3 * 260 * MIB); /* 128 MiB and more */
    refuse(w, "segment_size_mb:40", &s);
    assert_int_equal(s.slack.unmap_bytes, 3 * 200 * MIB);
}

static void empty_segment(void **state)
{
    struct world *w = *state;
    struct oom_snapshot s;

    make_pool(w, 2, true, 0);
    refuse(w, "", &s);
    assert_int_equal(s.slack.empty_bytes, 100 * MIB);
    assert_int_equal(s.slack.pinned_free_bytes, 2 * 260 * MIB);
}

/* A segment from before attach: in it, any hole may be a block's. */
static void not_all_seen(void **state)
{
    struct world *w = *state;
    struct oom_snapshot s;

    make_pool(w, 3, false, WHOLE);
    refuse(w, "", &s);
    assert_int_equal(s.reserved_bytes, 4 * WHOLE);
    assert_true(s.largest_hole_bytes == ANALYSIS_UNKNOWN);
    assert_true(s.slack.pinned_free_bytes == ANALYSIS_UNKNOWN);
    assert_true(s.slack.unmap_bytes == ANALYSIS_UNKNOWN);
}

/* The workspace has a pool of its own: its bytes are not the cache's. */
static void beside_a_workspace(void **state)
{
    struct world *w = *state;
    struct oom_snapshot s;
    struct nm_event e;

    segment(w, 0x900000000, WHOLE);
    e = world_event(w, NM_EVENT_BLOCK);
    e.block = (typeof(e.block)){.address = 0x900000000,
                                .size_bytes = WHOLE,
                                .action = NM_BLOCK_MALLOC,
                                .component = NM_BLOCK_WORKSPACE,
                                .total_allocated_bytes = WHOLE,
                                .total_reserved_bytes = WHOLE,
                                .total_active_bytes = WHOLE};
    assert_int_equal(send(w, &e), 0);
    make_pool(w, 3, false, 0);
    refuse(w, "", &s);
    assert_int_equal(s.reserved_bytes, 4 * WHOLE);
    assert_int_equal(s.slack.unmap_bytes, 3 * 240 * MIB);
}

/* 40 processes with 1 to 40 MiB, the victim's the least: the largest are named, and the bytes of
 * the others are nobody's who is named. */
static void many_holders(void **state)
{
    struct world *w = *state;
    struct oom_snapshot s;
    uint64_t sum = 0, named = OOM_HOLDERS_MAX - 1;

    for (unsigned i = 0; i < 40; i++) {
        struct nm_event e = event_alloc(w, 0x1000000000, (i + 1) * MIB, (i + 1) * MIB, 0);
        struct process_facts facts = {.tgid = TGID + i, .start_ticks = 1, .rank = (int)i};
        assert_int_equal(ledger_process_update(w->ledger, &facts, 1), 0);
        e.tgid = e.tid = TGID + i;
        assert_int_equal(send(w, &e), 0);
    }
    refuse(w, "", &s);
    assert_int_equal(s.holder_count, OOM_HOLDERS_MAX);
    for (size_t i = 0; i < named - 1; i++) {
        assert_int_equal(s.holders[i].bytes, (40 - i) * MIB);
        assert_int_equal(s.holders[i].tgid, TGID + 39 - i);
    }
    assert_true(s.holders[named - 1].is_victim);
    assert_int_equal(s.holders[named].tgid, 0);
    assert_string_equal(s.holders[named].comm, "others");
    for (size_t i = 0; i < s.holder_count; i++)
        sum += s.holders[i].bytes;
    assert_int_equal(sum, 40 * 41 / 2 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pieces, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(empty_segment, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(not_all_seen, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(beside_a_workspace, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(many_holders, world_setup, world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
