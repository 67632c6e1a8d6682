/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses of memory: the counting rules of schema/access.h over sequences whose answer is known, the
 * ordinal rules against an implementation of their definition, and goldens of findings.
 */
#include "test_analysis.h"

#include "access.h"
#include "inefficient.h"

/* --- a process: threads, streams and blocks, driven by the same rules as the kernel's --- */

#define BLOCKS 64
#define THREADS 4

struct world {
    struct nm_access_window w;
    struct nm_access_thread t[THREADS];
    struct nm_access_stream s[2];
    struct nm_access_block b[BLOCKS];
    uint64_t now_ns;
};

static void world_init(struct world *x)
{
    memset(x, 0, sizeof(*x));
    x->now_ns = x->w.begin_ns = 5000000000;
}

static void tick(struct world *x)
{
    x->now_ns += 1000;
    nm_access_work(&x->w, x->now_ns);
}

static void do_malloc(struct world *x, int thread, int block, int stream)
{
    struct nm_access_block *b = &x->b[block];
    tick(x);
    memset(b, 0, sizeof(*b));
    b->life.address = (uint64_t)(block + 1) << 20;
    b->life.stream = (uint64_t)stream;
    b->tid = (uint32_t)thread;
    b->life.alloc_us = nm_access_work(&x->w, x->now_ns);
    b->life.alloc_op = nm_access_op_malloc(&x->w, &x->t[thread]);
    nm_access_remember(x->s[stream].malloc_op, b->life.alloc_op);
}

static void use_in(struct world *x, int thread, int block, uint32_t op)
{
    struct nm_access_block *b = &x->b[block];
    nm_access_use(b, &x->t[thread], &x->s[b->life.stream], op, nm_access_work(&x->w, x->now_ns),
                  (uint32_t)thread);
}

static void do_tensor(struct world *x, int thread, int block)
{
    tick(x);
    use_in(x, thread, block, nm_access_op_tensor(&x->w, &x->t[thread]));
}

static void do_run(struct world *x, int thread)
{
    int ends;
    tick(x);
    nm_access_op_run(&x->w, &x->t[thread], &ends);
    if (ends)
        nm_access_close(&x->w, &x->t[thread]);
}

static void do_copy(struct world *x, int thread, int block)
{
    int ends;
    tick(x);
    use_in(x, thread, block, nm_access_op_once(&x->w, &x->t[thread], &ends));
    if (ends)
        nm_access_close(&x->w, &x->t[thread]);
}

static struct nm_access do_free(struct world *x, int thread, int block)
{
    struct nm_access_block *b = &x->b[block];
    struct nm_access_stream *s = &x->s[b->life.stream];
    tick(x);
    uint32_t op = nm_access_op_free(&x->w, &x->t[thread]);
    b->life.flags |= NM_ACCESS_FREED;
    nm_access_finish(&b->life, b->tid, s, op, nm_access_work(&x->w, x->now_ns), (uint32_t)thread);
    nm_access_remember(s->free_op, op);
    return b->life;
}

/* One operator on one thread: its result is allocated, tensors are made, it is launched. */
static void do_op(struct world *x, int thread, int result, const int *uses, int count)
{
    if (result >= 0)
        do_malloc(x, thread, result, 0);
    nm_access_op_begin(&x->w, &x->t[thread]);
    for (int i = 0; i < count; i++)
        do_tensor(x, thread, uses[i]);
    if (result >= 0)
        do_tensor(x, thread, result);
    do_run(x, thread);
    nm_access_op_end(&x->w, &x->t[thread]);
}

/* --- operations --- */

static void an_operator_and_its_result_are_one_operation(void **state)
{
    struct world x;
    world_init(&x);
    do_malloc(&x, 0, 0, 0); /* torch.empty */
    do_op(&x, 0, 1, (int[]){0}, 1);
    assert_int_equal(x.w.operation, 1);
    assert_int_equal(x.b[1].life.first_op, x.b[1].life.alloc_op);
    do_op(&x, 0, -1, (int[]){0, 1}, 2); /* in place */
    do_op(&x, 0, -1, (int[]){0}, 1);
    assert_int_equal(x.w.operation, 3);
    do_free(&x, 0, 1);
    assert_int_equal(x.w.operation, 4);
    do_copy(&x, 0, 0);
    do_copy(&x, 0, 0);
    assert_int_equal(x.w.operation, 6);
    assert_int_equal(x.b[0].life.count, 5);
}

