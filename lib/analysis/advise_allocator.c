/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advise_allocator.c - rules for the caching allocator's own settings; see advise.h.
 *
 * Owns: which of its keys would help, and how much of the slack each could give back. Must not:
 * promise what stays in pieces.
 */
#include <inttypes.h>
#include <stdio.h>

#include "advise_internal.h"
#include "units.h"

/* What rounding leaves free in any pool; slack beyond it has come from pieces. */
#define SLACK_PERCENT 5
#define OTHERS_PERCENT 10
/* Of what a process could have of its card, in percent: the limit that is advised. */
#define LIMIT_PERCENT 95
/* garbage_collection_threshold, in tenths of the limit: the usual value, and the least that does
 * not empty a cache that is in use. */
#define THRESHOLD_USUAL 8
#define THRESHOLD_LEAST 5

/* Reserved and not active, beyond what rounding leaves; 0 none worth a word. */
static uint64_t slack_beyond(const struct advise_input *in)
{
    if (!analysis_known(in->reserved_bytes) || !analysis_known(in->active_bytes) ||
        in->reserved_bytes <= in->active_bytes)
        return 0;
    uint64_t slack = in->reserved_bytes - in->active_bytes;
    if (slack < ADVISE_WORTH_BYTES || slack < in->reserved_bytes / 100 * SLACK_PERCENT)
        return 0;
    return slack;
}

static void advise_expandable(struct rules *r, const char *slack_text)
{
    const struct advise_input *in = r->in;
    char to[ANALYSIS_NAME_BYTES], part[UNITS_TEXT_BYTES];
    bool is_seen =
        analysis_known(in->slack.pinned_free_bytes) && analysis_known(in->slack.unmap_bytes);

    if (is_seen && in->slack.unmap_bytes < ADVISE_WORTH_BYTES)
        return; /* pieces smaller than a granule stay mapped */
    settings_conf_with(r->settings, "expandable_segments:True", to, sizeof(to));
    if (is_seen)
        advice_add(r->list, ALLOC_CONF_NAME, r->settings->conf_text, to, in->slack.unmap_bytes,
                   advise_confidence(r, "high"),
                   "%s are reserved and not used; %s of it lie in segments that a block keeps, "
                   "where no empty_cache() gives them back. Expandable ones give back all whole "
                   "granules",
                   slack_text, units_format_bytes(part, in->slack.pinned_free_bytes, UNITS_AUTO));
    else
        advice_add(r->list, ALLOC_CONF_NAME, r->settings->conf_text, to, ANALYSIS_UNKNOWN,
                   advise_confidence(r, "medium"),
                   "%s are reserved and not used; in which pieces is not known: that is the most "
                   "that it could save",
                   slack_text);
    advise_more_in(r, "whatif");
}

static void advise_max_split(struct rules *r, const char *slack_text)
{
    char item[48], to[ANALYSIS_NAME_BYTES];
    uint32_t mb = slack_split(&r->in->slack, ADVISE_WORTH_BYTES);

    if (!mb)
        return; /* segments too small for any of them */
    snprintf(item, sizeof(item), "max_split_size_mb:%u", mb);
    settings_conf_with(r->settings, item, to, sizeof(to));
    advice_add(r->list, ALLOC_CONF_NAME, r->settings->conf_text, to, ANALYSIS_UNKNOWN,
               advise_confidence(r, "low"),
               "%s are reserved and not used, and %s excludes expandable_segments; large blocks "
               "that stay whole can go back",
               slack_text, settings_excludes_expandable(r->settings));
    advise_more_in(r, "whatif");
}

/* At most one of them, since they exclude each other. */
static void rule_pieces(struct rules *r)
{
    const struct advise_input *in = r->in;
    const struct alloc_conf *conf = &r->settings->conf;
    uint64_t slack = slack_beyond(in);
    char text[UNITS_TEXT_BYTES];

    if (!slack || conf->is_expandable || settings_is_conf_refused(r->settings) || in->is_asleep ||
        (analysis_known(in->slack.pinned_free_bytes) &&
         in->slack.pinned_free_bytes < ADVISE_WORTH_BYTES))
        return; /* what lies in empty segments goes back by itself when it is needed */
    units_format_bytes(text, slack, UNITS_AUTO);
    if (!settings_excludes_expandable(r->settings))
        advise_expandable(r, text);
    else if (!(conf->keys & ALLOC_CONF_MAX_SPLIT))
        advise_max_split(r, text);
}

/* What the caching allocator could have of the card, in percent of it, less a reserve, and without
 * figures of the card of all of it; 0: less than it needs now. */
