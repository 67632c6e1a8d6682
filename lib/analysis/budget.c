/* SPDX-License-Identifier: Apache-2.0 */
/*
 * budget.c - the terms of the plan; budget.h has the equations.
 *
 * Owns: which evidence each term is taken from, in the order of trust, and the verdict. Must not:
 * put a guess in the place of a term that nobody could see.
 */
#include "budget.h"

#include <stdio.h>
#include <string.h>

#include "budget_internal.h"
#include "units.h"

/* The plan and what KV took may differ by the last block of the cache, in per mille. */
#define PLAN_TOLERANCE_PER_MILLE 10

static const char reason_late[] = "attached late";
static const char reason_frames[] = "no frames of that phase were seen";
static const char reason_sleeping[] =
    "the pools hold more addresses than the process has memory (sleep mode, or memory not seen)";
static const char reason_question[] = "the process did not ask the driver in that phase";

void budget_input_init(struct budget_input *ret)
{
    *ret = (struct budget_input){
        .rank = -1,
        .device = -1,
        .total_bytes = BUDGET_UNKNOWN,
        .peak_allocated_bytes = BUDGET_UNKNOWN,
        .profile_start_bytes = BUDGET_UNKNOWN,
        .load_start_bytes = BUDGET_UNKNOWN,
        .weights_bytes = BUDGET_UNKNOWN,
        .kv_bytes = BUDGET_UNKNOWN,
        .graph_bytes = BUDGET_UNKNOWN,
        .physical_bytes = BUDGET_UNKNOWN,
        .reserved_bytes = BUDGET_UNKNOWN,
        .allocated_bytes = BUDGET_UNKNOWN,
        .hccl_bytes = BUDGET_UNKNOWN,
        .failure_requested_bytes = ANALYSIS_UNKNOWN,
        .failure_short_bytes = ANALYSIS_UNKNOWN,
        .failure_physical_bytes = ANALYSIS_UNKNOWN,
    };
    settings_read(&ret->settings, &ret->read); /* of nothing: the defaults */
}

static bool known(int64_t bytes)
{
    return bytes != BUDGET_UNKNOWN;
}

static void set(struct budget_term *t, int64_t bytes, const char *source)
{
    *t = (struct budget_term){.bytes = bytes, .source = source};
}

static void unknown(struct budget_term *t, const char *reason)
{
    *t = (struct budget_term){.bytes = BUDGET_UNKNOWN, .reason = reason};
}

static const char *why_unseen(const struct budget_input *in, const char *otherwise)
{
    return in->is_late ? reason_late : otherwise;
}

static int64_t non_torch(const struct budget_moment *m)
{
    return m->total_bytes - m->free_bytes - m->reserved_bytes;
}

static int64_t others(const struct budget_moment *m)
{
    int64_t bytes = m->total_bytes - m->free_bytes - m->physical_bytes;
    return bytes > 0 ? bytes : 0;
}

static void compute_card(const struct budget_input *in, struct budget_result *r)
{
    const struct budget_moment *const moments[] = {&in->start, &in->before, &in->after};
    struct budget_term *total = &r->terms[BUDGET_CARD_TOTAL];

    unknown(total, "no figure of the card");
    if (known(in->total_bytes) && in->total_bytes > 0)
        set(total, in->total_bytes, "driver");
    for (size_t i = 3; i-- > 0;)
        if (moments[i]->is_known)
            set(total, moments[i]->total_bytes, "what the process was told");
    if (in->start.is_known)
        set(&r->terms[BUDGET_OTHERS], others(&in->start), "what the process was told at start");
    else
        unknown(&r->terms[BUDGET_OTHERS], why_unseen(in, reason_question));
}

