/* SPDX-License-Identifier: Apache-2.0 */
/* What the store writes, read back by another SQLite connection. */
#include "store_fixture.h"

#include "embedded.h"

#include <signal.h>
#include <sys/wait.h>

static void test_new_file(void **state)
{
    struct fixture *f = *state;
    struct stat st;

    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(query(f, "PRAGMA user_version"), embedded_migration_count);
    assert_int_equal(query(f, "SELECT count(*) FROM pragma_journal_mode WHERE journal_mode='wal'"),
                     1);
    /* STRICT: a text in a number's column is refused. */
    assert_int_equal(query(f,
                           "SELECT count(*) FROM sqlite_master WHERE type='table' AND sql NOT LIKE"
                           " '%STRICT' AND name NOT LIKE 'sqlite_%'"),
                     0);
    /* Opened again: the same file. */
    f->store = store_close(f->store);
    fixture_open(f);
    assert_int_equal(query(f, "PRAGMA user_version"), embedded_migration_count);
}

static void test_process_rows(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(100, 7);

    process_begin(f, &facts);
    assert_int_equal(query(f,
                           "SELECT count(*) FROM process WHERE tgid=100 AND start_ticks=7 AND"
                           " comm='python3' AND title='VLLM::Worker_TP0' AND rank=0 AND"
                           " world_size=2 AND exit_wall_ns IS NULL AND container='0123456789ab'"),
                     1);
    assert_int_equal(query(f, "SELECT first_wall_ns FROM process"), 5000 * SECOND + WALL_OFFSET);
    /* Learnt later: the rank. The same row. */
    facts.rank = 1;
    process_begin(f, &facts);
    assert_int_equal(query(f, "SELECT rank FROM process"), 1);
    /* After a restart of the daemon: the same row. */
    f->store = store_close(f->store);
    fixture_open(f);
    facts.rank = -1;
    process_begin(f, &facts);
    assert_int_equal(query(f, "SELECT count(*) FROM process"), 1);
    assert_int_equal(query(f, "SELECT rank IS NULL FROM process"), 1);
    /* The tgid given again: another row, and the old one is over. */
    facts.start_ticks = 900;
    process_begin(f, &facts);
    assert_int_equal(query(f, "SELECT count(*) FROM process"), 2);
    assert_int_equal(query(f, "SELECT start_ticks FROM process WHERE exit_wall_ns IS NOT NULL"), 7);
}

static void test_start_ticks_learnt_later(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(100, 0);

    process_begin(f, &facts);
    facts.start_ticks = 1234;
    process_begin(f, &facts);
    assert_int_equal(query(f, "SELECT count(*) FROM process"), 1);
    assert_int_equal(query(f, "SELECT start_ticks FROM process"), 1234);
}

static void hold_300(struct fixture *f, uint32_t tgid)
{
    for (uint64_t i = 0; i < 5; i++)
        segment_alloc(f, tgid, 3, 0x120000000000 + i * 64 * MIB, 64 * MIB);
    for (int64_t i = 0; i < 300; i++)
        block_alloc(f, tgid, 0x120000000000 + (uint64_t)i * MIB, MIB, (i + 1) * (int64_t)MIB,
                    320 * (int64_t)MIB);
}

static void expect_300(struct fixture *f)
{
    assert_int_equal(query(f, "SELECT count(*) FROM live_block WHERE level='allocated'"), 300);
    assert_int_equal(query(f, "SELECT sum(size_bytes) FROM live_block WHERE level='allocated'"),
                     300 * MIB);
    assert_int_equal(
        query(f, "SELECT count(DISTINCT address) FROM live_block WHERE level='allocated'"), 300);
    assert_int_equal(query(f, "SELECT min(stream) FROM live_block WHERE level='allocated'"),
                     0x55550000);
    assert_int_equal(query(f,
                           "SELECT count(*) FROM live_block WHERE level='physical' AND device=3 AND"
                           " size_bytes=67108864 AND requested_bytes=67108832"),
                     5);
    assert_int_equal(query(f, "SELECT max(address) FROM live_block WHERE level='physical'"),
                     0x120000000000 + 4 * 64 * MIB);
    assert_int_equal(query(f, "SELECT count(*) FROM live_block"), 305);
    assert_int_equal(query(f,
                           "SELECT count(*) FROM live_block b JOIN owner o ON o.id=b.owner_id WHERE"
                           " o.name <> ''"),
                     305);
}

