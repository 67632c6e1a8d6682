/* SPDX-License-Identifier: Apache-2.0 */
/*
 * whatif.c - see whatif.h.
 *
 * A block event names the size of the block, which without expandable segments may be more than
 * what was asked for: a rest of at most 1 MiB is not split off. The request is then not known. It
 * is taken to be the block's size, or requested_bytes where the trace has it.
 */
#include "whatif.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "map.h"

struct live {
    struct map_key key;
    struct alloc_block *block;
};

struct replay {
    struct alloc_model *model;
    const struct alloc_conf *conf;
    struct map live;
    struct whatif_result *result;
    uint64_t recorded_reserved, recorded_segments;
    struct map segments; /* address -> bytes */
    bool is_full;        /* a call was refused since the last block: what follows is a flush */
    bool in_flush;
};

struct segment {
    struct map_key key;
    uint64_t bytes;
};

static void segment_event(struct replay *r, const struct nm_trace_record *e)
{
    uint32_t n = map_find(&r->segments, e->address, 0);

    if (e->kind == NM_TRACE_SEGMENT_ALLOC) {
        if (n || map_add(&r->segments, e->address, 0, &n) < 0)
            return;
        struct segment *s = map_at(&r->segments, n);
        s->bytes = e->size_bytes;
        r->recorded_reserved += e->size_bytes;
        if (++r->recorded_segments > r->result->recorded_segments)
            r->result->recorded_segments = r->recorded_segments;
        if (r->recorded_reserved > r->result->recorded_peak_bytes)
            r->result->recorded_peak_bytes = r->recorded_reserved;
        return;
    }
    if (n) {
        const struct segment *s = map_at(&r->segments, n);
        r->recorded_reserved -= s->bytes;
        r->recorded_segments--;
        map_remove(&r->segments, n);
    }
    /* the first of a run that no refusal explains: the program emptied the cache */
    if (!r->is_full && !r->in_flush)
        alloc_model_empty_cache(r->model);
    r->in_flush = true;
}

static int block_malloc(struct replay *r, const struct nm_trace_record *e)
{
    uint32_t n = map_find(&r->live, e->address, 0);
    uint64_t bytes =
        e->requested_bytes ? alloc_model_round(r->conf, e->requested_bytes) : e->size_bytes;
    struct alloc_block *block;

    if (n) { /* its end was lost */
        r->result->reused_addresses++;
        alloc_model_reuse(r->model, ((struct live *)map_at(&r->live, n))->block);
        map_remove(&r->live, n);
    }
    int k = alloc_model_malloc(r->model, bytes, e->stream, &block);
    if (k == -ENOSPC)
        return 0; /* counted; the replayed process would have failed here */
    if (k < 0)
        return k;
    k = map_add(&r->live, e->address, 0, &n);
    if (k == 0)
        ((struct live *)map_at(&r->live, n))->block = block;
    return k;
}

static int block_event(struct replay *r, const struct nm_trace_record *e)
{
    uint32_t n;

    r->is_full = r->in_flush = false;
    if (e->kind == NM_TRACE_BLOCK_MALLOC)
        return e->size_bytes ? block_malloc(r, e) : 0;
    n = map_find(&r->live, e->address, 0);
    if (!n) {
        /* a FREE that follows its DONE is of the same block */
        r->result->unknown_frees += e->kind == NM_TRACE_BLOCK_DONE;
        return 0;
    }
    struct live *live = map_at(&r->live, n);
    if (e->kind == NM_TRACE_BLOCK_FREE) {
        alloc_model_release(r->model, live->block);
        return 0;
    }
    alloc_model_reuse(r->model, live->block);
    map_remove(&r->live, n);
    return 0;
}