static void compute_owned(const struct budget_input *in, struct budget_result *r)
{
    struct budget_term *t = &r->terms[BUDGET_WEIGHTS];
    const char *missing = in->has_blocks ? reason_frames : "the allocator's blocks are not seen";

    if (known(in->weights_bytes))
        set(t, in->weights_bytes, "owner");
    else if (in->before.is_known && known(in->load_start_bytes))
        set(t, in->before.allocated_bytes - in->load_start_bytes, "allocated while loading");
    else
        unknown(t, why_unseen(in, missing));
    t->is_inferred = in->is_inferred && known(t->bytes);

    t = &r->terms[BUDGET_KV_CACHE];
    if (known(in->kv_bytes))
        set(t, in->kv_bytes, "owner");
    else
        unknown(t, why_unseen(in, missing));
    t->is_inferred = in->is_inferred && known(t->bytes);

    t = &r->terms[BUDGET_GRAPH];
    if (in->capturing.is_known && in->captured.free_bytes <= in->capturing.free_bytes)
        set(t, in->capturing.free_bytes - in->captured.free_bytes, "what the process was told");
    if (known(in->graph_bytes) && (!t->source || in->graph_bytes > t->bytes))
        set(t, in->graph_bytes, "owner");
    if (!t->source && !in->is_late && in->has_phases)
        set(t, 0, "no capture was seen");
    if (!t->source)
        unknown(t, why_unseen(in, reason_frames));
}

static void compute_profile(const struct budget_input *in, struct budget_result *r)
{
    struct budget_term *t = &r->terms[BUDGET_PEAK];
    int64_t base = in->before.is_known ? in->before.allocated_bytes : in->profile_start_bytes;

    if (known(in->peak_allocated_bytes) && known(base))
        set(t, in->peak_allocated_bytes > base ? in->peak_allocated_bytes - base : 0,
            "blocks of the profile run");
    else if (in->before.is_known && in->has_blocks)
        set(t, 0, "no large block in the profile run");
    else
        unknown(t, why_unseen(in, reason_frames));

    t = &r->terms[BUDGET_NON_TORCH];
    if (in->after.is_known && in->start.is_known) {
        set(t, non_torch(&in->after) - non_torch(&in->start), "what the process was told");
        set(&r->terms[BUDGET_OTHERS_GREW], others(&in->after) - others(&in->start),
            "what the process was told");
    } else {
        unknown(&r->terms[BUDGET_OTHERS_GREW], why_unseen(in, reason_question));
        if (known(in->physical_bytes) && known(in->reserved_bytes) &&
            in->physical_bytes < in->reserved_bytes) {
            unknown(t, reason_sleeping);
        } else if (known(in->physical_bytes) && known(in->reserved_bytes)) {
            set(t, in->physical_bytes - in->reserved_bytes, "its own calls, as of now");
            t->is_inferred = true;
        } else {
            unknown(t, why_unseen(in, reason_question));
        }
    }
}

/* Rows beside the plan. */
static void compute_unplanned(const struct budget_input *in, struct budget_result *r)
{
    struct budget_term *terms = r->terms;
    const char *why = why_unseen(in, reason_question);

    unknown(&terms[BUDGET_BUFFERS], why);
    unknown(&terms[BUDGET_LOADED], why);
    unknown(&terms[BUDGET_SLACK], why);
    unknown(&terms[BUDGET_LATER], why);
    if (known(in->load_start_bytes))
        set(&terms[BUDGET_BUFFERS], in->load_start_bytes, "allocated before loading");
    if (in->before.is_known && known(in->load_start_bytes) && known(in->weights_bytes)) {
        int64_t beside = in->before.allocated_bytes - in->load_start_bytes - in->weights_bytes;
        set(&terms[BUDGET_LOADED], beside > 0 ? beside : 0, "allocated while loading");
    }
    if (in->after.is_known) {
        set(&terms[BUDGET_SLACK], in->after.reserved_bytes - in->after.allocated_bytes,
            "after the profile run");
        if (known(in->physical_bytes) && known(in->reserved_bytes)) {
            int64_t grown = (in->physical_bytes - in->reserved_bytes) -
                            (in->after.physical_bytes - in->after.reserved_bytes);
            set(&terms[BUDGET_LATER], grown > 0 ? grown : 0, "its own calls since then");
        }
    }
    r->unplanned_bytes = 0;
    for (size_t i = BUDGET_GRAPH; i <= BUDGET_LATER; i++)
        if (known(terms[i].bytes))
            r->unplanned_bytes += terms[i].bytes;
}

