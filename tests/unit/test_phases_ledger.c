/* SPDX-License-Identifier: Apache-2.0 */
/* Phases of events and sums as owners in the ledger. */
#include "phases.h"
#include "test_ledger.h"

static struct phase_table *table;

static int setup(void **state)
{
    assert_int_equal(phase_table_new(&table), 0);
    return world_setup_with(state, (struct ledger_config){.phases = table});
}

static int teardown(void **state)
{
    int r = world_teardown(state);
    table = phase_table_free(table);
    return r;
}

static uint32_t phase_of(const char *qualified)
{
    struct phase_code code = {.qualified = qualified};
    return phase_verdict(table, &code) & 0xffff;
}

static int block(struct world *w, uint64_t address, int64_t bytes, uint32_t phase, uint32_t stack,
                 int64_t total)
{
    struct nm_event e = world_event(w, NM_EVENT_BLOCK);
    e.block.address = address;
    e.block.size_bytes = bytes;
    e.block.action = bytes > 0 ? NM_BLOCK_MALLOC : NM_BLOCK_FREE;
    e.block.total_allocated_bytes = e.block.total_active_bytes = total;
    e.block.total_reserved_bytes = 1 << 30;
    e.block.phase = phase;
    e.block.stack = stack;
    return send(w, &e);
}

static uint64_t bytes_of(const struct world *w, enum ledger_level level, const char *owner)
{
    return owner_sum(w, level, owner).bytes;
}

static int stack_of_entry(void *userdata, const struct ledger_entry *e)
{
    if (e->level == LEVEL_BLOCK)
        *(uint32_t *)userdata = e->stack;
    return 0;
}

static void a_block_belongs_to_the_phase_it_was_allocated_in(void **state)
{
    struct world *w = *state;
    uint32_t weights = phase_of("NPUWorker.load_model"), stack = 0;

    assert_int_equal(block(w, 0x1000, 8 * MIB, weights, 77, 8 * MIB), 0);
    assert_int_equal(bytes_of(w, LEVEL_BLOCK, "PTA@vllm@weights"), 8 * MIB);
    assert_false(owner_sum(w, LEVEL_BLOCK, "PTA@vllm@weights").inferred);
    ledger_each_entry(w->ledger, TGID, stack_of_entry, &stack);
    assert_int_equal(stack, 77);
    /* the phase of a free says nothing */
    assert_int_equal(
        block(w, 0x1000, -(int64_t)(8 * MIB), phase_of("NPUWorker.execute_model"), 0, 0), 0);
    assert_int_equal(bytes_of(w, LEVEL_BLOCK, NULL), 0);
    assert_int_equal(block(w, 0x2000, MIB, weights | NM_PHASE_INFERRED, 0, MIB), 0);
    assert_true(owner_sum(w, LEVEL_BLOCK, "PTA@vllm@weights").inferred);
    assert_int_equal(block(w, 0x3000, MIB, 0, 0, 2 * MIB), 0);
    assert_int_equal(bytes_of(w, LEVEL_BLOCK, "PTA@block"), MIB);
    assert_int_equal(block(w, 0x4000, MIB, 250, 0, 3 * MIB), 0); /* no such class */
    assert_int_equal(bytes_of(w, LEVEL_BLOCK, "PTA@block"), 2 * MIB);
}

static void workspace_is_told_by_its_component(void **state)
{
    struct world *w = *state;
    struct nm_event e = world_event(w, NM_EVENT_BLOCK);
    e.block.address = 0x1000;
    e.block.size_bytes = MIB;
    e.block.component = NM_BLOCK_WORKSPACE;
    e.block.total_allocated_bytes = e.block.total_reserved_bytes = e.block.total_active_bytes = MIB;
    e.block.phase = phase_of("NPUWorker.load_model");
    assert_int_equal(send(w, &e), 0);
    assert_int_equal(bytes_of(w, LEVEL_BLOCK, "PTA_WORKSPACE"), MIB);
}

