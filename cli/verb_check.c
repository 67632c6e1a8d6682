/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_check.c - npumem check: what npumemd needs of this host, one line each, with the fix.
 *
 * Owns: the list of needs. Works without the daemon, changes nothing, and asks the kernel itself
 * where it can (a ring buffer is made, not deduced from a version).
 */
#include <string.h>

#include "ask.h"
#include "check.h"
#include "doc.h"
#include "rows.h"

static const struct need {
    const char *name;
    void (*probe)(const struct args *args, struct finding *f);
} needs[] = {
    {"kernel", check_kernel},
    {"privileges", check_privileges},
    {"bpf", check_bpf},
    {"lockdown", check_lockdown},
    {"uprobes", check_uprobes},
    {"return_probes", check_return_probes},
    {"uprobe_multi", check_uprobe_multi},
    {"btf", check_btf},
    {"perf_events", check_perf_events},
    {"late_attach", check_late_attach},
    {"driver", check_driver},
    {"daemon", check_daemon},
    {"processes", check_processes},
};

static const char *const state_names[] = {
    [STATE_OK] = "ok", [STATE_INFO] = "info", [STATE_MISSING] = "missing"};

static const struct column columns[] = {
    {"NEED", "need", COLUMN_TEXT, true},
    {"STATE", "state", COLUMN_TEXT, true},
    {"DETAIL", "detail", COLUMN_TEXT, true},
    {"FIX", "fix", COLUMN_TEXT, true},
};

static void print_line(const struct out *o, const char *name, const struct finding *f)
{
    static const enum out_style styles[] = {
        [STATE_OK] = STYLE_GOOD, [STATE_INFO] = STYLE_DIM, [STATE_MISSING] = STYLE_BAD};
    char detail[sizeof(f->detail)];

    printf("%s%-8s%s %-13s %s", out_on(o, styles[f->state]), state_names[f->state],
           out_off(o, styles[f->state]), name, out_clean(detail, sizeof(detail), f->detail));
    if (f->fix[0])
        printf("; try: %s", f->fix);
    putchar('\n');
}

static struct json_object *row_of(const char *name, const struct finding *f)
{
    struct json_object *row = json_object_new_object();
    char detail[sizeof(f->detail)];

    json_object_object_add(row, "need", json_object_new_string(name));
    json_object_object_add(row, "state", json_object_new_string(state_names[f->state]));
    json_object_object_add(row, "detail",
                           json_object_new_string(out_clean(detail, sizeof(detail), f->detail)));
    json_object_object_add(row, "fix", f->fix[0] ? json_object_new_string(f->fix) : NULL);
    return row;
}

static void print_document(struct json_object *rows, bool ready)
{
    struct json_object *document = json_object_new_object();

    json_object_object_add(document, "schema_version", json_object_new_int(1));
    json_object_object_add(document, "complete", json_object_new_boolean(true));
    json_object_object_add(document, "lost_events", json_object_new_int(0));
    check_header(document);
    json_object_object_add(document, "ready", json_object_new_boolean(ready));
    json_object_object_add(document, "needs", json_object_get(rows));
    out_json(document, false);
    json_object_put(document);
}

int verb_check(const struct args *args)
{
    struct json_object *rows = json_object_new_array();
    struct error error = {0};
    bool ready = true;
    struct out o;

    if (rows_check_fields(args, columns, ARRAY_SIZE(columns), &error) < 0) {
        json_object_put(rows);
        return fail(EXIT_USAGE, &error);
    }
    out_init(&o, args);
    for (size_t i = 0; i < ARRAY_SIZE(needs); i++) {
        struct finding f = {.state = STATE_OK};
        needs[i].probe(args, &f);
        ready &= f.state != STATE_MISSING;
        json_object_array_add(rows, row_of(needs[i].name, &f));
        if (args->format == FORMAT_TABLE && args->fields.count == 0 &&
            !(args->quiet && f.state != STATE_MISSING))
            print_line(&o, needs[i].name, &f);
    }
    if (args->format == FORMAT_JSON)
        print_document(rows, ready);
    else if (args->format != FORMAT_TABLE || args->fields.count)
        rows_print(args, &o, rows, columns, ARRAY_SIZE(columns));
    json_object_put(rows);
    return out_finish(&o, ready ? EXIT_DONE : EXIT_RUNTIME);
}
