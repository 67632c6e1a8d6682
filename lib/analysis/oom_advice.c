/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom_advice.c - the setting that would have helped.
 *
 * Must not: name what is already set, or what torch_npu or vLLM refuses beside another setting.
 */
#include <stdio.h>
#include <string.h>

#include "alloc_conf.h"
#include "oom.h"
#include "units.h"

#define GIB ((uint64_t)1 << 30)
/* vLLM's default. Source: vLLM CacheConfig. */
#define UTILIZATION_DEFAULT 0.9
#define UTILIZATION_STEP 0.01

struct known_settings {
    bool conf_known; /* the environment was read */
    const char *conf_text;
    struct alloc_conf conf;
    bool sleep_mode; /* CaMem refuses expandable segments */
    bool is_vllm;
};

static void settings_read(const struct oom_snapshot *s, struct known_settings *k)
{
    const char *title = s->settings.title ? s->settings.title : "";

    memset(k, 0, sizeof(*k));
    alloc_conf_init(&k->conf);
    k->conf_known = s->settings.environment != NULL;
    k->conf_text = alloc_conf_variable(s->settings.environment, s->settings.environment_bytes,
                                       ALLOC_CONF_NAME);
    if (k->conf_text && alloc_conf_parse(k->conf_text, &k->conf, NULL) < 0)
        k->conf_known = false;
    k->sleep_mode = strstr(title, "--enable-sleep-mode") != NULL;
    k->is_vllm = strstr(title, "VLLM") || strstr(title, "vllm");
}

/* The smallest cut, in steps of 0.01, that leaves `bytes` more. */
static void advise_utilization(const struct oom_snapshot *s, uint64_t bytes, const char *confidence,
                               struct advice_list *list)
{
    char value[32], from[48], to[48], text[UNITS_TEXT_BYTES];
    double now = UTILIZATION_DEFAULT;
    const char *note = " (default)";

    if (bytes == ANALYSIS_UNKNOWN || !bytes || s->total_bytes == ANALYSIS_UNKNOWN)
        return;
    if (analysis_option(s->settings.title, "--gpu-memory-utilization", value, sizeof(value)) ||
        analysis_option(s->settings.title, "--mem-fraction-static", value, sizeof(value))) {
        double parsed;
        if (sscanf(value, "%lf", &parsed) == 1 && parsed > 0 && parsed <= 1) {
            now = parsed;
            note = "";
        }
    }
    uint64_t step = (uint64_t)((double)s->total_bytes * UTILIZATION_STEP);
    uint64_t steps = (bytes + step - 1) / step;
    double lower = now - (double)steps * UTILIZATION_STEP;
    if (lower <= 0)
        return;
    snprintf(from, sizeof(from), "%.2f%s", now, note);
    snprintf(to, sizeof(to), "%.2f", lower);
    advice_add(list, "gpu_memory_utilization", from, to, steps * step, confidence,
               "short by %s of %.2f GiB: %llu step%s of 0.01",
               units_format_bytes(text, bytes, UNITS_AUTO), (double)s->total_bytes / (double)GIB,
               (unsigned long long)steps, steps == 1 ? "" : "s");
    list->items[list->count - 1].verb = "budget";
}

static void advise_fragmentation(const struct oom_snapshot *s, const struct oom_result *r,
                                 const struct known_settings *k, struct advice_list *list)
{
    bool excluded = k->sleep_mode || k->conf.keys & (ALLOC_CONF_MAX_SPLIT | ALLOC_CONF_GC);
    const char *confidence = k->conf_known ? "high" : "medium";
    char text[UNITS_TEXT_BYTES];

    units_format_bytes(text, r->slack_bytes, UNITS_AUTO);
    if (!k->conf.is_expandable && !excluded)
        advice_add(list, ALLOC_CONF_NAME, k->conf_text, "expandable_segments:True", r->slack_bytes,
                   confidence, "%s of slack lie in pieces that no request of this size can use",
                   text);
    else if (!k->conf.is_expandable && !(k->conf.keys & ALLOC_CONF_MAX_SPLIT) &&
             s->requested_bytes != ANALYSIS_UNKNOWN) {
        uint64_t mb = (s->requested_bytes >> 20) + 1;
        char to[48];
        snprintf(to, sizeof(to), "max_split_size_mb:%llu", (unsigned long long)(mb < 32 ? 32 : mb));
        advice_add(list, ALLOC_CONF_NAME, k->conf_text, to, ANALYSIS_UNKNOWN, "medium",
                   "expandable_segments is excluded by %s; blocks of this size stay whole",
                   k->sleep_mode ? "sleep mode" : "garbage_collection_threshold");
    }
    if (list->count)
        list->items[list->count - 1].verb = "whatif";
    advise_utilization(s, s->requested_bytes, "medium", list);
}

