/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_budget.c - npumem budget: the plan of each rank's KV cache, terms by ranks.
 */
#include <stdio.h>
#include <string.h>

#include "advice_rows.h"
#include "ask.h"
#include "doc.h"
#include "kv_history_rows.h"
#include "kv_usage.h"
#include "rows.h"
#include "table.h"

#define RANKS_PER_TABLE 6

static const struct column flat_columns[] = {
    {"PID", "tgid", COLUMN_NUMBER, true},
    {"RANK", "rank", COLUMN_NUMBER, true},
    {"DEVICE", "device", COLUMN_NUMBER, true},
    {"VERDICT", "verdict", COLUMN_TEXT, true},
    {"UTILIZATION", "utilization", COLUMN_NUMBER, true},
    {"CARD", "card_total_bytes", COLUMN_BYTES, true},
    {"BUDGET", "budget_bytes", COLUMN_BYTES, true},
    {"WEIGHTS", "weights_bytes", COLUMN_BYTES, true},
    {"PEAK", "profile_peak_bytes", COLUMN_BYTES, true},
    {"NON-TORCH", "non_torch_bytes", COLUMN_BYTES, true},
    {"AVAILABLE", "available_bytes", COLUMN_BYTES, true},
    {"KV CACHE", "kv_cache_bytes", COLUMN_BYTES, true},
    {"GRAPH", "graph_bytes", COLUMN_BYTES, true},
    {"BUFFERS", "input_buffers_bytes", COLUMN_BYTES, false},
    {"BESIDE WEIGHTS", "loaded_beside_weights_bytes", COLUMN_BYTES, false},
    {"SLACK", "pool_slack_bytes", COLUMN_BYTES, false},
    {"LATER", "non_torch_later_bytes", COLUMN_BYTES, false},
    {"OTHERS", "others_at_start_bytes", COLUMN_BYTES, false},
    {"OTHERS GREW", "others_grew_bytes", COLUMN_BYTES, false},
    {"SUM", "sum_bytes", COLUMN_BYTES, false},
    {"UNPLANNED", "unplanned_bytes", COLUMN_BYTES, false},
    {"STATE", "state", COLUMN_TEXT, false},
    {"WHY", "reason", COLUMN_LONG, false},
};

/* The lines of the table; term NULL: not one of terms[]. */
static const struct {
    const char *label, *term;
    bool is_result, is_unplanned;
} lines[] = {
    {"card", "card_total", false, false},
    {"x utilization", NULL, false, false},
    {"= budget", "budget", true, false},
    {"- weights", "weights", false, false},
    {"- peak of the profile run", "profile_peak", false, false},
    {"- non-torch", "non_torch", false, false},
    {"= available for KV", "available", true, false},
    {"KV cache took", "kv_cache", true, false},
    {"graph capture", "graph", false, true},
    {"input buffers", "input_buffers", false, true},
    {"loaded beside weights", "loaded_beside_weights", false, true},
    {"slack of the pool", "pool_slack", false, true},
    {"non-torch since then", "non_torch_later", false, true},
    {"others, at start", "others_at_start", false, false},
    {"others, grew meanwhile", "others_grew", false, false},
};

static struct json_object *term_of(struct json_object *rank, const char *name)
{
    for (size_t i = 0; i < doc_count(rank, "terms"); i++) {
        struct json_object *term = doc_item(rank, "terms", i);
        if (strcmp(doc_text(term, "term", ""), name) == 0)
            return term;
    }
    return NULL;
}

static void cell(const struct args *args, struct table *t, size_t column, struct json_object *rank,
                 size_t line)
{
    static const struct column bytes = {"", "bytes", COLUMN_BYTES, true};
    char text[64], shown[72];

    if (!lines[line].term) {
        struct json_object *value = doc_get(rank, "utilization");
        bool told = strcmp(doc_text(rank, "utilization_source", ""), "command line") == 0;
        snprintf(shown, sizeof(shown), "%s%.2f", value && !told ? "~" : "",
                 json_object_get_double(value));
        table_cell(t, column, value ? shown : "?");
        return;
    }
    struct json_object *term = term_of(rank, lines[line].term);
    rows_format(text, sizeof(text), term, &bytes, args->units);
    snprintf(shown, sizeof(shown), "%s%s", doc_bool(term, "inferred", false) ? "~" : "", text);
    table_cell(t, column, shown);
}

