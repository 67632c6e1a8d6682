/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of torch_npu's allocator against sequences worked out by hand from its rules: 32 bytes
 * of padding, 512 of rounding, segments of 2 MiB, 20 MiB and their own size, 1 MiB that is not
 * split off.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_model.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

struct world {
    struct alloc_model *m;
    struct alloc_conf conf;
};

static struct world world_limited(const char *setting, uint64_t card, uint64_t available,
                                  double fraction)
{
    struct world w;
    struct alloc_model_options o = {
        .card_bytes = card, .available_bytes = available, .fraction = fraction};
    struct error error;
    assert_int_equal(alloc_conf_parse(setting, &o.conf, &error), 0);
    assert_int_equal(alloc_model_new(&o, &w.m), 0);
    w.conf = o.conf;
    return w;
}

static struct world world(const char *setting)
{
    return world_limited(setting, 64 * GIB, 0, 0);
}

static struct alloc_block *take_on(struct world *w, uint64_t bytes, uint64_t stream)
{
    struct alloc_block *b = NULL;
    assert_int_equal(alloc_model_malloc(w->m, alloc_model_round(&w->conf, bytes), stream, &b), 0);
    return b;
}

static struct alloc_block *take(struct world *w, uint64_t bytes)
{
    return take_on(w, bytes, 0);
}

static struct alloc_model_stats stats(const struct world *w)
{
    struct alloc_model_stats s;
    alloc_model_stats(w->m, &s);
    return s;
}