/* torch_npu's task queue: made on one thread, launched in order on another, some time later. */
static void a_launch_on_another_thread_is_no_operation(void **state)
{
    struct world x;
    world_init(&x);
    do_malloc(&x, 0, 0, 0);
    for (int i = 0; i < 100; i++) {
        nm_access_op_begin(&x.w, &x.t[0]);
        do_tensor(&x, 0, 0);
        nm_access_op_end(&x.w, &x.t[0]);
        if (i >= 7)
            do_run(&x, 1);
    }
    for (int i = 0; i < 7; i++)
        do_run(&x, 1);
    assert_int_equal(x.w.operation, 100);
    assert_int_equal(x.w.pending, 0);
    assert_int_equal(x.w.open_count, 0);
    /* and one that is repeated without new tensors is one */
    do_run(&x, 1);
    assert_int_equal(x.w.operation, 101);
}

/* A library without the marks: the launch elsewhere tells that the next tensor begins a new one. */
static void without_marks_a_launch_elsewhere_ends_an_operation(void **state)
{
    struct world x;
    world_init(&x);
    do_malloc(&x, 0, 0, 0);
    for (int i = 0; i < 50; i++) {
        do_tensor(&x, 0, 0);
        do_tensor(&x, 0, 0);
        do_run(&x, 1);
    }
    assert_int_equal(x.w.operation, 50);
    do_malloc(&x, 0, 1, 0); /* ends the last one */
    do_tensor(&x, 0, 1);
    do_run(&x, 0);
    assert_int_equal(x.w.operation, 51);
    assert_int_equal(x.w.open_count, 0);
}

/* Two threads in the middle of their operations do not end each other's. */
static void threads_are_kept_apart(void **state)
{
    struct world x;
    world_init(&x);
    do_malloc(&x, 0, 0, 0);
    do_malloc(&x, 1, 1, 1);
    nm_access_op_begin(&x.w, &x.t[0]);
    nm_access_op_begin(&x.w, &x.t[1]);
    do_tensor(&x, 0, 0);
    do_tensor(&x, 1, 1);
    do_tensor(&x, 0, 0);
    do_run(&x, 1);
    do_tensor(&x, 0, 0);
    do_run(&x, 0);
    assert_int_equal(x.b[0].life.first_op, x.b[0].life.last_op);
    assert_int_equal(x.b[1].life.first_op, x.b[1].life.last_op);
    assert_int_not_equal(x.b[0].life.first_op, x.b[1].life.first_op);
    assert_false(x.b[0].life.flags & NM_ACCESS_THREADS);
}

/* What another stream frees does not make this stream's block early: it could not have had it. */
static void streams_are_kept_apart(void **state)
{
    for (int other = 0; other < 2; other++) {
        struct world x;
        world_init(&x);
        do_malloc(&x, 0, 0, other);
        do_copy(&x, 0, 0);
        do_malloc(&x, 0, 1, 0);
        do_free(&x, 0, 0);
        do_copy(&x, 0, 1);
        assert_int_equal((x.b[1].life.flags & NM_ACCESS_EARLY) != 0, other == 0);
    }
}

/* What is used on another thread is used later than it was handed over: frees and allocations since
 * say nothing of it. */
static void order_is_of_one_thread(void **state)
{
    for (int other = 0; other < 2; other++) {
        struct world x;
        struct nm_access life;
        world_init(&x);
        do_malloc(&x, 0, 0, 0);
        do_copy(&x, 0, 0);
        do_malloc(&x, 0, 1, 0);
        do_free(&x, 0, 0);
        do_copy(&x, other, 1);
        assert_int_equal((x.b[1].life.flags & NM_ACCESS_EARLY) != 0, other == 0);
        do_malloc(&x, 0, 2, 0);
        life = do_free(&x, 0, 1);
        assert_int_equal((life.flags & NM_ACCESS_LATE) != 0, other == 0);
    }
}

