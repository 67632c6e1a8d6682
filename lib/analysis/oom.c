/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom.c - the verdict of oom.h.
 *
 * Owns: the order of the classes and their thresholds, each with its reason. Must not: assume a
 * number that the snapshot does not have (the idle baseline is the one exception, and is said).
 */
#include "oom.h"

#include <stdio.h>
#include <string.h>

#include "alloc_conf.h"
#include "units.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* A 60.96 GiB card idles at about 3.3 GiB (firmware, driver, TS): 5.5 %. */
#define BASELINE_PER_MILLE 55
/* Others must hold this much more than an idle card: contexts of sibling ranks (107 MiB each on up
 * to 15 foreign devices) are overhead, not an intruder. */
#define FOREIGN_MIN_BYTES (2 * GIB)
#define FOREIGN_MIN_PERCENT 4
/* Without figures per process, this process's own communicators and graphs are in the rest, too. */
#define FOREIGN_MIN_PERCENT_UNSEEN 12
/* Slack below this share of reserved is what rounding leaves in any pool: the card is full. With
 * expandable segments whole granules go back before the last attempt, and the rest is rounding. */
#define SLACK_MIN_PER_MILLE 10
#define SLACK_MIN_PER_MILLE_EXPANDABLE 20

const char *oom_verdict_name(enum oom_verdict verdict)
{
    static const char *const names[] = {
        [OOM_CAPACITY] = "CAPACITY", [OOM_FRAGMENTATION] = "FRAGMENTATION",
        [OOM_FOREIGN] = "FOREIGN",   [OOM_BOGUS_SIZE] = "BOGUS_SIZE",
        [OOM_BUDGET] = "BUDGET",     [OOM_NOT_MEMORY] = "NOT_MEMORY",
    };
    return names[verdict];
}

void oom_snapshot_init(struct oom_snapshot *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->rank = ret->device = -1;
    ret->requested_bytes = ret->total_bytes = ret->free_bytes = ret->baseline_bytes =
        ret->allowed_bytes = ret->physical_bytes = ret->reserved_bytes = ret->allocated_bytes =
            ret->active_bytes = ret->largest_hole_bytes = ret->holes = ANALYSIS_UNKNOWN;
    slack_init(&ret->slack);
}

