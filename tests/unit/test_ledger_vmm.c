/* SPDX-License-Identifier: Apache-2.0 */
/* VMM: memory lives while its handle has a reference or a mapping. */
#include "test_ledger.h"

#define HANDLE 0xabc0u
#define VA 0x200000u

static uint64_t known(const struct world *w)
{
    return device_of(w, 0).known_bytes;
}

static void creating_a_handle_takes_memory_and_mapping_it_does_not(void **state)
{
    struct world *w = *state;
    assert_int_equal(do_vmm(w, NM_EVENT_CREATE, HANDLE, 0, 20 * MIB, 0), 0);
    assert_int_equal(known(w), 20 * MIB);
    assert_int_equal(do_vmm(w, NM_EVENT_MAP, HANDLE, VA, 20 * MIB, 0), 0);
    assert_int_equal(known(w), 20 * MIB);
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 1);
}

static int first_entry(void *userdata, const struct ledger_entry *e)
{
    *(struct ledger_entry *)userdata = *e;
    return 1;
}

static void a_mapped_handle_shows_its_address(void **state)
{
    struct world *w = *state;
    struct ledger_entry e;
    do_vmm(w, NM_EVENT_CREATE, HANDLE, 0, 2 * MIB, 0);
    assert_int_equal(ledger_each_entry(w->ledger, TGID, first_entry, &e), 1);
    assert_int_equal(e.handle, HANDLE);
    assert_int_equal(e.address, 0);
    do_vmm(w, NM_EVENT_MAP, HANDLE, VA, 2 * MIB, 0);
    ledger_each_entry(w->ledger, TGID, first_entry, &e);
    assert_int_equal(e.handle, HANDLE);
    assert_int_equal(e.address, VA);
}

static void an_unmap_is_not_a_free_while_the_handle_has_a_reference(void **state)
{
    struct world *w = *state;
    do_vmm(w, NM_EVENT_CREATE, HANDLE, 0, 2 * MIB, 0);
    do_vmm(w, NM_EVENT_MAP, HANDLE, VA, 2 * MIB, 0);
    assert_int_equal(do_vmm(w, NM_EVENT_UNMAP, 0, VA, 0, 0), 0);
    assert_int_equal(known(w), 2 * MIB);
    assert_int_equal(do_vmm(w, NM_EVENT_HANDLE_FREE, HANDLE, 0, 0, 0), 0);
    assert_int_equal(known(w), 0);
}

static void a_released_handle_keeps_its_memory_until_the_unmap(void **state)
{
    struct world *w = *state;
    do_vmm(w, NM_EVENT_CREATE, HANDLE, 0, 2 * MIB, 0);
    do_vmm(w, NM_EVENT_MAP, HANDLE, VA, 2 * MIB, 0);
    do_vmm(w, NM_EVENT_HANDLE_FREE, HANDLE, 0, 0, 0);
    assert_int_equal(known(w), 2 * MIB);
    do_vmm(w, NM_EVENT_UNMAP, 0, VA, 0, 0);
    assert_int_equal(known(w), 0);
    assert_int_equal(ledger_stats(w->ledger)->unmatched_frees, 0);
}

static void memory_mapped_twice_needs_both_unmaps(void **state)
{
    struct world *w = *state;
    do_vmm(w, NM_EVENT_CREATE, HANDLE, 0, 2 * MIB, 0);
    do_vmm(w, NM_EVENT_MAP, HANDLE, VA, 2 * MIB, 0);
    do_vmm(w, NM_EVENT_MAP, HANDLE, VA + 2 * MIB, 2 * MIB, 0);
    do_vmm(w, NM_EVENT_HANDLE_FREE, HANDLE, 0, 0, 0);
    do_vmm(w, NM_EVENT_UNMAP, 0, VA, 0, 0);
    assert_int_equal(known(w), 2 * MIB);
    do_vmm(w, NM_EVENT_UNMAP, 0, VA + 2 * MIB, 0, 0);
    assert_int_equal(known(w), 0);
}

static void a_retained_handle_needs_two_releases(void **state)
{
    struct world *w = *state;
    do_vmm(w, NM_EVENT_CREATE, HANDLE, 0, 2 * MIB, 0);
    assert_int_equal(do_vmm(w, NM_EVENT_RETAIN, HANDLE, VA, 0, 0), 0);
    do_vmm(w, NM_EVENT_HANDLE_FREE, HANDLE, 0, 0, 0);
    assert_int_equal(known(w), 2 * MIB);
    do_vmm(w, NM_EVENT_HANDLE_FREE, HANDLE, 0, 0, 0);
    assert_int_equal(known(w), 0);
}

