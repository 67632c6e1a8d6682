/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_ls_tree.c - npumem ls --tree: the module trees of all processes that the filters take.
 *
 * The list is that of Ps; each of its processes that holds device memory is scanned once.
 */
#include <errno.h>
#include <inttypes.h>

#include "ask.h"
#include "doc.h"
#include "module_tree.h"
#include "rows.h"

static const struct column columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, true},        {"RANK", "rank", COLUMN_NUMBER, true},
    {"DEPTH", "depth", COLUMN_NUMBER, true},     {"BYTES", "bytes", COLUMN_BYTES, true},
    {"TENSORS", "tensors", COLUMN_NUMBER, true}, {"TYPES", "dtypes", COLUMN_TEXT, true},
    {"MODULE", "name", COLUMN_LONG, true},
};

/* What a process's row gets from its scan. */
static const char *const kept[] = {"framework", "root",   "python",     "coverage", "allocators",
                                   "owners",    "dtypes", "parameters", "layers",   "modules"};

static int scan_one(const struct args *args, struct json_object *row, int64_t tgid,
                    struct error *reterr)
{
    struct json_object *parameters = json_object_new_object(), *document = NULL;
    struct error error = {0};

    json_object_object_add(parameters, "tgid", json_object_new_int64(tgid));
    json_object_object_add(parameters, "limit", json_object_new_int64(1));
    int r = ask(args, "Scan", parameters, &document, &error);
    json_object_put(parameters);
    if (r == -ECONNREFUSED || r == -ENOENT) {
        *reterr = error;
        return r;
    }
    for (size_t k = 0; k < ARRAY_SIZE(kept) && document; k++)
        json_object_object_add(row, kept[k], json_object_get(doc_get(document, kept[k])));
    json_object_object_add(row, "error", r < 0 ? json_object_new_string(error.what) : NULL);
    json_object_put(document);
    return 0;
}

/* Rows of Ps without those that hold nothing, one per process, each with its scan. */
static int extend(const struct args *args, struct json_object *document, struct error *reterr)
{
    struct json_object *rows = json_object_new_array();
    int r = 0;

    for (size_t i = 0; r == 0 && i < doc_count(document, "ranks"); i++) {
        struct json_object *rank = doc_item(document, "ranks", i), *row;
        int64_t tgid = 0, device;
        if (!doc_int(rank, "tgid", &tgid) || !doc_bool(rank, "main", true) ||
            (!args->tgids.count && !doc_int(rank, "device", &device)))
            continue;
        row = json_object_new_object();
        static const char *const of_rank[] = {"tgid", "rank", "device", "comm", "title"};
        for (size_t k = 0; k < ARRAY_SIZE(of_rank); k++)
            json_object_object_add(row, of_rank[k], json_object_get(doc_get(rank, of_rank[k])));
        json_object_array_add(rows, row);
        r = scan_one(args, row, tgid, reterr);
    }
    json_object_object_add(document, "ranks", rows);
    return r;
}

static int print_flat(const struct args *args, const struct out *o, struct json_object *document)
{
    struct json_object *array = json_object_new_array();

    for (size_t i = 0; i < doc_count(document, "ranks"); i++) {
        struct json_object *rank = doc_item(document, "ranks", i);
        for (size_t k = 0; k < doc_count(rank, "modules"); k++) {
            struct json_object *row = json_object_get(doc_item(rank, "modules", k));
            json_object_object_add(row, "tgid", json_object_get(doc_get(rank, "tgid")));
            json_object_object_add(row, "rank", json_object_get(doc_get(rank, "rank")));
            json_object_array_add(array, row);
        }
    }
    int code = rows_print(args, o, array, columns, ARRAY_SIZE(columns));
    json_object_put(array);
    return code;
}

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    if (args->format != FORMAT_TABLE || args->fields.count)
        return print_flat(args, o, document);
    for (size_t i = 0; i < doc_count(document, "ranks"); i++) {
        struct json_object *rank = doc_item(document, "ranks", i);
        struct json_object *coverage = doc_get(rank, "coverage");
        const char *why = doc_text(rank, "error", doc_text(coverage, "names_reason", NULL));
        char clean[256];
        int64_t tgid = 0, number;
        doc_int(rank, "tgid", &tgid);
        printf("%s%spid %" PRId64, i ? "\n" : "", out_on(o, STYLE_BOLD), tgid);
        if (doc_int(rank, "rank", &number))
            printf(", rank %" PRId64, number);
        if (doc_int(rank, "device", &number))
            printf(", device %" PRId64, number);
        printf("%s\n", out_off(o, STYLE_BOLD));
        if (why)
            printf("%s? names: %s%s\n", out_on(o, STYLE_DIM), out_clean(clean, sizeof(clean), why),
                   out_off(o, STYLE_DIM));
        module_tree_print(args, o, rank);
    }
    return EXIT_DONE;
}

int verb_ls_tree(const struct args *args)
{
    struct error error = {0};

    if (rows_check_fields(args, columns, ARRAY_SIZE(columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    struct json_object *parameters = json_object_new_object(), *filters = ask_filters(args);
    static const char *const taken[] = {"tgid", "rank", "device", "container"};
    for (size_t k = 0; k < ARRAY_SIZE(taken); k++)
        if (doc_get(filters, taken[k]))
            json_object_object_add(parameters, taken[k],
                                   json_object_get(doc_get(filters, taken[k])));
    json_object_put(filters);
    return ask_extend_and_show(args, "Ps", parameters, extend, "ranks", render);
}
