/* SPDX-License-Identifier: Apache-2.0 */
/* ledger_seen: blocks from readings of an allocator, beside those of events. */
#include "test_ledger.h"

#include "ledger_seen.h"

#define T(allocated, reserved, active) ((struct totals){allocated, reserved, active})

static int see(struct world *w, uint64_t address, uint64_t bytes, const char *owner)
{
    struct ledger_seen_block b = {
        .address = address, .bytes = bytes, .requested_bytes = bytes - 32, .owner = owner};
    return ledger_seen_block(w->ledger, TGID, &b);
}

static void begin(struct world *w)
{
    w->now_ns += 10;
    assert_int_equal(ledger_seen_begin(w->ledger, TGID, w->now_ns), 0);
}

static void totals(struct world *w, uint64_t allocated, uint64_t reserved, uint64_t small)
{
    struct ledger_seen_totals t = {.allocated_bytes = allocated,
                                   .reserved_bytes = reserved,
                                   .active_bytes = allocated,
                                   .small_bytes = small};
    assert_int_equal(ledger_seen_pool(w->ledger, TGID, 0, &t, w->now_ns), 0);
}

static void make_process(struct world *w)
{
    struct process_facts facts = {.tgid = TGID, .rank = -1, .world_size = -1};
    assert_int_equal(ledger_process_update(w->ledger, &facts, w->now_ns), 0);
}

static void an_idle_process_has_figures_without_an_event(void **state)
{
    struct world *w = *state;
    make_process(w);
    begin(w);
    totals(w, 12 * MIB, 20 * MIB, MIB);
    assert_int_equal(see(w, 0x100000, 8 * MIB, "PTA@vllm@kv_cache"), 0);
    assert_int_equal(see(w, 0x900000, 2 * MIB, NULL), 0);
    assert_int_equal(ledger_seen_end(w->ledger, TGID, w->now_ns), 0);
    struct ledger_pool pool = pool_of(w, NM_BLOCK_CACHING);
    assert_int_equal(pool.allocated_bytes, 12 * MIB);
    assert_int_equal(pool.reserved_bytes, 20 * MIB);
    assert_int_equal(pool.known_block_bytes, 10 * MIB);
    assert_int_equal(pool.small_bytes, MIB);
    assert_int_equal(pool.before_attach_bytes, MIB); /* what nothing explains stays, by size */
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@vllm@kv_cache").bytes, 8 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@block").bytes, 2 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, NULL).bytes, 12 * MIB);
    /* 8 + 2 read one by one, 1 as a sum; 1 stays before attach */
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, NULL).read_bytes, 11 * MIB);
}

/* An owner of both kinds, and what a free of each takes away. */
static void what_was_read_is_known_apart(void **state)
{
    struct world *w = *state;
    do_block(w, NM_BLOCK_MALLOC, 0x1000, 2 * MIB, T(8 * (int64_t)MIB, 40 * MIB, 9 * MIB));
    begin(w);
    totals(w, 8 * MIB, 40 * MIB, 0);
    assert_int_equal(see(w, 0x100000, 6 * MIB, "PTA@block"), 0);
    ledger_seen_end(w->ledger, TGID, w->now_ns);
    struct level_sum t = owner_sum(w, LEVEL_BLOCK, "PTA@block");
    assert_int_equal(t.bytes, 8 * MIB);
    assert_int_equal(t.read_bytes, 6 * MIB);
    do_block(w, NM_BLOCK_FREE, 0x1000, 2 * MIB, T(6 * (int64_t)MIB, 40 * MIB, 9 * MIB));
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@block").read_bytes, 6 * MIB);
    do_block(w, NM_BLOCK_FREE, 0x100000, 6 * MIB, T(0, 40 * MIB, 9 * MIB));
    t = owner_sum(w, LEVEL_BLOCK, "PTA@block");
    assert_int_equal(t.bytes, 0);
    assert_int_equal(t.read_bytes, 0);
}

static void before_attach_shrinks_and_frees_find_their_block(void **state)
{
    struct world *w = *state;
    do_block(w, NM_BLOCK_MALLOC, 0x1000, 512, T(512 + 6 * (int64_t)MIB, 40 * MIB, 7 * MIB));
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).before_attach_bytes, 6 * MIB);
    begin(w);
    totals(w, 512 + 6 * MIB, 40 * MIB, 0);
    assert_int_equal(see(w, 0x1000, 512, "PTA@vllm@buffers"), 0);
    assert_int_equal(see(w, 0x100000, 6 * MIB, "PTA@vllm@weights"), 0);
    ledger_seen_end(w->ledger, TGID, w->now_ns);
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).before_attach_bytes, 0);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@vllm@weights").bytes, 6 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@vllm@buffers").bytes, 512);
    do_block(w, NM_BLOCK_FREE, 0x100000, 6 * MIB, T(512, 40 * MIB, 512));
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@vllm@weights").bytes, 0);
    assert_int_equal(ledger_stats(w->ledger)->unmatched_frees, 0);
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).known_block_bytes, 512);
}

