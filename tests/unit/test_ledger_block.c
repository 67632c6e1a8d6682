/* SPDX-License-Identifier: Apache-2.0 */
/* torch_npu's allocator: totals, blocks, pending blocks, segments behind them. */
#include "test_ledger.h"

#define T(allocated, reserved, active) ((struct totals){allocated, reserved, active})

static int64_t reserved(const struct world *w)
{
    return pool_of(w, NM_BLOCK_CACHING).reserved_bytes;
}

static int do_segment(struct world *w, uint64_t address, uint64_t bytes, uint8_t policy)
{
    struct nm_event e = event_alloc(w, address, bytes, bytes + 32, 0);
    e.call.api = PROBE_ACL_MALLOC_ALIGN32;
    e.call.policy = policy;
    e.call.caller = CALLER_TORCH;
    return send(w, &e);
}

static int do_torch_free(struct world *w, uint64_t address)
{
    struct nm_event e = event_free(w, address);
    e.call.caller = CALLER_TORCH;
    return send(w, &e);
}

static void a_pool_shows_the_newest_totals(void **state)
{
    struct world *w = *state;
    assert_int_equal(do_block(w, NM_BLOCK_MALLOC, 0x1000, 512, T(512, 2097152, 512)), 0);
    assert_int_equal(do_block(w, NM_BLOCK_MALLOC, 0x1200, 1024, T(1536, 2097152, 1536)), 0);
    struct ledger_pool pool = pool_of(w, NM_BLOCK_CACHING);
    assert_int_equal(pool.allocated_bytes, 1536);
    assert_int_equal(pool.reserved_bytes, 2097152);
    assert_int_equal(pool.active_bytes, 1536);
    assert_int_equal(pool.known_block_bytes, 1536);
    assert_int_equal(pool.before_attach_bytes, 0);
    assert_int_equal(pool.event_count, 2);
}

static void a_freed_block_is_pending_until_it_is_reusable(void **state)
{
    struct world *w = *state;
    do_block(w, NM_BLOCK_MALLOC, 0x1000, 512, T(512, 4096, 512));
    assert_int_equal(do_block(w, NM_BLOCK_FREE, 0x1000, 512, T(0, 4096, 512)), 0);
    assert_int_equal(entries_bytes(w, LEVEL_BLOCK), 0);
    assert_int_equal(entries_bytes(w, LEVEL_PENDING), 512);
    assert_int_equal(owner_sum(w, LEVEL_PENDING, "PTA@block").bytes, 512);
    assert_int_equal(do_block(w, NM_BLOCK_BLOCK_FREE, 0x1000, 512, T(0, 4096, 0)), 0);
    assert_int_equal(entries_bytes(w, LEVEL_PENDING), 0);
    assert_int_equal(ledger_stats(w->ledger)->unmatched_frees, 0);
}

static void a_free_that_leaves_nothing_active_needs_no_second_event(void **state)
{
    struct world *w = *state;
    do_block(w, NM_BLOCK_MALLOC, 0x1000, 512, T(512, 4096, 512));
    do_block(w, NM_BLOCK_FREE, 0x1000, 512, T(0, 4096, 0));
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 0);
}

/* What torch_npu really says of an ordinary free: first that the block is free, then that its user
 * let go, both with the totals after it (docs/REAL_WHEELS.md). */
static void an_ordinary_free_says_block_free_first(void **state)
{
    struct world *w = *state;
    do_block(w, NM_BLOCK_MALLOC, 0x1000, 512, T(10512, 40000, 10512));
    assert_int_equal(do_block(w, NM_BLOCK_BLOCK_FREE, 0x1000, 512, T(10000, 40000, 10000)), 0);
    assert_int_equal(do_block(w, NM_BLOCK_FREE, 0x1000, 512, T(10000, 40000, 10000)), 0);
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 0);
    assert_int_equal(ledger_stats(w->ledger)->unmatched_frees, 0);
    /* nothing of before attach went */
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).before_attach_bytes, 10000);
    /* a second free of the same address is of nothing that is known */
    assert_int_equal(do_block(w, NM_BLOCK_FREE, 0x1000, 512, T(9488, 40000, 9488)), 1);
    assert_int_equal(ledger_stats(w->ledger)->unmatched_frees, 1);
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).before_attach_bytes, 9488);
}

