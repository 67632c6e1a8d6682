/* SPDX-License-Identifier: Apache-2.0 */
/* What a store knows of an earlier moment: the sums that the ledger had then, in a ledger again. */
#include "ledger_seen.h"
#include "store_fixture.h"

#include "embedded.h"

static void execute_new(const struct fixture *f, const char *sql)
{
    sqlite3 *db;

    assert_int_equal(
        sqlite3_open_v2(f->path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

struct totals {
    const struct ledger *ledger;
    uint64_t physical, blocks, read;
    char names[512];
};

static int add_owner(void *userdata, const struct ledger_owner_total *t)
{
    struct totals *sum = userdata;
    if (t->level == LEVEL_PHYSICAL)
        sum->physical += t->bytes;
    if (t->level == LEVEL_BLOCK)
        sum->blocks += t->bytes;
    ledger_read_add(&sum->read, t->read_bytes);
    strncat(sum->names, ledger_owner_name(sum->ledger, t->owner),
            sizeof(sum->names) - strlen(sum->names) - 1);
    strncat(sum->names, ";", sizeof(sum->names) - strlen(sum->names) - 1);
    return 0;
}

static struct totals totals_of(const struct ledger *l, uint32_t tgid)
{
    struct totals sum = {.ledger = l};
    assert_int_equal(ledger_each_owner(l, tgid, add_owner, &sum), 0);
    return sum;
}

static int history(struct fixture *f, uint64_t boot_ns, struct ledger **ret, uint64_t *ret_newest)
{
    uint64_t oldest;
    assert_int_equal(ledger_new(&(struct ledger_config){0}, ret), 0);
    return store_history(f->store, boot_ns + WALL_OFFSET, *ret, &oldest, ret_newest);
}

static void second_passes(struct fixture *f, uint64_t seconds)
{
    f->boot_ns += seconds * SECOND;
}

static void test_each_moment_has_its_sums(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(77, 4242);
    struct ledger *then;
    uint64_t newest, t[3];

    facts.rank = 3;
    facts.replica = 1;
    facts.visible_devices[0] = 5;
    facts.visible_count = 1;
    process_begin(f, &facts);
    segment_alloc(f, 77, 5, 0x10000000, 64 * MIB);
    block_alloc(f, 77, 0x10000000, 24 * MIB, 24 * MIB, 64 * MIB);
    t[0] = f->boot_ns;
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns), 0);
    second_passes(f, 60);
    segment_alloc(f, 77, 5, 0x20000000, 100 * MIB);
    t[1] = f->boot_ns;
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns), 0);
    second_passes(f, 60);
    segment_free(f, 77, 0x10000000);
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns), 0);
    t[2] = f->boot_ns;

    static const uint64_t physical[] = {64 * MIB, 164 * MIB, 100 * MIB};
    for (int i = 0; i < 3; i++) {
        /* at the sample, and a while after it: nothing newer was kept */
        for (uint64_t later = 0; later <= (i < 2 ? 59 * SECOND : 0); later += 59 * SECOND) {
            assert_int_equal(history(f, t[i] + later, &then, &newest), 1);
            assert_int_equal(newest, t[i] + WALL_OFFSET);
            struct totals sum = totals_of(then, 77);
            assert_int_equal(sum.physical, physical[i]);
            assert_int_equal(sum.blocks, 24 * MIB);
            const struct ledger_process *p = ledger_find_process(then, 77);
            assert_int_equal(p->facts.rank, 3);
            assert_int_equal(p->facts.replica, 1);
            assert_int_equal(p->facts.visible_count, 1);
            assert_int_equal(p->facts.visible_devices[0], 5);
            assert_string_equal(p->facts.title, facts.title);
            ledger_free(then);
            if (i == 2)
                break;
        }
    }
    assert_int_equal(history(f, t[0] - 1, &then, &newest), 0);
    ledger_free(then);
}

