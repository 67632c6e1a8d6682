/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What grows: golden cases of the public reports as generated series, fifty steady servers without
 * a finding, slow leaks found, slopes within 10 %. The slope that was put in is the oracle.
 */
#include "test_analysis.h"

#include "leak_cycles.h"
#include "leaks.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define SECOND_NS ((uint64_t)1000000000)
#define SAMPLES_MAX 2000

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double uniform(uint64_t *state)
{
    return (double)(random_next(state) >> 11) / 9007199254740992.0;
}

/* A series of a golden case: base, growth per sample, noise above the floor, a warm-up, steps. */
static void generate(struct jsonc *spec, uint64_t interval_ns, size_t count, uint64_t seed,
                     struct series_sample *ret)
{
    double base = (double)get_u64(spec, "base_bytes", 0);
    double growth = (double)get_u64(spec, "growth_bytes", 0);
    double noise = (double)get_u64(spec, "noise_bytes", 0);
    double warm = (double)get_u64(spec, "warm_up_bytes", 0);
    uint64_t warm_samples = get_u64(spec, "warm_up_samples", 1);
    uint64_t back = get_u64(spec, "back_at", UINT64_MAX);
    uint64_t blocks = get_u64(spec, "blocks", 1), more = get_u64(spec, "blocks_growth", 0);
    uint64_t period = get_u64(spec, "every", 1);

    for (size_t i = 0; i < count; i++) {
        double grown = growth * (double)(i / period);
        double warmth = i < warm_samples ? warm * (double)i / (double)warm_samples : warm;
        if (i >= back)
            grown = 0;
        ret[i] = (struct series_sample){
            (i + 1) * interval_ns,
            (uint64_t)(base + grown + warmth + noise * uniform(&seed) * uniform(&seed)),
            blocks + (i >= back ? 0 : more * (i / period))};
    }
}

static enum leak_source source_of(const char *name)
{
    static const char *const names[] = {"owner",    "allocated", "active",
                                        "reserved", "device",    "host"};
    for (unsigned i = 0; i < 6; i++)
        if (strcmp(names[i], name) == 0)
            return (enum leak_source)i;
    fail_msg("no source %s", name);
    return LEAK_OWNER;
}

static uint64_t free_of(void *userdata, int32_t device)
{
    return *(const uint64_t *)userdata;
}

static int run(struct jsonc *input, struct json *j)
{
    struct jsonc *list = get(input, "series");
    size_t n = json_object_array_length(list), count = get_u64(input, "samples", 200);
    uint64_t interval = get_u64(input, "interval_seconds", 10) * SECOND_NS;
    uint64_t free_bytes = get_u64(input, "free_bytes", ANALYSIS_UNKNOWN);
    uint64_t every = get_u64(input, "mark_every", 0), marks[SAMPLES_MAX];
    struct leak_series *series = calloc(n, sizeof(*series));
    struct leak_input in = {
        .series = series, .count = n, .free_fn = free_of, .userdata = &free_bytes, .marks = marks};

    assert_true(count <= SAMPLES_MAX);
    for (size_t i = 0; every && i * every < count; i++)
        marks[in.mark_count++] = (i * every + 1) * interval;
    for (size_t i = 0; i < n; i++) {
        struct jsonc *spec = json_object_array_get_idx(list, i);
        struct series_sample *samples = calloc(count, sizeof(*samples));
        generate(spec, interval, count, 7 + i, samples);
        series[i] = (struct leak_series){.tgid = (uint32_t)get_u64(spec, "tgid", 1),
                                         .rank = (int32_t)get_u64(spec, "rank", 0),
                                         .device = (int32_t)get_u64(spec, "device", 0),
                                         .source = source_of(get_text(spec, "source", "owner")),
                                         .owner = get_text(spec, "owner", NULL),
                                         .samples = samples,
                                         .count = count};
    }
    int r = leaks_write(&in, j);
    for (size_t i = 0; i < n; i++)
        free((void *)(uintptr_t)series[i].samples);
    free(series);
    return r;
}

static void golden(void **state)
{
    golden_run("leaks", run, 12);
}