static void test_last_state_of_a_process(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(100, 7);

    process_begin(f, &facts);
    hold_300(f, 100);
    f->boot_ns += 10 * SECOND;
    assert_int_equal(store_process_final(f->store, f->ledger, 100, f->boot_ns - SECOND, true), 0);
    expect_300(f);
    assert_int_equal(query(f, "SELECT exit_wall_ns FROM process"), 5009 * SECOND + WALL_OFFSET);
    assert_int_equal(query(f, "SELECT exit_boot_ns FROM process"), 5009 * SECOND);
    assert_int_equal(query(f, "SELECT exit_seen FROM process"), 1);
    assert_int_equal(store_stats(f->store)->pending_blocks, 0);
    /* Nothing known of such a process: nothing written. */
    assert_int_equal(store_process_final(f->store, f->ledger, 4711, f->boot_ns, true), 0);
    assert_int_equal(query(f, "SELECT count(*) FROM process"), 1);
}

/* The daemon itself is killed right after it wrote: the file has it. */
static void test_killed_daemon(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(100, 7);
    int status;
    pid_t child;

    f->store = store_close(f->store);
    hold_300(f, 100);
    child = fork();
    if (child == 0) {
        fixture_open(f);
        store_process(f->store, &facts);
        store_process_final(f->store, f->ledger, 100, f->boot_ns, true);
        store_event(f->store, &(struct store_event){.kind = STORE_EVENT_EXIT,
                                                    .time_ns = f->boot_ns,
                                                    .tgid = 100,
                                                    .detail = "killed"});
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    fixture_open(f);
    expect_300(f);
    assert_int_equal(query(f,
                           "SELECT count(*) FROM event e JOIN process p ON p.id=e.process_id WHERE"
                           " kind='exit' AND p.tgid=100 AND detail='killed'"),
                     1);
}

static void test_checkpoint_follows_the_ledger(void **state)
{
    struct fixture *f = *state;
    struct process_facts a = facts_make(100, 7), b = facts_make(200, 8);
    uint64_t commits;

    process_begin(f, &a);
    process_begin(f, &b);
    for (uint64_t i = 0; i < 10; i++)
        segment_alloc(f, 100, 0, 0x120000000000 + i * 64 * MIB, 64 * MIB);
    segment_alloc(f, 200, 1, 0x120000000000, 2 * MIB);
    assert_int_equal(store_checkpoint(f->store, f->ledger), 0);
    assert_int_equal(query(f, "SELECT sum(size_bytes) FROM live_block"), 642 * MIB);
    /* Nothing happened: nothing is written. */
    commits = store_stats(f->store)->commits;
    f->boot_ns += SECOND;
    assert_int_equal(store_checkpoint(f->store, f->ledger), 0);
    assert_int_equal(store_stats(f->store)->commits, commits);
    /* One process changed: one transaction, the other's rows stay. */
    segment_free(f, 100, 0x120000000000);
    assert_int_equal(store_checkpoint(f->store, f->ledger), 0);
    assert_int_equal(store_stats(f->store)->commits, commits + 1);
    assert_int_equal(query(f, "SELECT sum(size_bytes) FROM live_block"), (642 - 64) * MIB);
    assert_int_equal(query(f, "SELECT count(*) FROM live_block WHERE address=0x120000000000"), 1);
    assert_int_equal(query(f, "SELECT last_wall_ns FROM process WHERE tgid=100"),
                     5001 * SECOND + WALL_OFFSET);
}

/* Three large processes that change all the time: the rows per call are bounded, all get a turn. */
static void test_checkpoint_is_bounded_and_fair(void **state)
{
    struct fixture *f = *state;
    unsigned turns[3] = {0};

    for (uint32_t p = 0; p < 3; p++) {
        struct process_facts facts = facts_make(100 + p, 7);
        process_begin(f, &facts);
        for (uint64_t i = 0; i < 15000; i++)
            segment_alloc(f, 100 + p, 0, 0x120000000000 + i * MIB, MIB);
    }
    for (unsigned call = 0; call < 6; call++) {
        uint64_t rows = store_stats(f->store)->rows_written;
        int due = store_checkpoint(f->store, f->ledger);

        assert_true(due >= 1);
        rows = store_stats(f->store)->rows_written - rows;
        assert_in_range(rows, 15000, LIMIT_STORE_CHECKPOINT_ROWS + 15000 + 6);
        f->boot_ns += SECOND;
        for (uint32_t p = 0; p < 3; p++) {
            char sql[128];
            snprintf(sql, sizeof(sql), "SELECT last_wall_ns=%llu FROM process WHERE tgid=%u",
                     f->boot_ns - SECOND + WALL_OFFSET, 100 + p);
            turns[p] += call > 0 && query(f, sql);
            segment_alloc(f, 100 + p, 0, 0x130000000000 + call * MIB, MIB);
        }
    }
    for (int p = 0; p < 3; p++)
        assert_in_range(turns[p], 2, 5);
}

static void test_samples(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(100, 7);

    process_begin(f, &facts);
    segment_alloc(f, 100, 3, 0x120000000000, 64 * MIB);
    block_alloc(f, 100, 0x120000000000, 20 * MIB, 20 * (int64_t)MIB, 64 * (int64_t)MIB);
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns), 0);
    assert_int_equal(query(f, "SELECT sum(bytes) FROM sample WHERE level='physical' AND device=3"),
                     64 * MIB);
    assert_int_equal(query(f, "SELECT sum(bytes) FROM sample WHERE level='allocated'"), 20 * MIB);
    assert_int_equal(query(f, "SELECT physical_bytes FROM sample_device WHERE device=3"), 64 * MIB);
    assert_int_equal(query(f, "SELECT driver_bytes IS NULL FROM sample_device WHERE device=3"), 1);
    assert_int_equal(query(f, "SELECT reserved_bytes FROM sample_pool WHERE component='caching'"),
                     64 * MIB);
    assert_int_equal(query(f, "SELECT allocated_bytes FROM sample_pool"), 20 * MIB);
    assert_int_equal(query(f, "SELECT count(DISTINCT wall_ns) FROM sample"), 1);
    assert_int_equal(query(f, "SELECT min(wall_ns) FROM sample"), 5000 * SECOND + WALL_OFFSET);
    /* Unchanged: left out, and said again after ten minutes. */
    f->boot_ns += 10 * SECOND;
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns), 0);
    assert_int_equal(query(f, "SELECT count(DISTINCT wall_ns) FROM sample"), 1);
    f->boot_ns += 600 * SECOND;
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns), 0);
    assert_int_equal(query(f, "SELECT count(DISTINCT wall_ns) FROM sample"), 2);
    /* Changed: at once. */
    segment_alloc(f, 100, 3, 0x130000000000, MIB);
    f->boot_ns += 10 * SECOND;
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns), 0);
    assert_int_equal(query(f, "SELECT count(DISTINCT wall_ns) FROM sample"), 3);
    assert_int_equal(
        query(f, "SELECT physical_bytes FROM sample_device ORDER BY wall_ns DESC LIMIT 1"),
        65 * MIB);
    assert_int_equal(store_stats(f->store)->oldest_ns, 5000 * SECOND + WALL_OFFSET);
}

