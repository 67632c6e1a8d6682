/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advise.c - see advise.h.
 *
 * Owns: the rules, each with the least evidence that it needs. Must not: advise without evidence.
 */
#include "advise_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "units.h"

#define GIB ((uint64_t)1 << 30)
#define STREAM_DELAYED_BYTES (64 * ADVISE_MIB)
#define HCCL_WORTH_BYTES GIB
/* Below this collectives begin to be cut in pieces that cost time. Source: vllm-ascend's own choice
 * for its small groups (50 MB). */
#define HCCL_BUFFSIZE_LEAST 50
/* Collections of the oldest generation per hour from which on freezing is worth a thought. */
#define FULL_COLLECTIONS_PER_HOUR 60
/* A younger process has not shown its rate. */
#define FREEZE_AGE_NS 600000000000ull
/* Source: CPython's gc module, threshold of the oldest generation. */
#define GC_THRESHOLD_DEFAULT 10

void advise_input_init(struct advise_input *ret)
{
    *ret = (struct advise_input){
        .rank = -1,
        .device = -1,
        .reserved_bytes = ANALYSIS_UNKNOWN,
        .allocated_bytes = ANALYSIS_UNKNOWN,
        .active_bytes = ANALYSIS_UNKNOWN,
        .total_bytes = ANALYSIS_UNKNOWN,
        .others_bytes = ANALYSIS_UNKNOWN,
        .outside_bytes = ANALYSIS_UNKNOWN,
        .retry_bytes = ANALYSIS_UNKNOWN,
        .workspace_bytes = ANALYSIS_UNKNOWN,
    };
    settings_read(&ret->settings, &ret->read); /* of nothing: the defaults */
    slack_init(&ret->slack);
}

void advise_more_in(const struct rules *r, const char *verb)
{
    if (r->list->count)
        r->list->items[r->list->count - 1].verb = verb;
}

static const char *variable(const struct rules *r, const char *name)
{
    return settings_variable(&r->in->settings, name);
}

const char *advise_confidence(const struct rules *r, const char *best)
{
    return r->settings->environment_known ? best : "low";
}

/*
 * MULTI_STREAM_MEMORY_REUSE: 0 off, 1 erase (default), 2 avoid, 3 erase optimised (2.14 has it,
 * 2.7.1 not). It is about what collectives use; a program's own record_stream() is not changed by
 * it. Source: torch_npu's OptionsManager and ProcessGroupHCCL; measured: docs/REAL_WHEELS.md.
 */
static void rule_streams(struct rules *r)
{
    const struct advise_input *in = r->in;
    const char *now = variable(r, "MULTI_STREAM_MEMORY_REUSE");
    char text[UNITS_TEXT_BYTES];

    if (!analysis_known(in->active_bytes) || !analysis_known(in->allocated_bytes) ||
        in->active_bytes < in->allocated_bytes + STREAM_DELAYED_BYTES)
        return;
    uint64_t delayed = in->active_bytes - in->allocated_bytes;
    bool is_avoided = now && strcmp(now, "0") != 0 && strcmp(now, "1") != 0;
    units_format_bytes(text, delayed, UNITS_AUTO);
    if (in->communicators && !is_avoided)
        advice_add(r->list, "MULTI_STREAM_MEMORY_REUSE", now, now && *now == '0' ? "1" : "2",
                   ANALYSIS_UNKNOWN, advise_confidence(r, "medium"),
                   "%s were freed and wait for another stream; inputs of collectives need not "
                   "(what the program's own record_stream() keeps does not change)",
                   text);
    else
        advice_add(r->list, "Tensor.record_stream()", NULL,
                   "let the own stream wait for the other one, then drop the tensor", delayed,
                   advise_confidence(r, "medium"),
                   "%s were freed and wait for another stream, and %s", text,
                   is_avoided ? "MULTI_STREAM_MEMORY_REUSE already keeps collectives out of that"
                              : "the process has no communicator whose stream it could be");
    advise_more_in(r, "ls");
}

