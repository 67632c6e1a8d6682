/* SPDX-License-Identifier: Apache-2.0 */
/* Holes between blocks: worked out by hand, against a byte map, and at a million blocks. */
#include "test_analysis.h"

#include <time.h>

#include "alloc_model.h"
#include "frag.h"
#include "frag_pool.h"
#include "layout_scan.h"
#include "sort.h"

#define MIB ((uint64_t)1 << 20)

static void segment(struct layout *l, uint64_t address, uint64_t bytes, bool granule)
{
    struct layout_segment s = {.address = address,
                               .bytes = bytes,
                               .is_granule = granule,
                               .is_small = !granule && bytes == 2 * MIB};
    assert_int_equal(layout_add_segment(l, &s), 0);
}

static void block(struct layout *l, uint64_t address, uint64_t bytes, bool pending)
{
    struct layout_block b = {.address = address, .bytes = bytes, .is_pending = pending};
    assert_int_equal(layout_add_block(l, &b), 0);
}

static void holes(void **state)
{
    struct layout l = {0};
    segment(&l, 200 * MIB, 20 * MIB, false); /* out of order on purpose */
    segment(&l, 100 * MIB, 30 * MIB, false);
    block(&l, 210 * MIB, 10 * MIB, false);
    block(&l, 104 * MIB, 6 * MIB, true);
    block(&l, 115 * MIB, 5 * MIB, false);
    block(&l, 500 * MIB, MIB, false); /* in no segment */
    assert_int_equal(layout_measure(&l), 0);
    const struct layout_segment *a = &l.segments[0], *b = &l.segments[1];
    assert_int_equal(a->holes, 3); /* 4, 5 and 10 MiB */
    assert_int_equal(a->largest_hole_bytes, 10 * MIB);
    assert_int_equal(a->used_bytes, 5 * MIB);
    assert_int_equal(a->pending_bytes, 6 * MIB);
    assert_int_equal(b->holes, 1);
    assert_int_equal(b->largest_hole_bytes, 10 * MIB);
    assert_int_equal(l.unplaced_blocks, 1);
    assert_int_equal(l.unplaced_bytes, MIB);
    assert_int_equal(l.blocks[a->pin].bytes, 6 * MIB);
    layout_done(&l);
}

/* Granules in a row are one segment, ordinary segments in a row are two. */
static void granules(void **state)
{
    struct layout l = {0};
    for (unsigned i = 0; i < 3; i++)
        segment(&l, (100 + 20 * i) * MIB, 20 * MIB, true);
    segment(&l, 200 * MIB, 20 * MIB, true); /* behind a gap without memory */
    segment(&l, 400 * MIB, 20 * MIB, false);
    segment(&l, 420 * MIB, 20 * MIB, false);
    block(&l, 110 * MIB, 40 * MIB, false); /* over three granules */
    assert_int_equal(layout_measure(&l), 0);
    assert_int_equal(l.segment_count, 4);
    assert_int_equal(l.segments[0].bytes, 60 * MIB);
    assert_int_equal(l.segments[0].used_bytes, 40 * MIB);
    assert_int_equal(l.segments[0].holes, 2);
    assert_int_equal(l.overlaps, 0);
    layout_done(&l);
}

/* A block that begins in granules from before attach and ends in one that was seen. */
static void half_seen(void **state)
{
    struct layout l = {0};
    segment(&l, 100 * MIB, 20 * MIB, true);
    block(&l, 90 * MIB, 15 * MIB, false);
    block(&l, 110 * MIB, 4 * MIB, false);
    assert_int_equal(layout_measure(&l), 0);
    assert_int_equal(l.unplaced_blocks, 1);
    assert_int_equal(l.segments[0].used_bytes, 9 * MIB);
    assert_int_equal(l.segments[0].largest_hole_bytes, 6 * MIB);
    assert_int_equal(l.segments[0].holes, 2);
    assert_int_equal(l.overlaps, 0);
    layout_done(&l);
}

