/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_inefficient.c - npumem inefficient [--pid PID] [--for TIME].
 */
#include <errno.h>
#include <inttypes.h>

#include "ask.h"
#include "doc.h"
#include "rows.h"

#define FOR_NS_DEFAULT 10000000000ull
#define LIMIT_DEFAULT 30

static const struct column columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, false},
    {"RANK", "rank", COLUMN_NUMBER, false},
    {"DEVICE", "device", COLUMN_NUMBER, false},
    {"KIND", "kind", COLUMN_TEXT, true},
    {"SIZE", "size_bytes", COLUMN_BYTES, true},
    {"IDLE", "idle_ns", COLUMN_DURATION, true},
    {"OF ITS TIME", "idle_ratio", COLUMN_RATIO, true},
    {"SIZE X SECONDS", "byte_seconds", COLUMN_BYTES, true},
    {"SENSE", "sense", COLUMN_TEXT, true},
    {"OPERATIONS", "idle_operations", COLUMN_NUMBER, true},
    {"USES", "uses", COLUMN_NUMBER, true},
    {"FREED", "freed", COLUMN_BOOL, false},
    {"BEFORE", "held_before", COLUMN_BOOL, false},
    {"OWNER", "owner", COLUMN_TEXT, true},
    {"NAME", "name", COLUMN_TEXT, false},
    {"ADDRESS", "address", COLUMN_TEXT, true},
    {"STREAM", "stream", COLUMN_TEXT, false},
    {"ALLOCATED", "allocated_ns", COLUMN_TIME, false},
    {"TENSOR OR FRAME", "where", COLUMN_LONG, true},
};

/* What a table shows beside the members of a finding. */
static void add_shown(struct json_object *finding)
{
    struct json_object *operations = doc_get(finding, "operations");
    size_t senses = doc_count(finding, "senses");
    const char *frame = json_object_get_string(doc_item(finding, "frames", 0));
    const char *where = doc_text(finding, "name", frame ? frame : "");
    const char *sense = json_object_get_string(doc_item(finding, "senses", 0));

    json_object_object_add(finding, "sense",
                           json_object_new_string(senses > 1 ? "both"
                                                  : sense    ? sense
                                                             : ""));
    json_object_object_add(finding, "idle_operations",
                           json_object_get(doc_get(operations, "idle")));
    json_object_object_add(finding, "where", json_object_new_string(where));
}

static void print_head(const struct out *o, struct json_object *document)
{
    int64_t operations = 0, uses = 0, blocks = 0, work = 0;
    struct json_object *window = doc_get(document, "window");
    char text[512], duration[UNITS_TEXT_BYTES];

    printf("%s%s%s\n", out_on(o, STYLE_BOLD),
           out_clean(text, sizeof(text), doc_text(document, "verdict", "no verdict")),
           out_off(o, STYLE_BOLD));
    doc_int(window, "operations", &operations);
    doc_int(window, "uses", &uses);
    doc_int(window, "blocks", &blocks);
    doc_int(window, "work_ns", &work);
    printf("%s%" PRId64 " operations used %" PRId64 " blocks %" PRId64 " times in %s of work%s%s\n",
           out_on(o, STYLE_DIM), operations, blocks, uses,
           units_format_duration(duration, work > 0 ? (uint64_t)work : 0),
           doc_bool(window, "ended_early", false) ? "; the process ended before the window did"
                                                  : "",
           out_off(o, STYLE_DIM));
    for (size_t i = 0; i < doc_count(document, "hidden"); i++)
        printf(
            "%snot seen: %s%s\n", out_on(o, STYLE_DIM),
            out_clean(text, sizeof(text), json_object_get_string(doc_item(document, "hidden", i))),
            out_off(o, STYLE_DIM));
}

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    bool text = args->format == FORMAT_TABLE && !args->quiet && !args->fields.count;
    size_t shown = doc_count(document, "findings");
    int64_t matched = 0;
    int code;

    for (size_t i = 0; i < shown; i++)
        add_shown(doc_item(document, "findings", i));
    if (text)
        print_head(o, document);
    if (text && shown == 0)
        return EXIT_DONE;
    if (text)
        putchar('\n');
    code = rows_print(args, o, doc_get(document, "findings"), columns, ARRAY_SIZE(columns));
    if (text && code == EXIT_DONE && doc_int(document, "matched_findings", &matched) &&
        matched > (int64_t)shown)
        printf("%s%" PRId64 " more (--limit)%s\n", out_on(o, STYLE_DIM), matched - (int64_t)shown,
               out_off(o, STYLE_DIM));
    return code;
}

/* The only process with an allocator. Returns 0; an exit code after the message. */
static int find_process(const struct args *args, int64_t *ret)
{
    struct json_object *document = NULL;
    struct error error = {0};
    int64_t tgid = 0, count = 0;
    int r = ask(args, "Ps", NULL, &document, &error);

    if (r < 0)
        return fail(exit_code_of(r), &error);
    for (size_t i = 0; i < doc_count(document, "ranks"); i++) {
        struct json_object *row = doc_item(document, "ranks", i);
        int64_t reserved = 0, other = 0;
        if (!doc_int(row, "reserved_bytes", &reserved) || reserved <= 0 ||
            !doc_int(row, "tgid", &other) || other == tgid)
            continue;
        tgid = other;
        count++;
    }
    json_object_put(document);
    if (count == 1) {
        *ret = tgid;
        return 0;
    }
    error_set(&error, EINVAL, "--pid: %s",
              count ? "several processes have an allocator"
                    : "no observed process has an allocator");
    error_fix(&error, 0, "npumem ps");
    return fail(count ? EXIT_USAGE : EXIT_NOT_FOUND, &error);
}

int verb_inefficient(const struct args *args)
{
    struct args longer = *args;
    struct error error = {0};
    int64_t tgid = args->tgids.items[0];

    if (rows_check_fields(args, columns, ARRAY_SIZE(columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    if (args->tgids.count > 1) {
        error_set(&error, EINVAL, "--pid: one process at a time");
        error_fix(&error, 0, "--pid %" PRId64, tgid);
        return fail(EXIT_USAGE, &error);
    }
    int code = args->tgids.count ? 0 : find_process(args, &tgid);
    if (code)
        return code;
    uint64_t for_ns = args->for_ns ? args->for_ns : FOR_NS_DEFAULT;
    uint64_t limit = args->limit == UINT64_MAX ? args->format == FORMAT_TABLE ? LIMIT_DEFAULT : 1000
                                               : args->limit;
    struct json_object *p = json_object_new_object();
    json_object_object_add(p, "tgid", json_object_new_int64(tgid));
    json_object_object_add(p, "for_ns", json_object_new_int64((int64_t)for_ns));
    json_object_object_add(p, "limit", json_object_new_int64((int64_t)limit));
    if (args->idle_ns)
        json_object_object_add(p, "idle_ns", json_object_new_int64((int64_t)args->idle_ns));
    if (args->operations != UINT64_MAX)
        json_object_object_add(p, "operations", json_object_new_int64((int64_t)args->operations));
    if (args->min_size_bytes)
        json_object_object_add(p, "min_bytes",
                               json_object_new_int64((int64_t)args->min_size_bytes));
    longer.timeout_ns += for_ns; /* the answer comes at its end */
    return ask_and_show(&longer, "Inefficient", p, NULL, render);
}
