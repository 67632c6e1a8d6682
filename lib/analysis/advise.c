/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advise.c - see advise.h.
 *
 * Owns: the rules, each with the least evidence that it needs. Must not: advise without evidence.
 */
#include "advise.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"
#include "units.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
/* Below this a saving is not worth a restart. */
#define WORTH_BYTES (256 * MIB)
/* What rounding leaves free in any pool; slack beyond it has come from pieces. */
#define SLACK_PERCENT 5
#define STREAM_DELAYED_BYTES (64 * MIB)
#define HCCL_WORTH_BYTES GIB
/* HCCL's default of HCCL_BUFFSIZE, in MB. Source: HCCL's documentation; docs/ABI.md. */
#define HCCL_BUFFSIZE_DEFAULT 200
/* Below this collectives begin to be cut in pieces that cost time. Source: vllm-ascend's own choice
 * for its small groups (50 MB). */
#define HCCL_BUFFSIZE_LEAST 50
#define OTHERS_PERCENT 10
/* Collections of the oldest generation per hour from which on freezing is worth a thought. */
#define FULL_COLLECTIONS_PER_HOUR 60

struct rules {
    const struct advise_input *in;
    struct settings settings;
    struct advice_list *list;
};

void advise_input_init(struct advise_input *ret)
{
    *ret = (struct advise_input){
        .rank = -1,
        .device = -1,
        .reserved_bytes = ANALYSIS_UNKNOWN,
        .allocated_bytes = ANALYSIS_UNKNOWN,
        .active_bytes = ANALYSIS_UNKNOWN,
        .pinned_free_bytes = ANALYSIS_UNKNOWN,
        .empty_bytes = ANALYSIS_UNKNOWN,
        .total_bytes = ANALYSIS_UNKNOWN,
        .others_bytes = ANALYSIS_UNKNOWN,
        .workspace_bytes = ANALYSIS_UNKNOWN,
    };
}

static bool known(uint64_t bytes)
{
    return bytes != ANALYSIS_UNKNOWN;
}

static void more_in(const struct rules *r, const char *verb)
{
    if (r->list->count)
        r->list->items[r->list->count - 1].verb = verb;
}

static const char *variable(const struct rules *r, const char *name)
{
    return settings_variable(&r->in->settings, name);
}

/* How sure a rule may be whose present value may not be known. */
static const char *confidence(const struct rules *r, const char *best)
{
    return r->settings.environment_known ? best : "low";
}

/* Reserved and not active, beyond what rounding leaves; 0 none worth a word. */
static uint64_t slack_beyond(const struct advise_input *in)
{
    if (!known(in->reserved_bytes) || !known(in->active_bytes) ||
        in->reserved_bytes <= in->active_bytes)
        return 0;
    uint64_t slack = in->reserved_bytes - in->active_bytes;
    if (slack < WORTH_BYTES || slack < in->reserved_bytes / 100 * SLACK_PERCENT)
        return 0;
    return slack;
}

