/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget_advice.c - which term to change, by the verdict.
 *
 * Must not: advise a utilization where the command line fixes the cache's size, or more than was
 * free at the start.
 */
#include <stdio.h>
#include <string.h>

#include "budget_internal.h"
#include "units.h"

#define GIB ((int64_t)1 << 30)
#define MIB ((int64_t)1 << 20)
/* What vLLM itself keeps back when it suggests a size for the cache. Source: vllm-ascend 0.23. */
#define REDUNDANCY_BYTES (150 * MIB)
/* A gain below this is not worth a restart. */
#define GAIN_MIN_PERCENT 2
/* A term is worth naming if it is this much of the budget, or of its own sum. */
#define TERM_PERCENT 10
#define WEIGHTS_PERCENT 75

static bool known(int64_t bytes)
{
    return bytes != BUDGET_UNKNOWN;
}

static uint64_t positive(int64_t bytes)
{
    return known(bytes) && bytes > 0 ? (uint64_t)bytes : 0;
}

static char *text_of(char *text, int64_t bytes)
{
    return (char *)units_format_bytes(text, positive(bytes), UNITS_AUTO);
}

static double hundredths_down(int64_t part, int64_t whole)
{
    double ratio = (double)part / (double)whole * 100;
    return ratio <= 0 || ratio > 100 ? ratio > 0 : (double)(unsigned)ratio / 100;
}

static double hundredths_up(double ratio)
{
    if (ratio <= 0 || ratio > 1)
        return ratio > 0 ? 2 : 0; /* beyond the card */
    unsigned down = (unsigned)(ratio * 100);
    return (double)(down + ((double)down < ratio * 100)) / 100;
}

static void last_verb(struct advice_list *list, const char *verb)
{
    if (list->count)
        list->items[list->count - 1].verb = verb;
}

/* The largest utilization that what was free at the start allows, less what the plan leaves out; 1
 * where that is not known. */
static double highest(const struct budget_input *in, const struct budget_result *r)
{
    int64_t left = in->start.free_bytes - r->unplanned_bytes - REDUNDANCY_BYTES;

    if (!in->start.is_known || in->start.total_bytes <= 0)
        return 1;
    if (left < 0)
        return 0;
    return hundredths_down(left, in->start.total_bytes);
}

static void advise_others(struct budget_result *r, const char *confidence)
{
    char text[UNITS_TEXT_BYTES];
    int64_t bytes = r->terms[BUDGET_OTHERS].bytes, total = r->terms[BUDGET_CARD_TOTAL].bytes;
    struct advice_list *list = &r->advice;

    if (!known(bytes) || !known(total) || bytes < total / 100 * TERM_PERCENT)
        return;
    advice_add(list, "placement", NULL, "stop or move what else is on this card", (uint64_t)bytes,
               confidence, "%s of the card were taken when the process asked first",
               text_of(text, bytes));
    last_verb(list, "ps");
}

static void advise_peak(const struct budget_result *r, struct advice_list *list)
{
    const struct budget_term *t = r->terms;
    char text[UNITS_TEXT_BYTES];

    if (!known(t[BUDGET_PEAK].bytes) || !known(t[BUDGET_BUDGET].bytes) ||
        t[BUDGET_PEAK].bytes < t[BUDGET_BUDGET].bytes / 100 * TERM_PERCENT)
        return;
    advice_add(list, "max_num_batched_tokens", NULL, "lower", ANALYSIS_UNKNOWN, "medium",
               "the peak of the profile run is %s and grows with it; max_model_len and "
               "max_num_seqs likewise",
               text_of(text, t[BUDGET_PEAK].bytes));
    last_verb(list, "breakdown");
}