/* A thread that only allocates, beside one that only runs operations. */
static void blocks_do_not_wait_for_an_old_operation(void **state)
{
    struct world x;
    world_init(&x);
    do_malloc(&x, 0, 0, 0);
    for (int i = 0; i < 20; i++)
        do_copy(&x, 1, 0);
    do_malloc(&x, 0, 1, 0);
    assert_int_equal(x.b[1].life.alloc_op, 22);
}

/* A result is used by the operation that makes it: it cannot be allocated later. */
static void a_result_is_not_early(void **state)
{
    struct world x;
    world_init(&x);
    do_malloc(&x, 0, 0, 0);
    do_op(&x, 0, 1, (int[]){0}, 1);
    do_free(&x, 0, 0);
    do_op(&x, 0, -1, (int[]){1}, 1);
    assert_false(x.b[1].life.flags & NM_ACCESS_EARLY);
}

static void pauses_are_not_work_time(void **state)
{
    struct world x;
    world_init(&x);
    do_malloc(&x, 0, 0, 0);
    do_copy(&x, 0, 0);
    x.now_ns += 3600 * 1000000000ull; /* nobody asks for an hour */
    assert_int_equal(nm_access_work(&x.w, x.now_ns), 2);
    do_copy(&x, 0, 0);
    assert_in_range(x.b[0].life.gap_us, 0, 2);
    x.now_ns += 900000000; /* a slow step is work */
    do_copy(&x, 0, 0);
    assert_in_range(x.b[0].life.gap_us, 900000, 900002);
}

/* A thread looks at the time, is delayed, and comes to the clock after another one. */
static void work_time_never_runs_backwards(void **state)
{
    struct world x;
    uint64_t seen[3];
    world_init(&x);
    do_malloc(&x, 0, 0, 0);
    for (int i = 0; i < 3; i++, x.now_ns += 700000000) /* none of them a pause by itself */
        seen[i] = x.now_ns;
    x.now_ns += 5 * 1000000000ull;
    uint32_t after = nm_access_work(&x.w, x.now_ns);
    for (int i = 0; i < 3; i++)
        assert_int_equal(nm_access_work(&x.w, seen[i]), after);
    assert_int_equal(nm_access_work(&x.w, 1), after);
    assert_int_equal(nm_access_work(&x.w, x.now_ns + 1000), after + 1);
}

/* Two threads end one pause at the same time: whoever is second adds nothing, and both are where
 * the pause began. */
static void a_pause_that_two_threads_end_counts_once(void **state)
{
    struct nm_access_window w = {.begin_ns = 1000000};
    uint64_t first = w.begin_ns + 9000000000, second = first + 4000;
    uint64_t a = nm_access_clock(w.clock, w.begin_ns, first);
    uint64_t b = nm_access_clock(w.clock, w.begin_ns, second);
    assert_int_equal(nm_access_us(a), 0);
    assert_int_equal(nm_access_us(b), 0);
    w.clock = b;
    assert_int_equal(nm_access_work(&w, first), 0);
    assert_int_equal(nm_access_work(&w, second + 5000), 5);
}

/* An operation that was open before another thread allocated the block frees it. */
static void a_free_by_an_earlier_operation_ends_at_its_allocation(void **state)
{
    struct nm_access b = {.alloc_us = 3, .alloc_op = 105};
    nm_access_finish(&b, 0, NULL, 100, 7, 1);
    assert_int_equal(b.end_op, 105);
    nm_access_finish(&b, 0, NULL, 110, 7, 1);
    assert_int_equal(b.end_op, 110);
}

/* The task queue's thread launches an operation on memory that was freed, and given out again to
 * another block, since it looked at the time. */
