/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_events.c - npumem events: one line per event, as it comes.
 */
#include <inttypes.h>
#include <string.h>

#include "ask.h"
#include "client.h"
#include "doc.h"
#include "rows.h"

/* Fixed widths: a stream cannot know what comes. */
static const struct {
    struct column column;
    int width; /* negative: left */
} columns[] = {
    {{"TIME", "time_ns", COLUMN_TIME, true}, -23},
    {{"PID", "tgid", COLUMN_NUMBER, true}, 8},
    {{"TID", "tid", COLUMN_NUMBER, false}, 8},
    {{"KIND", "kind", COLUMN_TEXT, true}, -14},
    {{"ACTION", "action", COLUMN_TEXT, false}, -10},
    {{"REQUESTED", "requested_bytes", COLUMN_BYTES, true}, 12},
    {{"PHYSICAL", "physical_bytes", COLUMN_BYTES, true}, 12},
    {{"BLOCK", "size_bytes", COLUMN_BYTES, true}, 12},
    {{"RESULT", "result", COLUMN_NUMBER, true}, 7},
    {{"ADDRESS", "address", COLUMN_TEXT, true}, -18},
    {{"STREAM", "stream", COLUMN_TEXT, false}, -18},
    {{"API", "api", COLUMN_TEXT, true}, -28},
};

struct stream {
    const struct args *args;
    struct out out;
    uint64_t count;
    bool incomplete;
};

static void print_table_line(const struct stream *s, struct json_object *event)
{
    for (size_t k = 0; k < ARRAY_SIZE(columns); k++) {
        const struct column *c = &columns[k].column;
        char text[128], clean[128];
        if (!c->shown && !s->args->verbose)
            continue;
        /* what an event of this kind does not have is a blank, not an unknown */
        text[0] = '\0';
        if (doc_get(event, c->field))
            rows_format(text, sizeof(text), event, c, s->args->units);
        printf("%*s%s", columns[k].width, out_clean(clean, sizeof(clean), text),
               k + 1 < ARRAY_SIZE(columns) ? " " : "");
    }
    putchar('\n');
}

static void print_header(const struct stream *s)
{
    if (s->args->no_header)
        return;
    if (s->args->format == FORMAT_TABLE)
        fputs(out_on(&s->out, STYLE_BOLD), stdout);
    for (size_t k = 0; k < ARRAY_SIZE(columns); k++) {
        const struct column *c = &columns[k].column;
        if (s->args->format == FORMAT_CSV)
            printf("%s%s", c->field, k + 1 < ARRAY_SIZE(columns) ? "," : "\n");
        else if (c->shown || s->args->verbose)
            printf("%*s ", columns[k].width, c->header);
    }
    if (s->args->format == FORMAT_TABLE)
        printf("%s\n", out_off(&s->out, STYLE_BOLD));
}

static void print_csv_line(struct json_object *event)
{
    for (size_t k = 0; k < ARRAY_SIZE(columns); k++) {
        struct json_object *value = doc_get(event, columns[k].column.field);
        out_csv_cell(value ? json_object_get_string(value) : "");
        putchar(k + 1 < ARRAY_SIZE(columns) ? ',' : '\n');
    }
}

static int on_event(void *userdata, struct json_object *parameters)
{
    struct stream *s = userdata;
    struct json_object *event = doc_get(parameters, "document");

    if (!event)
        return 0;
    int64_t lost = 0;
    s->incomplete |= doc_int(event, "lost_events", &lost) && lost > 0;
    switch (s->args->format) {
    case FORMAT_TABLE:
        print_table_line(s, event);
        break;
    case FORMAT_CSV:
        print_csv_line(event);
        break;
    default:
        out_json(event, true);
    }
    if (fflush(stdout) != 0)
        return 1;
    s->count++;
    return s->count >= s->args->limit;
}

int verb_events(const struct args *args)
{
    struct stream s = {.args = args};
    struct error error = {0};
    _cleanup_(client_freep) struct client *client = NULL;

    if (args->fields.count)
        return fail_with(EXIT_USAGE, "--fields: events have no fixed fields; try: -o jsonl");
    out_init(&s.out, args);
    if (args->limit == 0)
        return EXIT_DONE;
    int r = client_connect(ask_socket(args), args->timeout_ns, &client, &error);
    if (r == 0) {
        struct json_object *parameters = ask_filters(args);
        if (args->format == FORMAT_TABLE || args->format == FORMAT_CSV)
            print_header(&s);
        fflush(stdout);
        r = client_stream(client, "Events", parameters, on_event, &s, &error);
        json_object_put(parameters);
    }
    if (r < 0)
        return fail(exit_code_of(r), &error);
    return out_finish(&s.out, args->strict && s.incomplete ? EXIT_INCOMPLETE : EXIT_DONE);
}
