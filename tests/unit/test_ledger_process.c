/* SPDX-License-Identifier: Apache-2.0 */
/* Processes, late attach by the driver's figures, ranks, loss and bounds. */
#include "test_ledger.h"

static struct process_facts facts_of(uint32_t tgid, uint32_t ticks)
{
    struct process_facts facts = {.tgid = tgid, .start_ticks = ticks, .rank = -1, .world_size = -1};
    snprintf(facts.comm, sizeof(facts.comm), "python");
    return facts;
}

static void an_exit_frees_all_entries_and_keeps_the_last_state(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 100, 0);
    do_block(w, NM_BLOCK_MALLOC, 0x2000, 512, (struct totals){512, 4096, 512});
    ledger_process_exit(w->ledger, TGID, 0, w->now_ns + 1);
    const struct ledger_process *p = ledger_find_process(w->ledger, TGID);
    assert_false(p->alive);
    assert_int_equal(p->exit_ns, w->now_ns + 1);
    assert_int_equal(w->notices[NOTICE_EXIT], 1);
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 0);
    assert_int_equal(entries_bytes(w, LEVEL_PHYSICAL), 0);
    assert_int_equal(device_of(w, 0).known_bytes, 100);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@block").bytes, 512);
    assert_int_equal(pool_of(w, NM_BLOCK_CACHING).reserved_bytes, 4096);
}

static void late_events_of_a_process_that_is_gone_do_not_bring_it_back(void **state)
{
    struct world *w = *state;
    struct nm_event e = event_alloc(w, 0x1000, 100, 100, 0);
    e.start_ticks = 77;
    send(w, &e);
    ledger_process_exit(w->ledger, TGID, 77, w->now_ns + 100);
    e = event_alloc(w, 0x2000, 100, 100, 0);
    e.start_ticks = 77;
    assert_int_equal(send(w, &e), 1);
    e.start_ticks = 0;
    assert_int_equal(send(w, &e), 1);
    assert_int_equal(ledger_stats(w->ledger)->events_after_exit, 2);
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 0);
    assert_false(ledger_find_process(w->ledger, TGID)->alive);
}

static int count_process(void *userdata, const struct ledger_process *p)
{
    ++*(unsigned *)userdata;
    return 0;
}

static void a_reused_pid_is_another_process(void **state)
{
    struct world *w = *state;
    unsigned count = 0;
    struct nm_event e = event_alloc(w, 0x1000, 100, 100, 0);
    e.start_ticks = 77;
    send(w, &e);
    e = event_alloc(w, 0x1000, 30, 30, 0);
    e.start_ticks = 90;
    assert_int_equal(send(w, &e), 0);
    assert_int_equal(device_of(w, 0).known_bytes, 30);
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 1);
    assert_int_equal(ledger_stats(w->ledger)->duplicate_allocs, 0);
    ledger_each_process(w->ledger, count_process, &count);
    assert_int_equal(count, 2);
    e.start_ticks = 77; /* a straggler of the first one */
    assert_int_equal(send(w, &e), 1);
    assert_int_equal(device_of(w, 0).known_bytes, 30);
}

static void facts_with_later_start_ticks_end_the_old_process(void **state)
{
    struct world *w = *state;
    struct process_facts facts = facts_of(TGID, 10);
    assert_int_equal(ledger_process_update(w->ledger, &facts, 1), 0);
    do_alloc(w, 0x1000, 100, 0); /* no ticks: matches */
    facts = facts_of(TGID, 20);
    assert_int_equal(ledger_process_update(w->ledger, &facts, w->now_ns), 0);
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 0);
    assert_int_equal(ledger_find_process(w->ledger, TGID)->facts.start_ticks, 20);
    assert_int_equal(w->notices[NOTICE_PROCESS], 2);
    assert_int_equal(w->notices[NOTICE_EXIT], 1);
    /* the exit of the old one comes late */
    ledger_process_exit(w->ledger, TGID, 10, w->now_ns);
    assert_true(ledger_find_process(w->ledger, TGID)->alive);
}