/* Type 3 merges blocks. Source: ATB's documentation: 0 to 3, default 1. */
static void rule_atb(struct rules *r)
{
    const struct advise_input *in = r->in;
    const char *now = variable(r, "ATB_WORKSPACE_MEM_ALLOC_ALG_TYPE");
    char text[UNITS_TEXT_BYTES];

    if (!in->is_atb_known || !in->atb_executions || in->atb_workspace_max_bytes < 64 * ADVISE_MIB ||
        (now && strcmp(now, "3") == 0))
        return;
    advice_add(r->list, "ATB_WORKSPACE_MEM_ALLOC_ALG_TYPE", now, "3", ANALYSIS_UNKNOWN,
               advise_confidence(r, "medium"),
               "one ATB operation uses %s of workspace; type 3 merges blocks that are free beside "
               "each other",
               units_format_bytes(text, in->atb_workspace_max_bytes, UNITS_AUTO));
    advise_more_in(r, "breakdown");
}

/* Two buffers each: what the setting says, less is never promised for it to be more. */
static void rule_hccl(struct rules *r)
{
    const struct advise_input *in = r->in;
    const char *text = variable(r, "HCCL_BUFFSIZE");
    char to[24], from[24], bytes[UNITS_TEXT_BYTES];
    uint64_t now = r->settings->hccl_mb;

    if (!in->hccl_default_count || in->hccl_default_bytes < HCCL_WORTH_BYTES || !now)
        return; /* a value that is no number HCCL does not take either */
    uint64_t half = now / 2 < HCCL_BUFFSIZE_LEAST ? HCCL_BUFFSIZE_LEAST : now / 2;
    if (half >= now)
        return;
    uint64_t said = 2 * (now - half) * ADVISE_MIB * in->hccl_default_count;
    uint64_t held = analysis_scale(in->hccl_default_bytes, now - half, now);
    snprintf(to, sizeof(to), "%" PRIu64, half);
    snprintf(from, sizeof(from), "%" PRIu64, now);
    advice_add(r->list, "HCCL_BUFFSIZE", text ? from : NULL, to, said < held ? said : held,
               advise_confidence(r, "medium"),
               "%u communicators hold %s: twice the buffer size (%" PRIu64 " MB) each; large "
               "collectives are cut in more pieces",
               in->hccl_default_count,
               units_format_bytes(bytes, in->hccl_default_bytes, UNITS_AUTO), now);
    advise_more_in(r, "breakdown");
}

static void rule_queue(struct rules *r)
{
    const char *now = variable(r, "TASK_QUEUE_ENABLE");
    char text[UNITS_TEXT_BYTES];

    if (!now || strcmp(now, "2") != 0 || !analysis_known(r->in->workspace_bytes) ||
        r->in->workspace_bytes < ADVISE_WORTH_BYTES)
        return;
    advice_add(r->list, "TASK_QUEUE_ENABLE", now, "1", ANALYSIS_UNKNOWN, "low",
               "the workspace of %s is taken on the queue's thread, beside the operators' own: at "
               "level 1 both share",
               units_format_bytes(text, r->in->workspace_bytes, UNITS_AUTO));
    advise_more_in(r, "breakdown");
}

static void rule_sleep(struct rules *r)
{
    const struct advise_input *in = r->in;
    char text[UNITS_TEXT_BYTES];

    if (!in->is_asleep || !analysis_known(in->slack.empty_bytes) ||
        in->slack.empty_bytes < ADVISE_WORTH_BYTES)
        return;
    advice_add(r->list, "torch.npu.empty_cache()", NULL, "after sleep", in->slack.empty_bytes,
               "high", "the server sleeps and its cache keeps %s of segments without any block",
               units_format_bytes(text, in->slack.empty_bytes, UNITS_AUTO));
    advise_more_in(r, "frag");
}

/* Collections of the oldest generation that the collector did not begin by itself, at least: it
 * does so after more than `threshold` of the middle one; 10 by default, and set higher by some. */