/* The allocator's own settings: at most one of them, since they exclude each other. */
static void rule_allocator(struct rules *r)
{
    const struct advise_input *in = r->in;
    const struct alloc_conf *conf = &r->settings.conf;
    uint64_t slack = slack_beyond(in);
    char text[UNITS_TEXT_BYTES], part[UNITS_TEXT_BYTES];
    unsigned others = conf->keys & (ALLOC_CONF_MAX_SPLIT | ALLOC_CONF_GC);

    if (!slack || conf->is_expandable || (r->settings.conf_text && !r->settings.conf_known) ||
        in->is_asleep || (known(in->pinned_free_bytes) && in->pinned_free_bytes < WORTH_BYTES))
        return; /* what lies in empty segments goes back by itself when it is needed */
    units_format_bytes(text, slack, UNITS_AUTO);
    if (!r->settings.sleep_mode && !others && !(conf->keys & ALLOC_CONF_EXPANDABLE)) {
        bool is_seen = known(in->pinned_free_bytes);
        advice_add(
            r->list, ALLOC_CONF_NAME, r->settings.conf_text, "expandable_segments:True",
            is_seen ? in->pinned_free_bytes : slack, confidence(r, is_seen ? "high" : "medium"),
            is_seen ? "%s are reserved and not used; %s of it lie in segments that a block keeps"
                    : "%s are reserved and not used",
            text, units_format_bytes(part, in->pinned_free_bytes, UNITS_AUTO));
        more_in(r, "whatif");
        return;
    }
    if (conf->keys & ALLOC_CONF_MAX_SPLIT)
        return;
    advice_add(r->list, ALLOC_CONF_NAME, r->settings.conf_text, "max_split_size_mb:128",
               ANALYSIS_UNKNOWN, confidence(r, "low"),
               "%s are reserved and not used, and %s excludes expandable_segments", text,
               r->settings.sleep_mode   ? "sleep mode"
               : others & ALLOC_CONF_GC ? "garbage_collection_threshold"
                                        : "its own setting");
    more_in(r, "whatif");
}

/* A request that fails first empties the whole cache, with the device standing still. */
static void rule_threshold(struct rules *r)
{
    const struct alloc_conf *conf = &r->settings.conf;
    bool has_fraction = conf->keys & ALLOC_CONF_FRACTION && conf->memory_fraction < 1;

    if (!r->in->recovered_retries || conf->is_expandable || conf->keys & ALLOC_CONF_GC ||
        (r->settings.conf_text && !r->settings.conf_known))
        return;
    advice_add(r->list, has_fraction ? ALLOC_CONF_NAME : "set_per_process_memory_fraction",
               has_fraction ? r->settings.conf_text : NULL,
               has_fraction ? "garbage_collection_threshold:0.8"
                            : "0.95, with garbage_collection_threshold:0.8",
               ANALYSIS_UNKNOWN, confidence(r, "medium"),
               "%" PRIu64 " request%s failed first and emptied the whole cache; a threshold gives "
               "back what is oldest, before",
               r->in->recovered_retries, r->in->recovered_retries == 1 ? "" : "s");
    more_in(r, "oom");
}

static void rule_fraction(struct rules *r)
{
    const struct advise_input *in = r->in;
    char text[UNITS_TEXT_BYTES], slack[UNITS_TEXT_BYTES], to[32];
    uint64_t unused = slack_beyond(in);

    if (!known(in->others_bytes) || !known(in->total_bytes) || !unused ||
        in->others_bytes < in->total_bytes / 100 * OTHERS_PERCENT ||
        r->settings.conf.keys & ALLOC_CONF_FRACTION || in->others_bytes >= in->total_bytes)
        return;
    snprintf(to, sizeof(to), "%.2f",
             (double)(in->total_bytes - in->others_bytes) / (double)in->total_bytes * 0.95);
    advice_add(r->list, "set_per_process_memory_fraction", NULL, to, ANALYSIS_UNKNOWN, "low",
               "other processes hold %s of this card, and this one's cache keeps %s that it does "
               "not use",
               units_format_bytes(text, in->others_bytes, UNITS_AUTO),
               units_format_bytes(slack, unused, UNITS_AUTO));
    more_in(r, "breakdown");
}

/* Values: 0 off, 1 erase (default), 2 avoid, 3 erase optimised. Source: torch_npu's OptionsManager.
 */
static void rule_streams(struct rules *r)
{
    const struct advise_input *in = r->in;
    const char *now = variable(r, "MULTI_STREAM_MEMORY_REUSE");
    char text[UNITS_TEXT_BYTES];

    if (!known(in->active_bytes) || !known(in->allocated_bytes) ||
        in->active_bytes < in->allocated_bytes + STREAM_DELAYED_BYTES)
        return;
    if (now && strcmp(now, "0") != 0 && strcmp(now, "1") != 0)
        return;
    uint64_t delayed = in->active_bytes - in->allocated_bytes;
    advice_add(r->list, "MULTI_STREAM_MEMORY_REUSE", now, now && *now == '0' ? "1" : "2", delayed,
               confidence(r, "medium"), "%s were freed and wait for another stream",
               units_format_bytes(text, delayed, UNITS_AUTO));
    more_in(r, "ls");
}

