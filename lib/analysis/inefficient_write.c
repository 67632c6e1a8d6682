/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inefficient_write.c - the document of `inefficient`: verdict, what could not be seen, findings.
 *
 * Invariant: a window that shows no use of memory at all shows no idle memory either.
 */
#include "inefficient_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cleanup.h"
#include "units.h"

#define FRAMES_MAX 128 /* more than the kernel sends of one stack */

static const char *const kind_names[INEFFICIENT_KIND_COUNT] = {
    [INEFFICIENT_EARLY] = "early_allocation",
    [INEFFICIENT_LATE] = "late_deallocation",
    [INEFFICIENT_IDLE] = "temporary_idleness",
};

/* Memory is used without being seen: a finding may be used by it. */
static bool is_hiding(const struct inefficient_window *w)
{
    return w->seen.graph_count || w->seen.opaque_count || w->seen.failed_count;
}

static uint64_t work_ns(const struct inefficient_window *w)
{
    return 1000ull * nm_access_us(w->seen.clock);
}

static void write_window(const struct inefficient *i, const struct inefficient_window *w,
                         const struct inefficient_text *text, struct json *j)
{
    json_kobject(j, "window");
    json_ku64(j, "tgid", w->tgid);
    json_kindex(j, "rank", w->rank);
    json_ku64(j, "begin_ns", text->wall_fn(text->userdata, w->begin_ns));
    json_ku64(j, "end_ns", text->wall_fn(text->userdata, w->end_ns));
    json_ku64(j, "asked_ns", w->asked_ns);
    json_ku64(j, "work_ns", work_ns(w));
    json_kbool(j, "ended_early", w->is_ended_early);
    json_ku64(j, "operations", w->seen.operation);
    json_ku64(j, "uses", w->seen.use_count);
    json_ku64(j, "unknown_addresses", w->seen.unknown_count);
    json_ku64(j, "graph_launches", w->seen.graph_count);
    json_ku64(j, "opaque_calls", w->seen.opaque_count);
    json_ku64(j, "blocks", i->block_count);
    json_ku64(j, "used_blocks", i->used_count);
    json_ku64(j, "held_byte_seconds", i->held_byte_seconds);
    json_ku64(j, "functions", w->functions);
    json_end(j);
}

/* byte-seconds as "1.25 GiB s". */
static const char *cost_text(char *ret, uint64_t byte_seconds)
{
    units_format_bytes(ret, byte_seconds, UNITS_AUTO);
    return ret;
}

static void write_verdict(const struct inefficient *i, const struct inefficient_window *w,
                          struct json *j)
{
    char line[ANALYSIS_TEXT_BYTES], idle[UNITS_TEXT_BYTES], held[UNITS_TEXT_BYTES];
    uint64_t cost = 0, blocks = 0;
    int worst = 0;

    for (int k = 0; k < INEFFICIENT_KIND_COUNT; k++) {
        cost += i->totals[k].byte_seconds;
        blocks += i->totals[k].blocks;
        if (i->totals[k].byte_seconds > i->totals[worst].byte_seconds)
            worst = k;
    }
    if (!w->functions)
        snprintf(line, sizeof(line),
                 "the process maps no library of operators or copies: how its "
                 "memory is used cannot be seen");
    else if (!w->seen.use_count && w->seen.graph_count)
        snprintf(line, sizeof(line),
                 "only captured graphs ran, %" PRIu64 " times: what they use "
                 "cannot be seen",
                 (uint64_t)w->seen.graph_count);
    else if (!w->seen.use_count)
        snprintf(line, sizeof(line),
                 "no operation used known memory in the window: nothing can be said");
    else if (!blocks)
        snprintf(line, sizeof(line),
                 "no block was held without use: %" PRIu64 " blocks, %" PRIu64 " operations",
                 i->block_count, (uint64_t)w->seen.operation);
    else
        snprintf(line, sizeof(line),
                 "%" PRIu64 " findings: %s x seconds idle of %s x seconds held (%.1f %%), most of "
                 "it %s",
                 blocks, cost_text(idle, cost), cost_text(held, i->held_byte_seconds),
                 i->held_byte_seconds ? 100.0 * cost / i->held_byte_seconds : 0, kind_names[worst]);
    json_kstr(j, "verdict", line);
}

__attribute__((format(printf, 2, 3))) static void note(struct json *j, const char *format, ...)
{
    char line[ANALYSIS_TEXT_BYTES];
    va_list ap;

    va_start(ap, format);
    vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    json_str(j, line);
}

/* What the window did not show. */
static void write_hidden(const struct inefficient *i, const struct inefficient_window *w,
                         struct json *j)
{
    const struct nm_access_window *s = &w->seen;
    char text[UNITS_TEXT_BYTES];

    json_karray(j, "hidden");
    if (s->graph_count)
        note(j,
             "%" PRIu64 " launches of captured graphs or models: the memory that they use is not "
             "seen, and may be among the findings",
             (uint64_t)s->graph_count);
    if (s->opaque_count)
        note(j, "%" PRIu64 " calls with lists of addresses that are not read",
             (uint64_t)s->opaque_count);
    if (s->failed_count)
        note(j, "%" PRIu64 " ATB operations whose tensors could not be read",
             (uint64_t)s->failed_count);
    if (s->unknown_count)
        note(j,
             "%" PRIu64 " uses of memory that is in no known block (host memory, or from before "
             "the window)",
             (uint64_t)s->unknown_count);
    if (s->full_count)
        note(j, "%" PRIu64 " blocks found no room: the window follows at most %u at a time",
             (uint64_t)s->full_count, NM_ACCESS_BLOCKS_MAX);
    if (w->hidden_bytes)
        note(j, "%s of blocks from before the window are not known one by one",
             units_format_bytes(text, w->hidden_bytes, UNITS_AUTO));
    if (w->lost_events)
        note(j, "%" PRIu64 " events were lost: blocks freed then are missing", w->lost_events);
    if (i->bad_count)
        note(j, "%" PRIu64 " blocks had times that contradict themselves", i->bad_count);
    json_end(j);
}