static void a_thread_with_another_tid_shares_its_processes_memory(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 100, 0);
    struct nm_event e = event_free(w, 0x1000);
    e.tid = 4242;
    assert_int_equal(send(w, &e), 0);
    assert_int_equal(device_of(w, 0).known_bytes, 0);
}

static void the_oldest_exited_process_is_evicted_at_the_bound(void **state)
{
    struct world *w = *state;
    struct process_facts facts;
    for (uint32_t tgid = 1; tgid <= 4; tgid++) {
        facts = facts_of(tgid, tgid);
        assert_int_equal(ledger_process_update(w->ledger, &facts, 1), 0);
    }
    facts = facts_of(5, 5);
    assert_int_equal(ledger_process_update(w->ledger, &facts, 1), -ENOSPC);
    ledger_process_exit(w->ledger, 3, 3, 50);
    ledger_process_exit(w->ledger, 2, 2, 60);
    assert_int_equal(ledger_process_update(w->ledger, &facts, 70), 0);
    assert_null(ledger_find_process(w->ledger, 3));
    assert_non_null(ledger_find_process(w->ledger, 2));
    assert_int_equal(ledger_stats(w->ledger)->dropped_processes, 1);
}

static int setup_four_processes(void **state)
{
    return world_setup_with(state, (struct ledger_config){.max_processes = 4});
}

static int setup_ten_entries(void **state)
{
    return world_setup_with(state, (struct ledger_config){.max_entries = 10});
}

static void beyond_max_entries_new_ones_are_counted_and_not_kept(void **state)
{
    struct world *w = *state;
    for (uint64_t i = 1; i <= 10; i++)
        assert_int_equal(do_alloc(w, i * 0x1000, 1, 0), 0);
    assert_int_equal(do_alloc(w, 0x100000, 1, 0), 1);
    assert_int_equal(ledger_stats(w->ledger)->dropped_entries, 1);
    assert_int_equal(device_of(w, 0).known_bytes, 10);
    do_free(w, 0x1000);
    assert_int_equal(do_alloc(w, 0x100000, 1, 0), 0);
}

static int do_comm(struct world *w, uint32_t rank, uint32_t size)
{
    struct nm_event e = world_event(w, NM_EVENT_COMM_INIT);
    e.call.flags = rank | (uint64_t)size << 32;
    return send(w, &e);
}

static void the_largest_communicator_names_the_rank(void **state)
{
    struct world *w = *state;
    struct process_facts facts = facts_of(TGID, 0);
    facts.rank = 9;
    snprintf(facts.rank_source, sizeof(facts.rank_source), "title");
    ledger_process_update(w->ledger, &facts, 1);
    do_comm(w, 1, 2);
    do_comm(w, 5, 8);
    do_comm(w, 0, 4);
    const struct ledger_process *p = ledger_find_process(w->ledger, TGID);
    assert_int_equal(p->facts.rank, 5);
    assert_int_equal(p->facts.world_size, 8);
    assert_string_equal(p->facts.rank_source, "hccl");
    assert_int_equal(w->notices[NOTICE_COMM], 3);
    ledger_process_update(w->ledger, &facts, 2); /* weaker facts do not take it back */
    assert_int_equal(p->facts.rank, 5);
    assert_string_equal(p->facts.rank_source, "hccl");
    assert_int_equal(ledger_object_count(w->ledger, TGID, NM_EVENT_COMM_INIT), 3);
}

static void another_program_keeps_what_was_told_of_the_rank(void **state)
{
    struct world *w = *state;
    struct process_facts facts = facts_of(TGID, 0);
    facts.rank = 3;
    facts.world_size = 4;
    snprintf(facts.rank_source, sizeof(facts.rank_source), "environ");
    ledger_process_update(w->ledger, &facts, 1);
    ledger_process_exec(w->ledger, TGID, 2);
    do_comm(w, 1, 2); /* of a group: the world of four stays */
    const struct ledger_process *p = ledger_find_process(w->ledger, TGID);
    assert_int_equal(p->facts.rank, 3);
    assert_int_equal(p->facts.world_size, 4);
    assert_string_equal(p->facts.rank_source, "environ");
}