/* Type 3 merges blocks. Source: ATB's documentation: 0 to 3, default 1. */
static void rule_atb(struct rules *r)
{
    const struct advise_input *in = r->in;
    const char *now = variable(r, "ATB_WORKSPACE_MEM_ALLOC_ALG_TYPE");
    char text[UNITS_TEXT_BYTES];

    if (!in->is_atb_known || !in->atb_executions || in->atb_workspace_max_bytes < 64 * MIB ||
        (now && strcmp(now, "3") == 0))
        return;
    advice_add(r->list, "ATB_WORKSPACE_MEM_ALLOC_ALG_TYPE", now, "3", ANALYSIS_UNKNOWN,
               confidence(r, "medium"),
               "one ATB operation uses %s of workspace; type 3 merges blocks that are free beside "
               "each other",
               units_format_bytes(text, in->atb_workspace_max_bytes, UNITS_AUTO));
    more_in(r, "breakdown");
}

static void rule_hccl(struct rules *r)
{
    const struct advise_input *in = r->in;
    const char *text = variable(r, "HCCL_BUFFSIZE");
    char *end, to[24], bytes[UNITS_TEXT_BYTES];
    unsigned long now = HCCL_BUFFSIZE_DEFAULT;

    if (!in->hccl_default_count || in->hccl_default_bytes < HCCL_WORTH_BYTES)
        return;
    if (text) {
        now = strtoul(text, &end, 10);
        if (end == text || *end || !now || now > 1u << 20)
            return; /* HCCL does not take it either */
    }
    unsigned long half = now / 2 < HCCL_BUFFSIZE_LEAST ? HCCL_BUFFSIZE_LEAST : now / 2;
    if (half >= now)
        return;
    snprintf(to, sizeof(to), "%lu", half);
    advice_add(
        r->list, "HCCL_BUFFSIZE", text, to, analysis_scale(in->hccl_default_bytes, now - half, now),
        confidence(r, "medium"), "%u communicators hold %s: twice the buffer size (%lu MB) each",
        in->hccl_default_count, units_format_bytes(bytes, in->hccl_default_bytes, UNITS_AUTO), now);
    more_in(r, "breakdown");
}

static void rule_queue(struct rules *r)
{
    const char *now = variable(r, "TASK_QUEUE_ENABLE");
    char text[UNITS_TEXT_BYTES];

    if (!now || strcmp(now, "2") != 0 || !known(r->in->workspace_bytes) ||
        r->in->workspace_bytes < WORTH_BYTES)
        return;
    advice_add(r->list, "TASK_QUEUE_ENABLE", now, "1", ANALYSIS_UNKNOWN, "low",
               "the workspace of %s is taken on the queue's thread, beside the operators' own: at "
               "level 1 both share",
               units_format_bytes(text, r->in->workspace_bytes, UNITS_AUTO));
    more_in(r, "breakdown");
}

static void rule_sleep(struct rules *r)
{
    const struct advise_input *in = r->in;
    char text[UNITS_TEXT_BYTES];

    if (!in->is_asleep || !known(in->empty_bytes) || in->empty_bytes < WORTH_BYTES)
        return;
    advice_add(r->list, "torch.npu.empty_cache()", NULL, "after sleep", in->empty_bytes, "high",
               "the server sleeps and its cache keeps %s of segments without any block",
               units_format_bytes(text, in->empty_bytes, UNITS_AUTO));
    more_in(r, "frag");
}