/* What the process must have planned with, where its command line does not say. */
static void compute_utilization(const struct budget_input *in, const struct settings *s,
                                struct budget_result *r)
{
    const struct budget_term *t = r->terms;

    r->utilization = s->utilization;
    r->utilization_source = s->is_utilization_given ? "command line" : "default";
    r->is_utilization_assumed = s->is_utilization_assumed;
    if (s->is_utilization_given || s->kv_cache_bytes != ANALYSIS_UNKNOWN ||
        !known(t[BUDGET_CARD_TOTAL].bytes) || !known(t[BUDGET_KV_CACHE].bytes) ||
        !known(t[BUDGET_WEIGHTS].bytes) || !known(t[BUDGET_PEAK].bytes) ||
        !known(t[BUDGET_NON_TORCH].bytes) || t[BUDGET_NON_TORCH].is_inferred || in->has_failure)
        return;
    double sum = (double)t[BUDGET_KV_CACHE].bytes + (double)t[BUDGET_WEIGHTS].bytes +
                 (double)t[BUDGET_PEAK].bytes + (double)t[BUDGET_NON_TORCH].bytes;
    double used = sum / (double)t[BUDGET_CARD_TOTAL].bytes;
    r->is_utilization_assumed = false;
    double apart_old = used - SETTINGS_UTILIZATION, apart_new = used - SETTINGS_UTILIZATION_NEW;
    if (apart_new > -0.015 && apart_new < 0.005) {
        r->utilization = SETTINGS_UTILIZATION_NEW;
    } else if (apart_old <= -0.02 || apart_old >= 0.005) {
        r->utilization = used;
        r->utilization_source = "what KV took";
    }
}

static void compute_plan(const struct budget_input *in, const struct settings *s,
                         struct budget_result *r)
{
    struct budget_term *t = r->terms;
    bool parts = known(t[BUDGET_WEIGHTS].bytes) && known(t[BUDGET_PEAK].bytes) &&
                 known(t[BUDGET_NON_TORCH].bytes);

    compute_utilization(in, s, r);
    if (known(t[BUDGET_CARD_TOTAL].bytes))
        set(&t[BUDGET_BUDGET], (int64_t)((double)t[BUDGET_CARD_TOTAL].bytes * r->utilization),
            r->utilization_source);
    else
        unknown(&t[BUDGET_BUDGET], t[BUDGET_CARD_TOTAL].reason);
    t[BUDGET_BUDGET].is_inferred = known(t[BUDGET_BUDGET].bytes) && !s->is_utilization_given;
    if (s->kv_cache_bytes != ANALYSIS_UNKNOWN) {
        set(&t[BUDGET_AVAILABLE], (int64_t)s->kv_cache_bytes, "command line");
    } else if (parts && known(t[BUDGET_BUDGET].bytes)) {
        set(&t[BUDGET_AVAILABLE],
            t[BUDGET_BUDGET].bytes - t[BUDGET_WEIGHTS].bytes - t[BUDGET_PEAK].bytes -
                t[BUDGET_NON_TORCH].bytes,
            "budget - weights - peak - non-torch");
        t[BUDGET_AVAILABLE].is_inferred = t[BUDGET_BUDGET].is_inferred ||
                                          t[BUDGET_NON_TORCH].is_inferred ||
                                          t[BUDGET_WEIGHTS].is_inferred;
    } else {
        unknown(&t[BUDGET_AVAILABLE], "a term of the plan is not known");
    }
    r->sum_bytes = BUDGET_UNKNOWN;
    if (parts && known(t[BUDGET_KV_CACHE].bytes))
        r->sum_bytes = t[BUDGET_WEIGHTS].bytes + t[BUDGET_PEAK].bytes + t[BUDGET_NON_TORCH].bytes +
                       t[BUDGET_KV_CACHE].bytes +
                       (known(t[BUDGET_GRAPH].bytes) ? t[BUDGET_GRAPH].bytes : 0);
}

