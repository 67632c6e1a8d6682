/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread allocates for: communicators, tags, graph capture. */
#include "test_ledger.h"

static struct nm_event scope(struct world *w, uint8_t kind, uint32_t type, const char *name)
{
    struct nm_event e = world_event(w, kind);
    memset(&e.scope, 0, sizeof(e.scope));
    e.scope.type = type;
    if (name) {
        e.scope.value = (uint32_t)strlen(name);
        memcpy(e.scope.name, name,
               strlen(name) < sizeof(e.scope.name) ? strlen(name) : sizeof(e.scope.name));
    }
    return e;
}

static void begin(struct world *w, uint32_t tid, uint32_t type, const char *name)
{
    struct nm_event e = scope(w, NM_EVENT_SCOPE_BEGIN, type, name);
    e.tid = tid;
    assert_int_equal(send(w, &e), 0);
}

static void end(struct world *w, uint32_t tid, uint32_t type)
{
    struct nm_event e = scope(w, NM_EVENT_SCOPE_END, type, NULL);
    e.tid = tid;
    assert_int_equal(send(w, &e), 0);
}

static void alloc_module(struct world *w, uint32_t tid, uint64_t address, uint64_t bytes,
                         unsigned module)
{
    struct nm_event e = event_alloc(w, address, bytes, bytes, 0);
    e.tid = tid;
    e.call.flags = hal_flags(0, module);
    assert_int_equal(send(w, &e), 0);
}

static void comm_made(struct world *w, uint32_t tid, uint64_t handle, uint32_t rank, uint32_t world,
                      int32_t result)
{
    struct nm_event e = world_event(w, NM_EVENT_COMM_INIT);
    e.tid = tid;
    e.call.handle = handle;
    e.call.flags = rank | (uint64_t)world << 32;
    e.result = result;
    send(w, &e);
}

static int count_comm(void *userdata, const struct ledger_comm *c)
{
    struct ledger_comm *list = userdata;
    list[list[0].index++ + 1] = *c;
    return 0;
}

/* list[0].index is their number; they follow. */
static struct ledger_comm *comms(const struct world *w)
{
    static struct ledger_comm list[16];
    memset(list, 0, sizeof(list));
    ledger_each_comm(w->ledger, TGID, count_comm, list);
    return list;
}

static void test_memory_of_each_communicator(void **state)
{
    struct world *w = *state;
    begin(w, 7, NM_SCOPE_COMM, "tp");
    alloc_module(w, 7, 0x10000000, 401 * MIB, 3);
    alloc_module(w, 7, 0x30000000, 2 * MIB, 7); /* the runtime's own, inside */
    alloc_module(w, 8, 0x40000000, 5 * MIB, 3); /* another thread */
    comm_made(w, 7, 0xabc, 1, 4, 0);
    alloc_module(w, 7, 0x50000000, 9 * MIB, 3); /* later; there is no other that it could be for */
    begin(w, 7, NM_SCOPE_COMM, "");
    alloc_module(w, 7, 0x60000000, 201 * MIB, 3);
    comm_made(w, 7, 0xdef, 0, 2, 0);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "CANN@HCCL@tp").bytes, 410 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "CANN@HCCL@1").bytes, 201 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "CANN@HCCL").bytes, 5 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "CANN@RUNTIME").bytes, 2 * MIB);
    struct ledger_comm *c = comms(w);
    assert_int_equal(c[0].index, 2);
    assert_string_equal(c[1].name, "tp");
    assert_int_equal(c[1].handle, 0xabc);
    assert_int_equal(c[1].rank, 1);
    assert_int_equal(c[1].world_size, 4);
    assert_int_equal(c[2].world_size, 2);
    do_free(w, 0x50000000);
    do_free(w, 0x10000000);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "CANN@HCCL@tp").bytes, 0);
    struct nm_event gone = world_event(w, NM_EVENT_COMM_DESTROY);
    gone.call.handle = 0xabc;
    send(w, &gone);
    assert_int_equal(comms(w)[0].index, 1);
    assert_int_equal(comms(w)[1].handle, 0xdef);
}

