/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_metrics.c - see kv_metrics.h.
 *
 * A line: name{label="value",...} number [time]. What cannot be read is passed over.
 */
#include "kv_metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX 4096
/* Room beside the fullest that was seen. */
#define MARGIN 1.1
#define TOKENS_LIMIT ((uint64_t)1 << 48)

/* Value of a label into ret; false: it has none, or it does not fit. */
static bool label(const char *labels, const char *name, char *ret, size_t size)
{
    size_t n = strlen(name);

    for (const char *at = labels; (at = strstr(at, name)); at += n) {
        if ((at != labels && at[-1] != '{' && at[-1] != ',') || at[n] != '=' || at[n + 1] != '"')
            continue;
        const char *value = at + n + 2;
        size_t length = strcspn(value, "\"");
        if (length >= size || value[length] != '"')
            return false;
        memcpy(ret, value, length);
        ret[length] = '\0';
        return true;
    }
    return false;
}

static uint64_t label_number(const char *labels, const char *name)
{
    char value[32], *end;

    if (!label(labels, name, value, sizeof(value)) || value[0] < '0' || value[0] > '9')
        return 0;
    uint64_t number = strtoull(value, &end, 10);
    return *end == '\0' && number < TOKENS_LIMIT ? number : 0;
}

static struct kv_engine *engine_of(struct kv_metrics *m, const char *labels)
{
    uint32_t index = (uint32_t)label_number(labels, "engine");

    for (size_t i = 0; i < m->count; i++)
        if (m->engines[i].index == index)
            return &m->engines[i];
    if (m->count == KV_ENGINES_MAX)
        return NULL;
    m->engines[m->count] = (struct kv_engine){
        .index = index, .usage = -1, .running = -1, .waiting = -1, .preemptions = -1};
    return &m->engines[m->count++];
}

static void take_configuration(const char *labels, struct kv_engine *e)
{
    char value[32];

    e->blocks = label_number(labels, "num_gpu_blocks");
    e->block_tokens = label_number(labels, "block_size");
    if (e->blocks && e->block_tokens < TOKENS_LIMIT / e->blocks)
        e->tokens = e->blocks * e->block_tokens;
    if (label(labels, "gpu_memory_utilization", value, sizeof(value))) {
        double utilization = strtod(value, NULL);
        if (utilization > 0 && utilization <= 1)
            e->utilization = utilization;
    }
}

static void take(struct kv_metrics *m, const char *name, const char *labels, double value)
{
    static const char *const usages[] = {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc",
                                         "sglang:token_usage"};
    static const struct {
        const char *name;
        size_t offset;
    } numbers[] = {
        {"vllm:num_requests_running", offsetof(struct kv_engine, running)},
        {"vllm:num_requests_waiting", offsetof(struct kv_engine, waiting)},
        {"vllm:num_preemptions_total", offsetof(struct kv_engine, preemptions)},
        {"sglang:num_running_reqs", offsetof(struct kv_engine, running)},
        {"sglang:num_queue_reqs", offsetof(struct kv_engine, waiting)},
    };
    bool is_wanted = value >= 0 && value < 1e15;
    struct kv_engine *e = is_wanted ? engine_of(m, labels) : NULL;

    if (!e)
        return;
    for (size_t i = 0; i < sizeof(usages) / sizeof(usages[0]); i++)
        if (strcmp(name, usages[i]) == 0 && value <= 1)
            e->usage = value;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (strcmp(name, numbers[i].name) == 0)
            memcpy((char *)e + numbers[i].offset, &value, sizeof(value));
    if (strcmp(name, "vllm:cache_config_info") == 0)
        take_configuration(labels, e);
    if (strcmp(name, "sglang:max_total_num_tokens") == 0)
        e->tokens = (uint64_t)value;
}

static void take_line(struct kv_metrics *m, char *line)
{
    char *at = line + strcspn(line, "{ "), *number = at, *end;
    const char *labels = "";

    if (strncmp(line, "vllm:", 5) != 0 && strncmp(line, "sglang:", 7) != 0)
        return;
    if (*at == '{') {
        number = strrchr(at, '}'); /* a value may hold one */
        if (!number)
            return;
        *number++ = '\0';
        labels = at + 1;
    } else if (*at == ' ') {
        number = at + 1;
    } else {
        return;
    }
    *at = '\0';
    double value = strtod(number, &end);
    if (end != number)
        take(m, line, labels, value);
}

size_t kv_metrics_parse(const char *text, size_t bytes, struct kv_metrics *ret)
{
    const char *end = text + bytes;
    char line[LINE_BYTES_MAX];
    size_t told = 0;

    memset(ret, 0, sizeof(*ret));
    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = newline ? (size_t)(newline - at) : (size_t)(end - at);
        if (length && length < sizeof(line) && *at != '#') {
            memcpy(line, at, length);
            line[length] = '\0';
            take_line(ret, line);
        }
        at = newline ? newline + 1 : end;
    }
    for (size_t i = 0; i < ret->count; i++)
        told += ret->engines[i].usage >= 0;
    return told;
}

void kv_fit_compute(const struct kv_engine *engine, double fullest, uint64_t kv_bytes,
                    uint64_t total_bytes, double utilization, struct kv_fit *ret)
{
    *ret = (struct kv_fit){.model_len = engine->tokens};
    if (!kv_bytes || fullest < 0 || fullest > 1)
        return;
    ret->used_bytes = (uint64_t)((double)kv_bytes * fullest);
    ret->unused_bytes = kv_bytes - ret->used_bytes;
    if (fullest <= 0)
        return;
    double needed = (double)kv_bytes * fullest * MARGIN;
    ret->needed_bytes = needed < (double)kv_bytes ? (uint64_t)needed : kv_bytes;
    if (!total_bytes || utilization <= 0)
        return;
    double fits = utilization - ((double)kv_bytes - needed) / (double)total_bytes;
    unsigned hundredths = fits > 0 ? (unsigned)(fits * 100) + 1 : 0;
    double to = (double)hundredths / 100;
    if (hundredths && to < utilization)
        ret->utilization = to;
}
