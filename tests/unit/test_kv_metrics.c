/* SPDX-License-Identifier: Apache-2.0 */
/* The KV cache in a server's own metrics: vLLM's and sglang's forms, and hostile texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kv_metrics.h"

#define GIB ((uint64_t)1 << 30)

static const char two_engines[] =
    "# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.\n"
    "# TYPE vllm:kv_cache_usage_perc gauge\n"
    "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"a,engine=}b\"} 0.25\n"
    "vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"tiny\"} 0.0\n"
    "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 3.0\n"
    "vllm:num_requests_waiting{engine=\"1\",model_name=\"tiny\"} 2.0\n"
    "vllm:num_preemptions_total{engine=\"0\",model_name=\"tiny\"} 7.0\n"
    "vllm:cache_config_info{block_size=\"128\",cache_dtype=\"auto\",engine=\"0\","
    "gpu_memory_utilization=\"0.5\",num_gpu_blocks=\"1175\",num_gpu_blocks_override=\"None\"} 1.0\n"
    "python_gc_collections_total{generation=\"2\"} 30\n";

static void vllm(void **state)
{
    struct kv_metrics m;

    assert_int_equal(kv_metrics_parse(two_engines, strlen(two_engines), &m), 2);
    assert_int_equal(m.count, 2);
    assert_true(m.engines[0].usage == 0.25 && m.engines[0].running == 3);
    assert_true(m.engines[0].preemptions == 7 && m.engines[0].waiting < 0);
    assert_int_equal(m.engines[0].tokens, 150400);
    assert_true(m.engines[0].utilization == 0.5);
    assert_int_equal(m.engines[1].index, 1);
    assert_true(m.engines[1].usage == 0 && m.engines[1].waiting == 2);
    assert_int_equal(m.engines[1].tokens, 0);
}

static void older_and_other(void **state)
{
    static const char old[] = "vllm:gpu_cache_usage_perc{model_name=\"x\"} 0.5\n";
    static const char sglang[] = "sglang:token_usage{model_name=\"x\"} 0.28\n"
                                 "sglang:max_total_num_tokens{model_name=\"x\"} 80000.0\n"
                                 "sglang:num_running_reqs 4";
    struct kv_metrics m;

    assert_int_equal(kv_metrics_parse(old, strlen(old), &m), 1);
    assert_true(m.engines[0].usage == 0.5);
    assert_int_equal(kv_metrics_parse(sglang, strlen(sglang), &m), 1);
    assert_true(m.engines[0].usage == 0.28 && m.engines[0].running == 4);
    assert_int_equal(m.engines[0].tokens, 80000);
}

static void what_cannot_be_is_not_taken(void **state)
{
    static const char *const texts[] = {
        "vllm:kv_cache_usage_perc{engine=\"0\"} 1.5\n",
        "vllm:kv_cache_usage_perc{engine=\"0\"} -1\n",
        "vllm:kv_cache_usage_perc{engine=\"0\"} nan\n",
        "vllm:kv_cache_usage_perc{engine=\"0\" 0.5\n",
        "vllm:kv_cache_usage_perc\n",
        "vllm:kv_cache_usage_perc{engine=\"0\"} lots\n",
        "other:kv_cache_usage_perc 0.5\n",
        "<html>not found</html>",
        "",
    };
    static const char huge[] = "vllm:cache_config_info{block_size=\"99999999999999999999\","
                               "num_gpu_blocks=\"281474976710655\",engine=\"0\"} 1\n";
    struct kv_metrics m;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_int_equal(kv_metrics_parse(texts[i], strlen(texts[i]), &m), 0);
    kv_metrics_parse(huge, strlen(huge), &m);
    assert_int_equal(m.engines[0].tokens, 0);
}

static void every_prefix_and_every_changed_byte(void **state)
{
    size_t n = strlen(two_engines);
    struct kv_metrics m;

    for (size_t i = 0; i <= n; i++) {
        char *copy = malloc(i + 1); /* exact, so that a read beyond it is seen */
        memcpy(copy, two_engines, i);
        kv_metrics_parse(copy, i, &m);
        free(copy);
    }
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < 256; c += 29) {
            char copy[sizeof(two_engines)];
            memcpy(copy, two_engines, sizeof(two_engines));
            copy[i] = (char)c;
            kv_metrics_parse(copy, n, &m);
            assert_true(m.count <= KV_ENGINES_MAX);
        }
}

/* 20 GiB of cache at 0.9 of 64 GiB, at most half full: 11 of 20 GiB are needed with a tenth more, 9
 * GiB are 14 hundredths of the card. */
static void what_would_fit(void **state)
{
    struct kv_engine e = {.tokens = 150400};
    struct kv_fit f;

    kv_fit_compute(&e, 0.5, 20 * GIB, 64 * GIB, 0.9, &f);
    assert_int_equal(f.used_bytes, 10 * GIB);
    assert_int_equal(f.unused_bytes, 10 * GIB);
    assert_true(f.utilization > 0.759 && f.utilization < 0.761);
    assert_int_equal(f.model_len, 150400);
    kv_fit_compute(&e, 0.97, 20 * GIB, 64 * GIB, 0.9, &f); /* full: nothing to give back */
    assert_true(f.utilization == 0);
    kv_fit_compute(&e, 0, 20 * GIB, 64 * GIB, 0.9, &f); /* nothing ran: it says nothing */
    assert_true(f.utilization == 0);
    kv_fit_compute(&e, 0.5, 0, 64 * GIB, 0.9, &f);
    assert_int_equal(f.used_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vllm),
        cmocka_unit_test(older_and_other),
        cmocka_unit_test(what_cannot_be_is_not_taken),
        cmocka_unit_test(every_prefix_and_every_changed_byte),
        cmocka_unit_test(what_would_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