static void test_a_communicator_that_failed(void **state)
{
    struct world *w = *state;
    begin(w, 7, NM_SCOPE_COMM, "tp");
    comm_made(w, 7, 0, 1, 4, 15);
    assert_int_equal(comms(w)[0].index, 0);
    alloc_module(w, 7, 0x10000000, 1 * MIB, 3); /* the scope is over */
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "CANN@HCCL").bytes, 1 * MIB);
}

/* A communicator with nothing allocated while it was made. */
static void lazy_comm(struct world *w, const char *name, uint32_t buffer_mib, uint64_t handle)
{
    struct nm_event e = scope(w, NM_EVENT_SCOPE_BEGIN, NM_SCOPE_COMM, name);
    e.scope.value = buffer_mib;
    e.tid = 7;
    assert_int_equal(send(w, &e), 0);
    comm_made(w, 7, handle, 0, 2, 0);
}

static uint64_t held_by(const struct world *w, const char *owner)
{
    return owner_sum(w, LEVEL_PHYSICAL, owner).bytes / MIB;
}

/* What is allocated at the first use, on any thread: by size, and only where one alone can be. */
static void test_buffers_taken_at_first_use(void **state)
{
    struct world *w = *state;
    lazy_comm(w, "tp", 200, 0xa);
    lazy_comm(w, "dp", 50, 0xb);
    lazy_comm(w, "mc2", 1000, 0xc);
    alloc_module(w, 9, 0x10000000, 401 * MIB, 3); /* both ways in one piece */
    alloc_module(w, 9, 0x30000000, 50 * MIB, 3);  /* one way each */
    alloc_module(w, 9, 0x40000000, 50 * MIB, 3);
    assert_int_equal(held_by(w, "CANN@HCCL@tp"), 401);
    assert_int_equal(held_by(w, "CANN@HCCL@dp"), 100);
    alloc_module(w, 9, 0x50000000, 401 * MIB, 3); /* whose? tp has what it needs */
    alloc_module(w, 9, 0x70000000, 3 * MIB, 3);   /* no buffer of any */
    assert_int_equal(held_by(w, "CANN@HCCL"), 404);
    lazy_comm(w, "ep", 1000, 0xd);
    alloc_module(w, 9, 0x80000000, 2001 * MIB, 3); /* of mc2 or of ep */
    assert_int_equal(held_by(w, "CANN@HCCL"), 2405);
    assert_true(owner_sum(w, LEVEL_PHYSICAL, "CANN@HCCL@tp").inferred);
    assert_false(owner_sum(w, LEVEL_PHYSICAL, "CANN@HCCL").inferred);
}

static void test_unseen_communicators_leave_it_open(void **state)
{
    struct world *w = *state;
    alloc_module(w, 9, 0x10000000, 1 * MIB, 7);
    ledger_driver_usage(w->ledger, TGID, 0, 3, 401 * MIB, w->now_ns); /* from before attach */
    lazy_comm(w, "tp", 200, 0xa);
    alloc_module(w, 9, 0x30000000, 401 * MIB, 3);
    assert_int_equal(held_by(w, "CANN@HCCL@tp"), 0);
    assert_int_equal(held_by(w, "CANN@HCCL"), 401);
}

static struct totals total(int64_t mib)
{
    return (struct totals){mib * (int64_t)MIB, 1000 * (int64_t)MIB, mib * (int64_t)MIB};
}

static void block_on(struct world *w, uint32_t tid, uint64_t address, int64_t mib, int64_t sum,
                     uint32_t phase)
{
    struct nm_event e = world_event(w, NM_EVENT_BLOCK);
    e.tid = tid;
    e.block.address = address;
    e.block.size_bytes = mib * (int64_t)MIB;
    e.block.total_allocated_bytes = total(sum).allocated;
    e.block.total_reserved_bytes = total(sum).reserved;
    e.block.total_active_bytes = total(sum).active;
    e.block.phase = phase;
    assert_int_equal(send(w, &e), 0);
}

