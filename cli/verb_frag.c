/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_frag.c - npumem frag [--request SIZE] [--from FILE [--at TIME]].
 */
#include <inttypes.h>

#include "ask.h"
#include "doc.h"
#include "recording.h"
#include "rows.h"
#include "trace_file.h"

#define PINS_SHOWN 20

static const struct column columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, true},
    {"RANK", "rank", COLUMN_NUMBER, true},
    {"DEVICE", "device", COLUMN_NUMBER, true},
    {"POOL", "pool", COLUMN_TEXT, true},
    {"RESERVED", "reserved_bytes", COLUMN_BYTES, true},
    {"ALLOCATED", "allocated_bytes", COLUMN_BYTES, true},
    {"PENDING", "pending_bytes", COLUMN_BYTES, false},
    {"FREE", "free_bytes", COLUMN_BYTES, true},
    {"HOLES", "holes", COLUMN_NUMBER, true},
    {"LARGEST HOLE", "largest_hole_bytes", COLUMN_BYTES, true},
    {"FRAGMENTED", "fragmentation_ratio", COLUMN_RATIO, true},
    {"SEGMENTS", "segment_count", COLUMN_NUMBER, true},
    {"EMPTY", "empty_segments", COLUMN_NUMBER, false},
    {"NEARLY EMPTY", "nearly_empty_segments", COLUMN_NUMBER, false},
    {"PINNED", "pinned_free_bytes", COLUMN_BYTES, true},
    {"USABLE", "usable_bytes", COLUMN_BYTES, false},
    {"UNUSABLE", "unusable_bytes", COLUMN_BYTES, false},
    {"FITS", "fitting_requests", COLUMN_NUMBER, false},
    {"COMPLETE", "complete", COLUMN_BOOL, false},
    {"SOURCE", "source", COLUMN_TEXT, true},
    {"AS OF", "source_time_ns", COLUMN_TIME, false},
};

static const struct column pin_columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, true},
    {"SEGMENT", "segment_bytes", COLUMN_BYTES, true},
    {"FREE IN IT", "free_bytes", COLUMN_BYTES, true},
    {"BLOCK", "size_bytes", COLUMN_BYTES, true},
    {"OWNER", "owner", COLUMN_TEXT, true},
    {"AGE", "age_ns", COLUMN_DURATION, true},
    {"ADDRESS", "address", COLUMN_TEXT, false},
    {"NAME OR FRAME", "where", COLUMN_LONG, true},
};

/* The sums of one process on one device. */
struct sums {
    int64_t tgid, device, reserved, free, holes, largest, unknown, usable, fits;
};

static void add_pool(struct sums *s, struct json_object *pool)
{
    int64_t reserved = 0, free_bytes = 0, holes = 0, largest = 0, usable = 0, fits = 0;

    doc_int(pool, "reserved_bytes", &reserved);
    s->reserved += reserved;
    if (!doc_int(pool, "free_bytes", &free_bytes)) {
        s->unknown += reserved;
        return;
    }
    doc_int(pool, "holes", &holes);
    doc_int(pool, "largest_hole_bytes", &largest);
    doc_int(pool, "usable_bytes", &usable);
    doc_int(pool, "fitting_requests", &fits);
    s->free += free_bytes;
    s->holes += holes;
    s->usable += usable;
    s->fits += fits;
    if (largest > s->largest)
        s->largest = largest;
}

static void print_verdict(const struct args *args, const struct out *o, const struct sums *s)
{
    char reserved[UNITS_TEXT_BYTES], free_bytes[UNITS_TEXT_BYTES], largest[UNITS_TEXT_BYTES];
    char text[UNITS_TEXT_BYTES];
#define SIZE(buffer, bytes) units_format_signed_bytes(buffer, bytes, args->units)

    printf("%sprocess %" PRId64 ", device %" PRId64 ": %s of %s reserved is free",
           out_on(o, STYLE_BOLD), s->tgid, s->device, SIZE(free_bytes, s->free),
           SIZE(reserved, s->reserved));
    if (s->holes)
        printf(", in %" PRId64 " hole%s, the largest %s", s->holes, s->holes == 1 ? "" : "s",
               SIZE(largest, s->largest));
    if (s->unknown)
        printf("; of %s it is not known", SIZE(text, s->unknown));
    if (args->request_bytes) {
        printf("; a request of %s ", SIZE(text, (int64_t)args->request_bytes));
        if (s->fits)
            printf("fits %" PRId64 " time%s", s->fits, s->fits == 1 ? "" : "s");
        else
            printf("fits nowhere");
        printf(", %s is of no use to it", SIZE(text, s->free - s->usable));
    }
    printf("%s\n", out_off(o, STYLE_BOLD));
#undef SIZE
}