static void rounding(void **state)
{
    struct alloc_conf c;
    alloc_conf_init(&c);
    assert_int_equal(alloc_model_round(&c, 1), 512);
    assert_int_equal(alloc_model_round(&c, 480), 512);
    assert_int_equal(alloc_model_round(&c, 481), 1024);
    assert_int_equal(alloc_model_round(&c, 4 * MIB), 4 * MIB + 512); /* as measured: 4194816 */
    assert_int_equal(alloc_conf_parse("roundup_power2_divisions:4", &c, NULL), 0);
    /* 1200 MiB lies between 1024 and 2048: quarters of 256 */
    assert_int_equal(alloc_model_round(&c, 1200 * MIB), 1280 * MIB);
    assert_int_equal(alloc_model_round(&c, 1024 * MIB), 1280 * MIB); /* 32 bytes too many */
    assert_int_equal(alloc_model_round(&c, 1024 * MIB - 32), 1024 * MIB);
    assert_int_equal(
        alloc_conf_parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", &c, NULL), 0);
    assert_int_equal(alloc_model_round(&c, 100 * MIB), 100 * MIB + 512);
    assert_int_equal(alloc_model_round(&c, 600 * MIB), 768 * MIB);
    assert_int_equal(alloc_model_round(&c, 1200 * MIB), 1280 * MIB);
    assert_int_equal(alloc_model_round(&c, 2100 * MIB), 2304 * MIB);
}

static void segments(void **state)
{
    struct world w = world("");
    take(&w, 4 * MIB); /* measured: aclrtMallocAlign32(20971520) */
    assert_int_equal(stats(&w).reserved_bytes, 20 * MIB);
    take(&w, 256 * MIB); /* measured: 270532608 */
    assert_int_equal(stats(&w).reserved_bytes, 20 * MIB + 270532608);
    take(&w, 700 * KIB);
    assert_int_equal(stats(&w).reserved_bytes, 22 * MIB + 270532608);
    take(&w, 700 * KIB); /* the second of 700 KiB fits into 2 MiB */
    assert_int_equal(stats(&w).segments, 3);
    assert_int_equal(stats(&w).driver_calls, 3);
    alloc_model_free(w.m);
}

static void best_fit_and_merge(void **state)
{
    struct world w = world("");
    struct alloc_block *a = take(&w, 30 * MIB), *b = take(&w, 50 * MIB), *c;
    alloc_model_reuse(w.m, a);
    alloc_model_reuse(w.m, b);
    c = take(&w, 25 * MIB); /* into the 32 MiB segment, not the 52 MiB one */
    assert_int_equal(stats(&w).reserved_bytes, 84 * MIB);
    assert_int_equal(stats(&w).largest_hole_bytes, 52 * MIB);
    take(&w, 40 * MIB);
    assert_int_equal(stats(&w).segments, 2);
    alloc_model_reuse(w.m, c);
    /* the rest and the block are one again */
    assert_int_equal(stats(&w).holes, 2);
    assert_int_equal(stats(&w).largest_hole_bytes, 32 * MIB);
    alloc_model_free(w.m);
}

/* A rest of at most 1 MiB stays with a block of the large pool, any 512 with one of the small. */
static void split_rules(void **state)
{
    struct world w = world("");
    struct alloc_block *b = take(&w, 30 * MIB);
    assert_int_equal(alloc_model_block_bytes(b), 30 * MIB + 512);
    alloc_model_reuse(w.m, b);
    b = take(&w, 31 * MIB + 512 * KIB); /* 0.5 MiB would be left */
    assert_int_equal(alloc_model_block_bytes(b), 32 * MIB);
    b = take(&w, 1000 * KIB);
    assert_int_equal(alloc_model_block_bytes(b), 1000 * KIB + 512);
    alloc_model_free(w.m);
}

static void streams_do_not_share(void **state)
{
    struct world w = world("");
    alloc_model_reuse(w.m, take_on(&w, 30 * MIB, 7));
    take_on(&w, 30 * MIB, 8);
    assert_int_equal(stats(&w).reserved_bytes, 64 * MIB);
    take_on(&w, 30 * MIB, 7);
    assert_int_equal(stats(&w).reserved_bytes, 64 * MIB);
    alloc_model_free(w.m);
}

static void released_is_not_reusable(void **state)
{
    struct world w = world("");
    struct alloc_block *b = take(&w, 30 * MIB);
    alloc_model_release(w.m, b);
    assert_int_equal(stats(&w).allocated_bytes, 0);
    assert_int_equal(stats(&w).active_bytes, 30 * MIB + 512);
    take(&w, 30 * MIB);
    assert_int_equal(stats(&w).reserved_bytes, 64 * MIB);
    alloc_model_reuse(w.m, b);
    assert_int_equal(stats(&w).active_bytes, 30 * MIB + 512);
    alloc_model_free(w.m);
}

static void empty_cache_keeps_split_segments(void **state)
{
    struct world w = world("");
    struct alloc_block *a = take(&w, 30 * MIB), *b = take(&w, 50 * MIB);
    alloc_model_reuse(w.m, a);
    take(&w, 10 * MIB); /* holds the 32 MiB segment */
    alloc_model_reuse(w.m, b);
    alloc_model_empty_cache(w.m);
    assert_int_equal(stats(&w).reserved_bytes, 32 * MIB);
    assert_int_equal(stats(&w).peak_reserved_bytes, 84 * MIB);
    alloc_model_free(w.m);
}

static void max_split(void **state)
{
    struct world w = world("max_split_size_mb:64");
    struct alloc_block *big = take(&w, 100 * MIB);
    alloc_model_reuse(w.m, big);
    take(&w, 30 * MIB); /* not out of the oversize block */
    assert_int_equal(stats(&w).reserved_bytes, 134 * MIB);
    big = take(&w, 90 * MIB); /* within 20 MiB of rounding, whole */
    assert_int_equal(alloc_model_block_bytes(big), 102 * MIB);
    alloc_model_reuse(w.m, big);
    take(&w, 70 * MIB); /* 32 MiB too large for it */
    assert_int_equal(stats(&w).reserved_bytes, 206 * MIB);
    alloc_model_free(w.m);
}

/* With the card full, one oversize block goes instead of the whole cache. */
static void max_split_releases_one(void **state)
{
    struct world w = world_limited("max_split_size_mb:64", 64 * GIB, 320 * MIB, 0);
    struct alloc_block *a = take(&w, 90 * MIB), *b = take(&w, 200 * MIB);
    alloc_model_reuse(w.m, a); /* 92 */
    alloc_model_reuse(w.m, b); /* 202 */
    take(&w, 150 * MIB);       /* 202 is too large by more than 20; 152 more do not fit */
    assert_int_equal(stats(&w).flushes, 0);
    assert_int_equal(stats(&w).reserved_bytes, 92 * MIB + 152 * MIB);
    alloc_model_free(w.m);
}

static void flush_and_failure(void **state)
{
    struct world w = world_limited("", 64 * GIB, 100 * MIB, 0);
    struct alloc_block *none;
    alloc_model_reuse(w.m, take(&w, 60 * MIB));
    take(&w, 80 * MIB); /* the cached 62 MiB have to go */
    assert_int_equal(stats(&w).flushes, 1);
    assert_int_equal(stats(&w).reserved_bytes, 82 * MIB);
    assert_int_equal(alloc_model_malloc(w.m, 40 * MIB, 0, &none), -ENOSPC);
    assert_int_equal(stats(&w).failures, 1);
    alloc_model_free(w.m);
}

/* fraction 0.5 of 1 GiB, threshold 0.5 of that: above 256 MiB old segments go before a new one. */
static void garbage_collection(void **state)
{
    struct world w = world_limited("garbage_collection_threshold:0.5", GIB, 0, 0.5);
    alloc_model_reuse(w.m, take(&w, 198 * MIB)); /* 200 */
    struct alloc_block *b = take(&w, 98 * MIB);  /* out of it: 102 left */
    take(&w, 148 * MIB);                         /* 150 more: 350 reserved */
    assert_int_equal(stats(&w).reserved_bytes, 350 * MIB);
    alloc_model_reuse(w.m, b); /* 200 whole and cached */
    take(&w, 220 * MIB);       /* 222: first what is cached goes */
    assert_int_equal(stats(&w).collections, 1);
    assert_int_equal(stats(&w).reserved_bytes, (150 + 222) * MIB);
    assert_int_equal(stats(&w).flushes, 0);
    alloc_model_free(w.m);
}

static void expandable(void **state)
{
    struct world w = world("expandable_segments:True");
    struct alloc_block *a = take(&w, 30 * MIB), *b;
    assert_int_equal(stats(&w).reserved_bytes, 40 * MIB); /* two granules of 20 */
    b = take(&w, 50 * MIB);                               /* 10 left: two more granules and one */
    assert_int_equal(stats(&w).reserved_bytes, 100 * MIB);
    alloc_model_reuse(w.m, a);
    take(&w, 29 * MIB); /* into the hole, not behind it */
    assert_int_equal(stats(&w).reserved_bytes, 100 * MIB);
    take(&w, 500 * KIB); /* small pool: granules of 2 MiB */
    assert_int_equal(stats(&w).reserved_bytes, 102 * MIB);
    alloc_model_reuse(w.m, b);
    /* free from 29+ to 100: granules 40..100 go, 29..40 stay */
    alloc_model_empty_cache(w.m);
    assert_int_equal(stats(&w).reserved_bytes, 42 * MIB);
    take(&w, 200 * MIB); /* 11 MiB of the free end are used: 189 more are 10 granules */
    assert_int_equal(stats(&w).reserved_bytes, 242 * MIB);
    assert_int_equal(stats(&w).segments, 13);
    alloc_model_free(w.m);
}

/* A hole inside that is emptied is backed again before the end is extended. */
static void expandable_backs_holes(void **state)
{
    struct world w = world("expandable_segments:True");
    take(&w, 19 * MIB);
    struct alloc_block *b = take(&w, 100 * MIB);
    take(&w, 19 * MIB);
    assert_int_equal(stats(&w).reserved_bytes, 140 * MIB);
    alloc_model_reuse(w.m, b);
    alloc_model_empty_cache(w.m); /* 19..119 free: granules 20..100 go */
    assert_int_equal(stats(&w).reserved_bytes, 60 * MIB);
    take(&w, 90 * MIB); /* fits into the hole of 100 MiB: four granules again */
    assert_int_equal(stats(&w).reserved_bytes, 140 * MIB);
    alloc_model_free(w.m);
}

/* 16 KiB alignment of large blocks leaves slivers: 30 MiB + 512 is followed by 15.5 KiB. */
static void expandable_aligns(void **state)
{
    struct world w = world("expandable_segments:True");
    take(&w, 30 * MIB);
    take(&w, 5 * MIB);
    assert_int_equal(stats(&w).holes, 2); /* the sliver and the end */
    w.m = alloc_model_free(w.m);
    w = world("expandable_segments:True,base_addr_aligned_kb:0");
    take(&w, 30 * MIB);
    take(&w, 5 * MIB);
    assert_int_equal(stats(&w).holes, 1);
    alloc_model_free(w.m);
}

static void page_1g(void **state)
{
    struct world w = world("page_size:1g");
    take(&w, 30 * MIB);
    take(&w, 500 * KIB);
    assert_int_equal(stats(&w).reserved_bytes, GIB + 2 * MIB);
    alloc_model_free(w.m);
}

/* Random work under every setting: sums hold, and giving all back leaves nothing. */
static void invariants(void **state)
{
    static const char *const settings[] = {"", "expandable_segments:True", "max_split_size_mb:32",
                                           "large_segment_size_mb:64",
                                           "roundup_power2_divisions:4"};
    for (size_t k = 0; k < sizeof(settings) / sizeof(settings[0]); k++) {
        struct world w = world_limited(settings[k], 4 * GIB, 3 * GIB, 0);
        struct alloc_block *live[256] = {0};
        uint64_t random = 88172645463325252u + k, sum = 0;
        for (unsigned i = 0; i < 20000; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            unsigned at = random % 256;
            if (live[at]) {
                sum -= alloc_model_block_bytes(live[at]);
                alloc_model_reuse(w.m, live[at]);
                live[at] = NULL;
            } else {
                uint64_t bytes = 1 + (random >> 20) % (1ull << (10 + (random >> 10) % 16));
                if (alloc_model_malloc(w.m, alloc_model_round(&w.conf, bytes), random >> 60,
                                       &live[at]) == 0)
                    sum += alloc_model_block_bytes(live[at]);
                else
                    live[at] = NULL;
            }
            struct alloc_model_stats s = stats(&w);
            assert_int_equal(s.allocated_bytes, sum);
            assert_int_equal(s.active_bytes, sum);
            assert_true(s.reserved_bytes >= sum && s.reserved_bytes <= 3 * GIB);
            if (i % 1000 == 999)
                alloc_model_empty_cache(w.m);
        }
        for (unsigned i = 0; i < 256; i++)
            if (live[i])
                alloc_model_reuse(w.m, live[i]);
        alloc_model_empty_cache(w.m);
        assert_int_equal(stats(&w).reserved_bytes, 0);
        assert_int_equal(stats(&w).segments, 0);
        assert_int_equal(stats(&w).holes, 0);
        alloc_model_free(w.m);
    }
}

static void refused_settings(void **state)
{
    static const char *const bad[] = {"max_split_size_mb:20",
                                      "max_split_size_mb",
                                      "max_split_size_mb:",
                                      "max_split_size_mb:1x",
                                      "max_split_size_mb:-5",
                                      "max_split_size_mb:99999999999999999999",
                                      "expandable_segments:yes",
                                      "expandable_segments:True,max_split_size_mb:64",
                                      "garbage_collection_threshold:0.8,expandable_segments:True",
                                      "garbage_collection_threshold:1.0",
                                      "garbage_collection_threshold:0",
                                      "page_size:2m",
                                      "segment_size_mb:8",
                                      "base_addr_aligned_kb:32",
                                      "no_such_key:1",
                                      "roundup_power2_divisions:3",
                                      "roundup_power2_divisions:[256:1"};
    struct alloc_conf c, before;
    struct error error;
    memset(&c, 0x55, sizeof(c));
    before = c;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        error.what[0] = '\0';
        assert_int_equal(alloc_conf_parse(bad[i], &c, &error), -EINVAL);
        assert_true(error.what[0]);
        assert_memory_equal(&c, &before, sizeof(c));
    }
    assert_int_equal(
        alloc_conf_parse(" expandable_segments : False , max_split_size_mb:64,", &c, NULL), 0);
    assert_int_equal(c.max_split_bytes, 64 * MIB);
}

