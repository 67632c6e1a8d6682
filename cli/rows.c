/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.c - one list of columns, four formats.
 *
 * Owns: how a JSON value of each kind looks in a table and in CSV (there: exact, null is empty).
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "doc.h"
#include "rows.h"
#include "table.h"

#define CELL_BYTES 512
#define REASONS_MAX 16

static void format_time(char *text, size_t size, int64_t ns)
{
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm tm;
    char date[64];

    if (!localtime_r(&seconds, &tm) || strftime(date, sizeof(date), "%F %T", &tm) == 0)
        snprintf(text, size, "?");
    else
        snprintf(text, size, "%s.%03d", date, (int)(ns / 1000000 % 1000));
}

/* Frames as "inner < outer", the sides of a tensor as 16x32. */
static void format_array(char *text, size_t size, struct json_object *array)
{
    size_t count = json_object_array_length(array), at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < count && at < size; i++) {
        struct json_object *item = json_object_array_get_idx(array, i);
        const char *between = json_object_is_type(item, json_type_int) ? "x" : " < ";
        at += (size_t)snprintf(text + at, size - at, "%s%s", i ? between : "",
                               json_object_get_string(item));
    }
}

char *rows_format(char *text, size_t size, struct json_object *row, const struct column *column,
                  enum units_scale units)
{
    struct json_object *value = doc_get(row, column->field);
    char unit[UNITS_TEXT_BYTES];
    int64_t n = 0;
    bool number = doc_int(row, column->field, &n);

    snprintf(text, size, "?");
    switch (column->kind) {
    case COLUMN_BYTES:
    case COLUMN_DELTA:
        if (number)
            snprintf(text, size, "%s%s", column->kind == COLUMN_DELTA && n > 0 ? "+" : "",
                     units_format_signed_bytes(unit, n, units));
        return text;
    case COLUMN_DURATION:
        if (number && n >= 0)
            snprintf(text, size, "%s", units_format_duration(unit, (uint64_t)n));
        return text;
    case COLUMN_TIME:
        if (number)
            format_time(text, size, n);
        return text;
    case COLUMN_RATIO:
        if (value && json_object_is_type(value, json_type_double))
            snprintf(text, size, "%.2f %%", 100 * json_object_get_double(value));
        else if (number)
            snprintf(text, size, "%" PRId64 ".00 %%", n <= INT64_MAX / 100 ? 100 * n : n);
        return text;
    case COLUMN_BOOL:
        if (value && json_object_is_type(value, json_type_boolean))
            snprintf(text, size, "%s", json_object_get_boolean(value) ? "yes" : "no");
        return text;
    default:
        if (value && json_object_is_type(value, json_type_array))
            format_array(text, size, value);
        else if (value && !json_object_is_type(value, json_type_object))
            snprintf(text, size, "%s", json_object_get_string(value));
        return text;
    }
}

static const struct column *find_column(const struct column *columns, size_t count,
                                        const char *field)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(columns[i].field, field) == 0)
            return &columns[i];
    }
    return NULL;
}

int rows_check_fields(const struct args *args, const struct column *columns, size_t count,
                      struct error *reterr)
{
    for (size_t i = 0; i < args->fields.count; i++) {
        const char *field = args->fields.items[i];
        const char *names[CLI_LIST_MAX];
        if (find_column(columns, count, field))
            continue;
        for (size_t k = 0; k < count && k < CLI_LIST_MAX; k++)
            names[k] = columns[k].field;
        const char *near = suggest(field, names, count < CLI_LIST_MAX ? count : CLI_LIST_MAX);
        error_set(reterr, EINVAL, "--fields %.60s: unknown field", field);
        return error_fix(reterr, -EINVAL, "--fields %s", near ? near : columns[0].field);
    }
    return 0;
}

/* The columns to print, in order. `all`: without --fields those of a table only, or every one. */
static size_t choose(const struct args *args, const struct column *columns, size_t count, bool all,
                     const struct column **ret)
{
    size_t n = 0;

    for (size_t i = 0; i < args->fields.count && n < CLI_LIST_MAX; i++) {
        const struct column *c = find_column(columns, count, args->fields.items[i]);
        if (c)
            ret[n++] = c;
    }
    for (size_t i = 0; args->fields.count == 0 && i < count && n < CLI_LIST_MAX; i++) {
        if (all || columns[i].shown || args->verbose)
            ret[n++] = &columns[i];
    }
    return n;
}

static void print_csv(const struct args *args, struct json_object *array,
                      const struct column *const *chosen, size_t n)
{
    size_t rows = array ? json_object_array_length(array) : 0;

    for (size_t k = 0; k < n && !args->no_header; k++)
        printf("%s%s", chosen[k]->field, k + 1 < n ? "," : "\n");
    for (size_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < n; k++) {
            struct json_object *value =
                doc_get(json_object_array_get_idx(array, i), chosen[k]->field);
            out_csv_cell(value ? json_object_get_string(value) : "");
            putchar(k + 1 < n ? ',' : '\n');
        }
    }
}

