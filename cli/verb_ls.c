/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_ls.c - npumem ls.
 */
#include <inttypes.h>

#include "ask.h"
#include "doc.h"
#include "module_tree.h"
#include "rows.h"

/* What fits a few screens; --limit 0 asks for all. */
#define LIMIT_DEFAULT 100

static const struct column columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, true},
    {"RANK", "rank", COLUMN_NUMBER, true},
    {"DEVICE", "device", COLUMN_NUMBER, true},
    {"LEVEL", "level", COLUMN_TEXT, true},
    {"SIZE", "size_bytes", COLUMN_BYTES, true},
    {"REQUESTED", "requested_bytes", COLUMN_BYTES, false},
    {"OWNER", "owner", COLUMN_LONG, true},
    {"INFERRED", "inferred", COLUMN_BOOL, false},
    {"SOURCE", "source", COLUMN_TEXT, false},
    {"AGE", "age_ns", COLUMN_DURATION, true},
    {"ALLOCATED", "allocated_ns", COLUMN_TIME, false},
    {"LAST ACCESS", "last_access_ns", COLUMN_TIME, false},
    {"ADDRESS", "address", COLUMN_TEXT, true},
    {"HANDLE", "handle", COLUMN_TEXT, false},
    {"STREAM", "stream", COLUMN_TEXT, true},
    {"CALLER", "caller", COLUMN_TEXT, false},
};

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    int code = rows_print(args, o, doc_get(document, "blocks"), columns, ARRAY_SIZE(columns));
    int64_t matched = 0;

    if (code != EXIT_DONE || args->format != FORMAT_TABLE || args->quiet)
        return code;
    for (size_t i = 0; i < doc_count(document, "totals"); i++) {
        struct json_object *total = doc_item(document, "totals", i);
        char level[64], bytes[UNITS_TEXT_BYTES];
        int64_t size = 0, blocks = 0;
        doc_int(total, "bytes", &size);
        doc_int(total, "blocks", &blocks);
        printf("%s%s: %" PRId64 " blocks, %s%s\n", out_on(o, STYLE_DIM),
               out_clean(level, sizeof(level), doc_text(total, "level", "?")), blocks,
               units_format_signed_bytes(bytes, size, args->units), out_off(o, STYLE_DIM));
    }
    if (doc_bool(document, "truncated", false) && doc_int(document, "matched_blocks", &matched))
        printf("%s%zu of %" PRId64 " shown; --limit 0 shows all%s\n", out_on(o, STYLE_DIM),
               doc_count(document, "blocks"), matched, out_off(o, STYLE_DIM));
    return code;
}

int verb_ls(const struct args *args)
{
    struct error error = {0};
    if (args->tree)
        return verb_ls_tree(args);
    if (rows_check_fields(args, columns, ARRAY_SIZE(columns), &error) < 0)
        return fail(EXIT_USAGE, &error);

    struct json_object *parameters = ask_filters(args);
    uint64_t limit = args->limit == UINT64_MAX ? LIMIT_DEFAULT : args->limit;
    json_object_object_add(parameters, "limit", json_object_new_int64((int64_t)limit));
    if (args->min_size_bytes)
        json_object_object_add(parameters, "min_bytes",
                               json_object_new_int64((int64_t)args->min_size_bytes));
    ask_period(args, parameters);
    if (args->streams.count) {
        struct json_object *streams = json_object_new_array();
        for (size_t i = 0; i < args->streams.count; i++)
            json_object_array_add(streams, json_object_new_int64(args->streams.items[i]));
        json_object_object_add(parameters, "stream", streams);
    }
    return ask_and_show(args, "Ls", parameters, NULL, render);
}
