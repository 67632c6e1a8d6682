/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_leaks.c - npumem leaks.
 */
#include <inttypes.h>

#include "ask.h"
#include "doc.h"
#include "rows.h"

static const struct column columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, true},
    {"RANK", "rank", COLUMN_NUMBER, true},
    {"DEVICE", "device", COLUMN_NUMBER, true},
    {"OWNER", "owner", COLUMN_TEXT, true},
    {"LEVEL", "level", COLUMN_TEXT, false},
    {"KIND", "kind", COLUMN_TEXT, true},
    {"PER HOUR", "bytes_per_hour", COLUMN_BYTES, true},
    {"PER HOUR LOW", "bytes_per_hour_low", COLUMN_BYTES, false},
    {"PER HOUR HIGH", "bytes_per_hour_high", COLUMN_BYTES, false},
    {"PER CYCLE", "bytes_per_cycle", COLUMN_BYTES, true},
    {"CYCLES", "cycles", COLUMN_NUMBER, false},
    {"R2", "r2", COLUMN_RATIO, false},
    {"FULL IN", "time_to_full_ns", COLUMN_DURATION, true},
    {"AT SOONEST", "time_to_full_low_ns", COLUMN_DURATION, false},
    {"AT LATEST", "time_to_full_high_ns", COLUMN_DURATION, false},
    {"FROM", "from_bytes", COLUMN_BYTES, false},
    {"TO", "to_bytes", COLUMN_BYTES, false},
    {"SEEN FOR", "window_ns", COLUMN_DURATION, true},
    {"WHY", "evidence", COLUMN_LONG, true},
};

static void print_frames(const struct out *o, struct json_object *finding)
{
    char clean[256];

    if (doc_count(finding, "frames") == 0)
        return;
    printf("\n%sWhere most of %s is allocated%s\n", out_on(o, STYLE_BOLD),
           out_clean(clean, sizeof(clean), doc_text(finding, "owner", "?")),
           out_off(o, STYLE_BOLD));
    for (size_t i = 0; i < doc_count(finding, "frames"); i++) {
        struct json_object *frame = doc_item(finding, "frames", i);
        const char *text =
            json_object_is_type(frame, json_type_string) ? json_object_get_string(frame) : "?";
        printf("  %s\n", out_clean(clean, sizeof(clean), text));
    }
}

/* Nothing found is an answer only for what was long enough to judge. */
static void print_none(const struct args *args, struct json_object *document)
{
    struct json_object *judged = doc_get(document, "judged");
    int64_t series = 0, too_short = 0, least_ns = 0;
    char least[UNITS_TEXT_BYTES];

    doc_int(judged, "series", &series);
    doc_int(judged, "too_short", &too_short);
    doc_int(judged, "least_ns", &least_ns);
    if (series == 0)
        printf("no samples in this window: nothing can be said\n");
    else if (series == too_short)
        printf("too early to tell: %" PRId64 " series, none seen for %s yet\n", series,
               units_format_duration(least, (uint64_t)least_ns));
    else
        printf("nothing grows for good in %" PRId64 " series (%" PRId64 " too short to tell)\n",
               series, too_short);
}

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    size_t count = doc_count(document, "findings");

    if (args->format != FORMAT_TABLE)
        return rows_print(args, o, doc_get(document, "findings"), columns, ARRAY_SIZE(columns));
    if (count == 0) {
        print_none(args, document);
        return EXIT_DONE;
    }
    int code = rows_print(args, o, doc_get(document, "findings"), columns, ARRAY_SIZE(columns));
    for (size_t i = 0; code == EXIT_DONE && !args->quiet && i < count; i++)
        print_frames(o, doc_item(document, "findings", i));
    return code;
}

int verb_leaks(const struct args *args)
{
    struct error error = {0};

    if (rows_check_fields(args, columns, ARRAY_SIZE(columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    struct json_object *parameters = ask_filters(args);
    if (args->since_ns)
        json_object_object_add(parameters, "since_ns", json_object_new_int64(args->since_ns));
    if (args->until_ns)
        json_object_object_add(parameters, "until_ns", json_object_new_int64(args->until_ns));
    if (args->mark)
        json_object_object_add(parameters, "mark", json_object_new_string(args->mark));
    return ask_and_show(args, "Leaks", parameters, NULL, render);
}
