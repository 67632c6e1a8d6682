/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_whatif.c - npumem whatif [CONF]... --from FILE.
 */
#include <inttypes.h>
#include <limits.h>
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

int verb_whatif(const struct args *args)
{
    struct trace_file trace;
    struct error error = {0};
    struct timespec now;
    struct out o;
    char host[64] = "", path[PATH_MAX];
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
    gethostname(host, sizeof(host) - 1);
    clock_gettime(CLOCK_REALTIME, &now);
    _cleanup_free_ char *text =
        whatif_text(&trace.reader, args->operands, args->operand_count, host,
                    (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, &error);
    trace_file_close(&trace);
    if (!text)
        return fail(EXIT_USAGE, &error);
    struct json_object *document = json_tokener_parse(text);
    out_init(&o, args);
    code = document ? ask_show(args, &o, document, "settings", render) : EXIT_RUNTIME;
    json_object_put(document);
    return out_finish(&o, code);
}
