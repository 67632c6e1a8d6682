/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_status.c - npumem status.
 */
#include <string.h>

#include "ask.h"
#include "doc.h"
#include "rows.h"

static const struct column target_columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, true},
    {"RANK", "rank", COLUMN_NUMBER, true},
    {"STATE", "state", COLUMN_TEXT, true},
    {"LEVEL", "level", COLUMN_TEXT, true},
    {"COVERAGE", "coverage", COLUMN_TEXT, true},
    {"NAMES", "names_read", COLUMN_TEXT, true},
    {"BLOCKS READ", "blocks_read", COLUMN_TEXT, false},
    {"OVERHEAD", "overhead_ratio", COLUMN_RATIO, true},
    {"WHY", "reason", COLUMN_LONG, true},
    {"WHY NO NAMES", "names_reason", COLUMN_LONG, false},
    {"WHY NO BLOCKS", "blocks_reason", COLUMN_LONG, false},
};

static const struct column probe_columns[] = {
    {"LIBRARY", "library", COLUMN_LONG, true}, {"SYMBOL", "symbol", COLUMN_LONG, true},
    {"KIND", "kind", COLUMN_TEXT, true},       {"STATE", "state", COLUMN_TEXT, true},
    {"HITS", "hits", COLUMN_NUMBER, true},     {"COST", "cost_ns", COLUMN_DURATION, true},
};

struct line {
    const char *label, *object, *field;
    enum column_kind kind;
};

/* One line of the head: several figures of one object. */
static void print_line(const struct args *args, const struct out *o, struct json_object *document,
                       const char *label, const struct line *fields, size_t count)
{
    printf("%s%-9s%s", out_on(o, STYLE_BOLD), label, out_off(o, STYLE_BOLD));
    for (size_t i = 0; i < count; i++) {
        struct json_object *object =
            fields[i].object ? doc_get(document, fields[i].object) : document;
        struct column column = {.field = fields[i].field, .kind = fields[i].kind};
        char text[256], clean[256];
        rows_format(text, sizeof(text), object, &column, args->units);
        printf("%s%s%s%s", i ? ", " : " ", fields[i].label, fields[i].label[0] ? " " : "",
               out_clean(clean, sizeof(clean), text));
    }
    putchar('\n');
}

static void print_head(const struct args *args, const struct out *o, struct json_object *document)
{
    static const struct line daemon[] = {{"version", "daemon", "version", COLUMN_TEXT},
                                         {"up", "daemon", "uptime_ns", COLUMN_DURATION},
                                         {"memory", "daemon", "rss_bytes", COLUMN_BYTES},
                                         {"cpu", "daemon", "cpu_ns", COLUMN_DURATION}};
    static const struct line kernel[] = {{"", NULL, "kernel", COLUMN_TEXT}};
    static const struct line events[] = {
        {"received", "events", "received", COLUMN_NUMBER},
        {"lost", "events", "lost", COLUMN_NUMBER},
        {"malformed", "events", "decode_errors", COLUMN_NUMBER},
        {"frees of unknown memory", "events", "unmatched_frees", COLUMN_NUMBER}};
    static const struct line store[] = {{"size", "store", "bytes", COLUMN_BYTES},
                                        {"oldest", "store", "oldest_ns", COLUMN_TIME}};

    print_line(args, o, document, "daemon", daemon, ARRAY_SIZE(daemon));
    print_line(args, o, document, "kernel", kernel, ARRAY_SIZE(kernel));
    print_line(args, o, document, "events", events, ARRAY_SIZE(events));
    print_line(args, o, document, "store", store, ARRAY_SIZE(store));
}

static void print_probe_counts(const struct out *o, struct json_object *document)
{
    size_t count = doc_count(document, "probes"), attached = 0;
    for (size_t i = 0; i < count; i++)
        attached += strcmp(doc_text(doc_item(document, "probes", i), "state", ""), "attached") == 0;
    printf("%sprobes%s    %zu, %zu attached\n", out_on(o, STYLE_BOLD), out_off(o, STYLE_BOLD),
           count, attached);
}

/* Somebody must end them. */
static void print_labels(const struct out *o, struct json_object *document)
{
    for (size_t i = 0; i < doc_count(document, "labels"); i++) {
        struct json_object *label = doc_item(document, "labels", i);
        struct column columns[] = {{.field = "owner", .kind = COLUMN_TEXT},
                                   {.field = "tgid", .kind = COLUMN_NUMBER},
                                   {.field = "begin_ns", .kind = COLUMN_TIME}};
        bool all = !doc_get(label, "tgid");
        char text[3][128], clean[128];
        for (size_t k = 0; k < 3; k++)
            rows_format(text[k], sizeof(text[k]), label, &columns[k], 0);
        printf("%slabel%s     %s: what %s%s allocates since %s\n", out_on(o, STYLE_BOLD),
               out_off(o, STYLE_BOLD), out_clean(clean, sizeof(clean), text[0]),
               all ? "every process" : "pid ", all ? "" : text[1], text[2]);
    }
}

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    int code;

    if (args->format != FORMAT_TABLE) /* rows of targets: the part that is a list for programs */
        return rows_print(args, o, doc_get(document, "targets"), target_columns,
                          ARRAY_SIZE(target_columns));
    print_head(args, o, document);
    print_probe_counts(o, document);
    print_labels(o, document);
    putchar('\n');
    if (doc_count(document, "targets") == 0) {
        printf("no process is observed: none that runs maps a CANN library\n");
        code = EXIT_DONE;
    } else {
        code = rows_print(args, o, doc_get(document, "targets"), target_columns,
                          ARRAY_SIZE(target_columns));
    }
    if (code == EXIT_DONE && args->verbose && doc_count(document, "probes")) {
        struct args all = *args;
        all.fields.count = 0;
        putchar('\n');
        code = rows_print(&all, o, doc_get(document, "probes"), probe_columns,
                          ARRAY_SIZE(probe_columns));
    }
    return code;
}

int verb_status(const struct args *args)
{
    struct error error = {0};
    if (rows_check_fields(args, target_columns, ARRAY_SIZE(target_columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    return ask_and_show(args, "Status", NULL, NULL, render);
}
