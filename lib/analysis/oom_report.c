/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom_report.c - an out-of-memory report as JSON (docs/FORMATS.md, `oom show`).
 */
#include "oom.h"

static void write_holders(const struct oom_snapshot *s, struct json *j)
{
    json_karray(j, "holders");
    for (size_t i = 0; i < s->holder_count; i++) {
        const struct oom_holder *h = &s->holders[i];
        json_object(j);
        json_ku64(j, "tgid", h->tgid);
        json_kindex(j, "rank", h->rank);
        json_kstr(j, "comm", h->comm);
        json_kstr(j, "container", h->container);
        json_ku64(j, "bytes", h->bytes);
        json_kbool(j, "victim", h->is_victim);
        json_kbool(j, "orphan", h->is_orphan);
        json_end(j);
    }
    json_end(j);
}

static void write_blocks(const char *key, const struct oom_block *blocks, size_t count,
                         struct json *j)
{
    json_karray(j, key);
    for (size_t i = 0; i < count; i++) {
        json_object(j);
        json_khex(j, "address", blocks[i].address);
        json_ku64(j, "size_bytes", blocks[i].size_bytes);
        json_kstr(j, "owner", blocks[i].owner);
        json_kstr(j, "level", blocks[i].level);
        json_khex(j, "stream", blocks[i].stream);
        json_ku64(j, "allocated_ns", blocks[i].allocated_ns);
        json_end(j);
    }
    json_end(j);
}

static void write_call(const struct oom_snapshot *s, struct json *j)
{
    json_ku64(j, "id", s->id);
    json_ku64(j, "failed_ns", s->time_ns);
    json_ku64(j, "last_failed_ns", s->last_time_ns);
    json_ku64(j, "failures", s->failures);
    json_ku64(j, "tgid", s->tgid);
    json_ku64(j, "tid", s->tid);
    json_kindex(j, "rank", s->rank);
    json_kindex(j, "device", s->device);
    json_kstr(j, "comm", s->comm);
    json_kstr(j, "api", s->api[0] ? s->api : NULL);
    json_ki64_or_null(j, "code", s->code != 0, s->code);
    analysis_u64(j, "requested_bytes", s->requested_bytes);
    json_kbool(j, "requested_is_minimum", s->is_requested_minimum);
    json_kbool(j, "recovered", s->is_recovered);
    json_kstr(j, "phase", s->phase[0] ? s->phase : NULL);
    json_kbool(j, "phase_inferred", s->is_phase_inferred);
}

static void write_figures(const struct oom_snapshot *s, const struct oom_result *r, struct json *j)
{
    analysis_u64(j, "total_bytes", s->total_bytes);
    analysis_u64(j, "free_bytes", s->free_bytes);
    analysis_u64(j, "baseline_bytes", r->baseline_bytes);
    json_kbool(j, "baseline_assumed", r->is_baseline_assumed);
    analysis_u64(j, "allowed_bytes", s->allowed_bytes);
    analysis_u64(j, "physical_bytes", s->physical_bytes);
    analysis_u64(j, "reserved_bytes", s->reserved_bytes);
    analysis_u64(j, "allocated_bytes", s->allocated_bytes);
    analysis_u64(j, "active_bytes", s->active_bytes);
    analysis_u64(j, "slack_bytes", r->slack_bytes);
    analysis_u64(j, "holes", s->holes);
    analysis_u64(j, "largest_hole_bytes", s->largest_hole_bytes);
    analysis_u64(j, "pinned_free_bytes", s->slack.pinned_free_bytes);
    analysis_u64(j, "empty_bytes", s->slack.empty_bytes);
    analysis_u64(j, "unmap_bytes", r->unmap_bytes);
    analysis_u64(j, "outside_bytes", r->outside_bytes);
    analysis_u64(j, "foreign_bytes", r->foreign_bytes);
    analysis_u64(j, "short_bytes", r->short_bytes);
}

void oom_write(const struct oom_snapshot *s, const struct oom_result *r, struct json *j)
{
    write_call(s, j);
    json_kstr(j, "verdict", oom_verdict_name(r->verdict));
    json_kstr(j, "reason", r->reason);
    write_figures(s, r, j);
    write_holders(s, j);
    json_karray(j, "owners");
    for (size_t i = 0; i < s->owner_count; i++) {
        json_object(j);
        json_kstr(j, "owner", s->owners[i].name);
        json_kstr(j, "level", s->owners[i].level);
        json_ku64(j, "bytes", s->owners[i].bytes);
        json_ku64(j, "blocks", s->owners[i].blocks);
        json_end(j);
    }
    json_end(j);
    write_blocks("top_blocks", s->top, s->top_count, j);
    write_blocks("recent", s->recent, s->recent_count, j);
    json_karray(j, "frames");
    for (size_t i = 0; i < s->frame_count; i++)
        json_str(j, s->frames[i]);
    json_end(j);
    json_kstr(j, "complaint", r->complaint[0] ? r->complaint : NULL);
    advice_write(&r->advice, j);
}
