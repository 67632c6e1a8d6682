/* SPDX-License-Identifier: Apache-2.0 */
/*
 * breakdown_notes.c - below the table: the sum against each card, and why figures are unknown.
 */
#include <inttypes.h>
#include <string.h>

#include "breakdown.h"
#include "doc.h"

#define TEXT_BYTES 256

static void print_part(const struct args *args, struct json_object *device, const char *sign,
                       const char *label, const char *field)
{
    char unit[UNITS_TEXT_BYTES];
    int64_t bytes;

    if (doc_int(device, field, &bytes))
        printf("%s%s %s", sign, units_format_signed_bytes(unit, bytes, args->units), label);
    else
        printf("%s? %s", sign, label);
}

/* device 0: 40.00 GiB used of 64.00 GiB = 35.00 GiB attributed + ... */
void breakdown_devices(const struct args *args, const struct out *o, struct json_object *document)
{
    for (size_t i = 0; i < doc_count(document, "devices"); i++) {
        struct json_object *d = doc_item(document, "devices", i);
        struct json_object *balanced = doc_get(d, "balanced");
        bool ok = doc_bool(d, "balanced", false);
        int64_t device = 0;

        doc_int(d, "device", &device);
        printf("%sdevice %" PRId64 "%s  ", out_on(o, STYLE_BOLD), device, out_off(o, STYLE_BOLD));
        print_part(args, d, "", "used", "used_bytes");
        print_part(args, d, " of ", "=", "total_bytes");
        print_part(args, d, " ", "attributed", "attributed_bytes");
        print_part(args, d, " + ", "other processes", "other_processes_bytes");
        print_part(args, d, " + ", "driver side", "driver_side_bytes");
        print_part(args, d, " + ", "unattributed", "unattributed_bytes");
        enum out_style style = !balanced ? STYLE_DIM : ok ? STYLE_GOOD : STYLE_BAD;
        printf("  %s%s%s\n", out_on(o, style),
               !balanced ? "unknown"
               : ok      ? "balanced"
                         : "UNBALANCED",
               out_off(o, style));
    }
}

#define REASONS_MAX 16

/* Every reason for a "?" once, with what it is about. */
struct reasons {
    const struct out *out;
    const char *seen[REASONS_MAX];
    size_t count;
};

static void reason(struct reasons *r, const char *about, const char *text)
{
    char clean_about[64], clean[TEXT_BYTES];

    for (size_t i = 0; i < r->count; i++) {
        if (strcmp(r->seen[i], text) == 0)
            return;
    }
    if (r->count == REASONS_MAX)
        return;
    r->seen[r->count++] = text;
    printf("%s? %s: %s%s\n", out_on(r->out, STYLE_DIM),
           out_clean(clean_about, sizeof(clean_about), about),
           out_clean(clean, sizeof(clean), text), out_off(r->out, STYLE_DIM));
}

static void reasons_of(struct reasons *r, struct json_object *row)
{
    struct json_object *unknown = doc_get(row, "unknown");

    if (unknown && json_object_is_type(unknown, json_type_object)) {
        json_object_object_foreach(unknown, key, value)
        {
            if (value && json_object_is_type(value, json_type_string) &&
                strcmp(key, "host_bytes") != 0)
                reason(r, key, json_object_get_string(value));
        }
    }
    for (size_t i = 0; i < doc_count(row, "gaps"); i++) {
        struct json_object *gap = doc_item(row, "gaps", i);
        const char *text = doc_text(gap, "reason", NULL);
        if (text)
            reason(r, doc_text(gap, "name", "gap"), text);
    }
}

void breakdown_notes(const struct args *args, const struct out *o, struct json_object *document)
{
    struct reasons r = {.out = o};
    bool inferred = false, read = false;

    if (args->quiet)
        return;
    for (size_t i = 0; i < doc_count(document, "ranks"); i++) {
        struct json_object *rank = doc_item(document, "ranks", i);
        reasons_of(&r, rank);
        for (size_t k = 0; k < doc_count(rank, "owners"); k++) {
            const char *mark = breakdown_mark(doc_item(rank, "owners", k));
            inferred |= *mark == '~';
            read |= *mark == '^';
        }
    }
    for (size_t i = 0; i < doc_count(document, "devices"); i++)
        reasons_of(&r, doc_item(document, "devices", i));
    if (inferred)
        printf("%s~ inferred owner%s\n", out_on(o, STYLE_DIM), out_off(o, STYLE_DIM));
    if (read)
        printf("%s^ allocated before npumem attached, found by reading the process; names: npumem "
               "scan PID%s\n",
               out_on(o, STYLE_DIM), out_off(o, STYLE_DIM));
}
