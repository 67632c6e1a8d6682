/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom_advice.c - the setting that would have helped.
 *
 * Must not: name what is already set, or what torch_npu or vLLM refuses beside another setting;
 * promise of the slack what stays in pieces.
 */
#include <stdio.h>
#include <string.h>

#include "advise_internal.h"
#include "oom.h"
#include "units.h"

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What the pool would have had to give back for the request to fit into expandable segments: it in
 * granules, less what the card had free. All of it where that is not known, and where it was
 * refused although there was enough. */
static uint64_t lacking_bytes(const struct oom_snapshot *s, const struct alloc_conf *conf)
{
    uint64_t granule = alloc_conf_granule(conf), needed = s->requested_bytes;

    if (needed > LAYOUT_SMALL_SEGMENT_BYTES)
        needed = (needed + granule - 1) / granule * granule;
    return analysis_known(s->free_bytes) && s->free_bytes < s->requested_bytes
               ? needed - s->free_bytes
               : needed;
}

static void advise_expandable(const struct oom_snapshot *s, const struct oom_result *r,
                              const struct settings *k, struct advice_list *list)
{
    char slack[UNITS_TEXT_BYTES], part[UNITS_TEXT_BYTES], more[UNITS_TEXT_BYTES], end[96] = "";
    char to[ANALYSIS_NAME_BYTES];
    uint64_t lacking = lacking_bytes(s, &k->conf);
    const char *confidence = k->environment_known ? "high" : "low";
    /* one attempt is not the allocator's: for others it gives nothing back */
    bool is_its_own = s->failures > 1;
    bool is_enough = is_its_own && analysis_known(r->unmap_bytes) && r->unmap_bytes >= lacking;

    if (analysis_known(r->unmap_bytes) && !is_enough && r->unmap_bytes < ADVISE_WORTH_BYTES)
        return; /* pieces smaller than a granule stay mapped */
    settings_conf_with(k, "expandable_segments:True", to, sizeof(to));
    units_format_bytes(slack, r->pieces_bytes, UNITS_AUTO);
    if (!analysis_known(r->unmap_bytes)) {
        advice_add(list, ALLOC_CONF_NAME, k->conf_text, to, ANALYSIS_UNKNOWN,
                   k->environment_known ? "medium" : "low",
                   "%s of slack lie in pieces; what of it could go back is not known: that is the "
                   "most that it could save",
                   slack);
        return;
    }
    if (is_enough)
        snprintf(end, sizeof(end), ": enough for this request");
    else if (is_its_own && analysis_known(s->free_bytes))
        snprintf(end, sizeof(end), "; this request lacked %s more than that",
                 units_format_bytes(more, lacking - r->unmap_bytes, UNITS_AUTO));
    else if (!s->is_recovered)
        snprintf(end, sizeof(end), "; whether that is enough is not known");
    if (!is_enough)
        confidence = "low";
    advice_add(
        list, ALLOC_CONF_NAME, k->conf_text, to, r->unmap_bytes, confidence,
        "%s of slack lie in pieces; as they lie, at least %s of it are whole granules, which "
        "expandable segments give back%s",
        slack, units_format_bytes(part, r->unmap_bytes, UNITS_AUTO), end);
}

static void advise_max_split(const struct oom_snapshot *s, const struct oom_result *r,
                             const struct settings *k, struct advice_list *list)
{
    uint64_t lacking =
        analysis_known(r->short_bytes) && r->short_bytes ? r->short_bytes : s->requested_bytes;
    uint32_t mb = analysis_known(r->unmap_bytes)
                      ? slack_split(&s->slack, lesser(lacking, ADVISE_WORTH_BYTES))
                      : slack_split_mb[0];
    char item[48], to[ANALYSIS_NAME_BYTES];

    if (!mb)
        return; /* segments too small for any of them */
    snprintf(item, sizeof(item), "max_split_size_mb:%u", mb);
    advice_add(list, ALLOC_CONF_NAME, k->conf_text, settings_conf_with(k, item, to, sizeof(to)),
               ANALYSIS_UNKNOWN, "low",
               "%s excludes expandable_segments; large blocks that stay whole can go back",
               settings_excludes_expandable(k));
}

/* gpu_memory_utilization is vLLM's: where nothing says that this is one of its processes it is not
 * advised, where nothing is known of the process no figure. */
