/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_history_rows.c - see kv_history_rows.h.
 */
#include "kv_history_rows.h"

#include <stdio.h>

#include "doc.h"
#include "rows.h"

static double number(struct json_object *row, const char *key)
{
    return json_object_get_double(doc_get(row, key));
}

static const char *shown(char text[64], struct json_object *row, const char *key,
                         enum column_kind kind, const struct args *args)
{
    const struct column column = {"", key, kind, true};

    return rows_format(text, 64, row, &column, args->units);
}

static void print_fullest(const struct args *args, struct json_object *row)
{
    char most[64], reserved[64], time[64];

    printf("  fullest %.1f %%", number(row, "most_ratio") * 100);
    if (doc_get(row, "most_bytes"))
        printf(" (%s of %s per rank)", shown(most, row, "most_bytes", COLUMN_BYTES, args),
               shown(reserved, row, "reserved_bytes", COLUMN_BYTES, args));
    printf(" on %s", shown(time, row, "most_ns", COLUMN_TIME, args));
    if (doc_get(row, "most_running"))
        printf(", %.0f requests ran, %.0f waited", number(row, "most_running"),
               number(row, "most_waiting"));
    if (doc_get(row, "usage_ratio"))
        printf("; now %.1f %%", number(row, "usage_ratio") * 100);
    printf("\n");
}

void kv_fit_print(const struct args *args, struct json_object *row)
{
    char bytes[64];
    int64_t tokens;
    bool has_bytes = doc_get(row, "fits_bytes") != NULL;
    bool has_utilization = doc_get(row, "fits_utilization") != NULL;
    bool has_tokens = doc_int(row, "fits_model_len", &tokens);

    if (!has_bytes && !has_tokens)
        return;
    printf("  fits: ");
    if (has_utilization)
        printf("gpu_memory_utilization %.2f, ", number(row, "fits_utilization"));
    if (has_bytes)
        printf("%s of KV cache hold the fullest and a tenth more%s",
               shown(bytes, row, "fits_bytes", COLUMN_BYTES, args), has_tokens ? "; " : "");
    if (has_tokens)
        printf("max_model_len up to %lld tokens (one request alone)", (long long)tokens);
    printf("\n");
}

static void print_row(const struct args *args, struct json_object *row)
{
    char since[64], known[64], interval[64], full[64];

    printf(" since %s: %s known, read every %s\n", shown(since, row, "since_ns", COLUMN_TIME, args),
           shown(known, row, "known_ns", COLUMN_DURATION, args),
           shown(interval, row, "interval_ns", COLUMN_DURATION, args));
    print_fullest(args, row);
    printf("  half of the time at most %.0f %% full, 95 %% of it at most %.0f %%, 99 %% of it at "
           "most %.0f %%; 90 %% or more for %s\n",
           number(row, "p50_ratio") * 100, number(row, "p95_ratio") * 100,
           number(row, "p99_ratio") * 100, shown(full, row, "full_ns", COLUMN_DURATION, args));
    kv_fit_print(args, row);
}

void kv_history_print(const struct args *args, const struct out *o, struct json_object *document)
{
    char reason[256];

    for (size_t i = 0; i < doc_count(document, "kv_history"); i++) {
        struct json_object *row = doc_item(document, "kv_history", i);
        bool is_known = doc_get(row, "most_ratio") != NULL;
        int64_t tgid = 0, replica;
        if (!is_known && args->quiet)
            continue;
        doc_int(row, "server_tgid", &tgid);
        printf("%s%sKV cache of server %lld", i ? "" : "\n", is_known ? "" : out_on(o, STYLE_DIM),
               (long long)tgid);
        if (doc_int(row, "replica", &replica))
            printf(", replica %lld", (long long)replica);
        if (doc_text(row, "state", "")[0] == 'e')
            printf(" (exited)");
        if (is_known)
            print_row(args, row);
        else
            printf(": not followed: %s%s\n",
                   out_clean(reason, sizeof(reason), doc_text(row, "reason", "not told")),
                   out_off(o, STYLE_DIM));
    }
}