static void imported_memory_is_in_no_sum_and_its_release_matches(void **state)
{
    struct world *w = *state;
    assert_int_equal(do_vmm(w, NM_EVENT_IMPORT, HANDLE, 0, 0, 0), 0);
    assert_int_equal(do_vmm(w, NM_EVENT_MAP, HANDLE, VA, 2 * MIB, 0), 0);
    assert_int_equal(known(w), 0);
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 0);
    assert_int_equal(do_vmm(w, NM_EVENT_UNMAP, 0, VA, 0, 0), 0);
    assert_int_equal(do_vmm(w, NM_EVENT_HANDLE_FREE, HANDLE, 0, 0, 0), 0);
    assert_int_equal(ledger_stats(w->ledger)->unmatched_frees, 0);
}

static void an_address_mapped_anew_after_a_sleep_holds_the_new_memory_only(void **state)
{
    struct world *w = *state;
    do_vmm(w, NM_EVENT_CREATE, 0x1, 0, 34 * MIB, 0);
    do_vmm(w, NM_EVENT_MAP, 0x1, VA, 34 * MIB, 0);
    do_vmm(w, NM_EVENT_UNMAP, 0, VA, 0, 0);
    do_vmm(w, NM_EVENT_HANDLE_FREE, 0x1, 0, 0, 0);
    assert_int_equal(known(w), 0);
    do_vmm(w, NM_EVENT_CREATE, 0x2, 0, 34 * MIB, 0);
    do_vmm(w, NM_EVENT_MAP, 0x2, VA, 34 * MIB, 0);
    assert_int_equal(known(w), 34 * MIB);
}

static void a_handle_value_given_anew_does_not_lose_memory_that_is_still_mapped(void **state)
{
    struct world *w = *state;
    do_vmm(w, NM_EVENT_CREATE, HANDLE, 0, 2 * MIB, 0);
    do_vmm(w, NM_EVENT_MAP, HANDLE, VA, 2 * MIB, 0);
    do_vmm(w, NM_EVENT_HANDLE_FREE, HANDLE, 0, 0, 0);
    do_vmm(w, NM_EVENT_CREATE, HANDLE, 0, 20 * MIB, 0);
    assert_int_equal(known(w), 22 * MIB);
    do_vmm(w, NM_EVENT_UNMAP, 0, VA, 0, 0);
    assert_int_equal(known(w), 20 * MIB);
    do_vmm(w, NM_EVENT_HANDLE_FREE, HANDLE, 0, 0, 0);
    assert_int_equal(known(w), 0);
    assert_int_equal(ledger_stats(w->ledger)->duplicate_allocs, 0);
}

static void a_late_release_does_not_take_the_handles_next_memory(void **state)
{
    struct world *w = *state;
    do_vmm(w, NM_EVENT_CREATE, HANDLE, 0, 2 * MIB, 0);
    struct nm_event late = world_event(w, NM_EVENT_HANDLE_FREE);
    late.call.handle = HANDLE;
    do_vmm(w, NM_EVENT_CREATE, HANDLE, 0, 20 * MIB, 0);
    assert_int_equal(known(w), 20 * MIB);
    assert_int_equal(send(w, &late), 1);
    assert_int_equal(known(w), 20 * MIB);
    assert_int_equal(ledger_stats(w->ledger)->late_frees, 1);
    assert_int_equal(ledger_stats(w->ledger)->duplicate_allocs, 1);
}

static void a_mapping_over_a_mapping_replaces_it(void **state)
{
    struct world *w = *state;
    do_vmm(w, NM_EVENT_CREATE, HANDLE, 0, 2 * MIB, 0);
    do_vmm(w, NM_EVENT_MAP, HANDLE, VA, 2 * MIB, 0);
    do_vmm(w, NM_EVENT_HANDLE_FREE, HANDLE, 0, 0, 0);
    do_vmm(w, NM_EVENT_MAP, HANDLE, VA, 2 * MIB,
           0); /* the same memory: it must not vanish between */
    assert_int_equal(known(w), 2 * MIB);
    do_vmm(w, NM_EVENT_CREATE, 0x2, 0, 4 * MIB, 0);
    do_vmm(w, NM_EVENT_MAP, 0x2, VA, 4 * MIB, 0);
    assert_int_equal(known(w), 4 * MIB);
}