/* Codes that mean memory. Source: CANN's acl_rt and HAL error codes; facts in docs/ABI.md. */
static bool is_memory_code(int64_t code)
{
    return code == 0 /* not told */ || code == 207001 || code == 207018 || code == 200000 ||
           code == 6 || code == 5002 /* pool */;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t assumed_baseline(uint64_t total)
{
    return analysis_scale(total, BASELINE_PER_MILLE, 1000);
}

/* What others hold: by their own figures, else what is left outside this process and the idle card.
 */
static void judge_outside(const struct oom_snapshot *s, struct oom_result *r)
{
    uint64_t sum = 0, own;

    if (analysis_known(s->total_bytes) && analysis_known(s->free_bytes) &&
        analysis_known(s->reserved_bytes))
        r->outside_bytes = less(less(s->total_bytes, s->reserved_bytes), s->free_bytes);
    for (size_t i = 0; i < s->holder_count; i++)
        if (!s->holders[i].is_victim)
            sum += s->holders[i].bytes;
    if (s->holders_known || sum) {
        r->foreign_bytes = sum;
        if (s->holders_known)
            return;
    }
    if (!analysis_known(s->total_bytes) || !analysis_known(s->free_bytes))
        return;
    own = analysis_known(s->physical_bytes) && s->physical_bytes > s->reserved_bytes
              ? s->physical_bytes
              : s->reserved_bytes;
    if (!analysis_known(s->reserved_bytes))
        own = s->physical_bytes;
    if (!analysis_known(own))
        return;
    uint64_t rest = less(less(less(s->total_bytes, own), s->free_bytes), r->baseline_bytes);
    if (!analysis_known(r->foreign_bytes) || rest > r->foreign_bytes)
        r->foreign_bytes = rest;
}

static bool is_foreign(const struct oom_snapshot *s, const struct oom_result *r)
{
    if (!analysis_known(r->foreign_bytes) || !analysis_known(s->total_bytes))
        return false;
    uint64_t least = s->total_bytes / 100 * FOREIGN_MIN_PERCENT;
    if (least > FOREIGN_MIN_BYTES)
        least = FOREIGN_MIN_BYTES;
    if (!s->holders_known && !analysis_known(s->physical_bytes))
        least = s->total_bytes / 100 * FOREIGN_MIN_PERCENT_UNSEEN;
    return r->foreign_bytes >= least;
}

static bool is_expandable(const struct oom_snapshot *s)
{
    struct alloc_conf conf;
    const char *text = alloc_conf_variable(s->settings.environment, s->settings.environment_bytes,
                                           ALLOC_CONF_NAME);
    return text && alloc_conf_parse(text, &conf, NULL) == 0 && conf.is_expandable;
}

static bool is_fragmented(const struct oom_snapshot *s, const struct oom_result *r)
{
    if (!analysis_known(r->pieces_bytes) || !analysis_known(s->requested_bytes) ||
        r->pieces_bytes < s->requested_bytes)
        return false;
    unsigned per_mille = is_expandable(s) ? SLACK_MIN_PER_MILLE_EXPANDABLE : SLACK_MIN_PER_MILLE;
    if (r->pieces_bytes < analysis_scale(s->reserved_bytes, per_mille, 1000))
        return false;
    /* That the call failed says that no hole was large enough, where the holes are not known. */
    return !analysis_known(s->largest_hole_bytes) || s->largest_hole_bytes < s->requested_bytes;
}

static bool is_at_limit(const struct oom_snapshot *s)
{
    return analysis_known(s->allowed_bytes) && analysis_known(s->reserved_bytes) &&
           analysis_known(s->requested_bytes) &&
           s->reserved_bytes + s->requested_bytes > s->allowed_bytes;
}

/* Before the second attempt the allocator gives back whatever is empty. Segments that are empty
 * after it are of pools that it does not touch (captured graphs): no request can have them, and
 * which of the others are such a pool's is not known. */
static void judge_pieces(const struct oom_snapshot *s, struct oom_result *r)
{
    bool is_kept = s->failures > 1 && analysis_known(s->slack.empty_bytes) && s->slack.empty_bytes;

    if (analysis_known(s->reserved_bytes) && analysis_known(s->allocated_bytes))
        r->slack_bytes = less(s->reserved_bytes, s->allocated_bytes);
    r->pieces_bytes = is_kept && analysis_known(r->slack_bytes)
                          ? less(r->slack_bytes, s->slack.empty_bytes)
                          : r->slack_bytes;
    r->unmap_bytes = is_kept ? ANALYSIS_UNKNOWN : s->slack.unmap_bytes;
}

static void judge_short(const struct oom_snapshot *s, struct oom_result *r)
{
    if (!analysis_known(s->requested_bytes))
        return;
    if (is_at_limit(s))
        r->short_bytes = s->reserved_bytes + s->requested_bytes - s->allowed_bytes;
    else if (analysis_known(s->free_bytes))
        r->short_bytes = less(s->requested_bytes, s->free_bytes);
}

static enum oom_verdict classify(const struct oom_snapshot *s, const struct oom_result *r)
{
    if (!is_memory_code(s->code))
        return OOM_NOT_MEMORY;
    if (analysis_known(s->total_bytes) && analysis_known(s->requested_bytes) &&
        s->requested_bytes > s->total_bytes)
        return OOM_BOGUS_SIZE;
    if (is_foreign(s, r))
        return OOM_FOREIGN;
    if (is_fragmented(s, r))
        return OOM_FRAGMENTATION;
    return strncmp(s->phase, "kv_cache", 8) == 0 ? OOM_BUDGET : OOM_CAPACITY;
}

static const char *size_text(char *text, uint64_t bytes)
{
    return analysis_known(bytes) ? units_format_bytes(text, bytes, UNITS_AUTO) : "?";
}

static void explain_capacity(const struct oom_snapshot *s, struct oom_result *r)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES], d[UNITS_TEXT_BYTES];
    const char *at_least = s->is_requested_minimum ? "at least " : "";

    if (s->allowed_bytes == 0)
        snprintf(r->reason, sizeof(r->reason),
                 "%s asked for: the process's own per_process_memory_fraction rejected it before "
                 "the driver was asked",
                 size_text(a, s->requested_bytes));
    else if (is_at_limit(s))
        snprintf(
            r->reason, sizeof(r->reason),
            "the process may reserve %s and has reserved %s: %s more exceed its own limit by %s",
            size_text(a, s->allowed_bytes), size_text(b, s->reserved_bytes),
            size_text(c, s->requested_bytes), size_text(d, r->short_bytes));
    else if (analysis_known(r->short_bytes) && r->short_bytes == 0)
        snprintf(
            r->reason, sizeof(r->reason),
            "the driver refused %s%s although the card has %s free: no huge pages in one piece",
            at_least, size_text(a, s->requested_bytes), size_text(b, s->free_bytes));
    else if (r->verdict == OOM_BUDGET)
        snprintf(r->reason, sizeof(r->reason),
                 "the KV cache being made needs %s%s more and %s is free: planned too large by at "
                 "least %s",
                 at_least, size_text(a, s->requested_bytes), size_text(b, s->free_bytes),
                 size_text(c, r->short_bytes));
    else
        snprintf(r->reason, sizeof(r->reason),
                 "the card is full: %s%s asked for, %s free, short by %s%s (%s slack in the pool)",
                 at_least, size_text(a, s->requested_bytes), size_text(b, s->free_bytes), at_least,
                 size_text(c, r->short_bytes), size_text(d, r->slack_bytes));
}