static void test_tags_nest_and_are_of_their_thread(void **state)
{
    struct world *w = *state;
    begin(w, 7, NM_SCOPE_TAG, "UserDefined@a");
    block_on(w, 7, 0x1000, 1, 1, 0);
    begin(w, 7, NM_SCOPE_TAG, "UserDefined@b");
    block_on(w, 7, 0x2000, 2, 3, 0);
    block_on(w, 8, 0x3000, 4, 7, 0);
    end(w, 7, NM_SCOPE_TAG);
    block_on(w, 7, 0x4000, 8, 15, 0);
    end(w, 7, NM_SCOPE_TAG);
    end(w, 7, NM_SCOPE_TAG); /* one too many */
    block_on(w, 7, 0x5000, 16, 31, 0);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "UserDefined@a").bytes, 9 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "UserDefined@b").bytes, 2 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@block").bytes, 20 * MIB);
    assert_false(owner_sum(w, LEVEL_BLOCK, "UserDefined@a").inferred);
}

static void test_a_tag_names_calls_but_not_segments(void **state)
{
    struct world *w = *state;
    begin(w, TGID, NM_SCOPE_TAG, "UserDefined@x");
    do_alloc(w, 0x10000000, 3 * MIB, 0);
    struct nm_event e = event_alloc(w, 0x20000000, 20 * MIB, 20 * MIB, 0);
    e.call.caller = CALLER_TORCH;
    e.call.api = PROBE_ACL_MALLOC_ALIGN32;
    e.call.policy = 0;
    send(w, &e);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "UserDefined@x").bytes, 3 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "PTA@pool").bytes, 20 * MIB);
}

static void test_labels_of_the_user(void **state)
{
    struct world *w = *state;
    do_alloc(w, 0x900000, 3 * MIB, 0);
    assert_int_equal(ledger_label_begin(w->ledger, TGID + 1, "UserDefined@x", w->now_ns), -ESRCH);
    assert_int_equal(ledger_label_begin(w->ledger, TGID, "UserDefined@x", w->now_ns + 15), 0);
    do_alloc(w, 0x100000, MIB, 0); /* an event of before it */
    do_alloc(w, 0x200000, 2 * MIB, 0);
    block_on(w, 8, 0x1000, 1, 1, 0);
    begin(w, 7, NM_SCOPE_TAG, "UserDefined@inner");
    block_on(w, 7, 0x2000, 2, 3, 0);
    end(w, 7, NM_SCOPE_TAG);
    assert_string_equal(ledger_label_of(w->ledger, TGID), "UserDefined@x");
    assert_false(ledger_label_end(w->ledger, 0, "UserDefined@x"));
    assert_false(ledger_label_end(w->ledger, TGID, "UserDefined@y"));
    assert_true(ledger_label_end(w->ledger, TGID, "UserDefined@x"));
    assert_null(ledger_label_of(w->ledger, TGID));
    block_on(w, 8, 0x3000, 4, 7, 0);
    assert_int_equal(owner_sum(w, LEVEL_PHYSICAL, "UserDefined@x").bytes, 2 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "UserDefined@x").bytes, MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "UserDefined@inner").bytes, 2 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@block").bytes, 4 * MIB);
    /* for every process; a process's own comes first */
    assert_int_equal(ledger_label_begin(w->ledger, 0, "UserDefined@all", w->now_ns), 0);
    block_on(w, 8, 0x4000, 8, 15, 0);
    assert_int_equal(ledger_label_begin(w->ledger, TGID, "UserDefined@own", w->now_ns), 0);
    block_on(w, 8, 0x5000, 16, 31, 0);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "UserDefined@all").bytes, 8 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "UserDefined@own").bytes, 16 * MIB);
}