static unsigned limit_percent(const struct advise_input *in)
{
    uint64_t taken = 0;

    if (!analysis_known(in->total_bytes) || !in->total_bytes)
        return LIMIT_PERCENT;
    taken += analysis_known(in->others_bytes) ? in->others_bytes : 0;
    taken += analysis_known(in->outside_bytes) ? in->outside_bytes : 0;
    if (taken >= in->total_bytes)
        return 0;
    uint64_t percent = analysis_scale(in->total_bytes - taken, LIMIT_PERCENT, in->total_bytes);
    if (analysis_known(in->active_bytes) &&
        analysis_scale(in->total_bytes, percent, 100) < in->active_bytes)
        return 0;
    return (unsigned)percent;
}

/* The threshold in tenths below which the largest request still fits: the cache is looked at before
 * a request, without that. */
static unsigned threshold_tenths(const struct advise_input *in, unsigned percent)
{
    uint64_t limit = analysis_known(in->total_bytes) ? in->total_bytes / 100 * percent : 0;
    unsigned tenths = THRESHOLD_USUAL;

    if (!limit || !analysis_known(in->retry_bytes))
        return tenths;
    while (tenths > THRESHOLD_LEAST && limit / 10 * (10 - tenths) < in->retry_bytes)
        tenths--;
    return tenths;
}

/* A request that fails first empties the whole cache, with the device standing still. Returns
 * whether a limit was advised. */
static bool rule_threshold(struct rules *r)
{
    const struct advise_input *in = r->in;
    const struct alloc_conf *conf = &r->settings->conf;
    bool has_fraction = conf->keys & ALLOC_CONF_FRACTION && conf->memory_fraction < 1;
    bool has_threshold = conf->keys & ALLOC_CONF_GC;
    unsigned percent = limit_percent(in);
    unsigned tenths = threshold_tenths(in, percent);
    char item[48], conf_to[ANALYSIS_NAME_BYTES], to[2 * ANALYSIS_NAME_BYTES];

    if (!in->recovered_retries || conf->is_expandable || settings_is_conf_refused(r->settings) ||
        !percent || (has_threshold && has_fraction))
        return false;
    snprintf(item, sizeof(item), "garbage_collection_threshold:0.%u", tenths);
    settings_conf_with(r->settings, item, conf_to, sizeof(conf_to));
    if (has_threshold)
        snprintf(to, sizeof(to), "0.%02u", percent);
    else
        snprintf(to, sizeof(to), "0.%02u, with %s=%s", percent, ALLOC_CONF_NAME, conf_to);
    advice_add(r->list, has_fraction ? ALLOC_CONF_NAME : "set_per_process_memory_fraction",
               has_fraction ? r->settings->conf_text : NULL, has_fraction ? conf_to : to,
               ANALYSIS_UNKNOWN, has_threshold ? "low" : advise_confidence(r, "medium"),
               "%" PRIu64 " request%s failed first and emptied the whole cache; %s",
               in->recovered_retries, in->recovered_retries == 1 ? "" : "s",
               has_threshold ? "garbage_collection_threshold gives back what is oldest before, but "
                               "only below a fraction (which the program may have set by a call)"
                             : "a threshold gives back what is oldest, before");
    advise_more_in(r, "oom");
    return !has_fraction;
}

static void rule_fraction(struct rules *r)
{
    const struct advise_input *in = r->in;
    char text[UNITS_TEXT_BYTES], slack[UNITS_TEXT_BYTES], to[32];
    uint64_t unused = slack_beyond(in);
    unsigned percent = limit_percent(in);

    if (!analysis_known(in->others_bytes) || !analysis_known(in->total_bytes) || !unused ||
        !percent || in->others_bytes < in->total_bytes / 100 * OTHERS_PERCENT ||
        r->settings->conf.keys & ALLOC_CONF_FRACTION)
        return;
    snprintf(to, sizeof(to), "0.%02u", percent);
    advice_add(r->list, "set_per_process_memory_fraction", NULL, to, ANALYSIS_UNKNOWN, "low",
               "other processes hold %s of this card, and this one's cache keeps %s that it does "
               "not use: below a limit it gives that back before the card is full",
               units_format_bytes(text, in->others_bytes, UNITS_AUTO),
               units_format_bytes(slack, unused, UNITS_AUTO));
    advise_more_in(r, "breakdown");
}

void advise_allocator(struct rules *r)
{
    rule_pieces(r);
    if (!rule_threshold(r))
        rule_fraction(r);
}