static void advise_capacity(const struct oom_snapshot *s, const struct oom_result *r,
                            const struct known_settings *k, struct advice_list *list)
{
    bool at_limit = s->allowed_bytes != ANALYSIS_UNKNOWN && s->free_bytes != ANALYSIS_UNKNOWN &&
                    s->requested_bytes != ANALYSIS_UNKNOWN && s->free_bytes >= s->requested_bytes;
    char from[48], to[48];

    if (s->allowed_bytes == 0) {
        advice_add(list, "per_process_memory_fraction", NULL, "higher", ANALYSIS_UNKNOWN, "medium",
                   "the allocator rejected the request by its own limit");
        return;
    }
    if (at_limit && s->total_bytes != ANALYSIS_UNKNOWN && s->total_bytes &&
        r->short_bytes != ANALYSIS_UNKNOWN) {
        double now = (double)s->allowed_bytes / (double)s->total_bytes;
        double higher = (double)(s->allowed_bytes + r->short_bytes) / (double)s->total_bytes;
        higher = (double)(unsigned)(higher * 100 + 0.999) / 100;
        snprintf(from, sizeof(from), "%.2f", now);
        snprintf(to, sizeof(to), "%.2f", higher > 1 ? 1 : higher);
        advice_add(list, "set_per_process_memory_fraction", from, to, ANALYSIS_UNKNOWN, "high",
                   "the process's own limit was hit, the card had room");
        return;
    }
    advise_utilization(s, r->short_bytes, r->verdict == OOM_BUDGET ? "high" : "medium", list);
    if (r->verdict != OOM_BUDGET && k->is_vllm)
        advice_add(list, "max_num_batched_tokens", NULL, "lower", ANALYSIS_UNKNOWN, "low",
                   "the activations of one step grow with it");
}

static void advise_foreign(const struct oom_snapshot *s, const struct oom_result *r,
                           struct advice_list *list)
{
    for (size_t i = 0; i < s->holder_count && i < ADVICE_MAX - 1; i++) {
        const struct oom_holder *h = &s->holders[i];
        char to[48], text[UNITS_TEXT_BYTES];
        if (h->is_victim || !h->tgid || h->bytes < r->foreign_bytes / 10)
            continue;
        snprintf(to, sizeof(to), h->is_orphan ? "end process %u" : "stop or move process %u",
                 h->tgid);
        advice_add(list, "placement", NULL, to, h->bytes, "high", "%s holds %s of this card%s",
                   h->comm[0] ? h->comm : "it", units_format_bytes(text, h->bytes, UNITS_AUTO),
                   h->is_orphan ? ", its parent is gone" : "");
        list->items[list->count - 1].verb = "ps";
    }
    if (!list->count)
        advice_add(list, "placement", NULL, "find and stop the other holders", r->foreign_bytes,
                   "medium", "they were not seen one by one");
}

void oom_advise(const struct oom_snapshot *s, struct oom_result *ret)
{
    struct known_settings k;

    settings_read(s, &k);
    switch (ret->verdict) {
    case OOM_BOGUS_SIZE: /* no setting mends a wrong size */
        break;
    case OOM_NOT_MEMORY:
        if (s->code == 207005)
            advice_add(&ret->advice, "cudagraph_capture_sizes", NULL, "fewer sizes",
                       ANALYSIS_UNKNOWN, "medium", "every captured graph takes streams");
        break;
    case OOM_FOREIGN:
        advise_foreign(s, ret, &ret->advice);
        break;
    case OOM_FRAGMENTATION:
        advise_fragmentation(s, ret, &k, &ret->advice);
        break;
    case OOM_BUDGET:
    case OOM_CAPACITY:
        advise_capacity(s, ret, &k, &ret->advice);
        break;
    }
}