static const struct oom_holder *largest_holder(const struct oom_snapshot *s)
{
    const struct oom_holder *best = NULL;
    for (size_t i = 0; i < s->holder_count; i++)
        if (!s->holders[i].is_victim && (!best || s->holders[i].bytes > best->bytes))
            best = &s->holders[i];
    return best;
}

static void explain_foreign(const struct oom_snapshot *s, struct oom_result *r)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];
    const struct oom_holder *h = largest_holder(s);

    size_text(a, r->foreign_bytes);
    if (h && h->tgid)
        snprintf(r->reason, sizeof(r->reason),
                 "other processes hold %s of this card, most of it (%s) process %u (%s)%s%s: this "
                 "process is the victim",
                 a, size_text(b, h->bytes), h->tgid, h->comm[0] ? h->comm : "?",
                 h->container[0] ? " of container " : "", h->container);
    else
        snprintf(r->reason, sizeof(r->reason),
                 "others hold %s of this card: this process is the victim", a);
}

static void explain(const struct oom_snapshot *s, struct oom_result *r)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES];
    const char *at_least = s->is_requested_minimum ? "at least " : "";

    switch (r->verdict) {
    case OOM_NOT_MEMORY:
        snprintf(r->reason, sizeof(r->reason), "code %lld is not about memory%s",
                 (long long)s->code,
                 s->code == 207005   ? ": the streams of the device are exhausted"
                 : s->code == 207006 ? ": the events of the device are exhausted"
                                     : "");
        break;
    case OOM_BOGUS_SIZE:
        snprintf(r->reason, sizeof(r->reason),
                 "%s asked for, more than the whole card (%s): a wrong size in the caller",
                 size_text(a, s->requested_bytes), size_text(b, s->total_bytes));
        break;
    case OOM_FOREIGN:
        explain_foreign(s, r);
        break;
    case OOM_FRAGMENTATION:
        if (analysis_known(s->largest_hole_bytes))
            snprintf(r->reason, sizeof(r->reason),
                     "%s of the pool are free but in pieces: the largest is %s, %s%s was asked for",
                     size_text(a, r->pieces_bytes), size_text(b, s->largest_hole_bytes), at_least,
                     size_text(c, s->requested_bytes));
        else
            snprintf(r->reason, sizeof(r->reason),
                     "%s of the pool are free but in pieces: none holds the %s%s asked for",
                     size_text(a, r->pieces_bytes), at_least, size_text(c, s->requested_bytes));
        break;
    case OOM_BUDGET:
    case OOM_CAPACITY:
        explain_capacity(s, r);
        break;
    }
}

void oom_judge(const struct oom_snapshot *s, struct oom_result *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->slack_bytes = ret->outside_bytes = ret->foreign_bytes = ret->short_bytes =
        ANALYSIS_UNKNOWN;
    ret->baseline_bytes = s->baseline_bytes;
    if (!analysis_known(ret->baseline_bytes) && analysis_known(s->total_bytes)) {
        ret->baseline_bytes = assumed_baseline(s->total_bytes);
        ret->is_baseline_assumed = true;
    }
    judge_pieces(s, ret);
    judge_outside(s, ret);
    judge_short(s, ret);
    ret->verdict = classify(s, ret);
    explain(s, ret);
    oom_advise(s, ret);
}