static void test_events(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(100, 7);
    struct nm_event oom = {
        .kind = NM_EVENT_ALLOC,
        .tgid = 100,
        .tid = 101,
        .start_ticks = 7,
        .result = 207001,
        .call = {.requested = 99 * MIB, .api = PROBE_ACL_MALLOC, .flags = UINT64_MAX},
    };

    process_begin(f, &facts);
    assert_int_equal(store_event(f->store, &(struct store_event){.kind = STORE_EVENT_FAILED_CALL,
                                                                 .time_ns = f->boot_ns - 5,
                                                                 .tgid = 100,
                                                                 .event = &oom}),
                     0);
    /* On disk at once. */
    assert_int_equal(query(f,
                           "SELECT count(*) FROM event e JOIN process p ON p.id=e.process_id WHERE"
                           " kind='failed_call' AND p.tgid=100 AND e.tid=101 AND result=207001 AND"
                           " requested_bytes=103809024 AND flags=-1"),
                     1);
    assert_int_equal(query(f, "SELECT wall_ns FROM event"), 5000 * SECOND + WALL_OFFSET - 5);
    /* After the process is gone its events still find its row. */
    assert_int_equal(store_process_final(f->store, f->ledger, 100, f->boot_ns, true), 0);
    store_event(f->store, &(struct store_event){
                              .kind = STORE_EVENT_EXIT, .time_ns = f->boot_ns, .tgid = 100});
    store_event(f->store, &(struct store_event){.kind = STORE_EVENT_GAP,
                                                .time_ns = f->boot_ns,
                                                .detail = "npumemd was not running"});
    assert_int_equal(query(f, "SELECT count(*) FROM event WHERE kind='exit' AND process_id=1"), 1);
    assert_int_equal(query(f,
                           "SELECT count(*) FROM event WHERE kind='gap' AND process_id IS NULL AND"
                           " tgid=0 AND detail='npumemd was not running'"),
                     1);
}