static void advise_lower(const struct oom_snapshot *s, const struct settings *k, uint64_t bytes,
                         bool is_minimum, const char *confidence, struct advice_list *list)
{
    char text[UNITS_TEXT_BYTES];

    if (k->is_title_known) {
        if (k->is_vllm || s->is_vllm || k->is_utilization_given ||
            (s->phase[0] && !s->is_phase_inferred))
            settings_advise_lower(k, s->total_bytes, bytes, is_minimum, confidence, list);
    } else if (analysis_known(bytes) && bytes) {
        advice_add(list, "gpu_memory_utilization", NULL, "lower", ANALYSIS_UNKNOWN,
                   s->phase[0] ? "medium" : "low",
                   "short by %s%s; what a server of vLLM was started with is not known here",
                   is_minimum ? "at least " : "", units_format_bytes(text, bytes, UNITS_AUTO));
        list->items[list->count - 1].verb = "budget";
    }
}

static void advise_fragmentation(const struct oom_snapshot *s, const struct oom_result *r,
                                 const struct settings *k, struct advice_list *list)
{
    if (!k->conf.is_expandable && !settings_is_conf_refused(k)) {
        if (!settings_excludes_expandable(k))
            advise_expandable(s, r, k, list);
        else if (!(k->conf.keys & ALLOC_CONF_MAX_SPLIT))
            advise_max_split(s, r, k, list);
    }
    if (list->count)
        list->items[list->count - 1].verb = "whatif";
    advise_lower(s, k, r->short_bytes, s->is_requested_minimum, "medium", list);
}

static void advise_capacity(const struct oom_snapshot *s, const struct oom_result *r,
                            const struct settings *k, struct advice_list *list)
{
    bool is_budget = r->verdict == OOM_BUDGET;
    bool at_limit = analysis_known(s->allowed_bytes) && analysis_known(s->free_bytes) &&
                    analysis_known(s->requested_bytes) && s->free_bytes >= s->requested_bytes;
    char from[48], to[48];

    if (s->allowed_bytes == 0) {
        advice_add(list, "per_process_memory_fraction", NULL, "higher", ANALYSIS_UNKNOWN, "medium",
                   "the allocator rejected the request by its own limit");
        return;
    }
    if (at_limit && analysis_known(s->total_bytes) && s->total_bytes &&
        analysis_known(r->short_bytes)) {
        double now = (double)s->allowed_bytes / (double)s->total_bytes;
        double higher = (double)(s->allowed_bytes + r->short_bytes) / (double)s->total_bytes;
        higher = (double)(unsigned)(higher * 100 + 0.999) / 100;
        snprintf(from, sizeof(from), "%.2f", now);
        snprintf(to, sizeof(to), "%.2f", higher > 1 ? 1 : higher);
        advice_add(list, "set_per_process_memory_fraction", from, to, ANALYSIS_UNKNOWN, "high",
                   "the process's own limit was hit, the card had room");
        return;
    }
    /* of a cache that is made layer by layer the rest was not asked for yet */
    advise_lower(s, k, r->short_bytes, is_budget || s->is_requested_minimum,
                 is_budget ? "high" : "medium", list);
    if (!is_budget && (k->is_vllm || s->is_vllm))
        advice_add(list, "max_num_batched_tokens", NULL, "lower", ANALYSIS_UNKNOWN, "low",
                   "the activations of one step grow with it");
}

static void advise_foreign(const struct oom_snapshot *s, const struct oom_result *r,
                           struct advice_list *list)
{
    char to[48], text[UNITS_TEXT_BYTES];

    for (size_t i = 0; i < s->holder_count && i < ADVICE_MAX - 1; i++) {
        const struct oom_holder *h = &s->holders[i];
        if (h->is_victim || !h->tgid || h->bytes < r->foreign_bytes / 10)
            continue;
        snprintf(to, sizeof(to), h->is_orphan ? "end process %u" : "stop or move process %u",
                 h->tgid);
        advice_add(list, "placement", NULL, to, h->bytes, "high", "%s holds %s of this card%s",
                   h->comm[0] ? h->comm : "it", units_format_bytes(text, h->bytes, UNITS_AUTO),
                   h->is_orphan ? ", its parent is gone" : "");
        list->items[list->count - 1].verb = "ps";
    }
    if (list->count)
        return;
    /* without their own figures it is what is left of the card, by an idle card's share */
    units_format_bytes(text, r->foreign_bytes, UNITS_AUTO);
    advice_add(list, "placement", NULL, "find and stop the other holders",
               s->holders_known ? r->foreign_bytes : ANALYSIS_UNKNOWN, "medium",
               s->holders_known ? "together they hold %s of this card"
                                : "about %s of the card are not this process's; who holds them was "
                                  "not seen",
               text);
}

void oom_advise(const struct oom_snapshot *s, struct oom_result *ret)
{
    struct settings k;

    settings_read(&s->settings, &k);
    memcpy(ret->complaint, k.complaint, sizeof(ret->complaint));
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