static void rule_cycles(struct rules *r)
{
    const struct advise_gc *gc = &r->in->gc;
    char text[UNITS_TEXT_BYTES], largest[UNITS_TEXT_BYTES];

    if (!gc->is_known)
        return;
    if (gc->freed_bytes[2] >= WORTH_BYTES) {
        advice_add(r->list, "gc.collect()", NULL,
                   "at the end of what makes the cycles, or break them", gc->largest_bytes, "high",
                   "%" PRIu64
                   " blocks (%s) were given back only by collections of generation 2, up "
                   "to %s by one: reference cycles held them until then",
                   gc->freed_blocks[2], units_format_bytes(text, gc->freed_bytes[2], UNITS_AUTO),
                   units_format_bytes(largest, gc->largest_bytes, UNITS_AUTO));
        more_in(r, "timeline");
    }
    if (gc->uncollectable[2])
        advice_add(r->list, "gc.garbage", NULL, "look at what is in it", ANALYSIS_UNKNOWN, "medium",
                   "%" PRIu64 " objects could not be collected", gc->uncollectable[2]);
    if (!gc->is_enabled && !gc->freed_bytes[2])
        return; /* frozen or off already */
    if (gc->since_ns >= 600000000000ull && gc->freed_bytes[2] < WORTH_BYTES) {
        double hours = (double)gc->since_ns / 3.6e12;
        double rate = (double)gc->collections[2] / hours;
        if (rate < FULL_COLLECTIONS_PER_HOUR)
            return;
        advice_add(r->list, "gc.freeze()", NULL, "after loading", ANALYSIS_UNKNOWN, "medium",
                   "%" PRIu64 " collections of generation 2 (%.0f an hour) walked all objects and "
                   "gave back no device memory to speak of",
                   gc->collections[2], rate);
        more_in(r, "status");
    }
}

static int rank_of(const struct advice *a)
{
    return strcmp(a->confidence, "high") == 0 ? 0 : strcmp(a->confidence, "medium") == 0 ? 1 : 2;
}

static bool is_before(const struct advice *a, const struct advice *b)
{
    if (rank_of(a) != rank_of(b))
        return rank_of(a) < rank_of(b);
    uint64_t one = known(a->saves_bytes) ? a->saves_bytes : 0;
    uint64_t other = known(b->saves_bytes) ? b->saves_bytes : 0;
    return one > other;
}

static void sort(struct advice_list *list)
{
    for (size_t i = 1; i < list->count; i++) {
        struct advice a = list->items[i];
        size_t at = i;
        for (; at > 0 && is_before(&a, &list->items[at - 1]); at--)
            list->items[at] = list->items[at - 1];
        list->items[at] = a;
    }
}

static bool has_setting(const struct advice_list *list, const char *setting)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].setting, setting) == 0)
            return true;
    return false;
}

/* What the plan of the KV cache says: utilization and what else; not what a rule here says better.
 */
static void rule_budget(struct rules *r)
{
    const struct budget_result *b = r->in->budget;

    for (size_t i = 0; b && i < b->advice.count && r->list->count < ADVICE_MAX; i++)
        if (!has_setting(r->list, b->advice.items[i].setting))
            r->list->items[r->list->count++] = b->advice.items[i];
}

void advise_compute(const struct advise_input *in, struct advise_result *ret)
{
    struct rules r = {.in = in, .list = &ret->advice};

    memset(ret, 0, sizeof(*ret));
    settings_read(&in->settings, &r.settings);
    memcpy(ret->complaint, r.settings.complaint, sizeof(ret->complaint));
    rule_allocator(&r);
    rule_threshold(&r);
    rule_fraction(&r);
    rule_streams(&r);
    rule_atb(&r);
    rule_hccl(&r);
    rule_queue(&r);
    rule_sleep(&r);
    rule_cycles(&r);
    rule_budget(&r);
    sort(&ret->advice);
}

void advise_write(const struct advise_input *in, const struct advise_result *r, struct json *j)
{
    for (size_t i = 0; i < r->advice.count; i++) {
        json_object(j);
        json_ku64(j, "tgid", in->tgid);
        json_kindex(j, "rank", in->rank);
        json_kindex(j, "device", in->device);
        advice_write_members(&r->advice.items[i], j);
        json_end(j);
    }
}
