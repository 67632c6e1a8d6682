/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advice_rows.c - see advice_rows.h.
 */
#include "advice_rows.h"

#include <string.h>

#include "doc.h"

const struct column advice_columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, false},
    {"RANK", "rank", COLUMN_NUMBER, false},
    {"SETTING", "setting", COLUMN_TEXT, true},
    {"FROM", "from", COLUMN_LONG, true},
    {"TO", "to", COLUMN_LONG, true},
    {"SAVES", "saves_bytes", COLUMN_BYTES, true},
    {"CONFIDENCE", "confidence", COLUMN_TEXT, true},
    {"WHY", "evidence", COLUMN_LONG, true},
    {"MORE", "verb", COLUMN_TEXT, false},
    {"WHERE", "where", COLUMN_TEXT, false},
    {"RESTART", "restart", COLUMN_BOOL, false},
};
const size_t advice_column_count = ARRAY_SIZE(advice_columns);

/* The next action: where the setting goes, and whether the process has to start anew. */
static void print_action(struct json_object *advice)
{
    static const struct {
        const char *where, *text;
    } actions[] = {
        {"environment", "a variable of the process's environment"},
        {"program", "a change in the program that runs there"},
        {"server", "an option of the server's command line"},
        {"card", "on the card, this process can go on"},
    };
    const char *where = doc_text(advice, "where", NULL);
    bool restart = doc_bool(advice, "restart", false);

    for (size_t i = 0; where && i < ARRAY_SIZE(actions); i++)
        if (strcmp(actions[i].where, where) == 0)
            printf("   where: %s%s\n", actions[i].text,
                   restart ? "; takes effect after a restart" : "");
}

/* Evidence is a sentence: it gets lines of its own instead of a column that is cut. */
void advice_print(const struct args *args, const struct out *o, struct json_object *object,
                  const char *title)
{
    char text[512], setting[128], from[128], to[256];

    if (doc_count(object, "advice") == 0)
        return;
    printf("\n%s%s%s\n", out_on(o, STYLE_BOLD), title, out_off(o, STYLE_BOLD));
    for (size_t i = 0; i < doc_count(object, "advice"); i++) {
        struct json_object *a = doc_item(object, "advice", i);
        const char *before = doc_text(a, "from", NULL), *verb = doc_text(a, "verb", NULL);
        static const struct column saves = {"", "saves_bytes", COLUMN_BYTES, true};
        bool is_variable = strcmp(doc_text(a, "where", ""), "environment") == 0;
        out_clean(setting, sizeof(setting), doc_text(a, "setting", "?"));
        out_clean(from, sizeof(from), before ? before : "");
        out_clean(to, sizeof(to), doc_text(a, "to", "?"));
        printf("%zu. %s%s%s: %s%s%s", i + 1, out_on(o, STYLE_BOLD), setting, out_off(o, STYLE_BOLD),
               before        ? from
               : is_variable ? "not set"
                             : "",
               before || is_variable ? " -> " : "", to);
        if (doc_get(a, "saves_bytes"))
            printf("  (saves %s)", rows_format(text, sizeof(text), a, &saves, args->units));
        out_clean(text, sizeof(text), doc_text(a, "evidence", ""));
        printf("\n   %s; confidence %s", text, doc_text(a, "confidence", "?"));
        if (verb)
            printf("; more: npumem %s", out_clean(setting, sizeof(setting), verb));
        printf("\n");
        print_action(a);
    }
}