static void small(struct world *w, uint32_t phase, uint64_t in, uint64_t out)
{
    struct nm_small_key key = {.tgid = TGID, .phase = phase, .stream = 5};
    struct nm_small_totals totals = {
        .malloc_count = 9, .free_count = 1, .malloc_bytes = in, .free_bytes = out};
    assert_int_equal(ledger_small_totals(w->ledger, &key, &totals), 0);
}

static void small_blocks_have_a_row_per_phase(void **state)
{
    struct world *w = *state;
    uint32_t weights = phase_of("NPUWorker.load_model");

    assert_int_equal(block(w, 0x1000, MIB, weights, 0, MIB + 7000), 0);
    small(w, weights, 5000, 1000);
    small(w, phase_of("NPUWorker.execute_model"), 9000, 7000);
    small(w, 0, 1000, 0);
    assert_int_equal(bytes_of(w, LEVEL_BLOCK, "PTA@vllm@weights"), MIB + 4000);
    assert_int_equal(bytes_of(w, LEVEL_BLOCK, "PTA@vllm@serve"), 2000);
    assert_int_equal(bytes_of(w, LEVEL_BLOCK, "PTA@small"), 1000);
    assert_int_equal(bytes_of(w, LEVEL_BLOCK, NULL), MIB + 7000);
    /* frees of small blocks from before attach take nothing from what has a phase */
    small(w, 0, 1000, 3000);
    assert_int_equal(bytes_of(w, LEVEL_BLOCK, "PTA@vllm@weights"), MIB + 4000);
    assert_int_equal(bytes_of(w, LEVEL_BLOCK, "PTA@small"), 0);
}

static int create(struct world *w, uint64_t handle, uint64_t bytes, uint64_t caller, uint32_t phase)
{
    struct nm_event e = world_event(w, NM_EVENT_CREATE);
    e.call.handle = handle;
    e.call.requested = e.call.physical_bytes = bytes;
    e.call.caller = caller;
    e.call.flags = 1u << 12 | (uint64_t)MODULE_APP << 56;
    e.call.call_flags |= NM_CALL_PHYS_PROP | NM_CALL_HAL_SEEN;
    e.call.api = PROBE_ACL_CREATE;
    e.call.phase = phase;
    return send(w, &e);
}

static int reserve(struct world *w, uint64_t address, uint64_t bytes, uint32_t phase)
{
    struct nm_event e = world_event(w, NM_EVENT_RESERVE);
    e.call.address = address;
    e.call.requested = bytes;
    e.call.caller = CALLER_CAMEM;
    e.call.phase = phase;
    return send(w, &e);
}

static void woken_memory_is_whose_the_range_was(void **state)
{
    struct world *w = *state;
    uint32_t weights = phase_of("NPUWorker.load_model"), wake = phase_of("NPUWorker.wake_up");

    reserve(w, 0x100000, 4 * MIB, weights);
    create(w, 1, 4 * MIB, CALLER_CAMEM, weights);
    do_vmm(w, NM_EVENT_MAP, 1, 0x100000, 4 * MIB, CALLER_CAMEM);
    assert_int_equal(bytes_of(w, LEVEL_PHYSICAL, "PTA@vllm@weights"), 4 * MIB);
    do_vmm(w, NM_EVENT_UNMAP, 0, 0x100000, 0, CALLER_CAMEM);
    do_vmm(w, NM_EVENT_HANDLE_FREE, 1, 0, 0, CALLER_CAMEM);
    assert_int_equal(bytes_of(w, LEVEL_PHYSICAL, NULL), 0);
    create(w, 2, 4 * MIB, CALLER_CAMEM, wake);
    assert_int_equal(bytes_of(w, LEVEL_PHYSICAL, "PTA@vllm@wake_up"), 4 * MIB);
    do_vmm(w, NM_EVENT_MAP, 2, 0x100000, 4 * MIB, CALLER_CAMEM);
    assert_int_equal(bytes_of(w, LEVEL_PHYSICAL, "PTA@vllm@weights"), 4 * MIB);
    assert_int_equal(bytes_of(w, LEVEL_PHYSICAL, "PTA@vllm@wake_up"), 0);
}