static void a_communicator_without_a_world_size_still_gives_the_rank(void **state)
{
    struct world *w = *state;
    do_comm(w, 3, 0);
    const struct ledger_process *p = ledger_find_process(w->ledger, TGID);
    assert_int_equal(p->facts.rank, 3);
    assert_int_equal(p->facts.world_size, -1);
    do_comm(w, 2, 4);
    assert_int_equal(p->facts.rank, 2);
}

static void a_rank_outside_its_world_is_malformed(void **state)
{
    struct world *w = *state;
    assert_int_equal(do_comm(w, 8, 8), -EBADMSG);
    assert_int_equal(ledger_find_process(w->ledger, TGID)->facts.rank, -1);
}

static void streams_are_counted_and_never_below_zero(void **state)
{
    struct world *w = *state;
    struct nm_event create = world_event(w, NM_EVENT_STREAM_CREATE);
    struct nm_event destroy = world_event(w, NM_EVENT_STREAM_DESTROY);
    send(w, &destroy);
    send(w, &create);
    send(w, &create);
    send(w, &destroy);
    assert_int_equal(ledger_object_count(w->ledger, TGID, NM_EVENT_STREAM_CREATE), 1);
}

static int driver(struct world *w, uint64_t bytes)
{
    return ledger_driver_usage(w->ledger, TGID, 0, MODULE_APP, bytes, w->now_ns + 1);
}

static void what_the_driver_knows_beyond_events_is_from_before_attach(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 100, 0);
    assert_int_equal(device_of(w, 0).driver_bytes, UINT64_MAX);
    assert_int_equal(driver(w, 1100), 0);
    struct ledger_device_use use = device_of(w, 0);
    assert_int_equal(use.before_attach_bytes, 1000);
    assert_int_equal(use.physical_bytes, 1100);
    assert_int_equal(use.driver_bytes, 1100);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "before_attach").bytes, 1000);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, NULL).bytes, 1100);
}

static void before_attach_is_kept_by_module(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 100, 0); /* module APP */
    driver(w, 50);               /* less than known: nothing from before */
    ledger_driver_usage(w->ledger, TGID, 0, 3, 400, w->now_ns + 1);
    assert_int_equal(device_of(w, 0).before_attach_bytes, 400);
    assert_int_equal(device_of(w, 0).driver_bytes, 450);
}

static void
a_free_of_an_unknown_address_shrinks_before_attach_by_the_drivers_next_figure(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 100, 0);
    driver(w, 1100);
    do_free(w, 0x9000);
    assert_int_equal(device_of(w, 0).before_attach_bytes, 1000);
    driver(w, 700);
    assert_int_equal(device_of(w, 0).before_attach_bytes, 600);
    do_free(w, 0xa000);
    driver(w, 20); /* below what is known: never below 0 */
    assert_int_equal(device_of(w, 0).before_attach_bytes, 0);
}

static void later_growth_of_the_driver_is_not_from_before_attach(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 100, 0);
    driver(w, 1100);
    driver(w, 5000);
    assert_int_equal(device_of(w, 0).before_attach_bytes, 1000);
    assert_int_equal(device_of(w, 0).driver_bytes, 5000);
}

static void a_lower_figure_without_a_free_must_be_seen_twice(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 100, 0);
    driver(w, 1100);
    driver(w, 1000); /* the event of a free of 100 bytes may be on its way */
    assert_int_equal(device_of(w, 0).before_attach_bytes, 1000);
    do_free(w, 0x1000);
    driver(w, 1000); /* it was */
    assert_int_equal(device_of(w, 0).before_attach_bytes, 1000);
    driver(w, 800);
    driver(w, 700);
    assert_int_equal(device_of(w, 0).before_attach_bytes, 800);
}

