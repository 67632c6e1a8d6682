/* SPDX-License-Identifier: Apache-2.0 */
/* Samples read back in the order of writing, host memory beside them, marks. */
#include "store_fixture.h"
#include "store_series.h"

static uint64_t resident_bytes, shared_bytes;
static bool is_gone;

static bool host_bytes(uint32_t tgid, uint64_t *ret_resident, uint64_t *ret_shared)
{
    *ret_resident = resident_bytes;
    *ret_shared = shared_bytes;
    return !is_gone;
}

struct seen {
    unsigned counts[STORE_SERIES_KV + 1];
    uint64_t last_boot_ns, resident, shared, owner_bytes, allocated, reserved, active;
    char owner[64];
    int stop_after;
};

static int on_point(void *userdata, struct store_series *from, const struct store_point *p)
{
    struct seen *s = userdata;
    struct process_facts facts;
    uint64_t exit_ns;

    assert_int_equal(store_series_process(from, p->process_id, &facts, &exit_ns), 0);
    assert_int_equal(facts.tgid, 77);
    assert_int_equal(exit_ns, 0);
    assert_int_equal(p->wall_ns, p->boot_ns + WALL_OFFSET);
    if (s->counts[p->kind]++)
        assert_true(p->boot_ns >= s->last_boot_ns);
    s->last_boot_ns = p->boot_ns;
    if (p->kind == STORE_SERIES_RESIDENT) {
        s->resident = p->bytes;
        s->shared = p->shared_bytes;
    } else if (p->kind == STORE_SERIES_POOL) {
        s->allocated = p->bytes;
        s->reserved = p->reserved_bytes;
        s->active = p->active_bytes;
    } else if (p->kind == STORE_SERIES_OWNER && p->level == LEVEL_BLOCK) {
        s->owner_bytes = p->bytes;
        assert_int_equal(store_series_owner(from, p->owner_id, s->owner, sizeof(s->owner)), 0);
    }
    return s->stop_after && --s->stop_after == 0 ? -ECANCELED : 0;
}

/* All of them, three at a time. */
static int read_all(struct store *store, uint64_t since_wall_ns, struct seen *s)
{
    _cleanup_(store_series_closep) struct store_series *series = NULL;
    int r = store_series_open(store, since_wall_ns, &series);

    if (r < 0)
        return r;
    do
        r = store_series_next(series, 3, on_point, s);
    while (r > 0);
    assert_int_equal(store_series_next(series, 3, on_point, s), 0);
    return r;
}

static void sample(struct fixture *f, uint64_t seconds)
{
    f->boot_ns += seconds * SECOND;
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns), 0);
}

static void begin(struct fixture *f)
{
    struct process_facts facts = facts_make(77, 4242);

    store_close(f->store);
    f->options.host_fn = host_bytes;
    fixture_open(f);
    process_begin(f, &facts);
    resident_bytes = 100 * MIB;
    shared_bytes = 30 * MIB;
    is_gone = false;
    segment_alloc(f, 77, 0, 0x10000000, 20 * MIB);
    block_alloc(f, 77, 0x10000000, 4 * MIB, 4 * MIB, 20 * MIB);
}

static void test_series(void **state)
{
    struct fixture *f = *state;
    struct seen s = {0};

    begin(f);
    uint64_t first = f->boot_ns + 10 * SECOND;
    sample(f, 10);
    block_alloc(f, 77, 0x10800000, 4 * MIB, 8 * MIB, 20 * MIB);
    sample(f, 10);
    assert_int_equal(read_all(f->store, 0, &s), 0);
    assert_int_equal(s.counts[STORE_SERIES_DEVICE], 2);
    assert_int_equal(s.counts[STORE_SERIES_POOL], 2);
    assert_int_equal(s.allocated, 8 * MIB);
    assert_int_equal(s.reserved, 20 * MIB);
    assert_int_equal(s.active, 8 * MIB);
    assert_int_equal(s.owner_bytes, 8 * MIB);
    assert_string_equal(s.owner, "PTA@block");
    /* a window that begins later */
    s = (struct seen){.stop_after = 0};
    assert_int_equal(read_all(f->store, first + WALL_OFFSET + 1, &s), 0);
    assert_int_equal(s.counts[STORE_SERIES_DEVICE], 1);
    /* one without samples, and one that fn ends */
    s = (struct seen){.stop_after = 0};
    assert_int_equal(read_all(f->store, UINT64_MAX, &s), 0);
    assert_int_equal(s.counts[STORE_SERIES_DEVICE] + s.counts[STORE_SERIES_OWNER], 0);
    s.stop_after = 1;
    assert_int_equal(read_all(f->store, 0, &s), -ECANCELED);
    assert_int_equal(read_all(NULL, 0, &s), -ENOENT);
}

