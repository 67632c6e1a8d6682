/* SPDX-License-Identifier: Apache-2.0 */
/* Owner rules by module, library, policy and API; and the numbering of the probe table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "owner.h"
#include "probes.h"

#define MIB ((uint64_t)1 << 20)

/* An allocation as the kernel reports it; module 0: the HAL was not seen. */
static struct nm_event alloc(uint16_t api, uint8_t policy, uint64_t bytes, unsigned module)
{
    struct nm_event e = {.kind = NM_EVENT_ALLOC, .abi = NM_EVENT_ABI};
    e.call.api = api;
    e.call.policy = policy;
    e.call.requested = bytes;
    e.call.call_flags = NM_CALL_API_SEEN;
    if (module) {
        e.call.call_flags |= NM_CALL_HAL_SEEN;
        e.call.flags = (uint64_t)module << 56;
    }
    return e;
}

#define assert_owner(event, library, is_host, name, guessed)                                       \
    do {                                                                                           \
        struct owner_verdict v_ = owner_of_call(event, library, is_host);                          \
        assert_string_equal(owner_fixed_name(v_.id), name);                                        \
        assert_int_equal(v_.inferred, guessed);                                                    \
    } while (0)

static void the_module_of_the_hal_decides_before_the_caller(void **state)
{
    static const struct {
        unsigned module;
        const char *owner;
    } cases[] = {
        /* CANN's log module ids */
        {3, "CANN@HCCL"},   {6, "CANN@DVPP"}, {7, "CANN@RUNTIME"},   {45, "CANN@GE"},
        {36, "CANN@AICPU"}, {63, "CANN@OP"},  {48, "CANN@ASCENDCL"}, {31, "CANN@PROFILING"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct nm_event e = alloc(PROBE_ACL_MALLOC_CFG, 0, MIB, cases[i].module);
        assert_owner(&e, "torch_npu", false, cases[i].owner, false);
    }
}

static void torch_segments_are_told_apart_by_policy_and_size(void **state)
{
    struct nm_event range = alloc(PROBE_ACL_RESERVE, 0, 8192 * MIB, 0);
    range.kind = NM_EVENT_RESERVE;
    assert_owner(&range, "torch_npu", false, "PTA@pool", false);
    struct nm_event e = alloc(PROBE_ACL_MALLOC_ALIGN32, 0, 2 * MIB, 33);
    assert_owner(&e, "torch_npu", false, "PTA@pool", false);
    e.call.policy = 6; /* HUGE1G_ONLY */
    assert_owner(&e, "torch_npu", false, "PTA@pool", false);
    e.call.policy = 1; /* HUGE_ONLY */
    assert_owner(&e, "torch_npu", false, "PTA_WORKSPACE", false);
    e.call.policy = 2; /* NORMAL_ONLY: an event word */
    assert_owner(&e, "torch_npu", false, "PTA@other", false);
    e.call.policy = 0;
    e.call.requested = 2 * MIB - 1;
    assert_owner(&e, "torch_npu", false, "PTA@other", false);
}

static void plain_malloc_by_torch_is_a_segment_too(void **state)
{
    struct nm_event e = alloc(PROBE_ACL_MALLOC, 0, 20 * MIB, 33);
    assert_int_equal(owner_of_call(&e, "torch_npu", false).segment, OWNER_SEGMENT_CACHING);
    assert_int_equal(owner_of_call(&e, "atb", false).segment, OWNER_SEGMENT_NONE);
    assert_int_equal(owner_of_call(&e, "", false).segment, OWNER_SEGMENT_NONE);
}

static void without_a_library_align32_is_inferred_to_be_torch(void **state)
{
    struct nm_event e = alloc(PROBE_ACL_MALLOC_ALIGN32, 0, 20 * MIB, 33);
    assert_owner(&e, "", false, "PTA@pool", true);
    e.call.policy = 1;
    assert_owner(&e, NULL, false, "PTA_WORKSPACE", true);
}

static void a_handle_made_by_torch_is_a_segment_of_the_caching_pool(void **state)
{
    struct nm_event e = alloc(PROBE_ACL_CREATE, 0xff, 20 * MIB, 0);
    e.kind = NM_EVENT_CREATE;
    assert_int_equal(owner_of_call(&e, "torch_npu", false).segment, OWNER_SEGMENT_CACHING);
    assert_int_equal(owner_of_call(&e, "vllm_ascend_C", false).segment, OWNER_SEGMENT_NONE);
    assert_int_equal(owner_of_call(&e, "torch_npu", true).segment, OWNER_SEGMENT_NONE);
}

static void pinned_memory_of_torch_is_named(void **state)
{
    struct nm_event e = alloc(PROBE_ACL_MALLOC_HOST, 0xff, MIB, 33);
    assert_owner(&e, "torch_npu", true, "PTA@pinned", false);
}

static void a_library_stands_for_a_module_that_was_not_seen(void **state)
{
    struct nm_event e = alloc(PROBE_ACL_MALLOC_CFG, 0, MIB, 0);
    assert_owner(&e, "hccl", false, "CANN@HCCL", true);
    assert_owner(&e, "runtime", false, "CANN@RUNTIME", true);
    assert_owner(&e, "ge_runner", false, "CANN@GE", true);
    assert_owner(&e, "atb", false, "ATB", false);
    assert_owner(&e, "", false, "unknown", false);
}

static void any_other_library_is_an_owner_by_its_name(void **state)
{
    struct nm_event e = alloc(PROBE_ACL_MALLOC, 0, MIB, 33);
    struct owner_verdict v = owner_of_call(&e, "mooncake", false);
    assert_true(v.by_library);
    assert_false(v.inferred);
    assert_false(owner_of_call(&e, "", false).by_library);
    assert_owner(&e, "", false, "APP", false);
}

static void an_unnamed_module_falls_back_to_the_library(void **state)
{
    struct nm_event e = alloc(PROBE_ACL_MALLOC, 0, MIB, 200);
    assert_true(owner_of_call(&e, "mooncake", false).by_library);
}

static void blocks_are_owned_by_component_and_allocator(void **state)
{
    struct nm_block b = {.component = NM_BLOCK_CACHING};
    assert_string_equal(owner_fixed_name(owner_of_block(&b)), "PTA@block");
    b.allocator = 1;
    assert_string_equal(owner_fixed_name(owner_of_block(&b)), "PTA@external");
    b.component = NM_BLOCK_WORKSPACE;
    assert_string_equal(owner_fixed_name(owner_of_block(&b)), "PTA_WORKSPACE");
}

static void fixed_owners_begin_with_unknown_and_before_attach(void **state)
{
    assert_string_equal(owner_fixed_name(0), "unknown");
    assert_string_equal(owner_fixed_name(1), "before_attach");
    assert_null(owner_fixed_name(OWNER_ID_COUNT));
}

static void probe_rows_are_numbered_from_1_in_file_order(void **state)
{
    assert_int_equal(PROBE_ACL_MALLOC, 1);
    assert_int_equal(PROBE_ACL_MALLOC_ALIGN32, 2);
    assert_int_equal(probe_find("aclrtMalloc"), 1);
    assert_string_equal(probe_name(PROBE_HAL_ALLOC), "halMemAlloc");
    assert_int_equal(probe_row(PROBE_HAL_ALLOC)->level, PROBE_LEVEL_HAL);
    assert_int_equal(probe_row(PROBE_HAL_ALLOC)->kind, NM_EVENT_ALLOC);
    assert_int_equal(probe_find("nothing"), PROBE_NONE);
    assert_string_equal(probe_name(PROBE_COUNT), "");
}

static void no_mangled_name_has_a_return_probe(void **state)
{
    for (unsigned id = 1; id < PROBE_COUNT; id++) {
        const struct probe_row *row = probe_row(id);
        /* names are unique among the rows that are always probed, and among the others */
        assert_int_equal(row->is_access, id >= PROBE_ALWAYS_COUNT);
        assert_true(!row->is_access || row->is_entry_only);
        for (unsigned other = 1; other < id; other++)
            assert_true(probe_row(other)->is_access != row->is_access ||
                        strcmp(probe_name(other), probe_name(id)) != 0);
        if (strncmp(probe_name(id), "_Z", 2) == 0)
            assert_true(probe_row(id)->is_entry_only);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_module_of_the_hal_decides_before_the_caller),
        cmocka_unit_test(torch_segments_are_told_apart_by_policy_and_size),
        cmocka_unit_test(plain_malloc_by_torch_is_a_segment_too),
        cmocka_unit_test(without_a_library_align32_is_inferred_to_be_torch),
        cmocka_unit_test(a_handle_made_by_torch_is_a_segment_of_the_caching_pool),
        cmocka_unit_test(pinned_memory_of_torch_is_named),
        cmocka_unit_test(a_library_stands_for_a_module_that_was_not_seen),
        cmocka_unit_test(any_other_library_is_an_owner_by_its_name),
        cmocka_unit_test(an_unnamed_module_falls_back_to_the_library),
        cmocka_unit_test(blocks_are_owned_by_component_and_allocator),
        cmocka_unit_test(fixed_owners_begin_with_unknown_and_before_attach),
        cmocka_unit_test(probe_rows_are_numbered_from_1_in_file_order),
        cmocka_unit_test(no_mangled_name_has_a_return_probe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