static void a_use_from_before_a_block_is_not_its_own(void **state)
{
    struct world x;
    world_init(&x);
    do_malloc(&x, 0, 0, 0);
    uint32_t us = nm_access_work(&x.w, x.now_ns);
    tick(&x);
    do_free(&x, 0, 0);
    tick(&x);
    do_malloc(&x, 0, 0, 0);
    nm_access_use(&x.b[0], &x.t[1], &x.s[0], 1, us, 1);
    assert_int_equal(x.b[0].life.count, 0);
    do_op(&x, 0, -1, (int[]){0}, 1);
    assert_int_equal(x.b[0].life.count, 1);
    assert_true(x.b[0].life.first_us >= x.b[0].life.alloc_us);
}

/* A use that another thread noted after this one looked at the time of its free. */
static void a_free_beside_a_use_ends_no_earlier(void **state)
{
    struct nm_access b = {.count = 2, .first_us = 9, .last_us = 8};
    nm_access_finish(&b, 0, NULL, 5, 7, 1);
    assert_int_equal(b.last_us, 9);
    assert_int_equal(b.end_us, 9);
    nm_access_finish(&b, 0, NULL, 5, 12, 1);
    assert_int_equal(b.end_us, 12);
}

/* --- the ordinal rules, by their definition --- */

/*
 * One thread, one stream, every call its own or inside an operation: lists of numbers of all frees
 * and allocations, searched in full.
 */
struct oracle {
    uint32_t mallocs[4096], frees[4096];
    uint32_t malloc_count, free_count;
    struct {
        uint32_t alloc, last, gap;
        bool early, used;
    } b[BLOCKS];
};

static bool any_between(const uint32_t *list, uint32_t count, uint32_t low, uint32_t high)
{
    for (uint32_t i = 0; i < count; i++)
        if (list[i] > low && list[i] < high)
            return true;
    return false;
}

static void oracle_use(struct oracle *o, int block, uint32_t op)
{
    if (!o->b[block].used)
        o->b[block].early = any_between(o->frees, o->free_count, o->b[block].alloc, op);
    else if (op - o->b[block].last > o->b[block].gap)
        o->b[block].gap = op - o->b[block].last;
    o->b[block].used = true;
    o->b[block].last = op;
}

static void ordinal_rules_by_definition(void **state)
{
    uint64_t seed = 88172645463325252u;
    unsigned early = 0, late = 0;

    for (int round = 0; round < 300; round++) {
        struct world x;
        struct oracle o;
        bool is_live[BLOCKS] = {false};
        uint32_t op = 0;
        bool is_open = false; /* blocks wait for their operation */
        world_init(&x);
        memset(&o, 0, sizeof(o));
        for (int step = 0; step < 400; step++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            int block = (int)(seed >> 40) % 12, what = (int)(seed >> 20) % 4;
            if (!is_live[block] && what < 2) {
                do_malloc(&x, 0, block, 0);
                op += !is_open;
                is_open = true;
                memset(&o.b[block], 0, sizeof(o.b[block]));
                o.b[block].alloc = op;
                o.mallocs[o.malloc_count++] = op;
                is_live[block] = true;
            } else if (is_live[block] && what == 2) {
                struct nm_access life = do_free(&x, 0, block);
                is_open = false;
                op++;
                bool is_late =
                    o.b[block].used && any_between(o.mallocs, o.malloc_count, o.b[block].last, op);
                assert_int_equal(life.end_op, op);
                assert_int_equal((life.flags & NM_ACCESS_LATE) != 0, is_late);
                assert_int_equal((life.flags & NM_ACCESS_EARLY) != 0, o.b[block].early);
                assert_int_equal(life.gap_op, o.b[block].gap);
                o.frees[o.free_count++] = op;
                is_live[block] = false;
                early += o.b[block].early;
                late += is_late;
            } else if (is_live[block]) {
                do_op(&x, 0, -1, &block, 1);
                op += !is_open;
                is_open = false;
                oracle_use(&o, block, op);
            }
        }
    }
    assert_true(early > 500 && late > 5000); /* the sequences do have both */
}

