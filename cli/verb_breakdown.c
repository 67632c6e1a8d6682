/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_breakdown.c - npumem breakdown, and its flat form for csv and jsonl.
 */
#include "breakdown.h"
#include "doc.h"
#include "rows.h"

/* Owners and gaps of all ranks as flat rows, for csv. */
static const struct column flat_columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, true},        {"RANK", "rank", COLUMN_NUMBER, true},
    {"DEVICE", "device", COLUMN_NUMBER, true},   {"KIND", "kind", COLUMN_TEXT, true},
    {"LEVEL", "level", COLUMN_TEXT, true},       {"NAME", "name", COLUMN_TEXT, true},
    {"BYTES", "bytes", COLUMN_BYTES, true},      {"BLOCKS", "blocks", COLUMN_NUMBER, true},
    {"INFERRED", "inferred", COLUMN_BOOL, true}, {"SOURCE", "source", COLUMN_TEXT, true},
};

static void flat_rows(struct json_object *array, struct json_object *rank, const char *from,
                      const char *kind, const char *name)
{
    for (size_t i = 0; i < doc_count(rank, from); i++) {
        struct json_object *item = doc_item(rank, from, i), *row = json_object_new_object();
        static const char *const of_rank[] = {"tgid", "rank", "device"};
        static const char *const of_item[] = {"level", "bytes", "blocks", "inferred", "source"};
        for (size_t k = 0; k < ARRAY_SIZE(of_rank); k++)
            json_object_object_add(row, of_rank[k], json_object_get(doc_get(rank, of_rank[k])));
        for (size_t k = 0; k < ARRAY_SIZE(of_item); k++)
            json_object_object_add(row, of_item[k], json_object_get(doc_get(item, of_item[k])));
        json_object_object_add(row, "kind", json_object_new_string(kind));
        json_object_object_add(row, "name", json_object_get(doc_get(item, name)));
        json_object_array_add(array, row);
    }
}

static int print_flat(const struct args *args, const struct out *o, struct json_object *document)
{
    struct json_object *array = json_object_new_array();

    for (size_t i = 0; i < doc_count(document, "ranks"); i++) {
        struct json_object *rank = doc_item(document, "ranks", i);
        flat_rows(array, rank, "owners", "owner", "owner");
        flat_rows(array, rank, "gaps", "gap", "name");
    }
    int code = rows_print(args, o, array, flat_columns, ARRAY_SIZE(flat_columns));
    json_object_put(array);
    return code;
}

/* Takes out of the table processes that map CANN and hold no device memory (an engine whose workers
 * hold it, a client): a column of nothing hides those that matter. Returns how many. */
static size_t leave_out_empty(struct json_object *document)
{
    struct json_object *kept = json_object_new_array();
    size_t total = doc_count(document, "ranks");

    for (size_t i = 0; i < total; i++) {
        struct json_object *rank = doc_item(document, "ranks", i);
        int64_t device, bytes;
        bool holds = doc_int(rank, "device", &device) || !doc_int(rank, "physical_bytes", &bytes) ||
                     bytes > 0;
        if (holds)
            json_object_array_add(kept, json_object_get(rank));
    }
    size_t count = json_object_array_length(kept);
    if (count == 0) { /* then they are all there is to show */
        json_object_put(kept);
        return 0;
    }
    json_object_object_add(document, "ranks", kept);
    return total - count;
}

int breakdown_render(const struct args *args, const struct out *o, struct json_object *document)
{
    if (args->format != FORMAT_TABLE || args->fields.count)
        return print_flat(args, o, document);
    if (doc_count(document, "ranks") == 0)
        printf("no process is observed: none that runs maps a CANN library\n");
    size_t left_out = args->verbose ? 0 : leave_out_empty(document);
    int code = breakdown_ranks(args, o, document);
    if (code == EXIT_DONE && left_out)
        printf("%zu process%s without device memory left out; -v shows %s\n\n", left_out,
               left_out == 1 ? "" : "es", left_out == 1 ? "it" : "them");
    if (code == EXIT_DONE) {
        breakdown_devices(args, o, document);
        breakdown_notes(args, o, document);
    }
    return code;
}

int breakdown_check_fields(const struct args *args, struct error *reterr)
{
    if (args->fields.count && args->format == FORMAT_JSON) {
        error_set(reterr, EINVAL, "--fields: -o json gives the whole breakdown");
        return error_fix(reterr, -EINVAL, "-o jsonl or -o csv");
    }
    return rows_check_fields(args, flat_columns, ARRAY_SIZE(flat_columns), reterr);
}

int verb_breakdown(const struct args *args)
{
    struct error error = {0};
    if (breakdown_check_fields(args, &error) < 0)
        return fail(EXIT_USAGE, &error);
    return ask_and_show(args, "Breakdown", ask_filters(args), "ranks", breakdown_render);
}
