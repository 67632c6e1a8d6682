/* SPDX-License-Identifier: Apache-2.0 */
/* What an earlier daemon saw of a process's phases, in the ledger of the next one. */
#include "event.h"
#include "ledger_restore.h"
#include "phases.h"
#include "store_fixture.h"

static struct phase_table *table;

static void ledger_new_with_phases(struct ledger **ret)
{
    assert_int_equal(ledger_new(&(struct ledger_config){.phases = table}, ret), 0);
}

static uint32_t phase_of(const char *qualified)
{
    const struct phase_code code = {.qualified = qualified};

    return phase_verdict(table, &code) & 0xffff;
}

static void block_in(struct ledger *l, uint64_t time_ns, uint32_t phase, uint64_t address,
                     int64_t bytes, int64_t total)
{
    struct nm_event e = {.time_ns = time_ns,
                         .kind = NM_EVENT_BLOCK,
                         .abi = NM_EVENT_ABI,
                         .tgid = 77,
                         .block = {.address = address,
                                   .size_bytes = bytes,
                                   .total_allocated_bytes = total,
                                   .total_reserved_bytes = 64 * (int64_t)MIB,
                                   .total_active_bytes = total,
                                   .phase = phase,
                                   .component = NM_BLOCK_CACHING,
                                   .action = NM_BLOCK_MALLOC}};
    assert_int_equal(ledger_apply(l, &e), 0);
}

static void ask(struct ledger *l, uint64_t time_ns, uint32_t phase, uint64_t free_bytes)
{
    struct nm_event e = {.time_ns = time_ns,
                         .kind = NM_EVENT_MEM_INFO,
                         .abi = NM_EVENT_ABI,
                         .tgid = 77,
                         .call = {.address = free_bytes,
                                  .handle = 1024 * MIB,
                                  .flags = 1,
                                  .phase = phase,
                                  .api = PROBE_ACL_MEM_INFO,
                                  .call_flags = NM_CALL_API_SEEN}};
    assert_int_equal(ledger_apply(l, &e), 0);
}

struct found {
    struct ledger_phase_use use;
    int count;
};

static int on_phase(void *userdata, const struct ledger_phase_use *u)
{
    struct found *f = userdata;

    f->count++;
    if (u->class_id == f->use.class_id)
        f->use = *u;
    return 0;
}

static struct found phase_in(const struct ledger *l, uint32_t phase)
{
    struct found f = {.use = {.class_id = NM_PHASE_CLASS(phase)}};
    assert_int_equal(ledger_each_phase(l, 77, on_phase, &f), 0);
    return f;
}

/* A profile run of two blocks between two questions, and weights that stay. */
static void first_life(struct fixture *f, const struct process_facts *facts)
{
    uint32_t profile = phase_of("NPUModelRunner.profile_run");
    uint32_t weights = phase_of("NPUWorker.load_model");

    assert_int_not_equal(NM_PHASE_CLASS(profile), 0);
    assert_int_not_equal(NM_PHASE_CLASS(weights), NM_PHASE_CLASS(profile));
    f->ledger = ledger_free(f->ledger);
    ledger_new_with_phases(&f->ledger);
    process_begin(f, facts);
    block_in(f->ledger, f->boot_ns, weights, 0x1000000, 20 * (int64_t)MIB, 20 * (int64_t)MIB);
    ask(f->ledger, f->boot_ns + 1, profile, 900 * MIB);
    block_in(f->ledger, f->boot_ns + 2, profile, 0x3000000, 7 * (int64_t)MIB, 27 * (int64_t)MIB);
    block_in(f->ledger, f->boot_ns + 3, profile, 0x4000000, 5 * (int64_t)MIB, 32 * (int64_t)MIB);
    ask(f->ledger, f->boot_ns + 4, profile, 800 * MIB);
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns + 5), 0);
}

/* The next daemon: another ledger, the same file. */
static struct ledger *next_life(struct fixture *f, const struct process_facts *facts, int phases)
{
    struct ledger *l;

    f->store = store_close(f->store);
    fixture_open(f);
    ledger_new_with_phases(&l);
    assert_int_equal(ledger_process_update(l, facts, f->boot_ns), 0);
    assert_int_equal(store_phases_restore(f->store, l, facts), phases);
    return l;
}

