/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_whatif.c - npumem whatif [CONF]... --from FILE.
 */
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ask.h"
#include "doc.h"
#include "record.h"
#include "rows.h"
#include "trace_file.h"
#include "whatif_text.h"

static const struct column columns[] = {
    {"SETTING", "setting", COLUMN_TEXT, true},
    {"PEAK RESERVED", "peak_reserved_bytes", COLUMN_BYTES, true},
    {"SAVES", "saves_bytes", COLUMN_BYTES, true},
    {"SEGMENTS", "segments", COLUMN_NUMBER, true},
    {"DRIVER CALLS", "driver_calls", COLUMN_NUMBER, true},
    {"FLUSHES", "flushes", COLUMN_NUMBER, true},
    {"COLLECTIONS", "collections", COLUMN_NUMBER, false},
    {"FAILURES", "failures", COLUMN_NUMBER, true},
    {"PEAK ALLOCATED", "peak_allocated_bytes", COLUMN_BYTES, false},
    {"RESERVED AT END", "reserved_bytes", COLUMN_BYTES, false},
};

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    struct json_object *baseline = doc_get(document, "baseline");
    char setting[256], peak[64];

    if (args->format == FORMAT_TABLE && !args->quiet) {
        const char *name = doc_text(baseline, "setting", "");
        printf("%srecorded under %s: %s peak reserved by the model%s\n\n", out_on(o, STYLE_DIM),
               out_clean(setting, sizeof(setting), name[0] ? name : "no setting"),
               rows_format(peak, sizeof(peak), baseline, &columns[1], args->units),
               out_off(o, STYLE_DIM));
    }
    return rows_print(args, o, doc_get(document, "settings"), columns, ARRAY_SIZE(columns));
}

/* --- several settings at a time, each thread with the trace open on its own --- */

#define THREADS_MAX 16

struct parallel {
    const char *path;
    struct whatif_job *jobs;
    size_t count;
    atomic_size_t next;
    atomic_bool is_over; /* one was refused: the rest is of no use */
};

static void jobs_take(struct parallel *p, struct trace_reader *trace)
{
    size_t i;

    while (!atomic_load(&p->is_over) && (i = atomic_fetch_add(&p->next, 1)) < p->count)
        if (whatif_job_run_at(trace, p->jobs, i) < 0)
            atomic_store(&p->is_over, true);
}

static void *thread_run(void *userdata)
{
    struct parallel *p = userdata;
    struct trace_file own;

    /* without a file of its own the others do its work */
    if (trace_file_open(p->path, &own, NULL) == 0) {
        jobs_take(p, &own.reader);
        trace_file_close(&own);
    }
    return NULL;
}

/* The first job is the caller's own, so that its reader has seen the trace. */
static void run_parallel(void *userdata, struct trace_reader *trace, struct whatif_job *jobs,
                         size_t count)
{
    struct parallel p = {.path = userdata, .jobs = jobs, .count = count};
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t threads[THREADS_MAX];
    size_t started = 0;

    atomic_init(&p.next, 1);
    while (started < THREADS_MAX && started + 1 < count && (long)started + 1 < cpus &&
           pthread_create(&threads[started], NULL, thread_run, &p) == 0)
        started++;
    if (whatif_job_run_at(trace, jobs, 0) < 0)
        atomic_store(&p.is_over, true);
    jobs_take(&p, trace);
    while (started)
        pthread_join(threads[--started], NULL);
}

int verb_whatif(const struct args *args)
{
    struct trace_file trace;
    struct local_moment here = local_moment();
    struct error error = {0};
    char path[PATH_MAX];
    int code;

    if (rows_check_fields(args, columns, ARRAY_SIZE(columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    if (!args->from == !args->tgids.count)
        return fail_with(EXIT_USAGE, "whatif: one trace to work on; try: --from FILE, or --pid PID "
                                     "--for 30s");
    if (args->from)
        snprintf(path, sizeof(path), "%s", args->from);
    else if ((code = record_for(args, path, sizeof(path))) != EXIT_DONE)
        return code;
    if (trace_file_open(path, &trace, &error) < 0)
        return fail(EXIT_RUNTIME, &error);
    _cleanup_free_ char *text = whatif_text(&trace.reader, args->operands, args->operand_count,
                                            run_parallel, path, here.host, here.wall_ns, &error);
    trace_file_close(&trace);
    if (!text)
        return fail(EXIT_USAGE, &error);
    return document_show(args, json_tokener_parse(text), "settings", render);
}
