/* SPDX-License-Identifier: Apache-2.0 */
/* Samples are read in pieces: other work has its turn, one read after the other, and any may end.
 */
#include <sys/eventfd.h>
#include <systemd/sd-event.h>

#include "clock.h"
#include "series_read.h"
#include "store_fixture.h"

#define ROWS 300000u

struct world {
    sd_event *event;
    struct series_reads *reads;
    unsigned turns; /* of the other work */
};

struct reader {
    struct world *world;
    uint64_t points;
    unsigned ended;
    int result, fail; /* fail: what the first point returns */
    unsigned turns;   /* that the other work had until its end */
};

static int on_point(void *userdata, struct store_series *from, const struct store_point *p)
{
    struct reader *r = userdata;
    r->points++;
    return r->fail;
}

static void on_ended(void *userdata, int result)
{
    struct reader *r = userdata;
    r->ended++;
    r->result = result;
    r->turns = r->world->turns;
}

/* Like a client that asks without pause. */
static int on_other(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
    ((struct world *)userdata)->turns++;
    return 0;
}

/* Rows of host memory, made by SQL: it is their number that counts. */
static void rows_make(struct fixture *f)
{
    char sql[512];

    snprintf(
        sql, sizeof(sql),
        "INSERT INTO process (id,boot_id,tgid,start_ticks,start_wall_ns,first_wall_ns,"
        "last_wall_ns,comm,title,container,rank_source) VALUES (1,'b',77,1,0,0,0,'c','','','');"
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT %u) "
        "INSERT INTO sample_host SELECT i,i,1,i,0 FROM n",
        ROWS);
    execute(f, sql);
}

static struct world *world_new(struct fixture *f)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    assert_true(sd_event_new(&w->event) >= 0);
    assert_int_equal(series_reads_new(w->event, &w->reads), 0);
    rows_make(f);
    return w;
}

static void world_free(struct world *w)
{
    series_reads_free(w->reads);
    sd_event_unref(w->event);
    free(w);
}

static struct series_read *ask(struct fixture *f, struct world *w, struct reader *r)
{
    struct series_read *read;
    struct series_query q = {
        .store = f->store, .point_fn = on_point, .ended_fn = on_ended, .userdata = r};

    r->world = w;
    assert_int_equal(series_read_begin(w->reads, &q, &read), 0);
    assert_int_equal(r->ended, 0);
    return read;
}

static void turn(struct world *w, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_true(sd_event_run(w->event, 0) >= 0);
}

static void run_until(struct world *w, const struct reader *r)
{
    for (unsigned i = 0; i < 1000000 && !r->ended; i++)
        turn(w, 1);
    assert_int_equal(r->ended, 1);
}

static void test_pieces(void **state)
{
    struct world *w = world_new(*state);
    struct reader a = {0}, b = {0};
    sd_event_source *other;
    uint64_t longest_ns = 0;

    ask(*state, w, &a);
    ask(*state, w, &b);
    int fd = eventfd(1, EFD_CLOEXEC);
    assert_true(sd_event_add_io(w->event, &other, fd, EPOLLIN, on_other, w) >= 0);
    while (!b.ended) {
        uint64_t start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        turn(w, 1);
        uint64_t ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns;
        longest_ns = ns > longest_ns ? ns : longest_ns;
        assert_true(a.ended || !b.points); /* one after the other */
    }
    assert_int_equal(a.ended, 1);
    assert_int_equal(a.result + b.result, 0);
    assert_int_equal(a.points, ROWS);
    assert_int_equal(b.points, ROWS);
    /* 300,000 rows take several pieces anywhere; after each of them the other work had its turn */
    print_message("turns %u, %u\n", a.turns, b.turns);
    assert_true(a.turns >= 2 && b.turns >= a.turns + 2);
    print_message("longest turn %.1f ms\n", (double)longest_ns / 1e6);
    assert_true(longest_ns < 10 * SERIES_READ_PIECE_NS);
    /* nothing is left to do */
    sd_event_source_disable_unref(other);
    close(fd);
    assert_int_equal(sd_event_run(w->event, 0), 0);
    world_free(w);
}

static void test_failures(void **state)
{
    struct fixture *f = *state;
    struct world *w = world_new(f);
    struct reader a = {.fail = -EUCLEAN}, b = {0}, c = {0};
    struct store *none = NULL;

    ask(f, w, &a);
    ask(f, w, &b);
    run_until(w, &b);
    assert_int_equal(a.ended, 1);
    assert_int_equal(a.result, -EUCLEAN);
    assert_int_equal(a.points, 1);
    assert_int_equal(b.result, 0);
    /* a store that is not open just now */
    struct series_read *read;
    struct series_query q = {
        .store = none, .point_fn = on_point, .ended_fn = on_ended, .userdata = &c};
    c.world = w;
    assert_int_equal(series_read_begin(w->reads, &q, &read), 0);
    run_until(w, &c);
    assert_int_equal(c.result, -ENOENT);
    assert_int_equal(c.points, 0);
    world_free(w);
}

/* A client goes away: before its turn, in the middle, and the last one. */
static void test_cancel(void **state)
{
    struct fixture *f = *state;
    struct world *w = world_new(f);
    struct reader a = {0}, b = {0}, c = {0};
    struct series_read *first = ask(f, w, &a), *second = ask(f, w, &b);

    ask(f, w, &c);
    turn(w, 1);
    assert_true(a.points > 0 && a.points < ROWS);
    series_read_cancel(w->reads, second);
    series_read_cancel(w->reads, first);
    uint64_t points = a.points;
    run_until(w, &c);
    assert_int_equal(c.points, ROWS);
    assert_int_equal(a.points, points);
    assert_int_equal(a.ended + b.ended + (unsigned)b.points, 0);
    struct reader d = {0};
    struct series_read *last = ask(f, w, &d);
    turn(w, 1);
    series_read_cancel(w->reads, last);
    assert_int_equal(sd_event_run(w->event, 0), 0);
    assert_int_equal(d.ended, 0);
    world_free(w);
}

/* The daemon stops in the middle of one, while another waits; then the store is closed. */
static void test_stop(void **state)
{
    struct fixture *f = *state;
    struct world *w = world_new(f);
    struct reader a = {0}, b = {0};

    ask(f, w, &a);
    ask(f, w, &b);
    turn(w, 1);
    assert_true(a.points > 0);
    world_free(w);
    assert_int_equal(a.ended + b.ended, 0);
    f->store = store_close(f->store);
    char wal[128];
    snprintf(wal, sizeof(wal), "%s-wal", f->path);
    assert_int_equal(access(wal, F_OK), -1); /* the last one tidied up */
    fixture_open(f);
    assert_int_equal(query(f, "SELECT count(*) FROM sample_host"), ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {WITH_STORE(test_pieces), WITH_STORE(test_failures),
                                       WITH_STORE(test_cancel), WITH_STORE(test_stop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