static void write_totals(const struct inefficient *i, bool is_blind, struct json *j)
{
    json_karray(j, "totals");
    for (int k = 0; !is_blind && k < INEFFICIENT_KIND_COUNT; k++) {
        json_object(j);
        json_kstr(j, "kind", kind_names[k]);
        json_ku64(j, "blocks", i->totals[k].blocks);
        json_ku64(j, "bytes", i->totals[k].bytes);
        json_ku64(j, "byte_seconds", i->totals[k].byte_seconds);
        json_end(j);
    }
    json_end(j);
}

/* null: before the window. */
static void write_operations(const struct nm_access *a, uint32_t idle_op, struct json *j)
{
    json_kobject(j, "operations");
    json_ku64_or_null(j, "allocated", !(a->flags & NM_ACCESS_HELD), a->alloc_op);
    json_ku64_or_null(j, "first_use", a->count != 0, a->first_op);
    json_ku64_or_null(j, "last_use", a->count != 0, a->last_op);
    json_ku64_or_null(j, "freed", (a->flags & NM_ACCESS_FREED) != 0, a->end_op);
    json_ku64(j, "idle", idle_op);
    json_end(j);
}

static void write_frames(const struct inefficient_window *w, const struct inefficient_text *text,
                         uint32_t stack, struct json *j)
{
    const char *frames[FRAMES_MAX];
    size_t n = stack && text->frames_fn
                   ? text->frames_fn(text->userdata, w->tgid, stack, frames, FRAMES_MAX)
                   : 0;

    json_karray(j, "frames");
    for (size_t k = 0; k < n; k++)
        json_str(j, frames[k]);
    json_end(j);
}

/* null: none is known, or the block came within the window. */
static void write_name(const struct inefficient_block *b, const struct inefficient_window *w,
                       const struct inefficient_text *text, struct json *j)
{
    char name[ANALYSIS_TEXT_BYTES];
    bool is_known = (b->life.flags & NM_ACCESS_HELD) && text->name_fn &&
                    text->name_fn(text->userdata, w, b, name, sizeof(name));

    json_kstr(j, "name", is_known ? name : NULL);
}

static void write_finding(const struct inefficient_finding *f, const struct inefficient_window *w,
                          const struct inefficient_text *text, struct json *j)
{
    const struct inefficient_block *b = &f->block;
    const struct nm_access *a = &b->life;

    json_object(j);
    json_ku64(j, "tgid", w->tgid);
    json_kindex(j, "rank", w->rank);
    json_kindex(j, "device", b->device);
    json_khex(j, "address", a->address);
    json_ku64(j, "size_bytes", b->size_bytes);
    json_kstr(j, "owner", text->owner_fn ? text->owner_fn(text->userdata, b->owner) : NULL);
    write_name(b, w, text, j);
    json_kstr(j, "kind", kind_names[f->kind]);
    json_ku64(j, "idle_ns", f->idle_us * 1000ull);
    json_kdouble(j, "idle_ratio", f->idle_ratio);
    json_ku64(j, "byte_seconds", f->byte_seconds);
    json_karray(j, "senses");
    if (f->by_operations)
        json_str(j, "operations");
    if (f->by_time)
        json_str(j, "time");
    json_end(j);
    write_operations(a, f->idle_op, j);
    json_ku64(j, "uses", a->count);
    json_kbool(j, "freed", (a->flags & NM_ACCESS_FREED) != 0);
    json_kbool(j, "held_before", (a->flags & NM_ACCESS_HELD) != 0);
    json_kbool(j, "threads", (a->flags & NM_ACCESS_THREADS) != 0);
    json_kbool(j, "inferred", is_hiding(w));
    json_khex(j, "stream", a->stream);
    json_ku64_or_null(j, "allocated_ns", b->allocated_ns != 0,
                      b->allocated_ns ? text->wall_fn(text->userdata, b->allocated_ns) : 0);
    write_frames(w, text, b->stack, j);
    json_end(j);
}

int inefficient_write(struct inefficient *i, const struct inefficient_window *w,
                      const struct inefficient_text *text, uint32_t limit, struct json *j)
{
    bool is_blind = !w->seen.use_count || !w->functions;
    size_t shown = is_blind ? 0 : i->count < limit ? i->count : limit;
    uint64_t matched = 0;

    for (int k = 0; !is_blind && k < INEFFICIENT_KIND_COUNT; k++)
        matched += i->totals[k].blocks;
    if (i->count)
        qsort(i->findings, i->count, sizeof(*i->findings), inefficient_compare);
    write_verdict(i, w, j);
    write_window(i, w, text, j);
    write_hidden(i, w, j);
    write_totals(i, is_blind, j);
    json_karray(j, "findings");
    for (size_t k = 0; k < shown; k++)
        write_finding(&i->findings[k], w, text, j);
    json_end(j);
    json_ku64(j, "matched_findings", matched);
    json_kbool(j, "truncated", matched > shown);
    return j->error;
}
