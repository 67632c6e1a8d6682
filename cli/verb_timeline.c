/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_timeline.c - npumem timeline [--from FILE].
 *
 * A curve is drawn only on a terminal; csv and jsonl have a line for each step instead.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "ask.h"
#include "doc.h"
#include "recording.h"
#include "rows.h"
#include "trace_file.h"

#define LIMIT_DEFAULT 30
#define CURVE_STEPS 24

static const struct column columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, false},      {"RANK", "rank", COLUMN_NUMBER, true},
    {"DEVICE", "device", COLUMN_NUMBER, true},  {"LEVEL", "level", COLUMN_TEXT, true},
    {"OWNER", "owner", COLUMN_LONG, true},      {"FROM", "from_bytes", COLUMN_BYTES, true},
    {"TO", "to_bytes", COLUMN_BYTES, true},     {"DELTA", "delta_bytes", COLUMN_DELTA, true},
    {"PEAK", "peak_bytes", COLUMN_BYTES, true}, {"AT", "peak_ns", COLUMN_TIME, false},
    {"CURVE", "curve", COLUMN_TEXT, true},
};
#define COLUMN_COUNT ARRAY_SIZE(columns)

static const struct column cache_columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, true},      {"SERVER", "server_tgid", COLUMN_NUMBER, true},
    {"BLOCKS", "blocks", COLUMN_NUMBER, true}, {"FROM", "from_ratio", COLUMN_RATIO, true},
    {"TO", "to_ratio", COLUMN_RATIO, true},    {"PEAK", "peak_ratio", COLUMN_RATIO, true},
    {"AT", "peak_ns", COLUMN_TIME, true},      {"CURVE", "curve", COLUMN_TEXT, true},
};

static const struct column step_columns[] = {
    {"TIME", "time_ns", COLUMN_TIME, true},
    {"PID", "tgid", COLUMN_NUMBER, true},
    {"RANK", "rank", COLUMN_NUMBER, true},
    {"DEVICE", "device", COLUMN_NUMBER, true},
    {"LEVEL", "level", COLUMN_TEXT, true},
    {"OWNER", "owner", COLUMN_LONG, true},
    {"LAST", "last_bytes", COLUMN_BYTES, true},
    {"MIN", "min_bytes", COLUMN_BYTES, true},
    {"MAX", "max_bytes", COLUMN_BYTES, true},
    /* of the KV cache of a server, instead of bytes */
    {"BLOCKS", "blocks", COLUMN_NUMBER, true},
    {"LAST BLOCKS", "last_blocks", COLUMN_NUMBER, true},
    {"MIN BLOCKS", "min_blocks", COLUMN_NUMBER, true},
    {"MAX BLOCKS", "max_blocks", COLUMN_NUMBER, true},
};

/* Highest of the steps [from, to). Returns false: none is known. */
static bool highest(struct json_object *steps, size_t from, size_t to, int64_t *ret)
{
    bool has = false;

    for (size_t i = from; i < to; i++) {
        struct json_object *value = json_object_array_get_idx(steps, i);
        if (value && (!has || json_object_get_int64(value) > *ret)) {
            *ret = json_object_get_int64(value);
            has = true;
        }
    }
    return has;
}

/* Eight heights between the lowest and the highest value; a blank where nothing is known. */
static void draw(struct json_object *row, const char *key, char *text, size_t size)
{
    static const char *const bars[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                       "\u2585", "\u2586", "\u2587", "\u2588"};
    struct json_object *steps = doc_get(row, key);
    size_t count = steps ? json_object_array_length(steps) : 0, at = 0;
    size_t width = count < CURVE_STEPS ? count : CURVE_STEPS;
    int64_t low = INT64_MAX, high = 0, value = 0;

    for (size_t i = 0; i < width; i++)
        if (highest(steps, i * count / width, (i + 1) * count / width, &value)) {
            low = value < low ? value : low;
            high = value > high ? value : high;
        }
    text[0] = '\0';
    for (size_t i = 0; i < width && at + 4 < size; i++) {
        bool has = highest(steps, i * count / width, (i + 1) * count / width, &value);
        /* a change of less than an eighth of what is held is drawn against all that is held */
        double from = high - low < high / 8 ? (double)low - (double)high / 8 : (double)low;
        double part = high > from ? ((double)value - from) / ((double)high - from) : 0;
        at += (size_t)snprintf(text + at, size - at, "%s", has ? bars[(int)(part * 7)] : " ");
    }
}

static void add_curves(struct json_object *document, const char *rows, const char *key)
{
    char text[160];

    for (size_t i = 0; i < doc_count(document, rows); i++) {
        struct json_object *row = doc_item(document, rows, i);
        draw(row, key, text, sizeof(text));
        json_object_object_add(row, "curve", json_object_new_string(text));
    }
}

