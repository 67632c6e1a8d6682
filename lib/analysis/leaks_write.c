/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaks_write.c - findings as JSON, the fastest growth first.
 */
#include <stdio.h>
#include <stdlib.h>

#include <errno.h>

#include "cleanup.h"
#include "leak_steps.h"
#include "leaks_internal.h"
#include "sort.h"

#define SURVIVORS_MAX 100

static int compare_finding(const void *a, const void *b)
{
    double x = ((const struct leak_finding *)a)->trend.per_hour;
    double y = ((const struct leak_finding *)b)->trend.per_hour;
    return (x < y) - (x > y);
}

static const char *owner_of(const struct leak_series *s)
{
    static const char *const names[] = {
        [LEAK_ALLOCATED] = "allocated", [LEAK_ACTIVE] = "active", [LEAK_RESERVED] = "reserved",
        [LEAK_DEVICE] = "physical",     [LEAK_HOST] = "host",
    };
    return s->owner ? s->owner : names[s->source] ? names[s->source] : "unknown";
}

/* Where what has grown was allocated. */
static void write_blocks(const struct leak_input *in, const struct leak_series *s,
                         uint64_t since_ns, struct json *j)
{
    struct leak_blocks b = {.blocks = 0};
    bool known =
        in->blocks_fn && s->source != LEAK_HOST && in->blocks_fn(in->userdata, s, since_ns, &b);

    json_karray(j, "frames");
    for (size_t i = 0; i < b.frame_count; i++)
        json_str(j, b.frames[i]);
    json_end(j);
    analysis_u64(j, "frames_bytes", b.frame_count ? b.frames_bytes : ANALYSIS_UNKNOWN);
    analysis_u64(j, "new_blocks", known ? b.blocks : ANALYSIS_UNKNOWN);
    analysis_u64(j, "new_bytes", known ? b.bytes : ANALYSIS_UNKNOWN);
    json_karray(j, "streams");
    for (size_t i = 0; i < b.stream_count; i++) {
        char text[24];
        snprintf(text, sizeof(text), "0x%llx", (unsigned long long)b.streams[i]);
        json_str(j, text);
    }
    json_end(j);
}

static void write_finding(const struct leak_input *in, const struct leak_finding *f, struct json *j)
{
    json_object(j);
    json_ku64(j, "tgid", f->series->tgid);
    json_kindex(j, "rank", f->series->rank);
    json_kindex(j, "device", f->series->device);
    json_kstr(j, "owner", owner_of(f->series));
    json_kstr(j, "level", f->series->level);
    json_kstr(j, "kind", f->kind);
    json_ki64(j, "bytes_per_hour", (int64_t)f->trend.per_hour);
    json_ki64(j, "bytes_per_hour_low", (int64_t)f->trend.per_hour_low);
    json_ki64(j, "bytes_per_hour_high", (int64_t)f->trend.per_hour_high);
    json_ki64_or_null(j, "bytes_per_cycle", f->cycles != 0, (int64_t)f->per_cycle);
    analysis_u64(j, "cycles", f->cycles ? f->cycles : ANALYSIS_UNKNOWN);
    json_kstr(j, "cycle_source", f->cycles ? f->cycle_source : NULL);
    json_kdouble(j, "r2", f->trend.r2);
    json_ki64(j, "from_bytes", f->trend.first);
    json_ki64(j, "to_bytes", f->trend.last);
    json_ku64(j, "window_ns", f->trend.span_ns);
    analysis_u64(j, "time_to_full_ns", f->full_ns);
    analysis_u64(j, "time_to_full_low_ns", f->full_low_ns);
    analysis_u64(j, "time_to_full_high_ns", f->full_high_ns);
    write_blocks(in, f->series, f->since_ns, j);
    json_kstr(j, "evidence", f->evidence);
    json_end(j);
}

/* Steps that left something, whether that is a leak or not. */
static int write_survivors(const struct leak_input *in, struct json *j)
{
    uint32_t count = in->steps ? in->steps->survivors.count : 0, n = 0;
    _cleanup_free_ struct sort_key *keys = malloc((count + 1) * sizeof(*keys));

    if (!keys)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        n = map_next(&in->steps->survivors, n);
        const struct leak_survivor *v = map_at(&in->steps->survivors, n);
        keys[i] = (struct sort_key){~v->bytes, n};
    }
    int r = sort_keys(keys, count);
    json_karray(j, "survivors");
    for (uint32_t i = 0; r == 0 && i < count && i < SURVIVORS_MAX; i++) {
        const struct leak_survivor *v = map_at(&in->steps->survivors, keys[i].index);
        json_object(j);
        json_ku64(j, "tgid", v->of.tgid);
        json_kindex(j, "rank", v->of.rank);
        json_kindex(j, "device", v->of.device);
        json_kstr(j, "owner", v->of.owner);
        json_kstr(j, "level", v->of.level);
        json_ku64(j, "steps", v->steps);
        json_ku64(j, "of_steps", v->step_count);
        json_ku64(j, "blocks", v->blocks);
        json_ku64(j, "bytes", v->bytes);
        json_ku64(j, "bytes_per_step", v->bytes_per_step);
        json_kbool(j, "leak", v->is_leak);
        json_end(j);
    }
    json_end(j);
    return r;
}

int leaks_write(const struct leak_input *in, struct json *j)
{
    struct leak_findings fs = {.items = NULL};
    int r = leaks_judge(in, &fs);

    if (r == 0) {
        if (fs.count)
            qsort(fs.items, fs.count, sizeof(*fs.items), compare_finding);
        json_karray(j, "findings");
        for (size_t i = 0; i < fs.count; i++)
            write_finding(in, &fs.items[i], j);
        json_end(j);
        r = write_survivors(in, j);
        json_kobject(j, "judged");
        json_ku64(j, "series", in->count);
        json_ku64(j, "too_short", fs.too_short);
        json_ku64(j, "least_ns", in->least_ns);
        json_end(j);
    }
    free(fs.items);
    return r;
}
