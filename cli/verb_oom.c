/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_oom.c - npumem oom [list | show [ID] | explain FILE].
 *
 * explain needs no daemon: it judges a pasted message of torch_npu.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "advice_rows.h"
#include "ask.h"
#include "doc.h"
#include "oom_text.h"
#include "rows.h"

#define TEXT_MAX (4u << 20)

static const struct column list_columns[] = {
    {"ID", "id", COLUMN_NUMBER, true},
    {"TIME", "failed_ns", COLUMN_TIME, true},
    {"PID", "tgid", COLUMN_NUMBER, true},
    {"COMM", "comm", COLUMN_LONG, false},
    {"RANK", "rank", COLUMN_NUMBER, true},
    {"DEVICE", "device", COLUMN_NUMBER, true},
    {"VERDICT", "verdict", COLUMN_TEXT, true},
    {"RECOVERED", "recovered", COLUMN_BOOL, true},
    {"CALLS", "failures", COLUMN_NUMBER, false},
    {"REQUESTED", "requested_bytes", COLUMN_BYTES, true},
    {"WHY", "reason", COLUMN_LONG, true},
};

static int render_list(const struct args *args, const struct out *o, struct json_object *document)
{
    return rows_print(args, o, doc_get(document, "reports"), list_columns,
                      ARRAY_SIZE(list_columns));
}

static const struct column figure_columns[] = {
    {"requested", "requested_bytes", COLUMN_BYTES, true},
    {"short by", "short_bytes", COLUMN_BYTES, true},
    {"card", "total_bytes", COLUMN_BYTES, true},
    {"free", "free_bytes", COLUMN_BYTES, true},
    {"reserved", "reserved_bytes", COLUMN_BYTES, true},
    {"allocated", "allocated_bytes", COLUMN_BYTES, true},
    {"slack", "slack_bytes", COLUMN_BYTES, true},
    {"largest hole", "largest_hole_bytes", COLUMN_BYTES, true},
    {"in whole granules, at least", "unmap_bytes", COLUMN_BYTES, true},
    {"outside this process's pool", "outside_bytes", COLUMN_BYTES, true},
    {"held by others", "foreign_bytes", COLUMN_BYTES, true},
    {"idle card", "baseline_bytes", COLUMN_BYTES, true},
};

static const struct column holder_columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, true},          {"COMM", "comm", COLUMN_LONG, true},
    {"RANK", "rank", COLUMN_NUMBER, true},         {"HOLDS", "bytes", COLUMN_BYTES, true},
    {"VICTIM", "victim", COLUMN_BOOL, true},       {"ORPHAN", "orphan", COLUMN_BOOL, true},
    {"CONTAINER", "container", COLUMN_LONG, true},
};

static const struct column block_columns[] = {
    {"SIZE", "size_bytes", COLUMN_BYTES, true}, {"OWNER", "owner", COLUMN_LONG, true},
    {"LEVEL", "level", COLUMN_TEXT, true},      {"SINCE", "allocated_ns", COLUMN_TIME, true},
    {"ADDRESS", "address", COLUMN_TEXT, true},  {"STREAM", "stream", COLUMN_TEXT, false},
};

static void section(const struct args *args, const struct out *o, struct json_object *document,
                    const char *title, const char *key, const struct column *columns, size_t count)
{
    if (doc_count(document, key) == 0)
        return;
    printf("\n%s%s%s\n", out_on(o, STYLE_BOLD), title, out_off(o, STYLE_BOLD));
    rows_print(args, o, doc_get(document, key), columns, count);
}

/* Where it was called, as a traceback has it: the innermost last. */
static void frames(const struct out *o, struct json_object *document)
{
    struct json_object *list = doc_get(document, "frames");
    size_t count = doc_count(document, "frames");
    char clean[128];

    if (count == 0)
        return;
    printf("\n%sCalled in%s\n", out_on(o, STYLE_BOLD), out_off(o, STYLE_BOLD));
    for (size_t i = count; i-- > 0;)
        printf("  %s\n", out_clean(clean, sizeof(clean),
                                   json_object_get_string(json_object_array_get_idx(list, i))));
}

/* Nobody was asked what an idle card uses: it is assumed, and what others hold is a rest beside it
 * where they were not seen one by one. */
static void figures(const struct args *args, struct json_object *document)
{
    struct json_object *holders = doc_get(document, "holders");
    bool is_assumed = doc_bool(document, "baseline_assumed", false);
    char text[ANALYSIS_TEXT_BYTES];

    for (size_t i = 0; i < ARRAY_SIZE(figure_columns); i++) {
        const struct column *c = &figure_columns[i];
        bool is_rest = strcmp(c->field, "foreign_bytes") == 0 && holders &&
                       json_object_array_length(holders) == 0;
        if (doc_get(document, c->field))
            printf("%-28s %14s%s\n", c->header,
                   rows_format(text, sizeof(text), document, c, args->units),
                   is_assumed && (is_rest || strcmp(c->field, "baseline_bytes") == 0) ? "~" : "");
    }
    if (is_assumed)
        printf("~ what an idle card uses is assumed, not read\n");
}