/* One process of a server without a leak: load by the hour, bursts, a warm-up, a late step. */
static void steady(uint64_t seed, struct series_sample *ret, size_t count)
{
    uint64_t s = seed * 7919;
    double base = (double)(10 * GIB + random_next(&s) % (40 * GIB));
    double load = (double)(random_next(&s) % (4 * GIB)),
           warm = (double)(random_next(&s) % (8 * GIB));
    size_t period = 20 + random_next(&s) % 100, ramp = 1 + random_next(&s) % 60;
    size_t step_at = random_next(&s) % 2 ? random_next(&s) % count : count;
    for (size_t i = 0; i < count; i++) {
        double phase = (double)(i % period) / (double)period;
        double season = load * (phase < 0.5 ? phase : 1 - phase);
        double burst = random_next(&s) % 16 == 0 ? load * uniform(&s) : 0;
        double warmth = i < ramp ? warm * (double)i / (double)ramp : warm;
        double step = i >= step_at ? 300.0 * (double)MIB : 0;
        double noise = (double)(64 * MIB) * uniform(&s);
        ret[i] = (struct series_sample){(i + 1) * 10 * SECOND_NS,
                                        (uint64_t)(base + season + burst + warmth + step + noise),
                                        1000 + random_next(&s) % 50};
    }
}

static void no_false_alarm(void **state)
{
    struct series_sample samples[400];
    unsigned alarms = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        for (size_t count = 100; count <= 400; count += 100) {
            struct trend_point p[400];
            struct trend t;
            steady(seed, samples, count);
            for (size_t i = 0; i < count; i++)
                p[i] = (struct trend_point){samples[i].time_ns, (int64_t)samples[i].bytes};
            assert_int_equal(trend_find(p, count, &t), 0);
            if (t.shape == TREND_GROWING) {
                print_error("seed %u, %zu samples: %f bytes/h\n", (unsigned)seed, count,
                            t.per_hour);
                alarms++;
            }
        }
    }
    assert_int_equal(alarms, 0);
}

/* The series of one rank of a server that has no leak: weights and a KV cache, activations that
 * come and go with the load, a pool that has taken what it needs, host memory that breathes. */
static size_t server(uint64_t seed, size_t count, struct series_sample *samples,
                     struct leak_series *series)
{
    static const struct {
        enum leak_source source;
        const char *owner, *level;
    } of[] = {
        {LEAK_OWNER, "PTA@vllm@weights", "allocated"},
        {LEAK_OWNER, "PTA@vllm@kv_cache", "allocated"},
        {LEAK_OWNER, "PTA@vllm@serve", "allocated"},
        {LEAK_OWNER, "CANN@HCCL", "physical"},
        {LEAK_OWNER, "PTA@vllm@serve", "pending"},
        {LEAK_ALLOCATED, NULL, NULL},
        {LEAK_ACTIVE, NULL, NULL},
        {LEAK_RESERVED, NULL, NULL},
        {LEAK_DEVICE, NULL, NULL},
        {LEAK_HOST, "RSS", NULL},
        {LEAK_HOST, "PTA@pinned", "host"},
    };
    enum { N = sizeof(of) / sizeof(of[0]) };
    uint64_t s = seed * 104729;
    double fixed[3] = {(double)(4 * GIB + random_next(&s) % (30 * GIB)),
                       (double)(8 * GIB + random_next(&s) % (20 * GIB)),
                       (double)(MIB * (200 + random_next(&s) % 3000))};
    double load = (double)(MIB * (50 + random_next(&s) % 4000)), day = 30 + uniform(&s) * 300;
    double late = uniform(&s) * (double)count, jump = uniform(&s) < 0.5 ? 0 : 500.0 * (double)MIB;