static int record(struct replay *r, const struct nm_trace_record *e)
{
    switch (e->kind) {
    case NM_TRACE_BLOCK_MALLOC:
    case NM_TRACE_BLOCK_FREE:
    case NM_TRACE_BLOCK_DONE:
        return e->component == NM_BLOCK_CACHING ? block_event(r, e) : 0;
    case NM_TRACE_SEGMENT_ALLOC:
    case NM_TRACE_SEGMENT_FREE:
        segment_event(r, e);
        return 0;
    case NM_TRACE_FAILED:
        r->is_full = true;
        return 0;
    case NM_TRACE_EMPTY_CACHE:
        alloc_model_empty_cache(r->model);
        r->in_flush = true;
        return 0;
    default:
        return 0;
    }
}

int whatif_replay(struct trace_reader *trace, const struct alloc_model_options *options,
                  struct whatif_result *ret)
{
    _cleanup_(alloc_model_freep) struct alloc_model *model = NULL;
    struct replay r = {.result = ret};
    struct nm_trace_record e;
    char setting[sizeof(ret->setting)];
    int k = alloc_model_new(options, &model);

    if (k < 0)
        return k;
    memcpy(setting, ret->setting, sizeof(setting));
    *ret = (struct whatif_result){0};
    memcpy(ret->setting, setting, sizeof(setting));
    r.model = model;
    r.conf = &options->conf;
    map_init(&r.live, sizeof(struct live), 10, NULL);
    map_init(&r.segments, sizeof(struct segment), 8, NULL);
    trace_rewind(trace);
    while (k == 0 && trace_next(trace, &e) > 0)
        k = record(&r, &e);
    alloc_model_stats(model, &ret->stats);
    ret->is_complete = trace_complete(trace) && !trace->out_of_order && !ret->reused_addresses;
    map_clear(&r.live);
    map_clear(&r.segments);
    return k;
}

/* What is worth trying: the settings that people use, at the values that make a difference. */
static const char *const grid[] = {
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "large_segment_size_mb:64",
    "expandable_segments:True,large_segment_size_mb:64",
    "roundup_power2_divisions:8",
};

#define SETTINGS_MAX 64

int whatif_job_run(struct trace_reader *trace, struct whatif_job *job)
{
    struct alloc_model_options o = *job->options;
    struct whatif_result *ret = &job->result;

    job->r = alloc_conf_parse(job->setting, &o.conf, &job->error);
    if (job->r < 0)
        return job->r;
    memset(ret, 0, sizeof(*ret));
    snprintf(ret->setting, sizeof(ret->setting), "%s", job->setting);
    if (!o.card_bytes)
        o.card_bytes = trace->header.card_bytes;
    if (!o.available_bytes)
        o.available_bytes = trace->header.available_bytes;
    if (!o.fraction && o.conf.keys & ALLOC_CONF_FRACTION)
        o.fraction = o.conf.memory_fraction;
    job->r = whatif_replay(trace, &o, ret);
    if (job->r == -E2BIG)
        error_set(&job->error, E2BIG, "the recording has blocks on too many streams of a device");
    return job->r;
}

static void run_in_turn(void *userdata, struct trace_reader *trace, struct whatif_job *jobs,
                        size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (whatif_job_run(trace, &jobs[i]) < 0)
            return;
}

static void write_result(const struct whatif_result *w, struct json *j)
{
    json_kstr(j, "setting", w->setting);
    json_ku64(j, "peak_reserved_bytes", w->stats.peak_reserved_bytes);
    json_ku64(j, "peak_allocated_bytes", w->stats.peak_allocated_bytes);
    json_ku64(j, "reserved_bytes", w->stats.reserved_bytes);
    json_ku64(j, "segments", w->stats.peak_segments);
    json_ku64(j, "driver_calls", w->stats.driver_calls);
    json_ku64(j, "flushes", w->stats.flushes);
    json_ku64(j, "collections", w->stats.collections);
    json_ku64(j, "failures", w->stats.failures);
    json_ku64(j, "requests", w->stats.requests);
}