static int render_report(const struct args *args, const struct out *o, struct json_object *document)
{
    char text[ANALYSIS_TEXT_BYTES], clean[ANALYSIS_TEXT_BYTES];
    bool recovered = doc_bool(document, "recovered", false);

    if (args->format != FORMAT_TABLE) {
        struct json_object *rows = json_object_new_array();
        json_object_array_add(rows, json_object_get(document));
        int code = rows_print(args, o, rows, list_columns, ARRAY_SIZE(list_columns));
        json_object_put(rows);
        return code;
    }
    printf("%s%s%s%s\n%s\n\n", out_on(o, recovered ? STYLE_BOLD : STYLE_BAD),
           out_clean(clean, sizeof(clean), doc_text(document, "verdict", "?")),
           recovered ? " (recovered)" : "", out_off(o, STYLE_BAD),
           out_clean(text, sizeof(text), doc_text(document, "reason", "")));
    figures(args, document);
    frames(o, document);
    section(args, o, document, "Holders of the card", "holders", holder_columns,
            ARRAY_SIZE(holder_columns));
    section(args, o, document, "Largest blocks", "top_blocks", block_columns,
            ARRAY_SIZE(block_columns));
    section(args, o, document, "Newest blocks", "recent", block_columns, ARRAY_SIZE(block_columns));
    if (doc_get(document, "complaint"))
        printf("\nnot used: %s\n",
               out_clean(text, sizeof(text), doc_text(document, "complaint", "")));
    advice_print(args, o, document, "What helps");
    return EXIT_DONE;
}

/* The text of a file, "-": stdin. The caller frees it; NULL with the error said. */
static char *read_text(const char *path, size_t *ret_bytes)
{
    _cleanup_fclose_ FILE *opened = NULL;
    FILE *f = stdin;
    char *text = malloc(TEXT_MAX + 1);

    if (strcmp(path, "-") != 0)
        f = opened = fopen(path, "re");
    if (!f || !text) {
        fail_with(EXIT_RUNTIME, "%s: %s; try: npumem oom explain - < FILE", path, strerror(errno));
        free(text);
        return NULL;
    }
    *ret_bytes = fread(text, 1, TEXT_MAX, f);
    text[*ret_bytes] = '\0';
    return text;
}

static uint64_t wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int explain(const struct args *args, const char *path)
{
    struct error error = {0};
    char host[64] = "";
    size_t bytes = 0;
    struct out o;
    _cleanup_free_ char *text = read_text(path, &bytes);

    if (!text)
        return EXIT_RUNTIME;
    gethostname(host, sizeof(host) - 1);
    _cleanup_free_ char *document = oom_text(text, bytes, host, wall_ns(), &error);
    if (!document)
        return fail(EXIT_NOT_FOUND, &error);
    struct json_object *parsed = json_tokener_parse(document);
    out_init(&o, args);
    int code = parsed ? ask_show(args, &o, parsed, NULL, render_report) : EXIT_RUNTIME;
    json_object_put(parsed);
    return out_finish(&o, code);
}

int verb_oom(const struct args *args)
{
    const char *what = args->operand_count ? args->operands[0] : "list";
    const char *operand = args->operand_count > 1 ? args->operands[1] : NULL;
    struct error error = {0};

    if (rows_check_fields(args, list_columns, ARRAY_SIZE(list_columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    if (strcmp(what, "explain") == 0)
        return explain(args, operand ? operand : "-");
    if (strcmp(what, "show") == 0) {
        struct json_object *parameters = json_object_new_object();
        char *end;
        if (operand) {
            errno = 0;
            long long id = strtoll(operand, &end, 10);
            if (errno || *end || id <= 0) {
                json_object_put(parameters);
                return fail_with(EXIT_USAGE, "%s: not the number of a report; try: npumem oom list",
                                 operand);
            }
            json_object_object_add(parameters, "id", json_object_new_int64(id));
        }
        return ask_and_show(args, "OomShow", parameters, NULL, render_report);
    }
    if (strcmp(what, "list") != 0 || operand)
        return fail_with(EXIT_USAGE,
                         "%s: not something that oom does; try: list, show ID, explain -",
                         operand ? operand : what);
    struct json_object *parameters = ask_filters(args);
    if (args->limit != UINT64_MAX)
        json_object_object_add(parameters, "limit", json_object_new_int64((int64_t)args->limit));
    return ask_and_show(args, "OomList", parameters, NULL, render_list);
}