static int print_table(const struct args *args, const struct out *o, struct json_object *document,
                       size_t first, size_t count)
{
    _cleanup_(table_freep) struct table *t = table_new(count + 1);
    char text[32];

    if (!t)
        return -ENOMEM;
    for (size_t i = 1; i <= count; i++)
        table_column(t, i, true, false);
    table_row(t, STYLE_BOLD);
    table_cell(t, 0, "TERM");
    for (size_t i = 0; i < count; i++) {
        struct json_object *rank = doc_item(document, "ranks", first + i);
        int64_t number;
        if (doc_int(rank, "rank", &number))
            snprintf(text, sizeof(text), "rank %lld", (long long)number);
        else
            snprintf(text, sizeof(text), "pid %lld",
                     doc_int(rank, "tgid", &number) ? (long long)number : 0);
        table_cell(t, i + 1, text);
    }
    for (size_t line = 0; line < ARRAY_SIZE(lines); line++) {
        if (lines[line].is_unplanned && !lines[line - 1].is_unplanned) {
            table_row(t, STYLE_DIM);
            table_cell(t, 0, "not in the plan:");
        }
        table_row(t, lines[line].is_result ? STYLE_BOLD : STYLE_PLAIN);
        table_cell(t, 0, lines[line].label);
        for (size_t i = 0; i < count; i++)
            cell(args, t, i + 1, doc_item(document, "ranks", first + i), line);
    }
    return table_print(t, o);
}

static void print_verdict(const struct out *o, struct json_object *rank)
{
    char text[512], comm[64];
    const char *verdict = doc_text(rank, "verdict", "?");
    bool good = strcmp(verdict, "FITS") == 0, open = strcmp(verdict, "INCOMPLETE") == 0;
    enum out_style style = good ? STYLE_GOOD : open ? STYLE_BOLD : STYLE_BAD;
    int64_t tgid = 0, number;

    doc_int(rank, "tgid", &tgid);
    if (doc_int(rank, "rank", &number))
        printf("rank %lld, ", (long long)number);
    printf("pid %lld", (long long)tgid);
    if (doc_int(rank, "device", &number))
        printf(", device %lld", (long long)number);
    if (strcmp(doc_text(rank, "state", ""), "exited") == 0)
        printf(", exited");
    printf(" (%s): %s%s%s, %s\n", out_clean(comm, sizeof(comm), doc_text(rank, "comm", "?")),
           out_on(o, style), verdict, out_off(o, style),
           out_clean(text, sizeof(text), doc_text(rank, "reason", "")));
    if (doc_get(rank, "complaint"))
        printf("  not used: %s\n", out_clean(text, sizeof(text), doc_text(rank, "complaint", "")));
}

/* One line per reason, with the terms that it makes unknown. */
static void print_unknown(const struct out *o, struct json_object *rank)
{
    char said[256] = "", text[128];

    for (size_t i = 0; i < doc_count(rank, "terms"); i++) {
        const char *reason = doc_text(doc_item(rank, "terms", i), "reason", NULL);
        if (!reason || strstr(said, reason))
            continue;
        snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", reason);
        printf("%s? ", out_on(o, STYLE_DIM));
        const char *comma = "";
        for (size_t k = i; k < doc_count(rank, "terms"); k++) {
            struct json_object *term = doc_item(rank, "terms", k);
            if (strcmp(doc_text(term, "reason", ""), reason) != 0)
                continue;
            printf("%s%s", comma, out_clean(text, sizeof(text), doc_text(term, "term", "?")));
            comma = ", ";
        }
        printf(": unknown: %s%s\n", out_clean(text, sizeof(text), reason), out_off(o, STYLE_DIM));
    }
}

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    struct json_object *ranks = doc_get(document, "ranks");
    size_t count = doc_count(document, "ranks");

    if (args->format != FORMAT_TABLE || args->fields.count)
        return rows_print(args, o, ranks, flat_columns, ARRAY_SIZE(flat_columns));
    if (!count)
        printf("no process with an allocator of torch_npu is observed\n");
    for (size_t i = 0; i < count; i++)
        print_verdict(o, doc_item(document, "ranks", i));
    for (size_t i = 0; i < count; i += RANKS_PER_TABLE) {
        printf("\n");
        if (print_table(args, o, document, i,
                        count - i < RANKS_PER_TABLE ? count - i : RANKS_PER_TABLE) < 0)
            return EXIT_RUNTIME;
    }
    kv_history_print(args, o, document);
    kv_usage_print(args, o, document);
    for (size_t i = 0; i < count; i++) {
        struct json_object *rank = doc_item(document, "ranks", i);
        char title[64] = "What helps";
        int64_t number;
        if (!args->quiet)
            print_unknown(o, rank);
        if (doc_int(rank, "rank", &number))
            snprintf(title, sizeof(title), "What helps rank %lld", (long long)number);
        advice_print(args, o, rank, title);
    }
    return EXIT_DONE;
}

int verb_budget(const struct args *args)
{
    struct error error = {0};
    if (rows_check_fields(args, flat_columns, ARRAY_SIZE(flat_columns), &error) < 0)
        return fail(EXIT_USAGE, &error);
    struct json_object *parameters = ask_filters(args);
    ask_period(args, parameters);
    return ask_extend_and_show(args, "Budget", parameters, kv_usage_add, "ranks", render);
}
