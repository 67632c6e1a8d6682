/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_ps.c - npumem ps.
 */
#include "ask.h"
#include "doc.h"
#include "rows.h"

static const struct column columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, true},
    {"COMM", "comm", COLUMN_LONG, true},
    {"STATE", "state", COLUMN_TEXT, false},
    {"RANK", "rank", COLUMN_NUMBER, true},
    {"RANK FROM", "rank_source", COLUMN_TEXT, false},
    {"WORLD", "world_size", COLUMN_NUMBER, false},
    {"DEVICE", "device", COLUMN_NUMBER, true},
    {"PHYSICAL DEVICE", "physical_device", COLUMN_NUMBER, false},
    {"VISIBLE DEVICE", "visible_device", COLUMN_NUMBER, false},
    {"MAIN", "main", COLUMN_BOOL, false},
    {"PHYSICAL", "physical_bytes", COLUMN_BYTES, true},
    {"SEEN", "seen_bytes", COLUMN_BYTES, false},
    {"RESERVED", "reserved_bytes", COLUMN_BYTES, true},
    {"ALLOCATED", "allocated_bytes", COLUMN_BYTES, true},
    {"ACTIVE", "active_bytes", COLUMN_BYTES, false},
    {"BEFORE ATTACH", "before_attach_bytes", COLUMN_BYTES, false},
    {"PEAK", "peak_bytes", COLUMN_BYTES, true},
    {"PEAK AT", "peak_time_ns", COLUMN_TIME, false},
    {"HOST", "host_bytes", COLUMN_BYTES, false},
    {"COVERAGE", "coverage", COLUMN_LONG, true},
    {"WHY", "coverage_reason", COLUMN_LONG, false},
    {"STARTED", "start_time_ns", COLUMN_TIME, false},
    {"CONTAINER", "container", COLUMN_LONG, true},
    {"TITLE", "title", COLUMN_LONG, true},
};

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    return rows_print(args, o, doc_get(document, "ranks"), columns, ARRAY_SIZE(columns));
}

int verb_ps(const struct args *args)
{
    struct error error = {0};
    if (rows_check_fields(args, columns, ARRAY_SIZE(columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    return ask_and_show(args, "Ps", ask_filters(args), "ranks", render);
}