/* How much of an owner was read, not seen allocated; a file that does not say leaves it unknown. */
static void test_what_was_read(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = {.tgid = 77, .rank = -1, .world_size = -1};
    struct ledger_seen_totals totals = {.allocated_bytes = 32 * MIB,
                                        .active_bytes = 32 * MIB,
                                        .reserved_bytes = 64 * MIB,
                                        .small_bytes = MIB};
    struct ledger_seen_block b = {.address = 0x9000, .bytes = 30 * MIB, .owner = "PTA@x"};
    struct ledger *then;
    uint64_t newest;

    process_begin(f, &facts);
    assert_int_equal(ledger_seen_begin(f->ledger, 77, f->boot_ns), 0);
    assert_int_equal(ledger_seen_pool(f->ledger, 77, 0, &totals, f->boot_ns), 0);
    assert_int_equal(ledger_seen_block(f->ledger, 77, &b), 0);
    ledger_seen_end(f->ledger, 77, f->boot_ns);
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns), 0);
    assert_int_equal(history(f, f->boot_ns, &then, &newest), 1);
    assert_int_equal(totals_of(then, 77).blocks, 32 * MIB); /* 1 before attach */
    assert_int_equal(totals_of(then, 77).read, 31 * MIB);
    ledger_free(then);
}

static void test_only_who_lived_then(void **state)
{
    struct fixture *f = *state;
    struct process_facts one = facts_make(77, 4242), other = facts_make(88, 5000);
    struct ledger *then;
    uint64_t newest, together;

    process_begin(f, &one);
    process_begin(f, &other);
    segment_alloc(f, 77, 0, 0x10000000, 64 * MIB);
    segment_alloc(f, 88, 0, 0x10000000, 32 * MIB);
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns), 0);
    together = f->boot_ns;
    second_passes(f, 10);
    assert_int_equal(store_process_final(f->store, f->ledger, 77, f->boot_ns, true), 0);
    ledger_process_exit(f->ledger, 77, 4242, f->boot_ns);
    second_passes(f, 10);
    assert_int_equal(history(f, together + SECOND, &then, &newest), 2);
    assert_int_equal(totals_of(then, 77).physical, 64 * MIB);
    ledger_free(then);
    assert_int_equal(history(f, f->boot_ns, &then, &newest), 1);
    assert_null(ledger_find_process(then, 77));
    assert_int_equal(totals_of(then, 88).physical, 32 * MIB);
    ledger_free(then);
}

static void test_marks(void **state)
{
    struct fixture *f = *state;
    struct store_event mark = {.kind = STORE_EVENT_MARK, .time_ns = f->boot_ns, .detail = "a"};
    uint64_t wall = 0;

    assert_int_equal(store_event(f->store, &mark), 0);
    mark.time_ns += 5 * SECOND;
    assert_int_equal(store_event(f->store, &mark), 0);
    assert_int_equal(store_mark_find(f->store, "a", &wall), 0);
    assert_int_equal(wall, f->boot_ns + 5 * SECOND + WALL_OFFSET); /* the newest of the name */
    assert_int_equal(store_mark_find(f->store, "b", &wall), -ENOENT);
    assert_int_equal(store_mark_find(f->store, "a' OR '1'='1", &wall), -ENOENT);
    assert_int_equal(store_mark_find(NULL, "a", &wall), -ENOENT);
}

/* A pause between the two clocks is none of theirs: else a mark stands before its own sample. */
static void test_a_mark_has_the_sample_before_it(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(77, 4242);
    struct store_event mark = {.kind = STORE_EVENT_MARK, .detail = "a"};
    uint64_t wall = 0, newest;
    struct ledger *then;

    process_begin(f, &facts);
    segment_alloc(f, 77, 0, 0x10000000, 64 * MIB);
    f->boot_ns += SECOND;
    f->pause_ns = 400000;
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns), 0);
    f->pause_ns = 0;
    mark.time_ns = f->boot_ns;
    assert_int_equal(store_event(f->store, &mark), 0);
    assert_int_equal(store_mark_find(f->store, "a", &wall), 0);
    assert_int_equal(history(f, wall - WALL_OFFSET, &then, &newest), 1);
    assert_int_equal(totals_of(then, 77).physical, 64 * MIB);
    ledger_free(then);
    /* a clock that was set is followed */
    f->pause_ns = 3600 * SECOND;
    assert_int_equal(store_event(f->store, &mark), 0);
    assert_int_equal(store_mark_find(f->store, "a", &wall), 0);
    assert_int_equal(wall, mark.time_ns + WALL_OFFSET + 3600 * SECOND);
}