static void blocks_of_before_attach_are_allocated_minus_known(void **state)
{
    struct world *w = *state;
    do_block(w, NM_BLOCK_MALLOC, 0x1000, 512, T(10512, 40000, 10512));
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).before_attach_bytes, 10000);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "before_attach").bytes, 10000);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, NULL).bytes, 10512);
    /* one of them is freed: its address is unknown, the totals tell */
    assert_int_equal(do_block(w, NM_BLOCK_FREE, 0x7000, 4000, T(6512, 40000, 10512)), 1);
    assert_int_equal(do_block(w, NM_BLOCK_BLOCK_FREE, 0x7000, 4000, T(6512, 40000, 6512)), 0);
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).before_attach_bytes, 6000);
    assert_int_equal(ledger_stats(w->ledger)->unmatched_frees, 1);
}

static void small_blocks_are_known_by_their_kernel_sums(void **state)
{
    struct world *w = *state;
    do_block(w, NM_BLOCK_MALLOC, 0x100000, (int64_t)MIB, T((int64_t)MIB, 40000000, (int64_t)MIB));
    struct nm_pool_key key = {.tgid = TGID};
    struct nm_pool_totals totals = {.time_ns = w->now_ns + 5,
                                    .total_allocated_bytes = (int64_t)MIB + 3000,
                                    .total_reserved_bytes = 40000000,
                                    .total_active_bytes = (int64_t)MIB + 3000,
                                    .event_count = 8};
    assert_int_equal(ledger_pool_totals(w->ledger, &key, &totals), 0);
    struct nm_small_key small_key = {.tgid = TGID, .stream = 0x5000};
    struct nm_small_totals small = {
        .malloc_count = 5, .free_count = 2, .malloc_bytes = 4000, .free_bytes = 2000};
    assert_int_equal(ledger_small_totals(w->ledger, &small_key, &small), 0);
    small_key.stream = 0x6000;
    small.free_bytes = 3000;
    assert_int_equal(ledger_small_totals(w->ledger, &small_key, &small), 0);
    struct ledger_pool pool = pool_of(w, NM_BLOCK_CACHING);
    assert_int_equal(pool.small_bytes, 3000);
    assert_int_equal(pool.before_attach_bytes, 0);
    assert_int_equal(pool.event_count, 8);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@small").bytes, 3000);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@small").count, 6);
    /* the same key again: absolute, not added */
    assert_int_equal(ledger_small_totals(w->ledger, &small_key, &small), 0);
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).small_bytes, 3000);
}

static void small_blocks_read_at_another_moment_are_not_from_before_attach(void **state)
{
    struct world *w = *state;
    do_block(w, NM_BLOCK_MALLOC, 0x100000, (int64_t)MIB, T((int64_t)MIB, 40000000, (int64_t)MIB));
    struct nm_small_key key = {.tgid = TGID};
    struct nm_small_totals small = {.malloc_count = 2, .malloc_bytes = 1000};
    ledger_small_totals(w->ledger, &key, &small);
    /* 200 bytes came after the small sums were read: nobody's, but not from before attach */
    do_block(w, NM_BLOCK_MALLOC, 0x300000, (int64_t)MIB,
             T(2 * (int64_t)MIB + 1200, 40000000, 2 * (int64_t)MIB + 1200));
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).before_attach_bytes, 0);
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).small_bytes, 1000);
    /* 300 bytes were freed after it: the totals are right */
    do_block(w, NM_BLOCK_MALLOC, 0x500000, (int64_t)MIB,
             T(3 * (int64_t)MIB + 700, 40000000, 3 * (int64_t)MIB + 700));
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).small_bytes, 700);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, NULL).bytes, 3 * MIB + 700);
}

static void the_kernels_first_total_bounds_what_is_from_before_attach(void **state)
{
    struct world *w = *state;
    /* the ledger's first event is not the kernel's: small blocks of 3000 bytes came before it */
    do_block(w, NM_BLOCK_MALLOC, 0x100000, (int64_t)MIB,
             T((int64_t)MIB + 10000, 40000000, (int64_t)MIB + 10000));
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).before_attach_bytes, 10000);
    struct nm_pool_key key = {.tgid = TGID};
    struct nm_pool_totals totals = {.time_ns = 1, .first_allocated_bytes = 7000};
    ledger_pool_totals(w->ledger, &key, &totals);
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).before_attach_bytes, 7000);
    do_block(w, NM_BLOCK_FREE, 0x700000, 2000,
             T((int64_t)MIB + 8000, 40000000, (int64_t)MIB + 8000));
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).before_attach_bytes, 5000);
}

static void small_blocks_freed_but_never_seen_do_not_raise_before_attach(void **state)
{
    struct world *w = *state;
    do_block(w, NM_BLOCK_MALLOC, 0x1000, 512, T(10512, 40000, 10512));
    struct nm_small_key key = {.tgid = TGID};
    struct nm_small_totals small = {.free_count = 1, .free_bytes = 700};
    ledger_small_totals(w->ledger, &key, &small);
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).small_bytes, -700);
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).before_attach_bytes, 10000);
}

