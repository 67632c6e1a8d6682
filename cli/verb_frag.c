/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_frag.c - npumem frag.
 */
#include "ask.h"
#include "doc.h"
#include "rows.h"

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
    {"EMPTY", "empty_segments", COLUMN_NUMBER, true},
    {"PINNED", "pinned_free_bytes", COLUMN_BYTES, true},
    {"COMPLETE", "complete", COLUMN_BOOL, true},
};

static const struct column pin_columns[] = {
    {"SIZE", "size_bytes", COLUMN_BYTES, true},
    {"OWNER", "owner", COLUMN_LONG, true},
    {"AGE", "age_ns", COLUMN_DURATION, true},
    {"ADDRESS", "address", COLUMN_TEXT, true},
};

/* What keeps nearly empty segments from going back. */
static void print_pins(const struct args *args, const struct out *o, struct json_object *document)
{
    struct json_object *pins = json_object_new_array();

    for (size_t i = 0; i < doc_count(document, "pools"); i++) {
        struct json_object *pool = doc_item(document, "pools", i);
        for (size_t k = 0; k < doc_count(pool, "segments"); k++) {
            struct json_object *pin = doc_get(doc_item(pool, "segments", k), "pin");
            if (pin && json_object_array_length(pins) < 20)
                json_object_array_add(pins, json_object_get(pin));
        }
    }
    if (json_object_array_length(pins)) {
        printf("\n%sBlocks that pin nearly empty segments%s\n", out_on(o, STYLE_BOLD),
               out_off(o, STYLE_BOLD));
        rows_print(args, o, pins, pin_columns, ARRAY_SIZE(pin_columns));
    }
    json_object_put(pins);
}

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    int code = rows_print(args, o, doc_get(document, "pools"), columns, ARRAY_SIZE(columns));

    if (code == EXIT_DONE && args->format == FORMAT_TABLE && !args->quiet && !args->fields.count)
        print_pins(args, o, document);
    return code;
}

int verb_frag(const struct args *args)
{
    struct error error = {0};
    if (rows_check_fields(args, columns, ARRAY_SIZE(columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    struct json_object *parameters = ask_filters(args);
    if (args->request_bytes)
        json_object_object_add(parameters, "request_bytes",
                               json_object_new_int64((int64_t)args->request_bytes));
    return ask_and_show(args, "Frag", parameters, NULL, render);
}