static void what_is_freed_while_it_is_read_stays_out(void **state)
{
    struct world *w = *state;
    do_block(w, NM_BLOCK_MALLOC, 0x1000, 512, T(512 + 6 * (int64_t)MIB, 40 * MIB, 7 * MIB));
    begin(w);
    do_block(w, NM_BLOCK_FREE, 0x100000, 6 * MIB, T(512, 40 * MIB, 512));
    do_block(w, NM_BLOCK_MALLOC, 0x2000, 1024, T(1536, 40 * MIB, 1536));
    totals(w, 512 + 6 * MIB, 40 * MIB, 0);
    assert_int_equal(see(w, 0x100000, 6 * MIB, "PTA@vllm@weights"), 1);
    /* an event of after the beginning is newer than the reading */
    assert_int_equal(see(w, 0x2000, 1024, "PTA@vllm@weights"), 1);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@vllm@weights").bytes, 0);
    ledger_seen_end(w->ledger, TGID, w->now_ns);
    assert_int_equal(see(w, 0x300000, MIB, NULL), 1); /* no reading runs */
}

static void another_reading_takes_the_place_of_the_first(void **state)
{
    struct world *w = *state;
    make_process(w);
    begin(w);
    totals(w, 10 * MIB, 20 * MIB, 0);
    see(w, 0x100000, 8 * MIB, NULL);
    see(w, 0x900000, 2 * MIB, "PTA@vllm@buffers");
    ledger_seen_end(w->ledger, TGID, w->now_ns);
    begin(w);
    totals(w, 8 * MIB, 20 * MIB, 0);
    assert_int_equal(see(w, 0x100000, 8 * MIB, "PTA@vllm@kv_cache"), 0);
    assert_int_equal(ledger_seen_end(w->ledger, TGID, w->now_ns), 1);
    assert_int_equal(entries_bytes(w, LEVEL_BLOCK), 8 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@vllm@kv_cache").bytes, 8 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@block").bytes, 0);
}

/* A reading that was cut names less: what an earlier one named keeps its owner. */
static void a_cut_reading_takes_no_name_away(void **state)
{
    struct world *w = *state;
    make_process(w);
    begin(w);
    totals(w, 10 * MIB, 20 * MIB, 0);
    see(w, 0x100000, 8 * MIB, "PTA@vllm@kv_cache");
    ledger_seen_end(w->ledger, TGID, w->now_ns);
    for (int is_cut = 1; is_cut >= 0; is_cut--) {
        struct ledger_seen_block b = {
            .address = 0x100000, .bytes = 8 * MIB, .requested_bytes = 1, .is_cut = is_cut};
        begin(w);
        totals(w, 10 * MIB, 20 * MIB, 0);
        assert_int_equal(ledger_seen_block(w->ledger, TGID, &b), 0);
        assert_int_equal(ledger_seen_end(w->ledger, TGID, w->now_ns), 0);
        assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@vllm@kv_cache").bytes,
                         is_cut ? 8 * MIB : 0);
        assert_int_equal(entries_bytes(w, LEVEL_BLOCK), 8 * MIB);
    }
}

/* A tag stands for all that events name: frames, tags, capture. */
static void what_an_event_named_keeps_its_owner(void **state)
{
    struct world *w = *state;
    struct nm_event tag = world_event(w, NM_EVENT_SCOPE_BEGIN);
    tag.scope = (struct nm_scope){.type = NM_SCOPE_TAG, .value = 5, .name = "U@tag"};
    assert_int_equal(send(w, &tag), 0);
    do_block(w, NM_BLOCK_MALLOC, 0x100000, 2 * MIB, T(2 * MIB, 40 * MIB, 2 * MIB));
    tag.kind = NM_EVENT_SCOPE_END;
    tag.seq = w->seq++;
    assert_int_equal(send(w, &tag), 0);
    do_block(w, NM_BLOCK_MALLOC, 0x900000, 4 * MIB, T(6 * MIB, 40 * MIB, 6 * MIB));
    begin(w);
    totals(w, 6 * MIB, 40 * MIB, 0);
    assert_int_equal(see(w, 0x100000, 2 * MIB, "PTA@tensor"), 0);
    assert_int_equal(see(w, 0x900000, 4 * MIB, "PTA@tensor"), 0);
    ledger_seen_end(w->ledger, TGID, w->now_ns);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "U@tag").bytes, 2 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@tensor").bytes, 4 * MIB);
}

static void nonsense_is_refused(void **state)
{
    struct world *w = *state;
    struct ledger_seen_totals t = {.allocated_bytes = 2, .active_bytes = 1, .reserved_bytes = 3};
    assert_int_equal(ledger_seen_begin(w->ledger, TGID, 1), 1); /* unknown process */
    make_process(w);
    begin(w);
    assert_int_equal(ledger_seen_pool(w->ledger, TGID, 0, &t, w->now_ns), 1);
    assert_int_equal(ledger_seen_pool(w->ledger, TGID, 64, &t, w->now_ns), 1);
    totals(w, MIB, MIB, 0);
    assert_int_equal(see(w, 0x1000, 0, NULL), 1);
    assert_int_equal(see(w, 0x1000, (uint64_t)1 << 47, NULL), 1);
    ledger_process_exit(w->ledger, TGID, 0, w->now_ns);
    assert_int_equal(see(w, 0x1000, 512, NULL), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_idle_process_has_figures_without_an_event),
        TEST(what_was_read_is_known_apart),
        TEST(before_attach_shrinks_and_frees_find_their_block),
        TEST(what_is_freed_while_it_is_read_stays_out),
        TEST(another_reading_takes_the_place_of_the_first),
        TEST(a_cut_reading_takes_no_name_away),
        TEST(what_an_event_named_keeps_its_owner),
        TEST(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