    for (size_t k = 0; k < N; k++)
        series[k] = (struct leak_series){.tgid = 7,
                                         .source = of[k].source,
                                         .owner = of[k].owner,
                                         .level = of[k].level,
                                         .samples = samples + k * count,
                                         .count = count,
                                         .device = of[k].source == LEAK_HOST ? -1 : 0};
    for (size_t i = 0; i < count; i++) {
        double part = (double)i / day, wave = part - (double)(uint64_t)part;
        double season = wave < 0.5 ? wave * 2 : 2 - wave * 2;
        double active = load * (0.2 + 0.8 * season) * uniform(&s);
        double step = (double)i >= late ? jump : 0;
        double waits = active * 0.1 * uniform(&s);
        double used = fixed[0] + fixed[1] + active + step;
        double pool = fixed[0] + fixed[1] + load + jump;
        double value[N] = {fixed[0],
                           fixed[1],
                           active + step,
                           fixed[2],
                           waits,
                           used,
                           used + waits,
                           pool,
                           pool + fixed[2],
                           5e9 + 3e8 * season + 1e8 * uniform(&s) * uniform(&s),
                           5e8 + 1e6 * uniform(&s)};
        for (size_t k = 0; k < N; k++)
            samples[k * count + i] = (struct series_sample){
                (i + 1) * 60 * SECOND_NS, (uint64_t)value[k], 20 + random_next(&s) % 60};
    }
    return N;
}

static unsigned count_of(const char *text, const char *word)
{
    unsigned count = 0;
    for (; (text = strstr(text, word)); text++)
        count++;
    return count;
}

/* Fifty servers that are steady, and the same with a leak of 200 MiB per hour in one owner. */
static void servers(void **state)
{
    enum { COUNT = 480 };
    struct series_sample *samples = calloc(16 * COUNT, sizeof(*samples));
    struct leak_series series[16];

    assert_non_null(samples);
    for (uint64_t seed = 1; seed <= 50; seed++)
        for (int leaks = 0; leaks < 2; leaks++) {
            struct leak_input in = {.series = series,
                                    .count = server(seed, COUNT, samples, series)};
            struct json j = {0};
            for (size_t i = 0; leaks && i < COUNT; i++) { /* of HCCL, and so of the device */
                samples[3 * COUNT + i].bytes += i * 200 * MIB / 60;
                samples[3 * COUNT + i].blocks = 10 + i;
                samples[8 * COUNT + i].bytes += i * 200 * MIB / 60;
            }
            json_object(&j);
            assert_int_equal(leaks_write(&in, &j), 0);
            json_end(&j);
            assert_int_equal(json_finish(&j), 0);
            if (count_of(j.data, "\"kind\"") != (unsigned)leaks)
                fail_msg("seed %u: %s", (unsigned)seed, j.data);
            assert_int_equal(count_of(j.data, "\"owner\":\"CANN@HCCL\""), leaks);
            json_done(&j);
        }
    free(samples);
}

/* 0.1 % per hour in an owner of 8 GiB, a sample a minute: 8.6 MiB per hour within 200 samples. */
static void slow_leak(void **state)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct trend_point p[200];
        struct trend t;
        uint64_t s = seed;
        double per_hour = 8.0 * (double)GIB / 1000;
        for (size_t i = 0; i < 200; i++)
            p[i] = (struct trend_point){i * 60 * SECOND_NS,
                                        (int64_t)(8.0 * (double)GIB + per_hour * (double)i / 60 +
                                                  (double)MIB * uniform(&s))};
        assert_int_equal(trend_find(p, 200, &t), 0);
        assert_int_equal(t.shape, TREND_GROWING);
        assert_true(t.per_hour > 0.9 * per_hour && t.per_hour < 1.1 * per_hour);
        assert_true(t.per_hour_low <= per_hour * 1.02 && t.per_hour_high >= per_hour * 0.98);
    }
}

/* A leak under a season that is a hundred times larger than what leaks in an hour. */
static void leak_under_load(void **state)
{
    unsigned found = 0, close = 0;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct trend_point p[600];
        struct trend t;
        uint64_t s = seed * 31;
        double per_hour = 300.0 * (double)MIB;
        for (size_t i = 0; i < 600; i++) {
            double load = uniform(&s) * uniform(&s) * uniform(&s) * 2.0 * (double)GIB;
            p[i] = (struct trend_point){
                i * 60 * SECOND_NS,
                (int64_t)(20.0 * (double)GIB + per_hour * (double)i / 60 + load)};
        }
        assert_int_equal(trend_find(p, 600, &t), 0);
        found += t.shape == TREND_GROWING;
        close += t.per_hour > 0.9 * per_hour && t.per_hour < 1.1 * per_hour;
    }
    assert_int_equal(found, 50);
    assert_int_equal(close, 50);
}