/* How much was missing: as the report of the failure says; else what was free after the profile run
 * less what the process took since, as if others had not changed. */
static void compute_short(const struct budget_input *in, struct budget_result *r)
{
    r->short_bytes = in->failure_short_bytes;
    if (!in->has_failure || r->short_bytes != ANALYSIS_UNKNOWN || !in->after.is_known ||
        in->failure_requested_bytes == ANALYSIS_UNKNOWN ||
        in->failure_physical_bytes == ANALYSIS_UNKNOWN)
        return;
    int64_t left =
        in->after.free_bytes - ((int64_t)in->failure_physical_bytes - in->after.physical_bytes);
    int64_t missing = (int64_t)in->failure_requested_bytes - (left > 0 ? left : 0);
    if (missing > 0) {
        r->short_bytes = (uint64_t)missing;
        r->is_short_inferred = true;
    }
}

static enum budget_verdict judge(const struct budget_input *in, const struct settings *s,
                                 const struct budget_result *r)
{
    const struct budget_term *t = r->terms;
    bool has_kv = known(t[BUDGET_KV_CACHE].bytes) && t[BUDGET_KV_CACHE].bytes > 0;

    if (in->has_failure && strcmp(in->failure_phase, "weights") != 0)
        return BUDGET_OVERRUN;
    if (!has_kv && in->start.is_known && known(t[BUDGET_BUDGET].bytes) && !in->before.is_known &&
        s->is_utilization_given && in->start.free_bytes < t[BUDGET_BUDGET].bytes)
        return BUDGET_REFUSED;
    if (!known(t[BUDGET_AVAILABLE].bytes))
        return BUDGET_INCOMPLETE;
    if (t[BUDGET_AVAILABLE].bytes <= 0 && !has_kv)
        return BUDGET_NEGATIVE;
    if (!has_kv)
        return BUDGET_INCOMPLETE;
    return BUDGET_FITS;
}

static char *text_of(char *text, int64_t bytes)
{
    if (!known(bytes))
        snprintf(text, UNITS_TEXT_BYTES, "?");
    else if (bytes < 0) {
        text[0] = '-';
        units_format_bytes(text + 1, (uint64_t)-bytes, UNITS_AUTO);
    } else {
        units_format_bytes(text, (uint64_t)bytes, UNITS_AUTO);
    }
    return text;
}

static void explain_fit(struct budget_result *r)
{
    char a[UNITS_TEXT_BYTES + 1], b[UNITS_TEXT_BYTES + 1], c[UNITS_TEXT_BYTES + 1];
    char *text = r->reason;
    const struct budget_term *t = r->terms;
    int64_t apart = t[BUDGET_AVAILABLE].bytes - t[BUDGET_KV_CACHE].bytes;
    int64_t tolerance = t[BUDGET_BUDGET].bytes / 1000 * PLAN_TOLERANCE_PER_MILLE;

    text_of(a, t[BUDGET_KV_CACHE].bytes);
    text_of(b, t[BUDGET_AVAILABLE].bytes);
    if (known(t[BUDGET_OTHERS].bytes) && apart > tolerance &&
        apart - t[BUDGET_OTHERS].bytes <= tolerance && apart - t[BUDGET_OTHERS].bytes >= -tolerance)
        snprintf(text, ANALYSIS_TEXT_BYTES,
                 "KV took %s, not %s: this version's plan counts what others held at start", a, b);
    else if (known(t[BUDGET_GRAPH].bytes) && t[BUDGET_GRAPH].bytes > 0 && apart > tolerance &&
             apart - t[BUDGET_GRAPH].bytes <= tolerance &&
             apart - t[BUDGET_GRAPH].bytes >= -tolerance)
        snprintf(text, ANALYSIS_TEXT_BYTES,
                 "KV took %s, not %s: this version's plan counts the graph capture (%s)", a, b,
                 text_of(c, t[BUDGET_GRAPH].bytes));
    else if (known(t[BUDGET_BUDGET].bytes) && (apart > tolerance || apart < -tolerance))
        snprintf(text, ANALYSIS_TEXT_BYTES,
                 "KV took %s where this plan leaves %s: the server planned otherwise (another "
                 "version's equation, or a setting that its command line does not show)",
                 a, b);
    else
        snprintf(text, ANALYSIS_TEXT_BYTES,
                 "KV took %s of the %s that the plan left; %s beside the plan", a, b,
                 text_of(c, r->unplanned_bytes));
}