/* A storm of failing calls costs a bounded number of commits and loses none. */
static void test_event_storm(void **state)
{
    struct fixture *f = *state;
    uint64_t commits = store_stats(f->store)->commits;

    for (int i = 0; i < 3000; i++)
        store_event(f->store, &(struct store_event){.kind = STORE_EVENT_FAILED_CALL,
                                                    .time_ns = f->boot_ns,
                                                    .tgid = 100});
    assert_in_range(store_stats(f->store)->commits - commits, 100, 110);
    assert_int_equal(store_maintain(f->store), 0);
    assert_int_equal(query(f, "SELECT count(*) FROM event"), 3000);
    assert_int_equal(store_stats(f->store)->dropped_events, 0);
}

static int on_open_process(void *userdata, uint32_t tgid, uint32_t start_ticks,
                           uint64_t last_wall_ns)
{
    uint64_t *sum = userdata;

    assert_int_equal(last_wall_ns, 5000 * SECOND + WALL_OFFSET);
    *sum += tgid * 1000 + start_ticks;
    return 0;
}

static void test_restart_finds_what_was_open(void **state)
{
    struct fixture *f = *state;
    struct process_facts a = facts_make(100, 7), b = facts_make(200, 8), c = facts_make(300, 9);
    uint64_t sum = 0;

    process_begin(f, &a);
    process_begin(f, &b);
    process_begin(f, &c);
    store_process_final(f->store, f->ledger, 200, f->boot_ns, true);
    f->store = store_close(f->store);
    execute(f, "UPDATE process SET boot_id='of-an-earlier-boot' WHERE tgid=300");
    f->boot_ns += 100 * SECOND;
    fixture_open(f);
    assert_int_equal(store_each_open_process(f->store, on_open_process, &sum), 0);
    assert_int_equal(sum, 100007);
    assert_int_equal(query(f, "SELECT exit_wall_ns=last_wall_ns AND exit_seen=0 FROM process WHERE"
                              " tgid=300"),
                     1);
    assert_int_equal(store_process_vanished(f->store, 100, 7), 0);
    sum = 0;
    assert_int_equal(store_each_open_process(f->store, on_open_process, &sum), 0);
    assert_int_equal(sum, 0);
    assert_int_equal(query(f, "SELECT exit_seen FROM process WHERE tgid=200"), 1);
}

static void sample_every_second(struct fixture *f, unsigned seconds)
{
    for (unsigned i = 0; i < seconds; i++) {
        f->boot_ns += SECOND;
        segment_alloc(f, 100, 0, 0x120000000000 + f->boot_ns, MIB);
        segment_free(f, 100, 0x120000000000 + f->boot_ns);
        block_alloc(f, 100, 0x120000000000 + f->boot_ns, MIB, (int64_t)i + 1, 2 * (int64_t)i + 2);
        assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns), 0);
    }
}

