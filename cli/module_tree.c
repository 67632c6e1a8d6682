/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module_tree.c - see module_tree.h.
 *
 * Owns: which modules are alike: the same names below them, the same bytes and element types.
 */
#include "module_tree.h"

#include <inttypes.h>
#include <string.h>

#include "doc.h"
#include "rows.h"

#define INDENT_MAX 24

struct tree {
    const struct args *args;
    const struct out *out;
    struct json_object *document;
    size_t count;
};

static struct json_object *module_at(const struct tree *t, size_t i)
{
    return doc_item(t->document, "modules", i);
}

static int64_t depth_of(const struct tree *t, size_t i)
{
    int64_t depth = 0;
    doc_int(module_at(t, i), "depth", &depth);
    return depth;
}

static const char *full_name(const struct tree *t, size_t i)
{
    return doc_text(module_at(t, i), "name", "?");
}

/* The part behind the last dot; the outermost module keeps its whole name. */
static const char *short_name(const struct tree *t, size_t i)
{
    const char *name = full_name(t, i), *last = strrchr(name, '.');
    return last && depth_of(t, i) > 0 ? last + 1 : name;
}

static bool is_number(const char *text)
{
    return text[0] && strspn(text, "0123456789") == strlen(text);
}

/* The first module behind i that is not below it. */
static size_t end_of(const struct tree *t, size_t i)
{
    size_t end = i + 1;
    while (end < t->count && depth_of(t, end) > depth_of(t, i))
        end++;
    return end;
}

static int64_t bytes_of(const struct tree *t, size_t i)
{
    int64_t bytes = 0;
    doc_int(module_at(t, i), "bytes", &bytes);
    return bytes;
}

/* Whether two numbered modules and all below them are the same but for the number. */
static bool is_alike(const struct tree *t, size_t a, size_t b)
{
    size_t count = end_of(t, a) - a;

    if (end_of(t, b) - b != count || depth_of(t, a) != depth_of(t, b))
        return false;
    for (size_t i = 0; i < count; i++) {
        struct json_object *x = doc_get(module_at(t, a + i), "dtype_bytes");
        struct json_object *y = doc_get(module_at(t, b + i), "dtype_bytes");
        if (depth_of(t, a + i) != depth_of(t, b + i) || bytes_of(t, a + i) != bytes_of(t, b + i) ||
            !json_object_equal(x, y) ||
            (i && strcmp(short_name(t, a + i), short_name(t, b + i)) != 0))
            return false;
    }
    return true;
}

/* "bfloat16", or "int8 3.00 MiB, bfloat16 16.00 KiB". */
static void dtypes_text(const struct tree *t, struct json_object *dtypes, char *text, size_t size)
{
    size_t length = 0;

    text[0] = '\0';
    if (!dtypes || !json_object_is_type(dtypes, json_type_object))
        return;
    bool is_one = json_object_object_length(dtypes) == 1;
    json_object_object_foreach(dtypes, key, value)
    {
        char unit[UNITS_TEXT_BYTES];
        int n = is_one ? snprintf(text + length, size - length, "%s", key)
                       : snprintf(text + length, size - length, "%s%s %s", length ? ", " : "", key,
                                  units_format_signed_bytes(unit, json_object_get_int64(value),
                                                            t->args->units));
        if (n < 0 || (size_t)n >= size - length)
            return;
        length += (size_t)n;
    }
}

static void module_line(const struct tree *t, size_t i, size_t last)
{
    char unit[UNITS_TEXT_BYTES], name[256], dtypes[256], clean[256], alike[160] = "";
    int64_t depth = depth_of(t, i);

    if (last != i) {
        size_t count = 0;
        for (size_t k = i; k <= last; k = end_of(t, k))
            count++;
        snprintf(alike, sizeof(alike), " to %.32s, %zu alike, each", short_name(t, last), count);
    }
    if (depth < 0 || depth > INDENT_MAX)
        depth = INDENT_MAX;
    dtypes_text(t, doc_get(module_at(t, i), "dtype_bytes"), dtypes, sizeof(dtypes));
    printf("%12s  %*s%s%s  %s%s%s\n",
           units_format_signed_bytes(unit, bytes_of(t, i), t->args->units), (int)(2 * depth), "",
           out_clean(name, sizeof(name), short_name(t, i)), alike, out_on(t->out, STYLE_DIM),
           out_clean(clean, sizeof(clean), dtypes), out_off(t->out, STYLE_DIM));
}

