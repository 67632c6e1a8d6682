/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_ps.c - npumem ps.
 */
#include <inttypes.h>

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
    {"FOREIGN", "foreign", COLUMN_BOOL, false},
    {"MAIN DEVICE", "main_device", COLUMN_NUMBER, false},
    {"INFERRED", "rank_inferred", COLUMN_BOOL, false},
    {"CONFLICT", "rank_conflict", COLUMN_BOOL, false},
    {"REPLICA", "replica", COLUMN_NUMBER, false},
    {"SERVER RANK", "server_rank", COLUMN_NUMBER, false},
    {"SERVER SIZE", "server_size", COLUMN_NUMBER, false},
    {"LOCAL RANK", "local_rank", COLUMN_NUMBER, false},
    {"USER", "user", COLUMN_TEXT, false},
    {"UID", "uid", COLUMN_NUMBER, false},
    {"PARENT", "parent_tgid", COLUMN_NUMBER, false},
    {"ENGINE", "engine_tgid", COLUMN_NUMBER, false},
    {"NAMESPACE PID", "namespace_tgid", COLUMN_NUMBER, false},
    {"POD", "pod_uid", COLUMN_LONG, false},
    {"RUNTIME", "container_runtime", COLUMN_TEXT, false},
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

/* What a number alone would not say: ~ behind a rank that was inferred, brackets around a device
 * that is another rank's. */
static void mark_row(struct json_object *row)
{
    char text[40];
    int64_t value;

    if (doc_bool(row, "rank_inferred", false) && doc_int(row, "rank", &value)) {
        snprintf(text, sizeof(text), "%" PRId64 "~", value);
        json_object_object_add(row, "rank", json_object_new_string(text));
    }
    if (doc_bool(row, "foreign", false) && doc_int(row, "device", &value)) {
        snprintf(text, sizeof(text), "(%" PRId64 ")", value);
        json_object_object_add(row, "device", json_object_new_string(text));
    }
}

static void print_number(struct json_object *row, const char *key, const char *label)
{
    int64_t value;
    if (doc_int(row, key, &value))
        printf("  %s %" PRId64, label, value);
}

static void print_text(struct json_object *row, const char *key, const char *label)
{
    char text[200];
    const char *value = doc_text(row, key, NULL);
    if (value)
        printf("  %s %s", label, out_clean(text, sizeof(text), value));
}

static void print_tunings(struct json_object *row)
{
    struct json_object *environment = doc_get(row, "environment");
    char text[1024], name[80];

    if (!environment || !json_object_is_type(environment, json_type_object))
        return;
    json_object_object_foreach(environment, key, value)
    {
        const char *words = json_object_get_string(value);
        printf("    %s=%s\n", out_clean(name, sizeof(name), key),
               out_clean(text, sizeof(text), words ? words : ""));
    }
}

static void print_communicators(const struct args *args, struct json_object *row)
{
    char owner[120], bytes[UNITS_TEXT_BYTES];

    for (size_t i = 0; i < doc_count(row, "communicators"); i++) {
        struct json_object *c = doc_item(row, "communicators", i);
        int64_t rank = -1, world = -1, held = 0;
        doc_int(c, "rank", &rank);
        doc_int(c, "world_size", &world);
        doc_int(c, "bytes", &held);
        printf("    %s  rank %" PRId64 " of %" PRId64 "  %s  %s\n",
               out_clean(owner, sizeof(owner), doc_text(c, "owner", "?")), rank, world,
               units_format_signed_bytes(bytes, held, args->units), doc_text(c, "handle", ""));
    }
}

/* Under the table with -v: who each process is. */
static void print_details(const struct args *args, struct json_object *row)
{
    int64_t tgid = 0;
    char text[300];

    if (!doc_bool(row, "main", true))
        return;
    doc_int(row, "tgid", &tgid);
    printf("\n%" PRId64 "  %s", tgid, out_clean(text, sizeof(text), doc_text(row, "state", "?")));
    print_text(row, "user", "user");
    print_number(row, "parent_tgid", "parent");
    print_number(row, "engine_tgid", "engine");
    print_number(row, "namespace_tgid", "pid in its namespace");
    print_text(row, "container_runtime", "runtime");
    print_text(row, "pod_uid", "pod");
    printf("\n  %s\n ", out_clean(text, sizeof(text), doc_text(row, "title", "")));
    print_text(row, "rank_source", "rank from");
    if (doc_bool(row, "rank_conflict", false))
        printf("  the title says another rank");
    print_number(row, "world_size", "world");
    print_number(row, "replica", "replica");
    print_number(row, "server_rank", "rank in the server");
    print_number(row, "server_size", "of");
    printf("\n");
    print_tunings(row);
    print_communicators(args, row);
}

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    bool table = args->format == FORMAT_TABLE;

    for (size_t i = 0; table && !args->fields.count && i < doc_count(document, "ranks"); i++)
        mark_row(doc_item(document, "ranks", i));
    int code = rows_print(args, o, doc_get(document, "ranks"), columns, ARRAY_SIZE(columns));
    for (size_t i = 0;
         code == EXIT_DONE && table && args->verbose && i < doc_count(document, "ranks"); i++)
        print_details(args, doc_item(document, "ranks", i));
    return code;
}

int verb_ps(const struct args *args)
{
    struct error error = {0};
    if (rows_check_fields(args, columns, ARRAY_SIZE(columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    return ask_and_show(args, "Ps", ask_filters(args), "ranks", render);
}
