/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_leaks.c - npumem leaks [--from FILE].
 */
#include <inttypes.h>

#include "ask.h"
#include "doc.h"
#include "recording.h"
#include "rows.h"
#include "trace_file.h"

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
    {"WHY", "evidence", COLUMN_LONG, false},
};

/* Findings that are told in words; the table has all. */
#define VERDICTS_SHOWN 5
#define FRAMES_SHOWN 24

static void print_duration(struct json_object *finding, const char *before, const char *field)
{
    char text[UNITS_TEXT_BYTES];
    int64_t ns = 0;

    if (doc_int(finding, field, &ns))
        printf("%s%s", before, units_format_duration(text, (uint64_t)ns));
}

/* "process 12 (rank 0): leak of OWNER, 300 MiB per hour, full in 2 h: why". */
static void print_verdict(const struct args *args, const struct out *o, struct json_object *f)
{
    char clean[256], bytes[UNITS_TEXT_BYTES];
    int64_t tgid = 0, rank = 0, per_hour = 0, per_cycle = 0;

    doc_int(f, "tgid", &tgid);
    printf("%sprocess %" PRId64, out_on(o, STYLE_BOLD), tgid);
    if (doc_int(f, "rank", &rank))
        printf(" (rank %" PRId64 ")", rank);
    printf(": %s of ", out_clean(clean, sizeof(clean), doc_text(f, "kind", "?")));
    printf("%s", out_clean(clean, sizeof(clean), doc_text(f, "owner", "?")));
    if (doc_int(f, "bytes_per_hour", &per_hour) && per_hour)
        printf(", %s per hour", units_format_signed_bytes(bytes, per_hour, args->units));
    if (doc_int(f, "bytes_per_cycle", &per_cycle))
        printf(", %s per cycle", units_format_signed_bytes(bytes, per_cycle, args->units));
    print_duration(f, ", full in ", "time_to_full_ns");
    print_duration(f, " (", "time_to_full_low_ns");
    print_duration(f, " to ", "time_to_full_high_ns");
    printf("%s:%s %s\n", doc_get(f, "time_to_full_low_ns") ? ")" : "", out_off(o, STYLE_BOLD),
           out_clean(clean, sizeof(clean), doc_text(f, "evidence", "?")));
}

static void print_frames(const struct out *o, struct json_object *finding)
{
    char clean[256];

    if (doc_count(finding, "frames") == 0)
        return;
    printf("\n%sWhere most of %s is allocated%s\n", out_on(o, STYLE_BOLD),
           out_clean(clean, sizeof(clean), doc_text(finding, "owner", "?")),
           out_off(o, STYLE_BOLD));
    for (size_t i = 0; i < doc_count(finding, "frames") && i < FRAMES_SHOWN; i++) {
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
    bool words = !args->quiet && !args->fields.count;
    for (size_t i = 0; words && i < count && i < VERDICTS_SHOWN; i++)
        print_verdict(args, o, doc_item(document, "findings", i));
    if (words)
        printf("\n");
    int code = rows_print(args, o, doc_get(document, "findings"), columns, ARRAY_SIZE(columns));
    for (size_t i = 0; code == EXIT_DONE && words && i < count && (i == 0 || args->verbose); i++)
        print_frames(o, doc_item(document, "findings", i));
    return code;
}

int verb_leaks(const struct args *args)
{
    struct error error = {0};

    if (rows_check_fields(args, columns, ARRAY_SIZE(columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    if (args->from)
        return trace_file_show(args, leaks_recording_write, render);
    struct json_object *parameters = ask_filters(args);
    ask_period(args, parameters);
    if (args->mark)
        json_object_object_add(parameters, "mark", json_object_new_string(args->mark));
    return ask_and_show(args, "Leaks", parameters, NULL, render);
}
