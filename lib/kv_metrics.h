/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_metrics.h - how full the KV cache is, from the text of a server's own /metrics (Prometheus).
 *
 * Names: vllm:kv_cache_usage_perc (vllm:gpu_cache_usage_perc before 0.9), vllm:cache_config_info,
 * vllm:num_requests_running and _waiting, vllm:num_preemptions_total; sglang:token_usage,
 * sglang:max_total_num_tokens, sglang:num_running_reqs, sglang:num_queue_reqs.
 * Source: vLLM 0.23's loggers; sglang's metrics collector. The text is hostile.
 */
#ifndef NPUMEM_KV_METRICS_H
#define NPUMEM_KV_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_ENGINES_MAX 64

struct kv_engine {
    uint32_t index;
    double usage;    /* 0 to 1; negative not told */
    uint64_t tokens; /* that the cache holds; 0 not told */
    uint64_t blocks, block_tokens;
    double utilization;                   /* of its configuration; 0 not told */
    double running, waiting, preemptions; /* requests; negative not told */
};

struct kv_metrics {
    struct kv_engine engines[KV_ENGINES_MAX];
    size_t count;
};

/* Returns the number of engines that the text tells the usage of. Cost: linear. */
size_t kv_metrics_parse(const char *text, size_t bytes, struct kv_metrics *ret);

/* What a window of use says about the size of the cache. */
struct kv_fit {
    uint64_t used_bytes; /* of one rank, at the fullest */
    uint64_t unused_bytes;
    uint64_t needed_bytes; /* used_bytes and a tenth more, kv_bytes at most; 0 not told */
    double utilization; /* that would still hold the fullest, and a tenth more; 0 cannot be told */
    uint64_t model_len; /* longest sequence that the whole cache holds; 0 not told */
};
/* kv_bytes: of one rank; total_bytes: of its card; 0 not known. utilization 0: not known. */
void kv_fit_compute(const struct kv_engine *engine, double fullest, uint64_t kv_bytes,
                    uint64_t total_bytes, double utilization, struct kv_fit *ret);

#endif
