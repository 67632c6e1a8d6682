/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_diff.c - npumem diff: two moments, two ranks, two recordings.
 *
 * Moments and ranks are the daemon's; recordings are read here, without it.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ask.h"
#include "diff_text.h"
#include "doc.h"
#include "rows.h"
#include "trace_file.h"

#define LIMIT_DEFAULT 30

static const struct column columns[] = {
    {"RANK", "rank", COLUMN_NUMBER, false},
    {"FROM PID", "from_tgid", COLUMN_NUMBER, false},
    {"TO PID", "to_tgid", COLUMN_NUMBER, false},
    {"DEVICE", "device", COLUMN_NUMBER, false},
    {"LEVEL", "level", COLUMN_TEXT, true},
    {"OWNER", "owner", COLUMN_LONG, true},
    {"FROM", "from_bytes", COLUMN_BYTES, true},
    {"TO", "to_bytes", COLUMN_BYTES, true},
    {"DELTA", "delta_bytes", COLUMN_DELTA, true},
    {"FROM BLOCKS", "from_blocks", COLUMN_NUMBER, true},
    {"TO BLOCKS", "to_blocks", COLUMN_NUMBER, true},
    {"FROM PEAK", "from_peak_bytes", COLUMN_BYTES, false},
    {"TO PEAK", "to_peak_bytes", COLUMN_BYTES, false},
    {"FRAMES", "frames", COLUMN_LONG, false},
};

static const struct column since_columns[] = {
    {"RANK", "rank", COLUMN_NUMBER, true},     {"OWNER", "owner", COLUMN_LONG, true},
    {"BYTES", "to_bytes", COLUMN_BYTES, true}, {"BLOCKS", "to_blocks", COLUMN_NUMBER, true},
    {"FRAMES", "frames", COLUMN_LONG, true},
};

static const struct column tensor_columns[] = {
    {"TENSOR", "name", COLUMN_LONG, true},       {"ROLE", "role", COLUMN_TEXT, true},
    {"KIND", "kind", COLUMN_TEXT, true},         {"FROM", "from_bytes", COLUMN_BYTES, true},
    {"TO", "to_bytes", COLUMN_BYTES, true},      {"DELTA", "delta_bytes", COLUMN_DELTA, true},
    {"DTYPE", "from_dtype", COLUMN_TEXT, false}, {"TO DTYPE", "to_dtype", COLUMN_TEXT, false},
    {"SHAPE", "from_shape", COLUMN_LONG, false}, {"TO SHAPE", "to_shape", COLUMN_LONG, false},
};

/* The columns of a table: which process only where there is more than one, peaks and frames only of
 * recordings. */
static void columns_choose(struct json_object *document, struct column *ret)
{
    const char *compared = doc_text(document, "compared", "");
    bool moments = strcmp(compared, "moments") == 0;
    bool recordings = strncmp(compared, "recording", 9) == 0;

    memcpy(ret, columns, sizeof(columns));
    for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
        const char *field = columns[i].field;
        if (strcmp(field, "rank") == 0 || strcmp(field, "device") == 0)
            ret[i].shown = moments;
        if (strcmp(field, "from_peak_bytes") == 0 || strcmp(field, "to_peak_bytes") == 0)
            ret[i].shown = strcmp(compared, "recordings") == 0;
        if (strcmp(field, "frames") == 0)
            ret[i].shown = recordings;
    }
}

static void verdict(const struct out *o, struct json_object *from)
{
    char text[400];

    if (doc_text(from, "verdict", NULL))
        printf("%s%s%s\n", out_on(o, STYLE_BOLD),
               out_clean(text, sizeof(text), doc_text(from, "verdict", "")),
               out_off(o, STYLE_BOLD));
}

static void print_tensors(const struct args *args, const struct out *o,
                          struct json_object *document)
{
    struct json_object *parameters = doc_get(document, "parameters");

    if (parameters) {
        printf("\n");
        verdict(o, parameters);
        if (doc_count(parameters, "tensors"))
            rows_print(args, o, doc_get(parameters, "tensors"), tensor_columns,
                       ARRAY_SIZE(tensor_columns));
    } else if (doc_count(document, "unread")) {
        printf(
            "\n%stensors are not compared: they could not be read (npumem scan PID says why)%s\n",
            out_on(o, STYLE_DIM), out_off(o, STYLE_DIM));
    }
}

static void print_missing(const struct out *o, struct json_object *document, const char *side)
{
    const char *missing = doc_text(doc_get(document, side), "missing", NULL);
    char text[400];

    if (missing)
        printf("%s%s: %s%s\n", out_on(o, STYLE_BAD), side, out_clean(text, sizeof(text), missing),
               out_off(o, STYLE_BAD));
}

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    bool table = args->format == FORMAT_TABLE;
    struct column chosen[ARRAY_SIZE(columns)];
    int64_t matched = 0;
    int code = EXIT_DONE;

    columns_choose(document, chosen);
    if (table && !args->quiet) {
        verdict(o, document);
        printf("\n");
    }
    if (!table || doc_count(document, "rows"))
        code = rows_print(args, o, doc_get(document, "rows"), chosen, ARRAY_SIZE(chosen));
    if (code != EXIT_DONE || !table || args->quiet)
        return code;
    if (doc_bool(document, "truncated", false) && doc_int(document, "matched_rows", &matched))
        printf("%s%zu of %" PRId64 " shown; --limit 0 shows all%s\n", out_on(o, STYLE_DIM),
               doc_count(document, "rows"), matched, out_off(o, STYLE_DIM));
    if (doc_count(document, "allocated_since")) {
        printf("\n%sAllocated since and still held, by call path%s\n", out_on(o, STYLE_BOLD),
               out_off(o, STYLE_BOLD));
        rows_print(args, o, doc_get(document, "allocated_since"), since_columns,
                   ARRAY_SIZE(since_columns));
    }
    print_tensors(args, o, document);
    print_missing(o, document, "from");
    print_missing(o, document, "to");
    return code;
}

