/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom_advice.c - the setting that would have helped.
 *
 * Must not: name what is already set, or what torch_npu or vLLM refuses beside another setting.
 */
#include <stdio.h>
#include <string.h>

#include "oom.h"
#include "settings.h"
#include "units.h"

static void advise_fragmentation(const struct oom_snapshot *s, const struct oom_result *r,
                                 const struct settings *k, struct advice_list *list)
{
    bool excluded = k->sleep_mode || k->conf.keys & (ALLOC_CONF_MAX_SPLIT | ALLOC_CONF_GC);
    const char *confidence = k->conf_known ? "high" : "medium";
    char text[UNITS_TEXT_BYTES], to[ANALYSIS_NAME_BYTES];

    units_format_bytes(text, r->slack_bytes, UNITS_AUTO);
    if (!k->conf.is_expandable && !excluded)
        advice_add(list, ALLOC_CONF_NAME, k->conf_text,
                   settings_conf_with(k, "expandable_segments:True", to, sizeof(to)),
                   r->slack_bytes, confidence,
                   "%s of slack lie in pieces that no request of this size can use", text);
    else if (!k->conf.is_expandable && !(k->conf.keys & ALLOC_CONF_MAX_SPLIT) &&
             s->requested_bytes != ANALYSIS_UNKNOWN) {
        uint64_t mb = (s->requested_bytes >> 20) + 1;
        char item[48];
        snprintf(item, sizeof(item), "max_split_size_mb:%llu",
                 (unsigned long long)(mb < 32 ? 32 : mb));
        advice_add(list, ALLOC_CONF_NAME, k->conf_text, settings_conf_with(k, item, to, sizeof(to)),
                   ANALYSIS_UNKNOWN, "medium",
                   "expandable_segments is excluded by %s; blocks of this size stay whole",
                   k->sleep_mode ? "sleep mode" : "garbage_collection_threshold");
    }
    if (list->count)
        list->items[list->count - 1].verb = "whatif";
    settings_advise_lower(k, s->total_bytes, s->requested_bytes, "medium", list);
}

static void advise_capacity(const struct oom_snapshot *s, const struct oom_result *r,
                            const struct settings *k, struct advice_list *list)
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
    settings_advise_lower(k, s->total_bytes, r->short_bytes,
                          r->verdict == OOM_BUDGET ? "high" : "medium", list);
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
    struct settings k;

    settings_read(&s->settings, &k);
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