static void print_verdicts(const struct args *args, const struct out *o,
                           struct json_object *document)
{
    struct sums s = {.tgid = -1};

    for (size_t i = 0; i < doc_count(document, "pools"); i++) {
        struct json_object *pool = doc_item(document, "pools", i);
        int64_t tgid = 0, device = 0;
        doc_int(pool, "tgid", &tgid);
        doc_int(pool, "device", &device);
        if (s.tgid >= 0 && (s.tgid != tgid || s.device != device))
            print_verdict(args, o, &s);
        if (s.tgid != tgid || s.device != device)
            s = (struct sums){.tgid = tgid, .device = device};
        add_pool(&s, pool);
    }
    if (s.tgid >= 0)
        print_verdict(args, o, &s);
}

/* A row of a block that pins a segment: what of both a table shows. */
static struct json_object *pin_row(struct json_object *pool, struct json_object *segment,
                                   struct json_object *pin)
{
    struct json_object *row = json_object_new_object();
    const char *frame = json_object_get_string(doc_item(pin, "frames", 0));

    json_object_object_foreach(pin, key, value)
        json_object_object_add(row, key, json_object_get(value));
    json_object_object_add(row, "tgid", json_object_get(doc_get(pool, "tgid")));
    json_object_object_add(row, "segment_bytes", json_object_get(doc_get(segment, "size_bytes")));
    json_object_object_add(row, "free_bytes", json_object_get(doc_get(segment, "free_bytes")));
    const char *where = doc_text(pin, "name", frame);
    json_object_object_add(row, "where", where ? json_object_new_string(where) : NULL);
    return row;
}

/* What keeps nearly empty segments from going back. */
static void print_pins(const struct args *args, const struct out *o, struct json_object *document)
{
    struct json_object *rows = json_object_new_array();

    for (size_t i = 0; i < doc_count(document, "pools"); i++) {
        struct json_object *pool = doc_item(document, "pools", i);
        for (size_t k = 0; k < doc_count(pool, "segments"); k++) {
            struct json_object *segment = doc_item(pool, "segments", k);
            for (size_t n = 0; n < doc_count(segment, "pins"); n++) {
                struct json_object *pin = doc_item(segment, "pins", n);
                if (json_object_is_type(pin, json_type_object) &&
                    json_object_array_length(rows) < PINS_SHOWN)
                    json_object_array_add(rows, pin_row(pool, segment, pin));
            }
        }
    }
    if (json_object_array_length(rows)) {
        printf("\n%sBlocks that keep nearly empty segments from going back%s\n",
               out_on(o, STYLE_BOLD), out_off(o, STYLE_BOLD));
        rows_print(args, o, rows, pin_columns, ARRAY_SIZE(pin_columns));
    }
    json_object_put(rows);
}

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    bool text = args->format == FORMAT_TABLE && !args->quiet && !args->fields.count;

    if (text && doc_count(document, "pools") == 0) {
        printf(args->from ? "the recording has no memory of a caching allocator then\n"
                          : "no process with a caching allocator is observed\n");
        return EXIT_DONE;
    }
    if (text)
        print_verdicts(args, o, document);
    int code = rows_print(args, o, doc_get(document, "pools"), columns, ARRAY_SIZE(columns));
    if (code == EXIT_DONE && text)
        print_pins(args, o, document);
    return code;
}

int verb_frag(const struct args *args)
{
    struct error error = {0};
    if (rows_check_fields(args, columns, ARRAY_SIZE(columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    if (args->from)
        return trace_file_show(args, frag_recording_write, render);
    if (args->at[0])
        return fail_with(EXIT_USAGE, "frag: blocks of earlier moments are in recordings only; try: "
                                     "--from FILE --at TIME");
    struct json_object *parameters = ask_filters(args);
    if (args->request_bytes)
        json_object_object_add(parameters, "request_bytes",
                               json_object_new_int64((int64_t)args->request_bytes));
    if (args->verbose && args->format == FORMAT_JSON)
        json_object_object_add(parameters, "map", json_object_new_boolean(true));
    return ask_and_show(args, "Frag", parameters, NULL, render);
}