static void test_the_next_daemon_knows(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(77, 4242);

    first_life(f, &facts);
    struct ledger *l = next_life(f, &facts, 2);
    struct found profile = phase_in(l, phase_of("NPUModelRunner.profile_run"));
    struct found weights = phase_in(l, phase_of("NPUWorker.load_model"));
    assert_int_equal(profile.count, 2);
    assert_int_equal(profile.use.block_count, 2);
    assert_int_equal(profile.use.start_allocated_bytes, 20 * MIB);
    assert_int_equal(profile.use.peak_allocated_bytes, 32 * MIB);
    assert_int_equal(profile.use.peak_reserved_bytes, 64 * MIB);
    assert_int_equal(profile.use.first.time_ns, f->boot_ns + 1);
    assert_int_equal(profile.use.first.free_bytes, 900 * MIB);
    assert_int_equal(profile.use.first.allocated_bytes, 20 * MIB);
    assert_int_equal(profile.use.last.free_bytes, 800 * MIB);
    assert_int_equal(profile.use.last.allocated_bytes, 32 * MIB);
    assert_int_equal(weights.use.held_bytes, 20 * MIB);
    assert_int_equal(weights.use.held_physical_bytes, LEDGER_HELD_UNKNOWN);
    assert_true(profile.use.is_kept && !profile.use.is_continued);
    ledger_free(l);
}

static void test_what_goes_on(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(77, 4242);
    uint32_t profile = phase_of("NPUModelRunner.profile_run");

    first_life(f, &facts);
    struct ledger *l = next_life(f, &facts, 2);
    block_in(l, f->boot_ns + SECOND, profile, 0x5000000, 9 * (int64_t)MIB, 41 * (int64_t)MIB);
    struct found found = phase_in(l, profile);
    assert_true(found.use.is_continued);
    assert_int_equal(found.use.peak_allocated_bytes, 41 * MIB);
    assert_int_equal(found.use.start_allocated_bytes, 20 * MIB);
    assert_int_equal(found.use.block_count, 3);
    /* a third daemon: held is still known, though no block of it is */
    assert_int_equal(store_process(f->store, &facts), 0);
    assert_int_equal(store_sample(f->store, l, f->boot_ns + 2 * SECOND), 0);
    ledger_free(l);
    l = next_life(f, &facts, 2);
    assert_int_equal(phase_in(l, phase_of("NPUWorker.load_model")).use.held_bytes, 20 * MIB);
    assert_int_equal(phase_in(l, profile).use.peak_allocated_bytes, 41 * MIB);
    ledger_free(l);
}

static void test_of_that_process_only(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(77, 4242), other = facts_make(77, 4243);

    first_life(f, &facts);
    ledger_free(next_life(f, &other, 0)); /* its pid was given again */
}

static void test_another_program_has_none(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(77, 4242);

    first_life(f, &facts);
    assert_int_equal(ledger_process_exec(f->ledger, 77, f->boot_ns + SECOND), 0);
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns + 2 * SECOND), 0);
    assert_int_equal(query(f, "SELECT count(*) FROM phase"), 0);
    ledger_free(next_life(f, &facts, 0));
}

static void test_written_when_something_changed(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(77, 4242);

    first_life(f, &facts);
    assert_int_equal(query(f, "SELECT count(*) FROM phase"), 2);
    execute(f, "UPDATE phase SET blocks=99");
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns + 600 * SECOND), 0);
    assert_int_equal(query(f, "SELECT min(blocks) FROM phase"), 99);
    ask(f->ledger, f->boot_ns + SECOND, 0, 700 * MIB);
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns + 700 * SECOND), 0);
    assert_int_equal(query(f, "SELECT count(*) FROM phase WHERE blocks<>99"), 3);
}

static void test_rows_that_lie_are_left_out(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(77, 4242);

    first_life(f, &facts);
    execute(
        f,
        "INSERT INTO phase SELECT process_id,70000,phase,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1 "
        "FROM phase LIMIT 1");
    execute(
        f, "INSERT INTO phase SELECT process_id,1,phase,1,1,1,1,-5,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1 "
           "FROM phase LIMIT 1");
    execute(f,
            "INSERT INTO phase SELECT process_id,2,phase,1,1,1,1,1,1,1,1,1,1,2,1,1,1,1,1,1,1,1,1,1 "
            "FROM phase LIMIT 1");
    execute(f, "INSERT INTO phase SELECT "
               "process_id,3,'nonsense',1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1 "
               "FROM phase LIMIT 1");
    ledger_free(next_life(f, &facts, 2));
}

static int group_setup(void **state)
{
    return phase_table_new(&table);
}

static int group_teardown(void **state)
{
    table = phase_table_free(table);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_the_next_daemon_knows),
        WITH_STORE(test_what_goes_on),
        WITH_STORE(test_of_that_process_only),
        WITH_STORE(test_another_program_has_none),
        WITH_STORE(test_written_when_something_changed),
        WITH_STORE(test_rows_that_lie_are_left_out),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