static void a_figure_older_than_the_newest_event_changes_nothing(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 100, 0);
    driver(w, 1100);
    uint64_t read_ns = w->now_ns + 1;
    do_free(w, 0x9000);
    do_alloc(w, 0x2000, 500, 0);
    ledger_driver_usage(w->ledger, TGID, 0, MODULE_APP, 1100, read_ns);
    assert_int_equal(device_of(w, 0).before_attach_bytes, 1000);
}

static void memory_of_before_attach_is_gone_after_a_device_reset(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 100, 0);
    driver(w, 1100);
    struct nm_event reset = world_event(w, NM_EVENT_DEVICE_RESET);
    send(w, &reset);
    assert_int_equal(device_of(w, 0).physical_bytes, 0);
    assert_int_equal(device_of(w, 0).peak_bytes, 1100);
}

static void cards_show_what_the_driver_said(void **state)
{
    struct world *w = *state;
    uint64_t total, used;
    assert_false(ledger_card(w->ledger, 3, &total, &used));
    ledger_card_usage(w->ledger, 3, 64, 20);
    assert_true(ledger_card(w->ledger, 3, &total, &used));
    assert_int_equal(total, 64);
    assert_int_equal(used, 20);
    assert_false(ledger_card(w->ledger, 2, &total, &used));
}

static void holes_in_a_cpus_sequence_are_counted(void **state)
{
    struct world *w = *state;
    static const uint32_t seq[] = {UINT32_MAX - 1, UINT32_MAX, 0, 3, 4};
    for (size_t i = 0; i < sizeof(seq) / sizeof(seq[0]); i++) {
        struct nm_event e = event_free(w, 0x1000);
        e.seq = seq[i];
        send(w, &e);
    }
    struct nm_event other = event_free(w, 0x1000);
    other.cpu = 65;
    other.seq = 900;
    send(w, &other);
    assert_int_equal(ledger_stats(w->ledger)->sequence_gaps, 2);
}

static void an_event_that_comes_late_closes_its_hole(void **state)
{
    struct world *w = *state;
    static const uint32_t seq[] = {10, 12, 11, 13};
    for (size_t i = 0; i < sizeof(seq) / sizeof(seq[0]); i++) {
        struct nm_event e = event_free(w, 0x1000);
        e.seq = seq[i];
        send(w, &e);
    }
    assert_int_equal(ledger_stats(w->ledger)->sequence_gaps, 0);
}

static void lost_events_are_shown_and_noticed_once_each_time(void **state)
{
    struct world *w = *state;
    ledger_set_lost(w->ledger, 5);
    ledger_set_lost(w->ledger, 5);
    ledger_set_lost(w->ledger, 9);
    assert_int_equal(ledger_stats(w->ledger)->lost_events, 9);
    assert_int_equal(w->notices[NOTICE_LOSS], 2);
}

static void malformed_events_are_refused_and_counted(void **state)
{
    struct world *w = *state;
    struct nm_event e = event_alloc(w, 0x1000, 1, 1, 0);
    struct nm_event bad = e;
    bad.abi = NM_EVENT_ABI + 1;
    assert_int_equal(send(w, &bad), -EBADMSG);
    bad = e;
    bad.kind = NM_EVENT_NONE;
    assert_int_equal(send(w, &bad), -EBADMSG);
    bad.kind = NM_EVENT_KIND_COUNT;
    assert_int_equal(send(w, &bad), -EBADMSG);
    bad = e;
    bad.tgid = 0;
    assert_int_equal(send(w, &bad), -EBADMSG);
    bad = e;
    bad.call.address = 0;
    assert_int_equal(send(w, &bad), -EBADMSG);
    bad = e;
    bad.call.physical_bytes = INT64_MAX;
    assert_int_equal(send(w, &bad), -EBADMSG);
    assert_int_equal(ledger_stats(w->ledger)->decode_errors, 6);
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 0);
}

