/* SPDX-License-Identifier: Apache-2.0 */
/* Memory calls by address: what is counted, where, and what is not. */
#include "test_ledger.h"

static void an_allocation_counts_the_bytes_that_the_driver_was_asked_for(void **state)
{
    struct world *w = *state;
    struct nm_event e = event_alloc(w, 0x1000, 1000, 1056, 3);
    assert_int_equal(send(w, &e), 0);
    assert_int_equal(device_of(w, 3).known_bytes, 1056);
    assert_int_equal(device_of(w, 3).physical_bytes, 1056);
    assert_int_equal(entries_bytes(w, LEVEL_PHYSICAL), 1056);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, NULL).bytes, 1056);
}

static void an_allocation_without_the_hal_counts_what_was_requested(void **state)
{
    struct world *w = *state;
    struct nm_event e = world_event(w, NM_EVENT_ALLOC);
    e.call.address = 0x1000;
    e.call.requested = 4096;
    assert_int_equal(send(w, &e), 0);
    assert_int_equal(device_of(w, 0).known_bytes, 4096);
}

static void without_the_hal_the_device_is_the_one_that_was_set(void **state)
{
    struct world *w = *state;
    struct process_facts facts = {.tgid = TGID, .visible_devices = {4, 6}, .visible_count = 2};
    ledger_process_update(w->ledger, &facts, 1);
    struct nm_event set = world_event(w, NM_EVENT_DEVICE_SET);
    set.call.flags = 1;
    assert_int_equal(send(w, &set), 0);
    struct nm_event e = world_event(w, NM_EVENT_ALLOC);
    e.call.address = 0x1000;
    e.call.requested = 4096;
    send(w, &e);
    assert_int_equal(device_of(w, 6).known_bytes, 4096);
}

static void a_free_that_returned_0_takes_the_bytes_away(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 4096, 0);
    do_alloc(w, 0x2000, 100, 0);
    assert_int_equal(do_free(w, 0x1000), 0);
    assert_int_equal(device_of(w, 0).known_bytes, 100);
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 1);
}

static void a_free_that_failed_changes_nothing_and_is_counted(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 4096, 0);
    struct nm_event e = event_free(w, 0x1000);
    e.result = 107000;
    assert_int_equal(send(w, &e), 1);
    assert_int_equal(device_of(w, 0).known_bytes, 4096);
    assert_int_equal(ledger_stats(w->ledger)->failed_frees, 1);
    assert_int_equal(ledger_find_process(w->ledger, TGID)->failed_calls, 1);
}

static void a_free_of_an_unknown_address_is_counted_as_unmatched(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 4096, 0);
    assert_int_equal(do_free(w, 0x9000), 1);
    assert_int_equal(ledger_stats(w->ledger)->unmatched_frees, 1);
    assert_int_equal(device_of(w, 0).known_bytes, 4096);
}

static void a_free_that_began_before_the_address_was_given_anew_takes_nothing(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 100, 0);
    struct nm_event late = event_free(w, 0x1000); /* began now, its event comes later */
    do_alloc(w, 0x1000, 700, 0);
    late.time_ns = w->now_ns + 5;
    assert_int_equal(send(w, &late), 1);
    assert_int_equal(device_of(w, 0).known_bytes, 700);
    assert_int_equal(ledger_stats(w->ledger)->duplicate_allocs, 1);
    assert_int_equal(ledger_stats(w->ledger)->late_frees, 1);
    assert_int_equal(do_free(w, 0x1000), 0);
    assert_int_equal(device_of(w, 0).known_bytes, 0);
}

static void a_failed_allocation_for_lack_of_memory_gives_a_notice(void **state)
{
    struct world *w = *state;
    struct nm_event e = event_alloc(w, 0, MIB, 0, 0);
    e.result = 207001;
    assert_int_equal(send(w, &e), 1);
    assert_int_equal(w->notices[NOTICE_OOM], 1);
    assert_int_equal(w->last_notice_ns, e.time_ns);
    assert_int_equal(ledger_find_process(w->ledger, TGID)->failed_calls, 1);
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 0);
}

static void a_failed_allocation_for_another_reason_gives_no_notice(void **state)
{
    struct world *w = *state;
    struct nm_event e = event_alloc(w, 0, MIB, 0, 0);
    e.result = 6; /* out of memory at the HAL, but this call is an API's */
    send(w, &e);
    e.result = 107002; /* no context */
    send(w, &e);
    assert_int_equal(w->notices[NOTICE_OOM], 0);
    assert_int_equal(ledger_find_process(w->ledger, TGID)->failed_calls, 2);
}