/* Of those whose size the variable decides: half of it is one buffer of each. */
static void advise_hccl(const struct budget_input *in, const struct budget_result *r,
                        const struct settings *s, int64_t needed, struct advice_list *list)
{
    const char *now = settings_variable(&in->settings, "HCCL_BUFFSIZE");
    uint32_t count = in->communicators - in->sized_otherwise;
    char text[UNITS_TEXT_BYTES];

    if (!count || !known(in->hccl_bytes) || in->hccl_bytes < 256 * MIB ||
        (in->hccl_bytes < needed / 2 &&
         in->hccl_bytes < r->terms[BUDGET_NON_TORCH].bytes / 100 * 25))
        return;
    uint64_t held = (uint64_t)in->hccl_bytes / 2, said = count * s->hccl_mb * (uint64_t)MIB;
    advice_add(list, "HCCL_BUFFSIZE", now, "lower",
               in->sized_otherwise && said < held ? said : held, "medium",
               "%u communicators hold %s: twice the buffer size each; half the size saves half%s",
               in->communicators, text_of(text, in->hccl_bytes),
               in->sized_otherwise ? " of those that have no size of their own" : "");
    last_verb(list, "breakdown");
}

static void advise_weights(const struct budget_result *r, struct advice_list *list)
{
    const struct budget_term *t = r->terms;
    char text[UNITS_TEXT_BYTES];

    if (!known(t[BUDGET_WEIGHTS].bytes) || !known(t[BUDGET_BUDGET].bytes) ||
        t[BUDGET_WEIGHTS].bytes < t[BUDGET_BUDGET].bytes / 100 * WEIGHTS_PERCENT)
        return;
    advice_add(list, "tensor_parallel_size", NULL, "twice as many cards, or quantized weights",
               (uint64_t)t[BUDGET_WEIGHTS].bytes / 2, "medium",
               "the weights alone are %s, most of the budget",
               text_of(text, t[BUDGET_WEIGHTS].bytes));
    last_verb(list, "breakdown");
}

/* Raises the utilization by at least `needed`, where the card has that much. */
static bool advise_raise(const struct budget_input *in, const struct settings *s,
                         const struct budget_result *r, int64_t needed, const char *confidence,
                         struct advice_list *list)
{
    int64_t total = r->terms[BUDGET_CARD_TOTAL].bytes;
    char from[48], to[48], text[UNITS_TEXT_BYTES], left[UNITS_TEXT_BYTES];

    if (s->kv_cache_bytes != ANALYSIS_UNKNOWN || !known(total) || total <= 0)
        return false;
    double target = hundredths_up(r->utilization + (double)needed / (double)total);
    if (target > highest(in, r))
        return false;
    snprintf(from, sizeof(from), "%.2f%s", r->utilization,
             s->is_utilization_given ? "" : " (not on the command line)");
    snprintf(to, sizeof(to), "at least %.2f", target);
    advice_add(list, "gpu_memory_utilization", from, to, ANALYSIS_UNKNOWN, confidence,
               in->start.is_known ? "the plan is short by %s; each 0.01 is %s; %.2f of the card "
                                    "were free at start"
                                  : "the plan is short by %s; each 0.01 is %s",
               text_of(text, needed), text_of(left, total / 100),
               in->start.is_known ? (double)in->start.free_bytes / (double)in->start.total_bytes
                                  : 0);
    last_verb(list, "budget");
    return true;
}

static void advise_negative(const struct budget_input *in, const struct settings *s,
                            struct budget_result *r)
{
    int64_t needed = -r->terms[BUDGET_AVAILABLE].bytes;
    struct advice_list *list = &r->advice;

    if (!advise_raise(in, s, r, needed, in->start.is_known ? "high" : "medium", list))
        advise_others(r, "high");
    advise_peak(r, list);
    advise_hccl(in, r, s, needed, list);
    advise_weights(r, list);
}

static void advise_refused(const struct budget_input *in, const struct settings *s,
                           struct budget_result *r)
{
    double to = hundredths_down(in->start.free_bytes, in->start.total_bytes);
    int64_t needed = r->terms[BUDGET_BUDGET].bytes - in->start.free_bytes;
    char from_text[32], to_text[32], text[UNITS_TEXT_BYTES];

