/* SPDX-License-Identifier: Apache-2.0 */
/*
 * breakdown_table.c - owners x ranks, level by level.
 *
 * Owns: the layout. Must not: add levels, or compute a figure that the document does not have.
 */
#include <inttypes.h>
#include <string.h>

#include "breakdown.h"
#include "doc.h"
#include "table.h"

#define TEXT_BYTES 256

/* One level: the rank's total, the owners at it, and the gap to the next. */
struct section {
    const char *title, *field; /* total per rank */
    const char *level;         /* of owners[]; NULL: none stand here */
    const char *check;         /* level of checks[]; NULL: none */
    const char *gaps[3];       /* of gaps[], below the owners */
    bool optional;             /* left out when no rank has owners there */
};

static const struct section sections[] = {
    {"physical", "physical_bytes", "physical", "physical", {"outside_pools"}, false},
    {"reserved by pools", "reserved_bytes", NULL, NULL, {"pool_slack", "unmapped"}, false},
    {"active", "active_bytes", "pending", NULL, {"stream_delayed"}, false},
    {"allocated", "allocated_bytes", "allocated", "allocated", {NULL}, false},
    {"host (pinned)", "host_bytes", "host", NULL, {NULL}, true},
    {"address ranges (no memory)", NULL, "reserved_va", NULL, {NULL}, true},
    {"inside stream-ordered pools", NULL, "pool_sub", NULL, {NULL}, true},
    {"beyond the calls", NULL, NULL, NULL, {"driver_side", "lost"}, false},
};

static const struct {
    const char *name, *shown;
} gap_names[] = {
    {"outside_pools", "- outside pools"}, {"pool_slack", "- pool slack"},
    {"unmapped", "- without memory"},     {"stream_delayed", "- stream-delayed"},
    {"driver_side", "driver side"},       {"lost", "lost"},
};

struct owner_name {
    const char *name;
    uint64_t weight; /* orders the rows: the largest figure of any rank */
};

struct view {
    const struct args *args;
    const struct out *out;
    struct json_object *document;
    size_t first, count; /* ranks of this block of columns */
};

static struct json_object *rank_at(const struct view *v, size_t i)
{
    return doc_item(v->document, "ranks", v->first + i);
}

/* The owner's row of a rank at a level, NULL if it has none. */
static struct json_object *find_owner(struct json_object *rank, const char *level, const char *name)
{
    for (size_t i = 0; i < doc_count(rank, "owners"); i++) {
        struct json_object *owner = doc_item(rank, "owners", i);
        if (strcmp(doc_text(owner, "level", ""), level) == 0 &&
            strcmp(doc_text(owner, "owner", ""), name) == 0)
            return owner;
    }
    return NULL;
}

static struct json_object *find_named(struct json_object *rank, const char *array, const char *key,
                                      const char *name)
{
    for (size_t i = 0; i < doc_count(rank, array); i++) {
        struct json_object *item = doc_item(rank, array, i);
        if (strcmp(doc_text(item, key, ""), name) == 0)
            return item;
    }
    return NULL;
}