static void malformed_blocks_are_refused_and_counted(void **state)
{
    struct world *w = *state;
    struct nm_event e = world_event(w, NM_EVENT_BLOCK);
    e.block = (struct nm_block){.address = 0x1000, .size_bytes = 512};
    struct nm_event bad[8];
    for (size_t i = 0; i < 8; i++)
        bad[i] = e;
    bad[0].block.device = 64;
    bad[1].block.component = 2;
    bad[2].block.action = 3;
    bad[3].block.size_bytes = -512;
    bad[4].block.size_bytes = INT64_MIN;
    bad[5].block.total_allocated_bytes = -1;
    bad[6].block.total_reserved_bytes = INT64_MAX;
    bad[7].block.action = NM_BLOCK_FREE; /* a free must be negative */
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(send(w, &bad[i]), -EBADMSG);
    assert_int_equal(ledger_stats(w->ledger)->decode_errors, 8);
    assert_int_equal(send(w, &e), 0);
}

static void sums_of_huge_allocations_do_not_overflow(void **state)
{
    struct world *w = *state;
    uint64_t huge = ((uint64_t)1 << 47) - 1, accepted = 0;
    int r = 0;
    for (uint64_t i = 1; i <= 40000; i++) {
        r = do_alloc(w, i << 12, huge, 0);
        accepted += r == 0;
    }
    assert_int_equal(r, -EBADMSG); /* 2^15 of them and a bit fill 2^62 */
    assert_int_equal(accepted, 32768);
    assert_int_equal(device_of(w, 0).known_bytes, accepted * huge);
}

static void freed_memory_makes_room_in_the_sums_again(void **state)
{
    struct world *w = *state;
    uint64_t huge = (uint64_t)1 << 46;
    for (uint64_t i = 1; i <= 100000; i++) { /* 2^62 would be full after 2^16 */
        assert_int_equal(do_alloc(w, 0x1000, huge, 0), 0);
        assert_int_equal(do_free(w, 0x1000), 0);
    }
    for (uint32_t ticks = 1; ticks <= 70000; ticks++) { /* and each of these exits holding it */
        struct nm_event e = event_alloc(w, 0x1000, huge, huge, 0);
        e.start_ticks = ticks;
        assert_int_equal(send(w, &e), 0);
    }
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_exit_frees_all_entries_and_keeps_the_last_state),
        TEST(late_events_of_a_process_that_is_gone_do_not_bring_it_back),
        TEST(a_reused_pid_is_another_process),
        TEST(facts_with_later_start_ticks_end_the_old_process),
        TEST(a_thread_with_another_tid_shares_its_processes_memory),
        cmocka_unit_test_setup_teardown(the_oldest_exited_process_is_evicted_at_the_bound,
                                        setup_four_processes, world_teardown),
        cmocka_unit_test_setup_teardown(beyond_max_entries_new_ones_are_counted_and_not_kept,
                                        setup_ten_entries, world_teardown),
        TEST(the_largest_communicator_names_the_rank),
        TEST(another_program_keeps_what_was_told_of_the_rank),
        TEST(a_communicator_without_a_world_size_still_gives_the_rank),
        TEST(a_rank_outside_its_world_is_malformed),
        TEST(streams_are_counted_and_never_below_zero),
        TEST(what_the_driver_knows_beyond_events_is_from_before_attach),
        TEST(before_attach_is_kept_by_module),
        TEST(a_free_of_an_unknown_address_shrinks_before_attach_by_the_drivers_next_figure),
        TEST(later_growth_of_the_driver_is_not_from_before_attach),
        TEST(a_lower_figure_without_a_free_must_be_seen_twice),
        TEST(a_figure_older_than_the_newest_event_changes_nothing),
        TEST(memory_of_before_attach_is_gone_after_a_device_reset),
        TEST(cards_show_what_the_driver_said),
        TEST(holes_in_a_cpus_sequence_are_counted),
        TEST(an_event_that_comes_late_closes_its_hole),
        TEST(lost_events_are_shown_and_noticed_once_each_time),
        TEST(malformed_events_are_refused_and_counted),
        TEST(malformed_blocks_are_refused_and_counted),
        TEST(sums_of_huge_allocations_do_not_overflow),
        TEST(freed_memory_makes_room_in_the_sums_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