static bool is_better(const struct whatif_result *a, const struct whatif_result *b)
{
    if (a->stats.failures != b->stats.failures)
        return a->stats.failures < b->stats.failures;
    if (a->stats.peak_reserved_bytes != b->stats.peak_reserved_bytes)
        return a->stats.peak_reserved_bytes < b->stats.peak_reserved_bytes;
    return a->stats.driver_calls < b->stats.driver_calls;
}

/* The recorded setting and each other one once. Returns the number of jobs. */
static size_t jobs_make(const struct trace_reader *trace, const char *const *settings, size_t count,
                        const struct alloc_model_options *options, struct whatif_job *jobs,
                        size_t *ret_of)
{
    size_t n = 1;

    jobs[0] = (struct whatif_job){.setting = trace->header.conf, .options = options};
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < n && strcmp(jobs[k].setting, settings[i]) != 0)
            k++;
        if (k == n)
            jobs[n++] = (struct whatif_job){.setting = settings[i], .options = options};
        ret_of[i] = k;
    }
    return n;
}

static void write_settings(const struct whatif_job *jobs, const size_t *of, size_t count,
                           bool is_search, struct json *j)
{
    const struct whatif_result *baseline = &jobs[0].result, *sorted[SETTINGS_MAX];

    for (size_t i = 0; i < count; i++) {
        size_t at = i;
        for (; is_search && at > 0 && is_better(&jobs[of[i]].result, sorted[at - 1]); at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = &jobs[of[i]].result;
    }
    json_karray(j, "settings");
    for (size_t i = 0; i < count; i++) {
        json_object(j);
        write_result(sorted[i], j);
        json_ki64(j, "saves_bytes",
                  (int64_t)baseline->stats.peak_reserved_bytes -
                      (int64_t)sorted[i]->stats.peak_reserved_bytes);
        json_end(j);
    }
    json_end(j);
}

static void write_baseline(const struct trace_reader *trace, const struct whatif_result *baseline,
                           struct json *j)
{
    char missing[ANALYSIS_TEXT_BYTES];

    json_kbool(j, "trace_complete", baseline->is_complete);
    json_ku64(j, "records", trace->count);
    json_ku64(j, "lost_records", trace->lost_events);
    trace_missing(trace, missing, sizeof(missing));
    json_kstr(j, "missing", missing[0] ? missing : NULL);
    json_ku64(j, "unknown_frees", baseline->unknown_frees);
    json_kobject(j, "baseline");
    write_result(baseline, j);
    json_ku64(j, "recorded_peak_reserved_bytes", baseline->recorded_peak_bytes);
    json_ku64(j, "recorded_segments", baseline->recorded_segments);
    json_end(j);
}

int whatif_write(struct trace_reader *trace, const char *const *settings, size_t count,
                 const struct alloc_model_options *options, whatif_run_fn run_fn, void *userdata,
                 struct json *j, struct error *reterr)
{
    _cleanup_free_ struct whatif_job *jobs = calloc(SETTINGS_MAX + 1, sizeof(*jobs));
    size_t of[SETTINGS_MAX], n;
    bool is_search = count == 0;

    if (!jobs)
        return -ENOMEM;
    if (is_search) {
        settings = grid;
        count = ARRAY_SIZE(grid);
    }
    if (count > SETTINGS_MAX)
        return error_set(reterr, E2BIG, "at most %d settings at once", SETTINGS_MAX);
    n = jobs_make(trace, settings, count, options, jobs, of);
    (run_fn ? run_fn : run_in_turn)(userdata, trace, jobs, n);
    for (size_t i = 0; i < n; i++) {
        if (jobs[i].r < 0 && reterr)
            *reterr = jobs[i].error;
        if (jobs[i].r < 0)
            return jobs[i].r;
    }
    write_baseline(trace, &jobs[0].result, j);
    write_settings(jobs, of, count, is_search, j);
    return 0;
}