static void modules_print(const struct tree *t)
{
    for (size_t i = 0; i < t->count;) {
        size_t last = i, next = i + 1;
        if (!t->args->verbose && is_number(short_name(t, i))) {
            size_t after = end_of(t, i);
            while (after < t->count && is_number(short_name(t, after)) && is_alike(t, i, after)) {
                last = after;
                after = end_of(t, after);
            }
            /* those below the first stand for all */
            if (last != i) {
                size_t end = end_of(t, i);
                module_line(t, i, last);
                for (size_t k = i + 1; k < end; k++)
                    module_line(t, k, k);
                i = after;
                continue;
            }
        }
        module_line(t, i, last);
        i = next;
    }
}

/* "parameters: 1.00 GiB quantised experts, 3.00 MiB scales, 8.00 MiB plain" */
static void kinds_print(const struct tree *t)
{
    bool is_first = true;

    for (size_t i = 0; i < doc_count(t->document, "parameters"); i++) {
        struct json_object *row = doc_item(t->document, "parameters", i);
        char unit[UNITS_TEXT_BYTES], kind[64];
        int64_t bytes = 0;
        doc_int(row, "bytes", &bytes);
        printf("%s%s %s%s", is_first ? "parameters  " : ", ",
               units_format_signed_bytes(unit, bytes, t->args->units),
               out_clean(kind, sizeof(kind), doc_text(row, "kind", "?")),
               doc_bool(row, "expert", false) ? " (experts)" : "");
        is_first = false;
    }
    if (!is_first)
        putchar('\n');
}

static void dtypes_print(const struct tree *t)
{
    struct json_object *sums = json_object_new_object();
    char text[512], clean[512];

    for (size_t i = 0; i < doc_count(t->document, "dtypes"); i++) {
        struct json_object *row = doc_item(t->document, "dtypes", i), *old = NULL;
        const char *dtype = doc_text(row, "dtype", "?");
        int64_t bytes = 0, before = 0;
        doc_int(row, "bytes", &bytes);
        if (json_object_object_get_ex(sums, dtype, &old))
            before = json_object_get_int64(old);
        json_object_object_add(sums, dtype, json_object_new_int64(before + bytes));
    }
    dtypes_text(t, sums, text, sizeof(text));
    if (text[0])
        printf("all types   %s\n", out_clean(clean, sizeof(clean), text));
    json_object_put(sums);
}

/* How many layers of how many bytes: a layer that differs stands out. */
static void layers_print(const struct tree *t)
{
    size_t count = doc_count(t->document, "layers"), shown = 0;

    for (size_t i = 0; i < count && shown < 8; shown++) {
        struct json_object *row = doc_item(t->document, "layers", i);
        int64_t bytes = 0, other;
        char unit[UNITS_TEXT_BYTES], name[256], dtypes[256];
        size_t end = i + 1;
        doc_int(row, "bytes", &bytes);
        while (end < count && doc_int(doc_item(t->document, "layers", end), "bytes", &other) &&
               other == bytes)
            end++;
        dtypes_text(t, doc_get(row, "dtype_bytes"), dtypes, sizeof(dtypes));
        printf("%s%zu of %s each from %s on (%s)%s", shown ? ", " : "layers      ", end - i,
               units_format_signed_bytes(unit, bytes, t->args->units),
               out_clean(name, sizeof(name), doc_text(row, "name", "?")), dtypes,
               shown == 7 && end < count ? " ..." : "");
        i = end;
    }
    if (shown)
        putchar('\n');
}

void module_tree_print(const struct args *args, const struct out *o, struct json_object *document)
{
    struct tree t = {args, o, document, doc_count(document, "modules")};

    layers_print(&t);
    kinds_print(&t);
    dtypes_print(&t);
    if (t.count)
        putchar('\n');
    modules_print(&t);
}