/* What a request finds, by the allocator's own rules. */
static void requests(void **state)
{
    struct frag_sums sums[FRAG_POOL_COUNT];
    struct alloc_conf conf;
    struct layout l = {0};

    alloc_conf_init(&conf);
    segment(&l, 100 * MIB, 60 * MIB, false);
    segment(&l, 200 * MIB, 2 * MIB, false); /* of small requests */
    segment(&l, 300 * MIB, 40 * MIB, true);
    block(&l, 125 * MIB, 5 * MIB, false); /* holes of 25 and 30 MiB */
    block(&l, 300 * MIB, 35 * MIB, false);
    assert_int_equal(layout_measure(&l), 0);
    frag_add_up(&l, &conf, alloc_model_round(&conf, 9 * MIB), sums);
    assert_int_equal(sums[FRAG_LARGE].usable_bytes, 55 * MIB);
    assert_int_equal(sums[FRAG_LARGE].fitting_requests, 2 + 3);
    assert_int_equal(sums[FRAG_SMALL].usable_bytes, 0);
    assert_int_equal(sums[FRAG_SMALL].free_bytes, 2 * MIB);
    /* the end of an expandable segment grows */
    assert_int_equal(sums[FRAG_LARGE_EXPANDABLE].usable_bytes, 5 * MIB);
    assert_int_equal(sums[FRAG_LARGE_EXPANDABLE].fitting_requests, 0);
    frag_add_up(&l, &conf, alloc_model_round(&conf, 26 * MIB), sums);
    assert_int_equal(sums[FRAG_LARGE].usable_bytes, 30 * MIB);
    frag_add_up(&l, &conf, 4096, sums);
    assert_int_equal(sums[FRAG_SMALL].fitting_requests, 512);
    assert_int_equal(sums[FRAG_LARGE].usable_bytes, 0);
    conf.max_split_bytes = 28 * MIB; /* the hole of 30 MiB is not split any more */
    frag_add_up(&l, &conf, 10 * MIB, sums);
    assert_int_equal(sums[FRAG_LARGE].usable_bytes, 25 * MIB);
    layout_done(&l);
}

static void table_block(struct scan_result *r, uint64_t address, uint64_t bytes, uint8_t state,
                        uint8_t small)
{
    r->blocks[r->s.block_count] = (struct npualloc_block){
        .address = address, .bytes = bytes, .state = state, .is_small = small, .pool = 1 + small};
    r->block_tensors[r->s.block_count++] = SCAN_NONE;
}

/* The allocator's table: holes as it says them, segments as far as it shows them. */
static void table(void **state)
{
    struct npualloc_block blocks[16];
    uint32_t tensors[16];
    struct scan_result r = {.blocks = blocks, .block_tensors = tensors};
    struct process_facts facts;
    struct layout l;

    process_facts_init(&facts, 1);
    table_block(&r, 2 * MIB, MIB, NPUALLOC_LIVE, 1); /* two segments of small requests */
    table_block(&r, 3 * MIB, MIB, NPUALLOC_FREE, 1);
    table_block(&r, 4 * MIB, 2 * MIB, NPUALLOC_LIVE, 1);
    table_block(&r, 100 * MIB, 4 * MIB, NPUALLOC_LIVE, 0);
    table_block(&r, 104 * MIB, 16 * MIB, NPUALLOC_FREE, 0);
    table_block(&r, 120 * MIB, 20 * MIB, NPUALLOC_FREE, 0); /* two holes touch: another segment */
    table_block(&r, 200 * MIB, 30 * MIB, NPUALLOC_PENDING, 0);
    table_block(&r, 230 * MIB, 10 * MIB, NPUALLOC_FREE, 0);
    table_block(&r, 240 * MIB, 500 * MIB, NPUALLOC_UNMAPPED, 0);
    assert_int_equal(layout_from_scan(&r, &facts, 0, &l), 0);
    assert_int_equal(layout_measure(&l), 0);
    assert_int_equal(l.segment_count, 5);
    static const uint64_t bytes[] = {2, 2, 20, 20, 40}, hole[] = {1, 0, 16, 20, 10};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(l.segments[i].bytes, bytes[i] * MIB);
        assert_int_equal(l.segments[i].largest_hole_bytes, hole[i] * MIB);
        assert_int_equal(l.segments[i].is_granule, i == 4);
    }
    assert_int_equal(l.segments[4].pending_bytes, 30 * MIB);
    layout_done(&l);
    assert_int_equal(layout_from_scan(&r, &facts, 1, &l), 0); /* another device */
    assert_int_equal(l.segment_count, 0);
    layout_done(&l);
}

static int add_bytes(void *userdata, const struct layout_piece *p)
{
    uint64_t *sum = userdata;
    *sum += p->bytes;
    return 0;
}

/* A table that nobody made: addresses that overlap, wrap and are out of order. The pieces of a
 * segment are its bytes all the same. */