static void pools_and_modules_outrank_frames_and_frames_the_library(void **state)
{
    struct world *w = *state;
    uint32_t weights = phase_of("NPUWorker.load_model");
    struct nm_event e;

    create(w, 1, 2 * MIB, CALLER_TORCH, weights);
    assert_int_equal(bytes_of(w, LEVEL_PHYSICAL, "PTA@pool"), 2 * MIB);
    e = event_alloc(w, 0x9000, MIB, MIB, 0);
    e.call.flags = hal_flags(0, 3); /* HCCL */
    e.call.phase = weights;
    send(w, &e);
    assert_int_equal(bytes_of(w, LEVEL_PHYSICAL, "CANN@HCCL"), MIB);
    create(w, 2, MIB, CALLER_CAMEM, 0);
    assert_int_equal(bytes_of(w, LEVEL_PHYSICAL, "APP@vllm_ascend_C"), MIB);
    create(w, 3, MIB, CALLER_CAMEM, weights);
    assert_int_equal(bytes_of(w, LEVEL_PHYSICAL, "PTA@vllm@weights"), MIB);
}

struct phase_pick {
    uint32_t class_id;
    uint16_t device;
    struct ledger_phase_use use;
    size_t rows;
};

static int pick_phase(void *userdata, const struct ledger_phase_use *u)
{
    struct phase_pick *pick = userdata;
    pick->rows++;
    if (u->class_id == pick->class_id && u->device == pick->device)
        pick->use = *u;
    return 0;
}

static struct ledger_phase_use phase_use(const struct world *w, uint32_t phase, uint16_t device)
{
    struct phase_pick pick = {.class_id = NM_PHASE_CLASS(phase), .device = device};
    ledger_each_phase(w->ledger, TGID, pick_phase, &pick);
    return pick.use;
}

static int mem_info(struct world *w, uint64_t attribute, uint64_t free, uint64_t total,
                    uint32_t phase)
{
    struct nm_event e = world_event(w, NM_EVENT_MEM_INFO);
    e.call.address = free;
    e.call.handle = total;
    e.call.flags = attribute;
    e.call.phase = phase;
    e.call.api = PROBE_ACL_MEM_INFO;
    return send(w, &e);
}

static void the_highest_of_a_phase_is_kept(void **state)
{
    struct world *w = *state;
    uint32_t weights = phase_of("NPUWorker.load_model");
    uint32_t profile = phase_of("NPUModelRunner.profile_run");

    do_alloc(w, 0x100000, 64 * MIB, 0);
    block(w, 0x1000, 8 * MIB, weights, 0, 8 * MIB);
    block(w, 0x2000, 4 * MIB, profile, 0, 12 * MIB);
    block(w, 0x3000, 4 * MIB, profile, 0, 16 * MIB);
    block(w, 0x2000, -(int64_t)(4 * MIB), 0, 0, 12 * MIB);
    block(w, 0x4000, 2 * MIB, profile, 0, 14 * MIB);
    struct ledger_phase_use u = phase_use(w, profile, 0);
    assert_int_equal(u.start_allocated_bytes, 8 * MIB);
    assert_int_equal(u.peak_allocated_bytes, 16 * MIB);
    assert_int_equal(u.peak_reserved_bytes, 1 << 30);
    assert_int_equal(u.peak_physical_bytes, 64 * MIB);
    assert_int_equal(u.block_count, 3);
    assert_true(u.first_ns < u.last_ns);
    u = phase_use(w, weights, 0);
    assert_int_equal(u.peak_allocated_bytes, 8 * MIB);
    assert_int_equal(u.first.time_ns, 0);
}