static void environment(void **state)
{
    static const char text[] = "A=1\0PYTORCH_NPU_ALLOC_CONF=x\0B=";
    assert_string_equal(alloc_conf_variable(text, sizeof(text), "PYTORCH_NPU_ALLOC_CONF"), "x");
    assert_null(alloc_conf_variable(text, sizeof(text), "PYTORCH"));
    assert_null(alloc_conf_variable(text, 6, "PYTORCH_NPU_ALLOC_CONF")); /* cut off */
    assert_null(alloc_conf_variable(NULL, 0, "A"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding),
        cmocka_unit_test(segments),
        cmocka_unit_test(best_fit_and_merge),
        cmocka_unit_test(split_rules),
        cmocka_unit_test(streams_do_not_share),
        cmocka_unit_test(released_is_not_reusable),
        cmocka_unit_test(empty_cache_keeps_split_segments),
        cmocka_unit_test(max_split),
        cmocka_unit_test(max_split_releases_one),
        cmocka_unit_test(flush_and_failure),
        cmocka_unit_test(garbage_collection),
        cmocka_unit_test(expandable),
        cmocka_unit_test(expandable_backs_holes),
        cmocka_unit_test(expandable_aligns),
        cmocka_unit_test(page_1g),
        cmocka_unit_test(invariants),
        cmocka_unit_test(refused_settings),
        cmocka_unit_test(environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