static void hostile_table(void **state)
{
    struct npualloc_block blocks[16];
    uint32_t tensors[16];
    struct process_facts facts;
    uint64_t random = 77;

    process_facts_init(&facts, 1);
    for (unsigned round = 0; round < 20000; round++) {
        struct scan_result r = {.blocks = blocks, .block_tensors = tensors};
        struct layout l;
        for (unsigned i = 0; i < 16; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            uint64_t bytes = (random >> 20) % 7 * MIB, address = (random >> 40) % 32 * MIB;
            if (random >> 61 == 7)
                address = UINT64_MAX - address;
            if (random >> 61 == 6)
                bytes = UINT64_MAX - bytes;
            table_block(&r, address, bytes, (random >> 33) & 3, (random >> 36) & 1);
        }
        assert_int_equal(layout_from_scan(&r, &facts, 0, &l), 0);
        assert_int_equal(layout_measure(&l), 0);
        for (size_t i = 0; i < l.segment_count; i++) {
            const struct layout_segment *s = &l.segments[i];
            uint64_t sum = 0, room = UINT64_MAX - s->address;
            layout_each_piece(&l, s, add_bytes, &sum);
            assert_int_equal(sum, s->bytes < room ? s->bytes : room);
            assert_true(s->largest_hole_bytes <= s->bytes);
        }
        layout_done(&l);
    }
}

/* Loss and reuse: overlapping blocks and one that reaches over the end never give a negative hole.
 */
static void overlaps(void **state)
{
    struct layout l = {0};
    segment(&l, 100 * MIB, 20 * MIB, false);
    block(&l, 100 * MIB, 10 * MIB, false);
    block(&l, 105 * MIB, 2 * MIB, false);
    block(&l, 115 * MIB, 50 * MIB, false);
    block(&l, UINT64_MAX - 5, 100, false);
    assert_int_equal(layout_measure(&l), 0);
    assert_int_equal(l.overlaps, 2);
    assert_int_equal(l.segments[0].used_bytes, 15 * MIB);
    assert_int_equal(l.segments[0].largest_hole_bytes, 5 * MIB);
    layout_done(&l);
}

/* Random layouts against a map of every KiB. */
static void against_a_map(void **state)
{
    uint64_t random = 1234567;
    for (unsigned round = 0; round < 200; round++) {
        unsigned char map[4096] = {0};
        struct layout l = {0};
        uint64_t used = 0, largest = 0, run = 0, count = 0;
        segment(&l, MIB, 4 * MIB, false);
        for (unsigned at = 0; at < 4096;) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            unsigned length = 1 + (unsigned)(random >> 33) % 300;
            if (at + length > 4096)
                length = 4096 - at;
            if (random >> 63) {
                block(&l, MIB + at * 1024, length * 1024, false);
                memset(map + at, 1, length);
                used += length * 1024;
            }
            at += length;
        }
        for (unsigned at = 0; at < 4096; at++) {
            run = map[at] ? 0 : run + 1024;
            count += !map[at] && (at == 0 || map[at - 1]);
            largest = run > largest ? run : largest;
        }
        assert_int_equal(layout_measure(&l), 0);
        assert_int_equal(l.segments[0].used_bytes, used);
        assert_int_equal(l.segments[0].largest_hole_bytes, largest);
        assert_int_equal(l.segments[0].holes, count);
        layout_done(&l);
    }
}

static void a_million(void **state)
{
    struct layout l = {0};
    struct timespec a, b;
    uint64_t random = 99;
    for (unsigned i = 0; i < 1000; i++)
        segment(&l, (uint64_t)(i + 1) << 30, 1 << 30, false);
    for (unsigned i = 0; i < 1000000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        block(&l, ((uint64_t)(1 + (random >> 33) % 1000) << 30) + (random >> 40 & 0xfffff) * 1024,
              512, false);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    assert_int_equal(layout_measure(&l), 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    print_message("1,000,000 blocks in %ld ms\n",
                  (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000);
    uint64_t blocks = 0;
    for (size_t i = 0; i < l.segment_count; i++)
        blocks += l.segments[i].blocks;
    assert_int_equal(blocks, 1000000);
    layout_done(&l);
}

static void sorted(void **state)
{
    struct sort_key keys[3000];
    uint64_t random = 5;
    for (unsigned i = 0; i < 3000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        keys[i] = (struct sort_key){i % 3 ? random : random & 7, i};
    }
    assert_int_equal(sort_keys(keys, 3000), 0);
    for (unsigned i = 1; i < 3000; i++) {
        assert_true(keys[i - 1].key <= keys[i].key);
        if (keys[i - 1].key == keys[i].key)
            assert_true(keys[i - 1].index < keys[i].index);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holes),         cmocka_unit_test(granules),
        cmocka_unit_test(overlaps),      cmocka_unit_test(half_seen),
        cmocka_unit_test(requests),      cmocka_unit_test(table),
        cmocka_unit_test(hostile_table), cmocka_unit_test(against_a_map),
        cmocka_unit_test(a_million),     cmocka_unit_test(sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