/* Host memory is written by itself: when it changed by 1 MiB, and every ten minutes. */
static void test_host(void **state)
{
    struct fixture *f = *state;
    struct seen s = {0};

    begin(f);
    sample(f, 10);
    resident_bytes += MIB - 1;
    sample(f, 10);
    assert_int_equal(query(f, "SELECT count(*) FROM sample_host"), 1);
    resident_bytes += 1;
    sample(f, 10);
    assert_int_equal(query(f, "SELECT count(*) FROM sample_host"), 2);
    assert_int_equal(query(f, "SELECT count(*) FROM sample_device"), 1); /* it did not change */
    sample(f, 600);
    assert_int_equal(query(f, "SELECT count(*) FROM sample_host"), 3);
    is_gone = true;
    resident_bytes = 0;
    sample(f, 600);
    assert_int_equal(query(f, "SELECT count(*) FROM sample_host"), 3);
    assert_int_equal(read_all(f->store, 0, &s), 0);
    assert_int_equal(s.counts[STORE_SERIES_RESIDENT], 3);
    assert_int_equal(s.resident, 101 * MIB);
    assert_int_equal(s.shared, 30 * MIB);
    /* what is not in the store has no name */
    struct process_facts facts;
    uint64_t exit_ns;
    char name[8];
    struct store_series *series;
    assert_int_equal(store_series_open(f->store, 0, &series), 0);
    assert_int_equal(store_series_process(series, 999, &facts, &exit_ns), -ENOENT);
    assert_int_equal(store_series_owner(series, 999, name, sizeof(name)), -ENOENT);
    store_series_close(series);
    /* it goes by age like other samples */
    f->boot_ns += 31ull * 86400 * SECOND;
    assert_int_equal(store_maintain(f->store), 0);
    assert_int_equal(query(f, "SELECT count(*) FROM sample_host"), 0);
}

/* What is read is what there was, though it goes by age meanwhile. */
static void test_retired(void **state)
{
    struct fixture *f = *state;
    struct store_series *series;
    struct seen s = {0};

    begin(f);
    sample(f, 10);
    sample(f, 600);
    assert_int_equal(store_series_open(f->store, 0, &series), 0);
    assert_int_equal(store_series_next(series, 1, on_point, &s), 1);
    f->boot_ns += 31ull * 86400 * SECOND;
    assert_int_equal(store_maintain(f->store), 0);
    assert_int_equal(query(f, "SELECT count(*) FROM sample"), 0);
    assert_int_equal(store_series_next(series, 1000, on_point, &s), 0);
    assert_int_equal(s.counts[STORE_SERIES_DEVICE], 2);
    assert_int_equal(s.counts[STORE_SERIES_POOL], 2);
    assert_int_equal(s.counts[STORE_SERIES_RESIDENT], 2);
    assert_int_equal(s.owner_bytes, 4 * MIB);
    store_series_close(series);
}

/* The file is moved aside while it is read, as when it is corrupt: the one that is begun under its
 * name keeps what is written to it. */
static void test_moved_aside(void **state)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    struct fixture *f = *state;
    struct store_series *series;
    char from[128], to[128];
    struct seen s = {0};

    begin(f);
    sample(f, 10);
    assert_int_equal(store_series_open(f->store, 0, &series), 0);
    assert_int_equal(store_series_next(series, 1, on_point, &s), 1);
    f->store = store_close(f->store);
    for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
        snprintf(from, sizeof(from), "%s%s", f->path, suffixes[i]);
        snprintf(to, sizeof(to), "%s.aside%s", f->path, suffixes[i]);
        assert_true(rename(from, to) == 0 || errno == ENOENT);
    }
    begin(f);
    sample(f, 10);
    assert_int_equal(store_series_next(series, 1000, on_point, &s), 0);
    assert_int_equal(s.counts[STORE_SERIES_DEVICE], 1);
    store_series_close(series);
    assert_int_equal(query(f, "SELECT count(*) FROM sample_device"), 1);
    f->store = store_close(f->store);
    fixture_open(f);
    assert_int_equal(query(f, "SELECT count(*) FROM sample_device"), 1);
}

static int on_mark(void *userdata, const char *name, uint64_t wall_ns, uint64_t boot_ns)
{
    char *names = userdata;
    strcat(names, name);
    strcat(names, ";");
    assert_int_equal(wall_ns, boot_ns + WALL_OFFSET);
    return 0;
}

static void test_marks(void **state)
{
    struct fixture *f = *state;
    char names[64] = "";

    for (int i = 0; i < 3; i++) {
        struct store_event e = {
            .kind = STORE_EVENT_MARK, .time_ns = f->boot_ns, .detail = i ? "step" : "a"};
        assert_int_equal(store_event(f->store, &e), 0);
        f->boot_ns += SECOND;
    }
    assert_int_equal(store_marks_each(f->store, 0, on_mark, names), 0);
    assert_string_equal(names, "a;step;step;");
    names[0] = '\0';
    assert_int_equal(store_marks_each(f->store, f->boot_ns - SECOND + WALL_OFFSET, on_mark, names),
                     0);
    assert_string_equal(names, "step;");
}

int main(void)
{
    const struct CMUnitTest tests[] = {WITH_STORE(test_series), WITH_STORE(test_host),
                                       WITH_STORE(test_retired), WITH_STORE(test_moved_aside),
                                       WITH_STORE(test_marks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