static void what_the_driver_told_a_process_is_kept_with_what_it_held(void **state)
{
    struct world *w = *state;
    uint32_t init = phase_of("NPUWorker.init_device");
    uint32_t profile = phase_of("NPUModelRunner.profile_run");
    struct nm_event e = world_event(w, NM_EVENT_DEVICE_SET);

    e.call.flags = 1;
    send(w, &e);
    assert_int_equal(mem_info(w, 1, 900, 1000, init), 0);
    assert_int_equal(mem_info(w, 1, 800, 1000, init), 0);
    assert_int_equal(mem_info(w, 1, 700, 1000, init), 0);
    struct ledger_phase_use u = phase_use(w, init, 1);
    assert_int_equal(u.first.free_bytes, 900);
    assert_int_equal(u.last.free_bytes, 700);
    assert_int_equal(u.last.total_bytes, 1000);
    assert_int_equal(u.last.reserved_bytes, 0);

    e = world_event(w, NM_EVENT_DEVICE_SET); /* blocks of these tests are of device 0 */
    send(w, &e);
    do_alloc(w, 0x100000, 64 * MIB, 0);
    block(w, 0x1000, 8 * MIB, profile, 0, 8 * MIB);
    mem_info(w, 1, 500, 1000, profile);
    u = phase_use(w, profile, 0);
    assert_int_equal(u.last.physical_bytes, 64 * MIB);
    assert_int_equal(u.last.allocated_bytes, 8 * MIB);
    assert_int_equal(u.last.reserved_bytes, 1 << 30);
    assert_int_equal(u.first.time_ns, u.last.time_ns);
}

static void answers_that_cannot_be_are_refused(void **state)
{
    struct world *w = *state;

    assert_int_equal(mem_info(w, 1, 1001, 1000, 0), -EBADMSG);
    assert_int_equal(mem_info(w, 1, 1, UINT64_MAX, 0), -EBADMSG);
    assert_int_equal(mem_info(w, 1, 1, 1000, 250), -EBADMSG); /* no such class can be */
    assert_int_equal(mem_info(w, 0, 1, 1000, 0), 0);          /* DDR: not what is planned with */
    assert_int_equal(mem_info(w, 1, 0, 0, 0), 0);
    struct phase_pick pick = {0};
    ledger_each_phase(w->ledger, TGID, pick_phase, &pick);
    assert_int_equal(pick.rows, 0);
    assert_int_equal(mem_info(w, 1, 1, 1000, 0), 0); /* in no phase */
    assert_int_equal(phase_use(w, 0, 0).first.free_bytes, 1);
}

static int collected_free(struct world *w, uint64_t address, int64_t bytes, unsigned generation)
{
    return block(w, address, -bytes, NM_PHASE_COLLECTED | generation << 19, 0, 1 << 30);
}

static void what_a_collection_gave_back_is_told_by_its_generation(void **state)
{
    struct world *w = *state;
    struct ledger_collected c;

    for (uint64_t i = 1; i <= 6; i++)
        block(w, i << 24, 8 * MIB, 0, 0, 1 << 30);
    ledger_collected(w->ledger, TGID, &c);
    assert_int_equal(c.freed_blocks[2], 0);
    collected_free(w, 1 << 24, 8 * MIB, 0);
    collected_free(w, 2 << 24, 8 * MIB, 2);
    collected_free(w, 3 << 24, 8 * MIB, 2);
    w->now_ns += 5000000000; /* another collection */
    collected_free(w, 4 << 24, 8 * MIB, 2);
    collected_free(w, 5 << 24, 8 * MIB, 3);          /* there is none */
    block(w, 6 << 24, -(int64_t)(8 * MIB), 0, 0, 0); /* by its last reference */
    ledger_collected(w->ledger, TGID, &c);
    assert_int_equal(c.freed_bytes[0], 8 * MIB);
    assert_int_equal(c.freed_bytes[1], 0);
    assert_int_equal(c.freed_bytes[2], 24 * MIB);
    assert_int_equal(c.freed_blocks[2], 3);
    assert_int_equal(c.largest_bytes, 16 * MIB);
    ledger_collected(w->ledger, 4242, &c);
    assert_int_equal(c.freed_bytes[2], 0);
}

int main(void)
{
#undef TEST
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_block_belongs_to_the_phase_it_was_allocated_in),
        TEST(workspace_is_told_by_its_component),
        TEST(small_blocks_have_a_row_per_phase),
        TEST(woken_memory_is_whose_the_range_was),
        TEST(pools_and_modules_outrank_frames_and_frames_the_library),
        TEST(the_highest_of_a_phase_is_kept),
        TEST(what_a_collection_gave_back_is_told_by_its_generation),
        TEST(what_the_driver_told_a_process_is_kept_with_what_it_held),
        TEST(answers_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
