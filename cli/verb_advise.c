/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_advise.c - npumem advise.
 */
#include "advice_rows.h"
#include "ask.h"
#include "doc.h"

/* The rows of one process, with the others' left out. */
static struct json_object *of_process(struct json_object *document, int64_t tgid)
{
    struct json_object *one = json_object_new_object(), *rows = json_object_new_array();

    for (size_t i = 0; i < doc_count(document, "advice"); i++) {
        struct json_object *row = doc_item(document, "advice", i);
        int64_t of = 0;
        if (doc_int(row, "tgid", &of) && of == tgid)
            json_object_array_add(rows, json_object_get(row));
    }
    json_object_object_add(one, "advice", rows);
    return one;
}

static void print_process(const struct args *args, const struct out *o,
                          struct json_object *document, struct json_object *row, int64_t tgid)
{
    struct json_object *one = of_process(document, tgid);
    char title[96];
    int64_t rank;

    if (doc_int(row, "rank", &rank))
        snprintf(title, sizeof(title), "rank %lld, process %lld", (long long)rank, (long long)tgid);
    else
        snprintf(title, sizeof(title), "process %lld", (long long)tgid);
    advice_print(args, o, one, title);
    json_object_put(one);
}

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    int64_t last = -1, processes = 0;

    if (args->format != FORMAT_TABLE || args->fields.count)
        return rows_print(args, o, doc_get(document, "advice"), advice_columns,
                          advice_column_count);
    doc_int(document, "processes", &processes);
    if (!doc_count(document, "advice"))
        printf("nothing to advise on %lld process%s: no setting has evidence that it would help\n",
               (long long)processes, processes == 1 ? "" : "es");
    for (size_t i = 0; i < doc_count(document, "advice"); i++) {
        struct json_object *row = doc_item(document, "advice", i);
        int64_t tgid;
        if (!doc_int(row, "tgid", &tgid) || tgid == last)
            continue;
        print_process(args, o, document, row, tgid);
        last = tgid;
    }
    return EXIT_DONE;
}

int verb_advise(const struct args *args)
{
    struct error error = {0};
    if (rows_check_fields(args, advice_columns, advice_column_count, &error) < 0)
        return fail(EXIT_USAGE, &error);
    return ask_and_show(args, "Advise", ask_filters(args), NULL, render);
}