static void older_kernel_totals_are_ignored(void **state)
{
    struct world *w = *state;
    do_block(w, NM_BLOCK_MALLOC, 0x1000, 512, T(512, 4096, 512));
    struct nm_pool_key key = {.tgid = TGID};
    struct nm_pool_totals totals = {.time_ns = w->now_ns - 1, .total_allocated_bytes = 1};
    assert_int_equal(ledger_pool_totals(w->ledger, &key, &totals), 0);
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).allocated_bytes, 512);
    totals.time_ns = w->now_ns + 100;
    totals.seq = 3; /* being written */
    assert_int_equal(ledger_pool_totals(w->ledger, &key, &totals), -EAGAIN);
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).allocated_bytes, 512);
}

static void the_workspace_block_of_a_stream_is_the_newest_one(void **state)
{
    struct world *w = *state;
    struct nm_event e = world_event(w, NM_EVENT_BLOCK);
    e.block = (struct nm_block){.address = 0x9000,
                                .size_bytes = 2097152,
                                .component = NM_BLOCK_WORKSPACE,
                                .total_allocated_bytes = 2097152,
                                .total_reserved_bytes = 2097152,
                                .total_active_bytes = 2097152,
                                .stream = 0x77};
    assert_int_equal(send(w, &e), 0); /* growth reports it twice */
    e.time_ns += 1;
    assert_int_equal(send(w, &e), 0);
    assert_int_equal(entries_bytes(w, LEVEL_BLOCK), 2097152);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA_WORKSPACE").bytes, 2097152);
    assert_int_equal(ledger_stats(w->ledger)->duplicate_allocs, 0);
    e.block.stream = 0x78;
    e.block.address = 0xa000;
    e.time_ns += 1;
    send(w, &e);
    assert_int_equal(entries_bytes(w, LEVEL_BLOCK), 2 * 2097152);
    e.block.action = NM_BLOCK_FREE;
    e.block.size_bytes = -2097152;
    e.block.total_allocated_bytes = 0;
    e.time_ns += 1;
    send(w, &e);
    send(w, &e); /* empty_cache reports it again */
    assert_int_equal(entries_bytes(w, LEVEL_BLOCK), 2097152);
    assert_int_equal(ledger_stats(w->ledger)->unmatched_frees, 0);
    assert_int_equal(pool_of(w, NM_BLOCK_WORKSPACE).allocated_bytes, 0);
    assert_int_equal(pool_of(w, NM_BLOCK_WORKSPACE).reserved_bytes, 2097152);
}

static void reserved_follows_segments_freed_after_the_newest_block_event(void **state)
{
    struct world *w = *state;
    int64_t seg = 20 * (int64_t)MIB;
    do_segment(w, 0x1000000, (uint64_t)seg, 0);
    do_block(w, NM_BLOCK_MALLOC, 0x1000000, 512, T(512, seg, 512));
    assert_int_equal(reserved(w), seg);
    do_segment(w, 0x9000000, (uint64_t)seg, 0);
    assert_int_equal(reserved(w), 2 * seg);
    do_block(w, NM_BLOCK_MALLOC, 0x9000000, 512, T(1024, 2 * seg, 1024));
    assert_int_equal(reserved(w), 2 * seg); /* contained in the totals now */
    do_block(w, NM_BLOCK_FREE, 0x9000000, 512, T(512, 2 * seg, 512));
    do_torch_free(w, 0x9000000); /* empty_cache */
    assert_int_equal(reserved(w), seg);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "PTA@pool").bytes, seg + 32);
}

static void other_allocations_do_not_change_reserved(void **state)
{
    struct world *w = *state;
    do_block(w, NM_BLOCK_MALLOC, 0x1000, 512, T(512, 4096, 512));
    do_alloc(w, 0x100000, 64 * MIB, 0);   /* no torch */
    do_segment(w, 0x9000000, 2 * MIB, 1); /* workspace */
    do_segment(w, 0xa000000, 512, 2);     /* event word: NORMAL_ONLY */
    do_segment(w, 0xb000000, 1024, 0);    /* smaller than any segment */
    assert_int_equal(reserved(w), 4096);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "PTA_WORKSPACE").bytes, 2 * MIB + 32);
}