/* The first reason, with every term of the plan that it makes unknown. */
static void explain_gap(struct budget_result *r)
{
    static const enum budget_term_id ids[] = {BUDGET_WEIGHTS, BUDGET_PEAK, BUDGET_NON_TORCH,
                                              BUDGET_CARD_TOTAL, BUDGET_KV_CACHE};
    const char *reason = NULL;
    size_t used = 0;

    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        const struct budget_term *t = &r->terms[ids[i]];
        if (known(t->bytes) || (reason && strcmp(reason, t->reason) != 0))
            continue;
        used += (size_t)snprintf(r->reason + used, sizeof(r->reason) - used, "%s%s",
                                 reason ? ", " : "", budget_term_name(ids[i]));
        reason = t->reason;
    }
    snprintf(r->reason + used, sizeof(r->reason) - used, "%s%s",
             reason ? " unknown: " : "no KV cache was made so far", reason ? reason : "");
}

static void explain(const struct budget_input *in, struct budget_result *r)
{
    char a[UNITS_TEXT_BYTES + 1], b[UNITS_TEXT_BYTES + 1], c[UNITS_TEXT_BYTES + 1],
        d[UNITS_TEXT_BYTES + 1], e[UNITS_TEXT_BYTES + 1];
    const struct budget_term *t = r->terms;

    switch (r->verdict) {
    case BUDGET_FITS:
        explain_fit(r);
        break;
    case BUDGET_NEGATIVE:
        snprintf(
            r->reason, sizeof(r->reason),
            "the plan leaves %s for KV: weights %s, peak %s and non-torch %s of a budget of %s",
            text_of(a, t[BUDGET_AVAILABLE].bytes), text_of(b, t[BUDGET_WEIGHTS].bytes),
            text_of(c, t[BUDGET_PEAK].bytes), text_of(d, t[BUDGET_NON_TORCH].bytes),
            text_of(e, t[BUDGET_BUDGET].bytes));
        break;
    case BUDGET_REFUSED:
        snprintf(r->reason, sizeof(r->reason),
                 "%s were free at start, less than the budget of %s: others held %s",
                 text_of(a, in->start.free_bytes), text_of(b, t[BUDGET_BUDGET].bytes),
                 text_of(c, t[BUDGET_OTHERS].bytes));
        break;
    case BUDGET_OVERRUN:
        snprintf(r->reason, sizeof(r->reason),
                 "out of memory%s%s after KV took %s: short by %s; %s are in no term of the plan",
                 in->failure_phase[0] ? " in " : "", in->failure_phase,
                 text_of(a, t[BUDGET_KV_CACHE].bytes),
                 r->short_bytes == ANALYSIS_UNKNOWN ? "?" : text_of(b, (int64_t)r->short_bytes),
                 text_of(c, r->unplanned_bytes));
        break;
    case BUDGET_INCOMPLETE:
        explain_gap(r);
        break;
    }
}

void budget_compute(const struct budget_input *in, struct budget_result *ret)
{
    const struct settings *s = &in->read;

    memset(ret, 0, sizeof(*ret));
    memcpy(ret->complaint, s->complaint, sizeof(ret->complaint));
    compute_card(in, ret);
    compute_owned(in, ret);
    compute_profile(in, ret);
    compute_unplanned(in, ret);
    compute_plan(in, s, ret);
    compute_short(in, ret);
    ret->verdict = judge(in, s, ret);
    explain(in, ret);
    budget_advise(in, s, ret);
}
