/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_scan.c - npumem scan PID: what a process holds, with names, read from the outside.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "ask.h"
#include "doc.h"
#include "module_tree.h"
#include "rows.h"

#define LIMIT_DEFAULT 40

static const struct column tensor_columns[] = {
    {"SIZE", "size_bytes", COLUMN_BYTES, true},
    {"OWNER", "owner", COLUMN_LONG, true},
    {"TYPE", "dtype", COLUMN_TEXT, true},
    {"ROLE", "role", COLUMN_TEXT, true},
    {"NAME", "name", COLUMN_LONG, true},
    {"STATE NAME", "state_name", COLUMN_LONG, false},
    {"TENSOR", "tensor_bytes", COLUMN_BYTES, false},
    {"ADDRESS", "address", COLUMN_TEXT, false},
    {"DEVICE", "device", COLUMN_NUMBER, false},
    {"PLACE", "place", COLUMN_TEXT, false},
    {"COUNTED", "counted", COLUMN_BOOL, false},
    {"BASE", "base", COLUMN_LONG, false},
};
static const struct column owner_columns[] = {
    {"OWNER", "owner", COLUMN_LONG, true},
    {"BYTES", "bytes", COLUMN_BYTES, true},
    {"TENSORS", "tensors", COLUMN_NUMBER, true},
};
static const struct column dtype_columns[] = {
    {"TYPE", "dtype", COLUMN_TEXT, true},
    {"ROLE", "role", COLUMN_TEXT, true},
    {"BYTES", "bytes", COLUMN_BYTES, true},
    {"TENSORS", "tensors", COLUMN_NUMBER, true},
};

static void print_allocators(const struct args *args, const struct out *o,
                             struct json_object *document)
{
    for (size_t i = 0; i < doc_count(document, "allocators"); i++) {
        static const char *const fields[] = {"allocated_bytes", "named_bytes", "unnamed_bytes",
                                             "reserved_bytes", "largest_free_bytes"};
        static const char *const labels[] = {"allocated", "named", "unnamed", "reserved",
                                             "largest hole"};
        struct json_object *a = doc_item(document, "allocators", i);
        int64_t device = 0, blocks = 0;
        doc_int(a, "device", &device);
        doc_int(a, "allocated_blocks", &blocks);
        printf("%sdevice %" PRId64 "%s  %" PRId64 " blocks", out_on(o, STYLE_BOLD), device,
               out_off(o, STYLE_BOLD), blocks);
        for (size_t f = 0; f < ARRAY_SIZE(fields); f++) {
            struct column column = {.field = fields[f], .kind = COLUMN_BYTES};
            char text[64];
            printf(", %s %s", labels[f], rows_format(text, sizeof(text), a, &column, args->units));
        }
        putchar('\n');
        int64_t unmapped = 0;
        char text[UNITS_TEXT_BYTES];
        if (doc_int(a, "unmapped_bytes", &unmapped) && unmapped > 0)
            printf("%sat least %s of reserved are addresses without memory now (sleep mode)%s\n",
                   out_on(o, STYLE_BAD), units_format_signed_bytes(text, unmapped, args->units),
                   out_off(o, STYLE_BAD));
    }
}

static void print_reason(const struct out *o, struct json_object *coverage, const char *what,
                         const char *key)
{
    const char *why = doc_text(coverage, key, NULL);
    char text[256];

    if (why)
        printf("%s%s: %s%s\n", out_on(o, STYLE_DIM), what, out_clean(text, sizeof(text), why),
               out_off(o, STYLE_DIM));
}

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    struct json_object *coverage = doc_get(document, "coverage");
    struct args all = *args;
    char text[256];
    int code;

    if (args->format != FORMAT_TABLE || args->fields.count)
        return rows_print(args, o, doc_get(document, "tensors"), tensor_columns,
                          ARRAY_SIZE(tensor_columns));
    all.fields.count = 0;
    const char *root = doc_text(document, "root", NULL);
    if (root)
        printf("%sroot%s  %s\n", out_on(o, STYLE_BOLD), out_off(o, STYLE_BOLD),
               out_clean(text, sizeof(text), root));
    print_allocators(args, o, document);
    print_reason(o, coverage, "blocks", "blocks_reason");
    print_reason(o, coverage, "names", "names_reason");
    putchar('\n');
    if (args->tree) {
        module_tree_print(args, o, document);
        return EXIT_DONE;
    }
    code =
        rows_print(&all, o, doc_get(document, "owners"), owner_columns, ARRAY_SIZE(owner_columns));
    if (code == EXIT_DONE) {
        putchar('\n');
        code = rows_print(&all, o, doc_get(document, "dtypes"), dtype_columns,
                          ARRAY_SIZE(dtype_columns));
    }
    if (code == EXIT_DONE) {
        putchar('\n');
        code = rows_print(&all, o, doc_get(document, "tensors"), tensor_columns,
                          ARRAY_SIZE(tensor_columns));
    }
    return code;
}

int verb_scan(const struct args *args)
{
    uint64_t limit = args->limit == UINT64_MAX ? LIMIT_DEFAULT : args->limit;
    struct error error = {0};
    char *end;

    if (rows_check_fields(args, tensor_columns, ARRAY_SIZE(tensor_columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    errno = 0;
    long long tgid = strtoll(args->operands[0], &end, 10);
    if (errno || *end || tgid <= 0 || tgid > INT32_MAX) {
        error_set(&error, EINVAL, "scan %.40s: not a process id", args->operands[0]);
        error_fix(&error, 0, "npumem ps");
        return fail(EXIT_USAGE, &error);
    }
    struct json_object *parameters = json_object_new_object();
    json_object_object_add(parameters, "tgid", json_object_new_int64(tgid));
    json_object_object_add(parameters, "limit", json_object_new_int64((int64_t)limit));
    json_object_object_add(parameters, "blocks", json_object_new_boolean(args->verbose));
    json_object_object_add(parameters, "thorough", json_object_new_boolean(args->verbose));
    if (args->min_size_bytes)
        json_object_object_add(parameters, "min_bytes",
                               json_object_new_int64((int64_t)args->min_size_bytes));
    return ask_and_show(args, "Scan", parameters, NULL, render);
}