static int compare_owners(const void *a, const void *b)
{
    const struct owner_name *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Names of all owners at a level over all ranks, the largest first. Owns: the caller frees. */
static size_t collect_owners(struct json_object *document, const char *level,
                             struct owner_name **ret)
{
    struct owner_name *names = NULL;
    size_t count = 0, capacity = 0;

    for (size_t r = 0; r < doc_count(document, "ranks"); r++) {
        struct json_object *rank = doc_item(document, "ranks", r);
        for (size_t i = 0; i < doc_count(rank, "owners"); i++) {
            struct json_object *owner = doc_item(rank, "owners", i);
            const char *name = doc_text(owner, "owner", "");
            int64_t bytes = 0;
            size_t k = 0;

            if (strcmp(doc_text(owner, "level", ""), level) != 0)
                continue;
            if (doc_int(owner, "bytes", &bytes) && bytes == 0)
                continue; /* a phase that holds nothing now */
            while (k < count && strcmp(names[k].name, name) != 0)
                k++;
            if (k == count && count == capacity) {
                size_t more = capacity ? 2 * capacity : 32;
                struct owner_name *grown = reallocarray(names, more, sizeof(*grown));
                if (!grown)
                    break;
                names = grown;
                capacity = more;
            }
            if (k == count)
                names[count++] = (struct owner_name){.name = name};
            if (bytes > 0 && (uint64_t)bytes > names[k].weight)
                names[k].weight = (uint64_t)bytes;
        }
    }
    if (count)
        qsort(names, count, sizeof(*names), compare_owners);
    *ret = names;
    return count;
}

/* The sign behind an owner's figure; what it means stands below the table (breakdown_notes.c). */
const char *breakdown_mark(struct json_object *owner)
{
    return doc_bool(owner, "inferred", false)                   ? "~"
           : strstr(doc_text(owner, "source", "event"), "read") ? "^"
                                                                : " ";
}

/* Text of a size in an object; "?" when it is null. mark: kept as wide as nothing so that the
 * digits of a column stay under each other. */
static void size_cell(struct table *t, const struct view *v, size_t column,
                      struct json_object *object, const char *field, const char *mark)
{
    char unit[UNITS_TEXT_BYTES], text[UNITS_TEXT_BYTES + 4];
    int64_t bytes;

    if (!doc_int(object, field, &bytes)) {
        table_cell_styled(t, column, "? ", STYLE_DIM);
        return;
    }
    snprintf(text, sizeof(text), "%s%s", units_format_signed_bytes(unit, bytes, v->args->units),
             mark);
    table_cell(t, column, text);
}

static void total_row(struct table *t, const struct view *v, const struct section *s)
{
    table_row(t, STYLE_BOLD);
    table_cell(t, 0, s->title);
    for (size_t i = 0; s->field && i < v->count; i++) {
        struct json_object *rank = rank_at(v, i);
        /* host memory stands in the main row of a process only */
        if (strcmp(s->field, "host_bytes") == 0 && !doc_bool(rank, "main", true))
            continue;
        size_cell(t, v, i + 1, rank, s->field, " ");
    }
}

static void owner_rows(struct table *t, const struct view *v, const struct section *s)
{
    _cleanup_free_ struct owner_name *names = NULL;
    size_t count = s->level ? collect_owners(v->document, s->level, &names) : 0;

    for (size_t k = 0; k < count; k++) {
        char text[TEXT_BYTES];
        table_row(t, STYLE_PLAIN);
        snprintf(text, sizeof(text), "  %s", names[k].name);
        table_cell(t, 0, text);
        for (size_t i = 0; i < v->count; i++) {
            struct json_object *owner = find_owner(rank_at(v, i), s->level, names[k].name);
            if (!owner)
                table_cell(t, i + 1, "- ");
            else
                size_cell(t, v, i + 1, owner, "bytes", breakdown_mark(owner));
        }
    }
}

/* Memory that is taken away is rare: its row stands where some rank has any. */
static bool gap_shown(const struct view *v, const char *name)
{
    bool is_rare = strcmp(name, "unmapped") == 0;

    for (size_t i = 0; is_rare && i < v->count; i++) {
        int64_t bytes;
        if (doc_int(find_named(rank_at(v, i), "gaps", "name", name), "bytes", &bytes) && bytes)
            return true;
    }
    return !is_rare;
}

static void gap_rows(struct table *t, const struct view *v, const struct section *s)
{
    for (size_t g = 0; g < ARRAY_SIZE(s->gaps) && s->gaps[g]; g++) {
        char text[TEXT_BYTES] = "";
        if (!gap_shown(v, s->gaps[g]))
            continue;
        for (size_t k = 0; k < ARRAY_SIZE(gap_names); k++) {
            if (strcmp(gap_names[k].name, s->gaps[g]) == 0)
                snprintf(text, sizeof(text), "  %s", gap_names[k].shown);
        }
        table_row(t, STYLE_PLAIN);
        table_cell(t, 0, text);
        for (size_t i = 0; i < v->count; i++)
            size_cell(t, v, i + 1, find_named(rank_at(v, i), "gaps", "name", s->gaps[g]), "bytes",
                      " ");
    }
}

static void check_row(struct table *t, const struct view *v, const struct section *s)
{
    if (!s->check)
        return;
    table_row(t, STYLE_DIM);
    table_cell(t, 0, "  sum of owners");
    for (size_t i = 0; i < v->count; i++) {
        struct json_object *check = find_named(rank_at(v, i), "checks", "level", s->check);
        int64_t difference = 0;
        char unit[UNITS_TEXT_BYTES], text[UNITS_TEXT_BYTES + 16];

        if (!doc_int(check, "difference_bytes", &difference)) {
            table_cell(t, i + 1, "? ");
        } else if (difference == 0) {
            table_cell_styled(t, i + 1, "exact ", STYLE_GOOD);
        } else {
            snprintf(text, sizeof(text), "off by %s ",
                     units_format_signed_bytes(unit, difference, v->args->units));
            table_cell_styled(t, i + 1, text, STYLE_BAD);
        }
    }
}

static void header_rows(struct table *t, const struct view *v)
{
    static const char *const lines[][2] = {{"rank", "rank"}, {"device", "device"}, {"tgid", "pid"}};

    for (size_t k = 0; k < ARRAY_SIZE(lines) && !v->args->no_header; k++) {
        table_row(t, STYLE_BOLD);
        for (size_t i = 0; i < v->count; i++) {
            char text[TEXT_BYTES];
            int64_t n;
            if (doc_int(rank_at(v, i), lines[k][0], &n))
                snprintf(text, sizeof(text), "%s %" PRId64 " ", lines[k][1], n);
            else
                snprintf(text, sizeof(text), "%s ? ", lines[k][1]);
            table_cell(t, i + 1, text);
        }
    }
}

static bool section_shown(const struct view *v, const struct section *s)
{
    _cleanup_free_ struct owner_name *names = NULL;
    return !s->optional || collect_owners(v->document, s->level, &names) > 0;
}

static struct table *build(const struct view *v)
{
    struct table *t = table_new(v->count + 1);

    if (!t)
        return NULL;
    table_column(t, 0, false, true);
    for (size_t i = 0; i < v->count; i++)
        table_column(t, i + 1, true, false);
    header_rows(t, v);
    for (size_t s = 0; s < ARRAY_SIZE(sections); s++) {
        if (!section_shown(v, &sections[s]))
            continue;
        total_row(t, v, &sections[s]);
        owner_rows(t, v, &sections[s]);
        check_row(t, v, &sections[s]);
        gap_rows(t, v, &sections[s]);
    }
    return t;
}

/* As many ranks beside each other as the width takes, then the rest below. */
int breakdown_ranks(const struct args *args, const struct out *o, struct json_object *document)
{
    size_t total = doc_count(document, "ranks"), step = total;

    for (size_t first = 0; first < total; first += step) {
        struct view v = {args, o, document, first, 0};
        _cleanup_(table_freep) struct table *t = NULL;
        v.count = total - first < step ? total - first : step;
        t = build(&v);
        while (t && v.count > 1 && o->width && table_width(t) > o->width) {
            t = table_free(t);
            v.count--;
            t = build(&v);
        }
        step = v.count;
        if (!t || table_print(t, o) < 0)
            return fail_with(EXIT_RUNTIME, "table: out of memory");
        putchar('\n');
    }
    return EXIT_DONE;
}