static uint64_t collections_asked(const struct advise_gc *gc)
{
    uint64_t threshold =
        gc->threshold < GC_THRESHOLD_DEFAULT ? gc->threshold : GC_THRESHOLD_DEFAULT;
    uint64_t by_itself = gc->collections[1] / (threshold + 1);

    return gc->collections[2] > by_itself ? gc->collections[2] - by_itself : 0;
}

/* A program that collects after each of its units leaves that unit's cycles at most; how long they
 * were there before that is not known, so nothing is promised then. */
static void rule_cycles(struct rules *r)
{
    const struct advise_gc *gc = &r->in->gc;
    char text[UNITS_TEXT_BYTES], largest[UNITS_TEXT_BYTES];
    uint64_t asked = collections_asked(gc);

    if (!gc->is_known || gc->largest_bytes < ADVISE_WORTH_BYTES)
        return;
    units_format_bytes(text, gc->freed_bytes[2], UNITS_AUTO);
    units_format_bytes(largest, gc->largest_bytes, UNITS_AUTO);
    if (asked > gc->collections[2] / 2)
        advice_add(r->list, "reference cycles", NULL, "break them where they are made",
                   ANALYSIS_UNKNOWN, "medium",
                   "%" PRIu64 " blocks (%s) were given back only by collections of generation 2, "
                   "up to %s by one; the program itself called gc.collect() for %" PRIu64
                   " of %" PRIu64 " at least",
                   gc->freed_blocks[2], text, largest, asked, gc->collections[2]);
    else
        advice_add(r->list, "gc.collect()", NULL,
                   "at the end of what makes the cycles, or break them", gc->largest_bytes, "high",
                   "%" PRIu64
                   " blocks (%s) were given back only by collections of generation 2, up "
                   "to %s by one: reference cycles held them until then",
                   gc->freed_blocks[2], text, largest);
    advise_more_in(r, "timeline");
}

static void rule_collector(struct rules *r)
{
    const struct advise_gc *gc = &r->in->gc;

    if (!gc->is_known)
        return;
    if (gc->uncollectable[2])
        advice_add(r->list, "gc.garbage", NULL, "look at what is in it", ANALYSIS_UNKNOWN, "medium",
                   "%" PRIu64 " object%s could not be collected; what they hold stays until the "
                   "process ends",
                   gc->uncollectable[2], gc->uncollectable[2] == 1 ? "" : "s");
    if (gc->is_frozen || (!gc->is_enabled && !gc->freed_bytes[2]))
        return; /* frozen or off already */
    if (gc->since_ns < FREEZE_AGE_NS || gc->freed_bytes[2] >= ADVISE_WORTH_BYTES)
        return;
    double rate = (double)gc->collections[2] / ((double)gc->since_ns / 3.6e12);
    if (rate < FULL_COLLECTIONS_PER_HOUR)
        return;
    advice_add(r->list, "gc.freeze()", NULL, "after loading", ANALYSIS_UNKNOWN, "medium",
               "%" PRIu64 " collections of generation 2 (%.0f an hour) walked all objects and "
               "gave back no device memory to speak of: that is time, not memory",
               gc->collections[2], rate);
    advise_more_in(r, "status");
}

static int rank_of(const struct advice *a)
{
    return strcmp(a->confidence, "high") == 0 ? 0 : strcmp(a->confidence, "medium") == 0 ? 1 : 2;
}

static bool is_before(const struct advice *a, const struct advice *b)
{
    if (rank_of(a) != rank_of(b))
        return rank_of(a) < rank_of(b);
    uint64_t one = analysis_known(a->saves_bytes) ? a->saves_bytes : 0;
    uint64_t other = analysis_known(b->saves_bytes) ? b->saves_bytes : 0;
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
    struct rules r = {.in = in, .settings = &in->read, .list = &ret->advice};

    memset(ret, 0, sizeof(*ret));
    memcpy(ret->complaint, in->read.complaint, sizeof(ret->complaint));
    advise_allocator(&r);
    rule_streams(&r);
    rule_atb(&r);
    rule_hccl(&r);
    rule_queue(&r);
    rule_sleep(&r);
    rule_cycles(&r);
    rule_collector(&r);
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