static void a_hal_call_of_its_own_that_runs_out_gives_a_notice(void **state)
{
    struct world *w = *state;
    struct nm_event e = world_event(w, NM_EVENT_ALLOC);
    e.call.call_flags = NM_CALL_HAL_SEEN;
    e.call.hal = PROBE_HAL_ALLOC;
    e.result = 6;
    send(w, &e);
    assert_int_equal(w->notices[NOTICE_OOM], 1);
}

static void host_memory_is_no_device_memory(void **state)
{
    struct world *w = *state;
    struct nm_event e = event_alloc(w, 0x1000, 4096, 4096, 0);
    e.call.call_flags |= NM_CALL_HOST;
    send(w, &e);
    for (unsigned virt = 0; virt < 8; virt++) {
        struct nm_event v = event_alloc(w, 0x10000 + 0x1000 * virt, 16, 16, 0);
        v.call.flags |= (uint64_t)virt << 10;
        send(w, &v);
    }
    /* HOST 2, HOST_AGENT 4 and HOST_UVA 6 are host, RESERVE 5 is no memory, the other 4 are device
     */
    assert_int_equal(ledger_find_process(w->ledger, TGID)->host_bytes, 4096 + 3 * 16);
    assert_int_equal(device_of(w, 0).known_bytes, 4 * 16);
    assert_int_equal(entries_bytes(w, LEVEL_RESERVED_VA), 16);
    do_free(w, 0x1000);
    assert_int_equal(ledger_find_process(w->ledger, TGID)->host_bytes, 3 * 16);
}

static void registered_host_memory_counts_until_it_is_unregistered(void **state)
{
    struct world *w = *state;
    struct nm_event e = world_event(w, NM_EVENT_HOST_REGISTER);
    e.call.address = 0x8000;
    e.call.requested = 8192;
    assert_int_equal(send(w, &e), 0);
    assert_int_equal(entries_bytes(w, LEVEL_HOST), 8192);
    e = world_event(w, NM_EVENT_HOST_UNREGISTER);
    e.call.address = 0x8000;
    assert_int_equal(send(w, &e), 0);
    assert_int_equal(ledger_find_process(w->ledger, TGID)->host_bytes, 0);
}

static void registering_pinned_memory_does_not_count_it_twice(void **state)
{
    struct world *w = *state;
    struct nm_event e = event_alloc(w, 0x8000, 8192, 8192, 0);
    e.call.call_flags |= NM_CALL_HOST;
    send(w, &e);
    e = world_event(w, NM_EVENT_HOST_REGISTER);
    e.call.address = 0x8000;
    e.call.requested = 8192;
    send(w, &e);
    assert_int_equal(ledger_find_process(w->ledger, TGID)->host_bytes, 8192);
    do_free(w, 0x8000);
    assert_int_equal(ledger_find_process(w->ledger, TGID)->host_bytes, 0);
}

static void a_pool_sub_allocation_consumes_no_device_memory(void **state)
{
    struct world *w = *state;
    struct nm_event e = world_event(w, NM_EVENT_ALLOC);
    e.call.address = 0x4000;
    e.call.requested = 512;
    e.call.handle = 0xffff800000000001u;
    e.call.call_flags |= NM_CALL_POOL;
    assert_int_equal(send(w, &e), 0);
    assert_int_equal(entries_bytes(w, LEVEL_POOL_SUB), 512);
    assert_int_equal(device_of(w, 0).known_bytes, 0);
    assert_int_equal(do_free(w, 0x4000), 0); /* aclrtFree is legal on it */
    assert_int_equal(entries_bytes(w, LEVEL_POOL_SUB), 0);
}

static void a_reserved_address_range_is_no_memory(void **state)
{
    struct world *w = *state;
    struct nm_event e = world_event(w, NM_EVENT_RESERVE);
    e.call.address = 0x100000;
    e.call.requested = (uint64_t)72 << 30;
    assert_int_equal(send(w, &e), 0);
    assert_int_equal(entries_bytes(w, LEVEL_RESERVED_VA), (uint64_t)72 << 30);
    assert_int_equal(device_of(w, 0).physical_bytes, 0);
    e = world_event(w, NM_EVENT_RELEASE);
    e.call.address = 0x100000;
    assert_int_equal(send(w, &e), 0);
    assert_int_equal(entries_bytes(w, LEVEL_RESERVED_VA), 0);
}