/* Cycles without a mark: a process that sleeps (3 GiB) and wakes (50 GiB) every 20 samples and
 * leaves 100 MiB each time. */
static void sleep_and_wake(void **state)
{
    enum { COUNT = 600, CYCLE = 20 };
    struct series_sample *device = calloc(COUNT, sizeof(*device)),
                         *owner = calloc(COUNT, sizeof(*owner));
    struct leak_series series[] = {
        {.source = LEAK_OWNER,
         .owner = "PTA_WORKSPACE",
         .level = "physical",
         .samples = owner,
         .count = COUNT},
        {.source = LEAK_DEVICE, .samples = device, .count = COUNT},
    };
    struct leak_input in = {.series = series, .count = 2};
    uint64_t wakes[64];
    struct json j = {0};

    for (size_t i = 0; i < COUNT; i++) {
        uint64_t left = i / CYCLE * 100 * MIB, held = i < 5           ? 0
                                                      : i % CYCLE < 8 ? 3 * GIB
                                                                      : 50 * GIB;
        owner[i] = (struct series_sample){(i + 1) * 10 * SECOND_NS, left, i / CYCLE};
        device[i] = (struct series_sample){(i + 1) * 10 * SECOND_NS, held + left, 1};
    }
    assert_int_equal(leak_wakes(device, COUNT, wakes, 64), COUNT / CYCLE);
    assert_int_equal(wakes[3], (3 * CYCLE + 8 + 1) * 10 * SECOND_NS);
    assert_int_equal(leak_wakes(device, COUNT, wakes, 7), 7);
    assert_int_equal(leak_wakes(owner, 0, wakes, 7), 0);
    json_object(&j);
    assert_int_equal(leaks_write(&in, &j), 0);
    json_end(&j);
    assert_int_equal(json_finish(&j), 0);
    assert_non_null(strstr(j.data, "\"bytes_per_cycle\":104857600,"));
    assert_non_null(strstr(j.data, "\"cycle_source\":\"sleep and wake\""));
    json_done(&j);
    for (size_t i = 0; i < COUNT; i++) /* load of a twentieth is no sleep */
        device[i].bytes = 50 * GIB + (i % CYCLE < 8 ? 0 : 2 * GIB);
    assert_int_equal(leak_wakes(device, COUNT, wakes, 64), 0);
    free(device);
    free(owner);
}

static void odd_series(void **state)
{
    struct trend_point p[100];
    struct trend t;
    assert_int_equal(trend_find(NULL, 0, &t), 0);
    assert_int_equal(t.shape, TREND_TOO_SHORT);
    for (size_t i = 0; i < 100; i++) /* the clock stands still */
        p[i] = (struct trend_point){5, (int64_t)i << 30};
    assert_int_equal(trend_find(p, 100, &t), 0);
    assert_int_equal(t.shape, TREND_TOO_SHORT);
    for (size_t i = 0; i < 100; i++) /* out of order: the same as in order */
        p[i] = (struct trend_point){(i * 37 % 100) * 60 * SECOND_NS, (int64_t)(i * 37 % 100) << 30};
    assert_int_equal(trend_find(p, 100, &t), 0);
    assert_int_equal(t.shape, TREND_GROWING);
    assert_true(t.per_hour > 59.9 * (double)GIB && t.per_hour < 60.1 * (double)GIB);
    for (size_t i = 0; i < 100; i++) /* as wide as numbers go */
        p[i] = (struct trend_point){i % 2 ? UINT64_MAX - i : i, i % 2 ? INT64_MAX : 0};
    assert_int_equal(trend_find(p, 100, &t), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),         cmocka_unit_test(no_false_alarm),
        cmocka_unit_test(slow_leak),      cmocka_unit_test(leak_under_load),
        cmocka_unit_test(odd_series),     cmocka_unit_test(servers),
        cmocka_unit_test(sleep_and_wake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