static void host_vmm_memory_is_host_memory(void **state)
{
    struct world *w = *state;
    struct nm_event e = world_event(w, NM_EVENT_CREATE);
    e.call.handle = HANDLE;
    e.call.requested = e.call.physical_bytes = 20 * MIB;
    e.call.flags = 1u << 10 | 1u << 12; /* host side, pages of 2 MiB */
    e.call.call_flags |= NM_CALL_PHYS_PROP;
    assert_int_equal(send(w, &e), 0);
    assert_int_equal(known(w), 0);
    assert_int_equal(ledger_find_process(w->ledger, TGID)->host_bytes, 20 * MIB);
}

static void a_created_handle_is_on_the_device_of_its_property(void **state)
{
    struct world *w = *state;
    struct nm_event e = world_event(w, NM_EVENT_CREATE);
    e.call.handle = HANDLE;
    e.call.physical_bytes = MIB;
    e.call.flags = 9u | (uint64_t)3 << 56; /* device 9, module HCCL */
    e.call.call_flags |= NM_CALL_PHYS_PROP;
    send(w, &e);
    assert_int_equal(device_of(w, 9).known_bytes, MIB);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "CANN@HCCL").bytes, MIB);
}

static void a_failed_create_is_out_of_memory(void **state)
{
    struct world *w = *state;
    struct nm_event e = world_event(w, NM_EVENT_CREATE);
    e.result = 207001;
    assert_int_equal(send(w, &e), 1);
    assert_int_equal(w->notices[NOTICE_OOM], 1);
}

static void a_device_reset_frees_mapped_handles_too(void **state)
{
    struct world *w = *state;
    do_vmm(w, NM_EVENT_CREATE, HANDLE, 0, 2 * MIB, 0);
    do_vmm(w, NM_EVENT_MAP, HANDLE, VA, 2 * MIB, 0);
    do_vmm(w, NM_EVENT_CREATE, 0x2, 0, 4 * MIB, 0);
    struct nm_event reset = world_event(w, NM_EVENT_DEVICE_RESET);
    assert_int_equal(send(w, &reset), 0);
    assert_int_equal(known(w), 0);
    assert_int_equal(ledger_stats(w->ledger)->live_entries, 0);
}

static void a_handle_from_before_attach_is_unmatched_when_it_goes(void **state)
{
    struct world *w = *state;
    assert_int_equal(do_vmm(w, NM_EVENT_UNMAP, 0, VA, 0, 0), 1);
    assert_int_equal(do_vmm(w, NM_EVENT_HANDLE_FREE, HANDLE, 0, 0, 0), 1);
    assert_int_equal(ledger_stats(w->ledger)->unmatched_frees, 2);
    /* retained after attach: that one reference is ours, the first one is not */
    do_vmm(w, NM_EVENT_RETAIN, HANDLE, VA, 0, 0);
    assert_int_equal(do_vmm(w, NM_EVENT_HANDLE_FREE, HANDLE, 0, 0, 0), 0);
    assert_int_equal(do_vmm(w, NM_EVENT_HANDLE_FREE, HANDLE, 0, 0, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(creating_a_handle_takes_memory_and_mapping_it_does_not),
        TEST(a_mapped_handle_shows_its_address),
        TEST(an_unmap_is_not_a_free_while_the_handle_has_a_reference),
        TEST(a_released_handle_keeps_its_memory_until_the_unmap),
        TEST(memory_mapped_twice_needs_both_unmaps),
        TEST(a_retained_handle_needs_two_releases),
        TEST(imported_memory_is_in_no_sum_and_its_release_matches),
        TEST(an_address_mapped_anew_after_a_sleep_holds_the_new_memory_only),
        TEST(a_handle_value_given_anew_does_not_lose_memory_that_is_still_mapped),
        TEST(a_late_release_does_not_take_the_handles_next_memory),
        TEST(a_mapping_over_a_mapping_replaces_it),
        TEST(host_vmm_memory_is_host_memory),
        TEST(a_created_handle_is_on_the_device_of_its_property),
        TEST(a_failed_create_is_out_of_memory),
        TEST(a_device_reset_frees_mapped_handles_too),
        TEST(a_handle_from_before_attach_is_unmatched_when_it_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