static void a_device_reset_frees_that_device_only(void **state)
{
    struct world *w = *state;
    struct process_facts facts = {.tgid = TGID, .visible_devices = {5, 7}, .visible_count = 2};
    ledger_process_update(w->ledger, &facts, 1);
    do_alloc(w, 0x1000, 100, 5);
    do_alloc(w, 0x2000, 200, 7);
    struct nm_event host = event_alloc(w, 0x3000, 50, 50, 7);
    host.call.call_flags |= NM_CALL_HOST;
    send(w, &host);
    struct nm_event reset = world_event(w, NM_EVENT_DEVICE_RESET);
    reset.call.flags = 1; /* as the user counts: driver's device 7 */
    assert_int_equal(send(w, &reset), 0);
    assert_int_equal(device_of(w, 5).known_bytes, 100);
    assert_int_equal(device_of(w, 7).known_bytes, 0);
    assert_int_equal(ledger_find_process(w->ledger, TGID)->host_bytes, 50);
}

static void a_device_reset_that_failed_frees_nothing(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 100, 0);
    struct nm_event reset = world_event(w, NM_EVENT_DEVICE_RESET);
    reset.result = 107001;
    send(w, &reset);
    assert_int_equal(device_of(w, 0).known_bytes, 100);
}

static void the_peak_of_a_device_stays_after_a_free(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x1000, 100, 0);
    do_alloc(w, 0x2000, 300, 0);
    uint64_t peak_ns = w->now_ns;
    do_free(w, 0x2000);
    do_alloc(w, 0x3000, 200, 0);
    struct ledger_device_use use = device_of(w, 0);
    assert_int_equal(use.physical_bytes, 300);
    assert_int_equal(use.peak_bytes, 400);
    assert_int_equal(use.peak_ns, peak_ns);
}

static void the_module_of_the_hal_names_the_owner(void **state)
{
    struct world *w = *state;
    struct nm_event e = event_alloc(w, 0x1000, 400, 400, 0);
    e.call.flags = hal_flags(0, 3);
    send(w, &e);
    e = event_alloc(w, 0x2000, 70, 70, 0);
    e.call.flags = hal_flags(0, 7);
    send(w, &e);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "CANN@HCCL").bytes, 400);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "CANN@RUNTIME").bytes, 70);
}

static void another_callers_library_becomes_an_owner_of_its_own(void **state)
{
    struct world *w = *state;
    struct nm_event e = event_alloc(w, 0x1000, 400, 400, 0);
    e.call.caller = CALLER_CAMEM;
    send(w, &e);
    struct level_sum s = owner_sum(w, LEVEL_PHYSICAL, "APP@vllm_ascend_C");
    assert_int_equal(s.bytes, 400);
    assert_false(s.inferred);
}

static void buffers_of_a_queue_are_host_memory(void **state)
{
    struct world *w = *state;
    struct nm_event e = world_event(w, NM_EVENT_ALLOC);
    e.call.address = 0x1000;
    e.call.requested = 64;
    e.call.call_flags |= NM_CALL_MBUF;
    send(w, &e);
    assert_int_equal(ledger_find_process(w->ledger, TGID)->host_bytes, 64);
    assert_int_equal(device_of(w, 0).known_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_allocation_counts_the_bytes_that_the_driver_was_asked_for),
        TEST(an_allocation_without_the_hal_counts_what_was_requested),
        TEST(without_the_hal_the_device_is_the_one_that_was_set),
        TEST(a_free_that_returned_0_takes_the_bytes_away),
        TEST(a_free_that_failed_changes_nothing_and_is_counted),
        TEST(a_free_of_an_unknown_address_is_counted_as_unmatched),
        TEST(a_free_that_began_before_the_address_was_given_anew_takes_nothing),
        TEST(a_failed_allocation_for_lack_of_memory_gives_a_notice),
        TEST(a_failed_allocation_for_another_reason_gives_no_notice),
        TEST(a_hal_call_of_its_own_that_runs_out_gives_a_notice),
        TEST(host_memory_is_no_device_memory),
        TEST(registered_host_memory_counts_until_it_is_unregistered),
        TEST(registering_pinned_memory_does_not_count_it_twice),
        TEST(a_pool_sub_allocation_consumes_no_device_memory),
        TEST(a_reserved_address_range_is_no_memory),
        TEST(a_device_reset_frees_that_device_only),
        TEST(a_device_reset_that_failed_frees_nothing),
        TEST(the_peak_of_a_device_stays_after_a_free),
        TEST(the_module_of_the_hal_names_the_owner),
        TEST(another_callers_library_becomes_an_owner_of_its_own),
        TEST(buffers_of_a_queue_are_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