    advise_others(r, "high");
    if (to <= 0)
        return;
    snprintf(from_text, sizeof(from_text), "%.2f", r->utilization);
    snprintf(to_text, sizeof(to_text), "%.2f", to);
    advice_add(&r->advice, "gpu_memory_utilization", from_text, to_text, (uint64_t)needed, "high",
               "%s more than were free at start", text_of(text, needed));
    last_verb(&r->advice, "budget");
}

static void advise_overrun(const struct budget_input *in, const struct settings *s,
                           struct budget_result *r)
{
    struct advice_list *list = &r->advice;
    char text[UNITS_TEXT_BYTES], from[UNITS_TEXT_BYTES], to[UNITS_TEXT_BYTES];
    int64_t total = r->terms[BUDGET_CARD_TOTAL].bytes;
    uint64_t needed = r->short_bytes;
    struct settings used = *s;

    if (needed == ANALYSIS_UNKNOWN)
        needed = in->failure_requested_bytes;
    used.utilization = r->utilization;
    used.is_utilization_assumed = r->is_utilization_assumed;
    if (s->kv_cache_bytes != ANALYSIS_UNKNOWN && needed != ANALYSIS_UNKNOWN &&
        needed < s->kv_cache_bytes) {
        advice_add(list, "kv_cache_memory_bytes",
                   units_format_bytes(from, s->kv_cache_bytes, UNITS_AUTO),
                   units_format_bytes(to, s->kv_cache_bytes - needed, UNITS_AUTO), needed, "high",
                   "short by %s; the command line fixes the cache's size",
                   units_format_bytes(text, needed, UNITS_AUTO));
        last_verb(list, "oom");
    } else {
        settings_advise_lower(&used, known(total) ? (uint64_t)total : ANALYSIS_UNKNOWN, needed,
                              false, r->is_short_inferred ? "medium" : "high", list);
    }
    advise_others(r, "medium");
    advise_hccl(in, r, s, needed == ANALYSIS_UNKNOWN ? 0 : (int64_t)needed, list);
    const struct budget_term *graph = &r->terms[BUDGET_GRAPH];
    if (known(graph->bytes) && graph->bytes > 256 * MIB && !s->is_eager) {
        advice_add(list, "cudagraph_capture_sizes", NULL, "fewer sizes", ANALYSIS_UNKNOWN, "medium",
                   "the captured graphs hold %s that the plan leaves out",
                   text_of(text, graph->bytes));
        last_verb(list, "breakdown");
    }
}

/* What the card had left for KV: vLLM's own suggestion for the next start. */
static void advise_room(const struct budget_input *in, const struct settings *s,
                        struct budget_result *r)
{
    const struct budget_term *t = r->terms;
    int64_t total = t[BUDGET_CARD_TOTAL].bytes;
    double most = highest(in, r);
    char from[48], to[48], text[UNITS_TEXT_BYTES];

    if (!in->start.is_known || s->kv_cache_bytes != ANALYSIS_UNKNOWN || !known(total))
        return;
    int64_t gain = (int64_t)((most - r->utilization) * (double)total);
    if (gain < total / 100 * GAIN_MIN_PERCENT)
        return;
    snprintf(from, sizeof(from), "%.2f", r->utilization);
    snprintf(to, sizeof(to), "%.2f", most);
    advice_add(&r->advice, "gpu_memory_utilization", from, to, ANALYSIS_UNKNOWN, "medium",
               "%s more for KV: that much of the card was free at start beyond the budget and "
               "what the plan leaves out",
               text_of(text, gain));
    last_verb(&r->advice, "budget");
}

void budget_advise(const struct budget_input *in, const struct settings *s, struct budget_result *r)
{
    switch (r->verdict) {
    case BUDGET_NEGATIVE:
        advise_negative(in, s, r);
        break;
    case BUDGET_REFUSED:
        advise_refused(in, s, r);
        break;
    case BUDGET_OVERRUN:
        advise_overrun(in, s, r);
        break;
    case BUDGET_FITS:
        advise_room(in, s, r);
        break;
    case BUDGET_INCOMPLETE:
        break;
    }
}