static void print_jsonl(const struct args *args, struct json_object *array,
                        const struct column *const *chosen, size_t n)
{
    size_t rows = array ? json_object_array_length(array) : 0;

    for (size_t i = 0; i < rows; i++) {
        struct json_object *row = json_object_array_get_idx(array, i);
        if (args->fields.count == 0) {
            out_json(row, true);
            continue;
        }
        struct json_object *part = json_object_new_object();
        for (size_t k = 0; k < n; k++)
            json_object_object_add(part, chosen[k]->field,
                                   json_object_get(doc_get(row, chosen[k]->field)));
        out_json(part, true);
        json_object_put(part);
    }
}

/* Why shown fields are unknown: each reason once, with the fields it is about. */
static void print_reasons(const struct args *args, const struct out *o, struct json_object *array,
                          const struct column **chosen, size_t n)
{
    const char *reasons[REASONS_MAX];
    size_t count = 0, rows = json_object_array_length(array);

    for (size_t i = 0; i < rows && !args->quiet; i++) {
        struct json_object *unknown = doc_get(json_object_array_get_idx(array, i), "unknown");
        for (size_t k = 0; k < n; k++) {
            const char *reason = doc_text(unknown, chosen[k]->field, NULL);
            size_t seen = 0;
            char clean[CELL_BYTES];
            while (reason && seen < count && strcmp(reasons[seen], reason) != 0)
                seen++;
            if (!reason || seen < count || count == REASONS_MAX)
                continue;
            reasons[count++] = reason;
            printf("%s? %s: %s%s\n", out_on(o, STYLE_DIM), chosen[k]->header,
                   out_clean(clean, sizeof(clean), reason), out_off(o, STYLE_DIM));
        }
    }
}

static bool is_right(enum column_kind kind)
{
    return kind != COLUMN_TEXT && kind != COLUMN_LONG && kind != COLUMN_TIME && kind != COLUMN_BOOL;
}

static struct table *build(const struct args *args, struct json_object *array,
                           const struct column *const *chosen, size_t n)
{
    struct table *t = table_new(n);
    size_t rows = array ? json_object_array_length(array) : 0;
    char text[CELL_BYTES];

    if (!t)
        return NULL;
    for (size_t k = 0; k < n; k++)
        table_column(t, k, is_right(chosen[k]->kind), chosen[k]->kind == COLUMN_LONG);
    if (!args->no_header) {
        table_row(t, STYLE_BOLD);
        for (size_t k = 0; k < n; k++)
            table_cell(t, k, chosen[k]->header);
    }
    for (size_t i = 0; i < rows; i++) {
        struct json_object *row = json_object_array_get_idx(array, i);
        table_row(t, STYLE_PLAIN);
        for (size_t k = 0; k < n; k++) {
            /* a field that has no value at all is "-"; one that cannot be known is "?" */
            bool unknown = doc_get(doc_get(row, "unknown"), chosen[k]->field) != NULL;
            bool null = doc_get(row, chosen[k]->field) == NULL;
            rows_format(text, sizeof(text), row, chosen[k], args->units);
            table_cell(t, k, null && !unknown ? "-" : text);
        }
    }
    return t;
}

/* Takes the rightmost column that may be left out; false if there is none. */
static bool drop_column(const struct column **chosen, size_t *n)
{
    for (size_t k = *n; k-- > 1;) {
        if (chosen[k]->kind != COLUMN_LONG)
            continue;
        memmove(&chosen[k], &chosen[k + 1], (*n - k - 1) * sizeof(*chosen));
        (*n)--;
        return true;
    }
    return false;
}

static int print_table(const struct args *args, const struct out *o, struct json_object *array,
                       const struct column **chosen, size_t n)
{
    _cleanup_(table_freep) struct table *t = build(args, array, chosen, n);

    /* what was asked for by name is shown, however long the lines get */
    while (t && args->fields.count == 0 && o->width && table_least_width(t) > o->width &&
           drop_column(chosen, &n)) {
        t = table_free(t);
        t = build(args, array, chosen, n);
    }
    if (!t || table_print(t, o) < 0)
        return fail_with(EXIT_RUNTIME, "table: out of memory");
    if (array)
        print_reasons(args, o, array, chosen, n);
    return EXIT_DONE;
}

int rows_print(const struct args *args, const struct out *o, struct json_object *array,
               const struct column *columns, size_t count)
{
    const struct column *chosen[CLI_LIST_MAX];
    size_t n = choose(args, columns, count, args->format != FORMAT_TABLE, chosen);

    if (array && !json_object_is_type(array, json_type_array))
        array = NULL;
    switch (args->format) {
    case FORMAT_CSV:
        print_csv(args, array, chosen, n);
        return EXIT_DONE;
    case FORMAT_JSONL:
        print_jsonl(args, array, chosen, n);
        return EXIT_DONE;
    default:
        return print_table(args, o, array, chosen, n);
    }
}