static void test_rows_that_lie_are_left_out(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(77, 4242);
    struct ledger *then;
    uint64_t newest;

    process_begin(f, &facts);
    segment_alloc(f, 77, 0, 0x10000000, 64 * MIB);
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns), 0);
    execute(f, "INSERT INTO sample SELECT wall_ns,boot_ns,process_id,device,'nonsense',owner_id,"
               "bytes,blocks,peak_bytes,0,0 FROM sample LIMIT 1");
    execute(f, "INSERT INTO sample SELECT wall_ns,boot_ns,process_id,device,level,owner_id,"
               "-5,blocks,peak_bytes,0,0 FROM sample LIMIT 1");
    execute(f, "INSERT INTO sample SELECT wall_ns,boot_ns,process_id,device,'allocated',owner_id,"
               "bytes,blocks,peak_bytes,0,bytes+1 FROM sample LIMIT 1");
    execute(f, "INSERT INTO sample_pool SELECT wall_ns,boot_ns,process_id,99,'caching',1,1,1,1 "
               "FROM sample LIMIT 1");
    execute(f, "INSERT INTO sample_device SELECT wall_ns,boot_ns,process_id,70000,1,9,NULL,1 "
               "FROM sample LIMIT 1");
    assert_int_equal(history(f, f->boot_ns, &then, &newest), 1);
    assert_int_equal(totals_of(then, 77).physical, 64 * MIB);
    ledger_free(then);
}

/* A file of the first version, with rows, is brought up to date and answers. */
static void test_a_file_of_the_first_version(void **state)
{
    struct fixture *f = *state;
    struct ledger *then;
    uint64_t newest;

    f->store = store_close(f->store);
    assert_int_equal(unlink(f->path), 0);
    execute_new(f, embedded_migrations[0].sql);
    execute(f, "PRAGMA application_id=0x4e50554d; PRAGMA user_version=1;"
               "INSERT INTO process VALUES (9,'another boot',77,4242,0,1000,2000,2500,1,1,'python',"
               "'VLLM::Worker_TP1','',1,2,'title');"
               "INSERT INTO owner VALUES (1,'CANN@HCCL');"
               "INSERT INTO sample VALUES (1500,1500,9,0,'physical',1,67108864,1,67108864);"
               "INSERT INTO sample_device VALUES (1500,1500,9,0,67108864,0,NULL,67108864)");
    fixture_open(f);
    uint64_t oldest;
    assert_int_equal(ledger_new(&(struct ledger_config){0}, &then), 0);
    assert_int_equal(store_history(f->store, 2100, then, &oldest, &newest), 1);
    assert_int_equal(newest, 1500);
    assert_int_equal(totals_of(then, 77).physical, 64 * MIB);
    assert_string_equal(totals_of(then, 77).names, "CANN@HCCL;");
    assert_int_equal(totals_of(then, 77).read, LEDGER_READ_UNKNOWN);
    assert_int_equal(ledger_find_process(then, 77)->facts.rank, 1);
    assert_int_equal(ledger_find_process(then, 77)->facts.replica, -1);
    ledger_free(then);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_each_moment_has_its_sums),
        WITH_STORE(test_what_was_read),
        WITH_STORE(test_only_who_lived_then),
        WITH_STORE(test_marks),
        WITH_STORE(test_rows_that_lie_are_left_out),
        WITH_STORE(test_a_file_of_the_first_version),
        WITH_STORE(test_a_mark_has_the_sample_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