static void reserved_follows_mappings_of_expandable_segments(void **state)
{
    struct world *w = *state;
    int64_t granule = 2 * (int64_t)MIB;
    do_vmm(w, NM_EVENT_CREATE, 0x1, 0, (uint64_t)granule, CALLER_TORCH);
    do_vmm(w, NM_EVENT_MAP, 0x1, 0x200000, (uint64_t)granule, CALLER_TORCH);
    do_block(w, NM_BLOCK_MALLOC, 0x200000, 512, T(512, granule, 512));
    do_vmm(w, NM_EVENT_CREATE, 0x2, 0, (uint64_t)granule, CALLER_TORCH);
    assert_int_equal(reserved(w), granule); /* not mapped yet */
    do_vmm(w, NM_EVENT_MAP, 0x2, 0x400000, (uint64_t)granule, CALLER_TORCH);
    assert_int_equal(reserved(w), 2 * granule);
    do_vmm(w, NM_EVENT_UNMAP, 0, 0x400000, 0, CALLER_TORCH);
    assert_int_equal(reserved(w), granule); /* the handle may be kept */
    do_vmm(w, NM_EVENT_HANDLE_FREE, 0x2, 0, 0, CALLER_TORCH);
    assert_int_equal(reserved(w), granule);
}

static void sleep_mode_memory_does_not_change_reserved(void **state)
{
    struct world *w = *state;
    do_vmm(w, NM_EVENT_CREATE, 0x1, 0, 34 * MIB, CALLER_CAMEM);
    do_vmm(w, NM_EVENT_MAP, 0x1, 0x200000, 34 * MIB, CALLER_CAMEM);
    do_block(w, NM_BLOCK_MALLOC, 0x200000, 512, T(512, 34 * (int64_t)MIB, 512));
    do_vmm(w, NM_EVENT_UNMAP, 0, 0x200000, 0, CALLER_CAMEM);
    do_vmm(w, NM_EVENT_HANDLE_FREE, 0x1, 0, 0, CALLER_CAMEM);
    assert_int_equal(reserved(w), 34 * MIB); /* what torch believes */
    assert_int_equal(device_of(w, 0).known_bytes, 0);
}

static void kernel_totals_newer_than_a_segment_contain_it(void **state)
{
    struct world *w = *state;
    int64_t seg = 2 * (int64_t)MIB;
    do_block(w, NM_BLOCK_MALLOC, 0x1000, 512, T(512, seg, 512));
    do_segment(w, 0x1000000, (uint64_t)seg, 0);
    uint64_t between = w->now_ns + 5; /* a small block, summed in the kernel */
    w->now_ns += 10;
    do_torch_free(w, 0x1000000);
    assert_int_equal(reserved(w), seg);
    struct nm_pool_key key = {.tgid = TGID};
    struct nm_pool_totals totals = {.time_ns = between,
                                    .total_allocated_bytes = 612,
                                    .total_reserved_bytes = 2 * seg,
                                    .total_active_bytes = 612};
    ledger_pool_totals(w->ledger, &key, &totals);
    assert_int_equal(reserved(w), seg); /* of the changes, only the later free is left to apply */
}

static void the_segment_event_of_totals_read_ahead_is_not_applied_twice(void **state)
{
    struct world *w = *state;
    int64_t seg = 2 * (int64_t)MIB;
    do_block(w, NM_BLOCK_MALLOC, 0x1000, 512, T(512, seg, 512));
    struct nm_pool_key key = {.tgid = TGID};
    struct nm_pool_totals totals = {.time_ns = w->now_ns + 1000,
                                    .total_allocated_bytes = 612,
                                    .total_reserved_bytes = 2 * seg,
                                    .total_active_bytes = 612};
    ledger_pool_totals(w->ledger, &key, &totals);
    do_segment(w, 0x1000000, (uint64_t)seg, 0); /* was still in the ring */
    assert_int_equal(reserved(w), 2 * seg);
}

static void many_segments_freed_at_once_are_all_subtracted(void **state)
{
    struct world *w = *state;
    int64_t seg = 2 * (int64_t)MIB;
    for (uint64_t i = 0; i < 100; i++)
        do_segment(w, 0x10000000 + i * (uint64_t)seg, (uint64_t)seg, 0);
    do_block(w, NM_BLOCK_MALLOC, 0x10000000, 512, T(512, 100 * seg, 512));
    for (uint64_t i = 1; i < 100; i++)
        do_torch_free(w, 0x10000000 + i * (uint64_t)seg);
    assert_int_equal(reserved(w), seg);
}

/* Late attach: 100 MiB of APP memory, of it 60 MiB torch's reserved, all without addresses. */
static void late_attach(struct world *w)
{
    do_block(w, NM_BLOCK_MALLOC, 0x1000, 512,
             T(10 * (int64_t)MIB, 60 * (int64_t)MIB, 10 * (int64_t)MIB));
    ledger_driver_usage(w->ledger, TGID, 0, MODULE_APP, 100 * MIB, w->now_ns + 1);
}