static void test_retention_by_age(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(100, 7), other = facts_make(200, 7);
    int64_t newer;

    f->store = store_close(f->store);
    f->options.max_age_ns = 3600 * SECOND;
    fixture_open(f);
    process_begin(f, &facts);
    process_begin(f, &other);
    segment_alloc(f, 200, 0, 0x1000000, MIB);
    store_process_final(f->store, f->ledger, 200, f->boot_ns, true);
    store_event(f->store, &(struct store_event){.kind = STORE_EVENT_GAP, .time_ns = f->boot_ns});
    sample_every_second(f, 20);
    f->boot_ns += 3590 * SECOND;
    newer = query(f, "SELECT count(*) FROM sample WHERE wall_ns >= 1700005010000000000");
    assert_int_equal(store_maintain(f->store), 0);
    assert_int_equal(query(f, "SELECT min(wall_ns) FROM sample"), 5010 * SECOND + WALL_OFFSET);
    assert_int_equal(query(f, "SELECT count(*) FROM sample"), newer);
    assert_int_equal(query(f, "SELECT min(wall_ns) FROM sample_pool"), 5010 * SECOND + WALL_OFFSET);
    assert_int_equal(query(f, "SELECT count(*) FROM event"), 0);
    /* The dead process of an hour ago is gone with its blocks; the living one stays. */
    assert_int_equal(query(f, "SELECT tgid FROM process"), 100);
    assert_int_equal(query(f, "SELECT count(*) FROM live_block"), 0);
    assert_int_equal(store_stats(f->store)->retired_processes, 1);
    assert_int_equal(store_stats(f->store)->retired_events, 1);
}

static void test_retention_by_size(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(100, 7);
    int64_t last;

    f->store = store_close(f->store);
    f->options.max_bytes = MIB;
    fixture_open(f);
    process_begin(f, &facts);
    store_event(f->store, &(struct store_event){.kind = STORE_EVENT_GAP, .time_ns = f->boot_ns});
    for (int i = 0; i < 60; i++) {
        sample_every_second(f, 100);
        assert_int_equal(store_maintain(f->store), 0);
    }
    last = query(f, "SELECT max(wall_ns) FROM sample_pool");
    assert_true(store_stats(f->store)->retired_samples > 1000);
    assert_int_equal(query(f, "SELECT count(*) FROM event"), 1);
    assert_int_equal(last, (int64_t)(f->boot_ns + WALL_OFFSET));
    assert_true(query(f, "SELECT min(wall_ns) FROM sample_pool") >
                (int64_t)(5000 * SECOND + WALL_OFFSET));
    assert_true(query(f, "SELECT (page_count-freelist_count)*4096 FROM pragma_page_count,"
                         " pragma_freelist_count") <= (int64_t)MIB);
    assert_int_equal(
        query(f, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check='ok'"), 1);
}

static void test_without_store(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(1, 1);
    uint64_t sum = 0;

    assert_int_equal(store_process(NULL, &facts), 0);
    assert_int_equal(store_checkpoint(NULL, f->ledger), 0);
    assert_int_equal(store_sample(NULL, f->ledger, 1), 0);
    assert_int_equal(store_event(NULL, &(struct store_event){0}), 0);
    assert_int_equal(store_process_final(NULL, f->ledger, 1, 1, true), 0);
    assert_int_equal(store_process_vanished(NULL, 1, 1), 0);
    assert_int_equal(store_each_open_process(NULL, on_open_process, &sum), 0);
    assert_int_equal(store_maintain(NULL), 0);
    assert_int_equal(store_stats(NULL)->bytes, 0);
    assert_null(store_close(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_new_file),
        WITH_STORE(test_process_rows),
        WITH_STORE(test_start_ticks_learnt_later),
        WITH_STORE(test_last_state_of_a_process),
        WITH_STORE(test_killed_daemon),
        WITH_STORE(test_checkpoint_follows_the_ledger),
        WITH_STORE(test_checkpoint_is_bounded_and_fair),
        WITH_STORE(test_samples),
        WITH_STORE(test_events),
        WITH_STORE(test_event_storm),
        WITH_STORE(test_restart_finds_what_was_open),
        WITH_STORE(test_retention_by_age),
        WITH_STORE(test_retention_by_size),
        WITH_STORE(test_without_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