/* --- which block an address is in --- */

static void pages_of_any_block(void **state)
{
    uint64_t seed = 4101842887655102017u;

    for (int i = 0; i < 20000; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        uint64_t bytes = ((seed >> 8) & ((1ull << (9 + (seed & 31) % 28)) - 1)) + 1;
        uint64_t address = (seed >> 3) & ~511ull & ((1ull << 47) - 1);
        int level = nm_access_level(bytes);
        uint32_t count = 0;
        if (bytes >> 37)
            continue;
        while (count < NM_ACCESS_PAGES_PER_BLOCK &&
               nm_access_page_key(address, bytes, level, count))
            count++;
        /* all of its pages fit into the bound, and each address within is in one of them */
        assert_int_equal(nm_access_page_key(address, bytes, level, count), 0);
        uint64_t inside = address + seed % bytes;
        uint64_t page = inside >> NM_ACCESS_SHIFT(level);
        bool is_found = false;
        for (uint32_t k = 0; k < count; k++)
            is_found |= nm_access_page_key(address, bytes, level, k) >> 4 == page;
        assert_true(is_found);
    }
}

/* --- goldens --- */

static uint64_t on_wall(void *userdata, uint64_t boot_ns)
{
    return boot_ns + 1000000000000;
}

static const char *on_owner(void *userdata, uint32_t owner)
{
    return owner ? "PTA@vllm@weights" : NULL;
}

/* The member "name" of the block; userdata: the list. */
static bool on_name(void *userdata, const struct inefficient_window *w,
                    const struct inefficient_block *block, char *ret, size_t size)
{
    struct jsonc *o = json_object_array_get_idx(userdata, (block->life.address >> 30) - 1);
    const char *name = json_object_get_string(get(o, "name"));
    return name && snprintf(ret, size, "%s", name) >= 0;
}

static struct nm_access life_of(struct jsonc *o, size_t i)
{
    struct jsonc *flags = get(o, "flags");
    struct nm_access a = {
        .address = get_u64(o, "address", (i + 1) << 30),
        .alloc_us = (uint32_t)get_u64(o, "alloc_us", 0),
        .first_us = (uint32_t)get_u64(o, "first_us", 0),
        .last_us = (uint32_t)get_u64(o, "last_us", 0),
        .gap_us = (uint32_t)get_u64(o, "gap_us", 0),
        .end_us = (uint32_t)get_u64(o, "end_us", 0),
        .alloc_op = (uint32_t)get_u64(o, "alloc_op", 0),
        .first_op = (uint32_t)get_u64(o, "first_op", 0),
        .last_op = (uint32_t)get_u64(o, "last_op", 0),
        .gap_op = (uint32_t)get_u64(o, "gap_op", 0),
        .end_op = (uint32_t)get_u64(o, "end_op", 0),
        .count = (uint32_t)get_u64(o, "count", 0),
    };
    for (size_t k = 0; flags && k < json_object_array_length(flags); k++) {
        const char *f = json_object_get_string(json_object_array_get_idx(flags, k));
        a.flags |= strcmp(f, "held") == 0    ? NM_ACCESS_HELD
                   : strcmp(f, "early") == 0 ? NM_ACCESS_EARLY
                   : strcmp(f, "late") == 0  ? NM_ACCESS_LATE
                                             : NM_ACCESS_FREED;
    }
    return a;
}