static uint32_t limit_of(const struct args *args)
{
    return args->limit == UINT64_MAX ? LIMIT_DEFAULT : (uint32_t)args->limit;
}

/* --- recordings --- */

static bool is_file(const char *side)
{
    struct stat st;
    return side && (strchr(side, '/') || (stat(side, &st) == 0 && S_ISREG(st.st_mode)));
}

static int diff_files(const struct args *args)
{
    struct trace_file from = TRACE_FILE_NONE, to = TRACE_FILE_NONE;
    struct local_moment here = local_moment();
    struct error error = {0};
    char *text = NULL;
    int r = trace_file_open(args->from, &from, &error);

    if (r == 0 && args->to)
        r = trace_file_open(args->to, &to, &error);
    if (r == 0)
        text = diff_text(&from.reader, args->to ? &to.reader : NULL, limit_of(args), args->equal,
                         here.host, here.wall_ns, &error);
    trace_file_close(&from);
    trace_file_close(&to);
    if (!text)
        return fail(EXIT_RUNTIME, &error);
    struct json_object *document = json_tokener_parse(text);
    free(text);
    return document_show(args, document, NULL, render);
}

/* --- moments and ranks --- */

static bool is_process(const char *side)
{
    return strncmp(side, "rank:", 5) == 0 || strncmp(side, "pid:", 4) == 0;
}

static int side_add(struct json_object *parameters, enum option_id id, const char *key,
                    const char *side, struct error *reterr)
{
    char text[80];

    if (!is_process(side) && strcmp(side, "now") != 0) {
        int r = args_moment(id, side, text, sizeof(text), reterr);
        if (r < 0)
            return r;
        side = text;
    }
    json_object_object_add(parameters, key, json_object_new_string(side));
    return 0;
}

/* The sides of the arguments: --from and --to, or two ranks or processes. */
static int sides_add(const struct args *args, struct json_object *parameters, struct error *reterr)
{
    const char *kind = args->ranks.count == 2 ? "rank" : "pid";
    const struct cli_numbers *two = args->ranks.count == 2 ? &args->ranks : &args->tgids;
    char from[32], to[32];

    if (args->from) {
        int r = side_add(parameters, OPTION_FROM, "from", args->from, reterr);
        return r < 0 || !args->to ? r : side_add(parameters, OPTION_TO, "to", args->to, reterr);
    }
    if (args->to || two->count != 2) {
        error_set(reterr, EINVAL, "diff: what with what?");
        return error_fix(reterr, -EINVAL,
                         "--from -1h, --from mark:A --to mark:B, --rank 0 --rank 1, --from A.trace "
                         "--to B.trace");
    }
    snprintf(from, sizeof(from), "%s:%" PRId64, kind, two->items[0]);
    snprintf(to, sizeof(to), "%s:%" PRId64, kind, two->items[1]);
    json_object_object_del(parameters, kind[0] == 'r' ? "rank" : "tgid");
    json_object_object_add(parameters, "from", json_object_new_string(from));
    json_object_object_add(parameters, "to", json_object_new_string(to));
    return 0;
}

/* Has the tensors of processes read that were not read yet. Returns whether there were any. */
static bool read_tensors(const struct args *args, struct json_object *document)
{
    size_t count = doc_count(document, "unread");

    for (size_t i = 0; i < count; i++) {
        struct json_object *parameters = json_object_new_object(), *ignored = NULL;
        struct error error = {0};
        json_object_object_add(parameters, "tgid",
                               json_object_get(doc_item(document, "unread", i)));
        json_object_object_add(parameters, "limit", json_object_new_int64(1));
        ask(args, "Scan", parameters, &ignored, &error); /* without it they are not compared */
        json_object_put(ignored);
        json_object_put(parameters);
    }
    return count > 0;
}

int verb_diff(const struct args *args)
{
    struct json_object *parameters, *document = NULL;
    struct error error = {0};
    struct out o;
    int r;

    if (rows_check_fields(args, columns, ARRAY_SIZE(columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    if (is_file(args->from) && (!args->to || is_file(args->to)))
        return diff_files(args);
    if (is_file(args->from) || is_file(args->to))
        return fail_with(EXIT_USAGE, "diff: a recording and something else; try: two recordings");
    parameters = ask_filters(args);
    r = sides_add(args, parameters, &error);
    if (r < 0) {
        json_object_put(parameters);
        return fail(EXIT_USAGE, &error);
    }
    json_object_object_add(parameters, "limit", json_object_new_int64(limit_of(args)));
    json_object_object_add(parameters, "equal", json_object_new_boolean(args->equal));
    r = ask(args, "Diff", parameters, &document, &error);
    if (r == 0 && read_tensors(args, document)) {
        json_object_put(document);
        document = NULL;
        r = ask(args, "Diff", parameters, &document, &error);
    }
    json_object_put(parameters);
    if (r < 0)
        return fail(exit_code_of(r), &error);
    out_init(&o, args);
    if (args->format == FORMAT_TABLE)
        out_pager(&o, args);
    int code = ask_show(args, &o, document, NULL, render);
    json_object_put(document);
    return out_finish(&o, code);
}