static void an_unknown_segment_freed_after_the_newest_block_event_shrinks_reserved(void **state)
{
    struct world *w = *state;
    late_attach(w);
    do_torch_free(w, 0x7000000);
    assert_int_equal(reserved(w), 60 * MIB); /* nobody has told its size yet */
    ledger_driver_usage(w->ledger, TGID, 0, MODULE_APP, 80 * MIB, w->now_ns + 1);
    assert_int_equal(reserved(w), 40 * MIB);
    assert_int_equal(device_of(w, 0).before_attach_bytes, 80 * MIB);
    w->now_ns += 10;
    do_block(w, NM_BLOCK_MALLOC, 0x1200, 512,
             T(10 * (int64_t)MIB + 512, 40 * (int64_t)MIB, 10 * (int64_t)MIB + 512));
    assert_int_equal(reserved(w), 40 * MIB); /* torch agrees: not subtracted again */
}

static void a_drop_that_the_totals_show_is_not_subtracted_again(void **state)
{
    struct world *w = *state;
    late_attach(w);
    do_torch_free(w, 0x7000000);
    do_block(w, NM_BLOCK_MALLOC, 0x1200, 512,
             T(10 * (int64_t)MIB, 40 * (int64_t)MIB, 10 * (int64_t)MIB));
    do_torch_free(w, 0x8000000); /* a second one, after the totals */
    ledger_driver_usage(w->ledger, TGID, 0, MODULE_APP, 74 * MIB, w->now_ns + 1);
    assert_int_equal(reserved(w), 34 * MIB); /* 26 less, 20 of them torch has said itself */
}

static void reserved_never_falls_below_active(void **state)
{
    struct world *w = *state;
    late_attach(w);
    do_torch_free(w, 0x7000000);
    ledger_driver_usage(w->ledger, TGID, 0, MODULE_APP, 10 * MIB, w->now_ns + 1);
    assert_int_equal(reserved(w), 10 * MIB);
}

static void an_unknown_free_of_another_library_does_not_change_reserved(void **state)
{
    struct world *w = *state;
    late_attach(w);
    struct nm_event e = event_free(w, 0x7000000);
    e.call.caller = CALLER_CAMEM;
    send(w, &e);
    ledger_driver_usage(w->ledger, TGID, 0, MODULE_APP, 80 * MIB, w->now_ns + 1);
    assert_int_equal(reserved(w), 60 * MIB);
    assert_int_equal(device_of(w, 0).before_attach_bytes, 80 * MIB);
}

static void a_block_taken_by_the_graph_engine_has_its_own_owner(void **state)
{
    struct world *w = *state;
    struct nm_event e = world_event(w, NM_EVENT_BLOCK);
    e.block = (struct nm_block){
        .address = 0x1000, .size_bytes = 512, .allocator = 1, .total_allocated_bytes = 512};
    assert_int_equal(send(w, &e), 0);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@external").bytes, 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_pool_shows_the_newest_totals),
        TEST(a_freed_block_is_pending_until_it_is_reusable),
        TEST(a_free_that_leaves_nothing_active_needs_no_second_event),
        TEST(an_ordinary_free_says_block_free_first),
        TEST(blocks_of_before_attach_are_allocated_minus_known),
        TEST(small_blocks_are_known_by_their_kernel_sums),
        TEST(small_blocks_read_at_another_moment_are_not_from_before_attach),
        TEST(the_kernels_first_total_bounds_what_is_from_before_attach),
        TEST(small_blocks_freed_but_never_seen_do_not_raise_before_attach),
        TEST(older_kernel_totals_are_ignored),
        TEST(the_workspace_block_of_a_stream_is_the_newest_one),
        TEST(reserved_follows_segments_freed_after_the_newest_block_event),
        TEST(other_allocations_do_not_change_reserved),
        TEST(reserved_follows_mappings_of_expandable_segments),
        TEST(sleep_mode_memory_does_not_change_reserved),
        TEST(kernel_totals_newer_than_a_segment_contain_it),
        TEST(the_segment_event_of_totals_read_ahead_is_not_applied_twice),
        TEST(many_segments_freed_at_once_are_all_subtracted),
        TEST(an_unknown_segment_freed_after_the_newest_block_event_shrinks_reserved),
        TEST(a_drop_that_the_totals_show_is_not_subtracted_again),
        TEST(reserved_never_falls_below_active),
        TEST(an_unknown_free_of_another_library_does_not_change_reserved),
        TEST(a_block_taken_by_the_graph_engine_has_its_own_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