static int run(struct jsonc *input, struct json *j)
{
    struct inefficient_bounds bounds = {
        .idle_ns = get_u64(input, "idle_ns", INEFFICIENT_IDLE_NS_DEFAULT),
        .operations = (uint32_t)get_u64(input, "operations", INEFFICIENT_OPERATIONS_DEFAULT),
        .min_size_bytes = get_u64(input, "min_bytes", 0),
    };
    struct inefficient_window w = {
        .tgid = 77,
        .rank = 1,
        .begin_ns = 1000,
        .end_ns = 1000 + get_u64(input, "window_us", 10000000) * 1000,
        .functions = (unsigned)get_u64(input, "functions", 20),
        .lost_events = get_u64(input, "lost", 0),
        .hidden_bytes = get_u64(input, "hidden_bytes", 0),
        .seen = {.begin_ns = 1000,
                 .clock = get_u64(input, "window_us", 10000000) << 32, /* no pause */
                 .operation = get_u64(input, "operation", 1000),
                 .use_count = get_u64(input, "uses", 5000),
                 .graph_count = get_u64(input, "graphs", 0),
                 .unknown_count = get_u64(input, "unknown", 0)},
    };
    struct jsonc *blocks = get(input, "blocks");
    struct inefficient_text text = {
        .owner_fn = on_owner, .name_fn = on_name, .wall_fn = on_wall, .userdata = blocks};
    struct inefficient *i;

    assert_int_equal(inefficient_new(&bounds, &i), 0);
    for (size_t k = 0; blocks && k < json_object_array_length(blocks); k++) {
        struct jsonc *o = json_object_array_get_idx(blocks, k);
        struct inefficient_block b = {.life = life_of(o, k),
                                      .size_bytes = get_u64(o, "size_bytes", 1 << 20),
                                      .owner = 1,
                                      .device = 0};
        assert_int_equal(inefficient_add(i, &b), 0);
    }
    int r = inefficient_write(i, &w, &text, (uint32_t)get_u64(input, "limit", 100), j);
    inefficient_free(i);
    return r;
}

static void golden(void **state)
{
    golden_run("inefficient", run, 10);
}

/* More findings than are kept: the costliest are. */
static void many_findings(void **state)
{
    struct inefficient_bounds bounds = {.idle_ns = 1000000, .operations = 3000};
    struct inefficient_window w = {.functions = 1, .seen.use_count = 1};
    struct inefficient_text text = {.wall_fn = on_wall};
    struct inefficient *i;
    struct json j = {};

    assert_int_equal(inefficient_new(&bounds, &i), 0);
    for (uint32_t k = 0; k < 300000; k++) {
        struct inefficient_block b = {
            .size_bytes = (uint64_t)(k * 2654435761u % 300000 + 1) << 20,
            .life = {.address = k,
                     .end_us = 2000000,
                     .first_us = 1500000,
                     .last_us = 2000000,
                     .count = 2,
                     .flags = NM_ACCESS_FREED},
        };
        assert_int_equal(inefficient_add(i, &b), 0);
    }
    json_object(&j);
    assert_int_equal(inefficient_write(i, &w, &text, 1, &j), 0);
    json_end(&j);
    assert_int_equal(json_finish(&j), 0);
    assert_non_null(strstr(j.data, "\"size_bytes\":314572800000,"));
    assert_non_null(strstr(j.data, "\"matched_findings\":300000"));
    json_done(&j);
    inefficient_free(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operator_and_its_result_are_one_operation),
        cmocka_unit_test(a_launch_on_another_thread_is_no_operation),
        cmocka_unit_test(without_marks_a_launch_elsewhere_ends_an_operation),
        cmocka_unit_test(threads_are_kept_apart),
        cmocka_unit_test(streams_are_kept_apart),
        cmocka_unit_test(order_is_of_one_thread),
        cmocka_unit_test(blocks_do_not_wait_for_an_old_operation),
        cmocka_unit_test(a_result_is_not_early),
        cmocka_unit_test(pauses_are_not_work_time),
        cmocka_unit_test(work_time_never_runs_backwards),
        cmocka_unit_test(a_pause_that_two_threads_end_counts_once),
        cmocka_unit_test(a_free_by_an_earlier_operation_ends_at_its_allocation),
        cmocka_unit_test(a_use_from_before_a_block_is_not_its_own),
        cmocka_unit_test(a_free_beside_a_use_ends_no_earlier),
        cmocka_unit_test(ordinal_rules_by_definition),
        cmocka_unit_test(pages_of_any_block),
        cmocka_unit_test(golden),
        cmocka_unit_test(many_findings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