static void print_caches(const struct args *args, const struct out *o, struct json_object *document)
{
    size_t count = ARRAY_SIZE(cache_columns) - !o->terminal;

    if (!doc_count(document, "kv_cache") || args->fields.count)
        return; /* --fields names those of the other table */
    add_curves(document, "kv_cache", "max_blocks");
    printf("\n%sKV cache in use%s\n", out_on(o, STYLE_BOLD), out_off(o, STYLE_BOLD));
    rows_print(args, o, doc_get(document, "kv_cache"), cache_columns, count);
}

static void print_marks(const struct out *o, struct json_object *document)
{
    for (size_t i = 0; i < doc_count(document, "marks"); i++) {
        struct json_object *mark = doc_item(document, "marks", i);
        struct column when = {.field = "time_ns", .kind = COLUMN_TIME};
        char text[64], name[80];
        printf("%s%s  mark:%s%s\n", out_on(o, STYLE_DIM),
               rows_format(text, sizeof(text), mark, &when, UNITS_AUTO),
               out_clean(name, sizeof(name), doc_text(mark, "name", "?")), out_off(o, STYLE_DIM));
    }
}

static int render_table(const struct args *args, const struct out *o, struct json_object *document)
{
    size_t count = o->terminal ? COLUMN_COUNT : COLUMN_COUNT - 1;
    int64_t matched = 0;
    char text[160];
    int code = EXIT_DONE;

    if (!args->quiet)
        printf("%s%s%s\n\n", out_on(o, STYLE_BOLD),
               out_clean(text, sizeof(text), doc_text(document, "verdict", "")),
               out_off(o, STYLE_BOLD));
    add_curves(document, "rows", "max_bytes");
    for (size_t i = 0; i < doc_count(document, "rows"); i++) {
        struct json_object *row = doc_item(document, "rows", i);
        if (!doc_get(row, "owner"))
            json_object_object_add(row, "owner", json_object_new_string("-"));
    }
    if (doc_count(document, "rows"))
        code = rows_print(args, o, doc_get(document, "rows"), columns, count);
    if (code != EXIT_DONE || args->quiet)
        return code;
    if (doc_bool(document, "truncated", false) && doc_int(document, "matched_rows", &matched))
        printf("%s%zu of %" PRId64 " shown; --limit 0 shows all%s\n", out_on(o, STYLE_DIM),
               doc_count(document, "rows"), matched, out_off(o, STYLE_DIM));
    print_caches(args, o, document);
    print_marks(o, document);
    return code;
}

/* The lines of one row: those of its steps that are known. */
static void add_steps(struct json_object *lines, struct json_object *document,
                      struct json_object *row, const char *known)
{
    int64_t since = 0, step = 0;

    doc_int(document, "since_ns", &since);
    doc_int(document, "step_ns", &step);
    for (size_t k = 0; k < doc_count(row, known); k++) {
        if (!doc_item(row, known, k))
            continue;
        struct json_object *line = json_object_new_object();
        json_object_object_add(line, "time_ns", json_object_new_int64(since + (int64_t)k * step));
        for (size_t c = 1; c < ARRAY_SIZE(step_columns); c++) {
            const char *field = step_columns[c].field;
            struct json_object *value = doc_get(row, field);
            if (json_object_is_type(value, json_type_array))
                value = json_object_array_get_idx(value, k);
            json_object_object_add(line, field, json_object_get(value));
        }
        json_object_array_add(lines, line);
    }
}

static int render_steps(const struct args *args, const struct out *o, struct json_object *document)
{
    struct json_object *lines = json_object_new_array();

    for (size_t i = 0; i < doc_count(document, "rows"); i++)
        add_steps(lines, document, doc_item(document, "rows", i), "last_bytes");
    for (size_t i = 0; i < doc_count(document, "kv_cache"); i++) {
        struct json_object *cache = doc_item(document, "kv_cache", i);
        json_object_object_add(cache, "level", json_object_new_string("kv_cache"));
        add_steps(lines, document, cache, "last_blocks");
    }
    int code = rows_print(args, o, lines, step_columns, ARRAY_SIZE(step_columns));
    json_object_put(lines);
    return code;
}

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    return args->format == FORMAT_TABLE ? render_table(args, o, document)
                                        : render_steps(args, o, document);
}

int verb_timeline(const struct args *args)
{
    bool is_table = args->format == FORMAT_TABLE || args->format == FORMAT_JSON;
    struct error error = {0};

    if (rows_check_fields(args, is_table ? columns : step_columns,
                          is_table ? COLUMN_COUNT : ARRAY_SIZE(step_columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    uint64_t limit = args->limit == UINT64_MAX ? LIMIT_DEFAULT : args->limit;
    if (args->from) {
        struct args all = *args;
        all.limit = args->limit != UINT64_MAX || is_table ? limit : 0;
        return trace_file_show(&all, timeline_recording_write, render);
    }
    struct json_object *parameters = ask_filters(args);
    if (args->limit != UINT64_MAX || is_table)
        json_object_object_add(parameters, "limit", json_object_new_int64((int64_t)limit));
    if (args->steps)
        json_object_object_add(parameters, "steps", json_object_new_int64((int64_t)args->steps));
    ask_period(args, parameters);
    return ask_and_show(args, "Timeline", parameters, NULL, render);
}