static void test_graph_capture(void **state)
{
    struct world *w = *state;
    begin(w, 7, NM_SCOPE_GRAPH, NULL);
    block_on(w, 7, 0x1000, 1, 1, 0);
    block_on(w, 8, 0x2000, 2, 3, 0);
    begin(w, 7, NM_SCOPE_TAG, "UserDefined@t"); /* a tag outranks it */
    block_on(w, 7, 0x3000, 4, 7, 0);
    end(w, 7, NM_SCOPE_TAG);
    end(w, 7, NM_SCOPE_GRAPH);
    block_on(w, 7, 0x4000, 8, 15, 0);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@graph_pool").bytes, 1 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "UserDefined@t").bytes, 4 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@block").bytes, 10 * MIB);
}

static void test_naming_what_is_there(void **state)
{
    struct world *w = *state;
    block_on(w, 7, 0x1000, 5, 5, 0);
    struct nm_event e = scope(w, NM_EVENT_NAME, NM_SCOPE_TAG, "UserDefined@tensor");
    e.scope.address = 0x1000;
    assert_int_equal(send(w, &e), 0);
    e.scope.address = 0x1008; /* inside a block, not its beginning */
    assert_int_equal(send(w, &e), 1);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "UserDefined@tensor").bytes, 5 * MIB);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@block").bytes, 0);
    do_block(w, NM_BLOCK_FREE, 0x1000, 5 * MIB, total(0));
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "UserDefined@tensor").bytes, 0);
}

static void test_hostile_names_and_floods(void **state)
{
    struct world *w = *state;
    struct nm_event e = scope(w, NM_EVENT_SCOPE_BEGIN, NM_SCOPE_TAG, NULL);
    memset(e.scope.name, 'A', sizeof(e.scope.name)); /* not ended */
    e.scope.value = UINT32_MAX;
    assert_int_equal(send(w, &e), 0);
    e = scope(w, NM_EVENT_SCOPE_BEGIN, NM_SCOPE_TAG, "a\x01\nb");
    assert_int_equal(send(w, &e), 0);
    block_on(w, TGID, 0x1000, 1, 1, 0);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "a??b").bytes, 1 * MIB);
    e.scope.type = 77;
    assert_int_equal(send(w, &e), -EBADMSG);
    for (uint32_t i = 0; i < 5000; i++) { /* threads that never end theirs, comms without end */
        char name[32];
        snprintf(name, sizeof(name), "flood%u", i);
        begin(w, 1000 + i, i & 1 ? NM_SCOPE_TAG : NM_SCOPE_COMM, name);
    }
    assert_int_equal(ledger_stats(w->ledger)->decode_errors, 1);
    ledger_set_lost(w->ledger, 1); /* an end may be among the lost */
    block_on(w, TGID, 0x2000, 2, 3, 0);
    assert_int_equal(owner_sum(w, LEVEL_BLOCK, "PTA@block").bytes, 2 * MIB);
}

static void test_rank_of_a_process_group(void **state)
{
    struct world *w = *state;
    struct nm_event e = world_event(w, NM_EVENT_PROCESS_GROUP);
    e.call.flags = 5 | (uint64_t)8 << 32;
    assert_int_equal(send(w, &e), 0);
    e.call.flags = 1 | (uint64_t)2 << 32; /* of a group */
    assert_int_equal(send(w, &e), 0);
    e.call.flags = 8 | (uint64_t)8 << 32;
    assert_int_equal(send(w, &e), -EBADMSG);
    const struct ledger_process *p = ledger_find_process(w->ledger, TGID);
    assert_int_equal(p->facts.rank, 5);
    assert_int_equal(p->facts.world_size, 8);
    assert_string_equal(p->facts.rank_source, "process_group");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_memory_of_each_communicator),
        TEST(test_a_communicator_that_failed),
        TEST(test_buffers_taken_at_first_use),
        TEST(test_unseen_communicators_leave_it_open),
        TEST(test_tags_nest_and_are_of_their_thread),
        TEST(test_a_tag_names_calls_but_not_segments),
        TEST(test_labels_of_the_user),
        TEST(test_graph_capture),
        TEST(test_naming_what_is_there),
        TEST(test_hostile_names_and_floods),
        TEST(test_rank_of_a_process_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
