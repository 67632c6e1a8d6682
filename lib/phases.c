/* SPDX-License-Identifier: Apache-2.0 */
/*
 * phases.c - see phases.h. The text form of a user's table is read in phases_parse.c.
 *
 * Invariants: user rows come before built-in ones; numbers of classes and details never change once
 * given, since events carry them.
 */
#include "phases.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "phases_internal.h"

enum class_id {
    CLASS_NONE,
#define NM_PHASE_CLASS_ROW(id, word, owner) CLASS_##id,
#define NM_PHASE_DETAIL_ROW(id, word)
#define NM_PHASE_CODE(class_id, detail, tier, name, file)
#include "phases.def"
#undef NM_PHASE_CLASS_ROW
#undef NM_PHASE_DETAIL_ROW
#undef NM_PHASE_CODE
};

enum detail_id {
    DETAIL_NONE,
#define NM_PHASE_CLASS_ROW(id, word, owner)
#define NM_PHASE_DETAIL_ROW(id, word) DETAIL_##id,
#define NM_PHASE_CODE(class_id, detail, tier, name, file)
#include "phases.def"
#undef NM_PHASE_CLASS_ROW
#undef NM_PHASE_DETAIL_ROW
#undef NM_PHASE_CODE
};

#define NM_PHASE_CLASS_ROW(id, class_word, class_owner)                                            \
    {.kind = BUILTIN_CLASS, .word = class_word, .owner = class_owner},
#define NM_PHASE_DETAIL_ROW(id, detail_word) {.kind = BUILTIN_DETAIL, .word = detail_word},
#define NM_PHASE_CODE(row_class, row_detail, row_tier, row_name, row_file)                         \
    {.kind = BUILTIN_CODE,                                                                         \
     .class_id = CLASS_##row_class,                                                                \
     .detail = DETAIL_##row_detail,                                                                \
     .tier = (row_tier),                                                                           \
     .word = (row_name),                                                                           \
     .owner = (row_file)},
static const struct builtin {
    enum { BUILTIN_CLASS, BUILTIN_DETAIL, BUILTIN_CODE } kind;
    uint8_t class_id, detail, tier;
    const char *word, *owner;
} builtins[] = {
#include "phases.def"
};
#undef NM_PHASE_CLASS_ROW
#undef NM_PHASE_DETAIL_ROW
#undef NM_PHASE_CODE

int phase_class_add(struct phase_table *t, const char *word, const char *owner)
{
    if (t->class_count == PHASE_CLASSES_MAX)
        return -ENOSPC;
    struct phase_class *c = &t->classes[++t->class_count];
    snprintf(c->word, sizeof(c->word), "%s", word);
    snprintf(c->owner, sizeof(c->owner), "%s", owner);
    return (int)t->class_count;
}

int phase_detail_add(struct phase_table *t, const char *word)
{
    if (t->detail_count == PHASE_DETAILS_MAX)
        return -ENOSPC;
    snprintf(t->details[++t->detail_count], sizeof(t->details[0]), "%s", word);
    return (int)t->detail_count;
}

int phase_class_find(const struct phase_table *t, const char *word)
{
    for (unsigned i = 1; i <= t->class_count; i++)
        if (strcmp(t->classes[i].word, word) == 0)
            return (int)i;
    return 0;
}

int phase_detail_find(const struct phase_table *t, const char *word)
{
    for (unsigned i = 1; i <= t->detail_count; i++)
        if (strcmp(t->details[i], word) == 0)
            return (int)i;
    return 0;
}

int phase_row_add(struct phase_table *t, const struct phase_row *row)
{
    if (t->row_count == PHASE_ROWS_MAX)
        return -ENOSPC;
    if (ARRAY_ROOM(t->rows, t->row_capacity, t->row_count) < 0)
        return -ENOMEM;
    t->rows[t->row_count++] = *row;
    return 0;
}

int phase_table_new(struct phase_table **ret)
{
    _cleanup_(phase_table_freep) struct phase_table *t = calloc(1, sizeof(*t));
    int r = 0;

    if (!t)
        return -ENOMEM;
    for (size_t i = 0; i < sizeof(builtins) / sizeof(builtins[0]) && r >= 0; i++) {
        const struct builtin *b = &builtins[i];
        if (b->kind == BUILTIN_CLASS) {
            r = phase_class_add(t, b->word, b->owner);
        } else if (b->kind == BUILTIN_DETAIL) {
            r = phase_detail_add(t, b->word);
        } else {
            struct phase_row row = {.class_id = b->class_id, .detail = b->detail, .tier = b->tier};
            snprintf(row.pattern, sizeof(row.pattern), "%s", b->word);
            snprintf(row.file, sizeof(row.file), "%s", b->owner);
            r = phase_row_add(t, &row);
        }
    }
    if (r < 0)
        return r;
    *ret = TAKE_PTR(t);
    return 0;
}

struct phase_table *phase_table_free(struct phase_table *t)
{
    if (!t)
        return NULL;
    free(t->rows);
    free(t);
    return NULL;
}

/* pattern with * at one end or none. */
static bool pattern_matches(const char *pattern, const char *text)
{
    size_t length = strlen(pattern), text_length = strlen(text);

    if (pattern[0] == '*') {
        length--;
        return text_length >= length &&
               memcmp(pattern + 1, text + text_length - length, length) == 0;
    }
    if (length && pattern[length - 1] == '*')
        return strncmp(pattern, text, length - 1) == 0;
    return strcmp(pattern, text) == 0;
}

/* A class made inside a function is "function.<locals>.Class.method". */
static const char *without_locals(const char *qualified)
{
    const char *last = qualified;

    for (const char *p = qualified; (p = strstr(p, "<locals>."));)
        last = p += strlen("<locals>.");
    return last;
}

static bool row_matches(const struct phase_row *row, const struct phase_code *code)
{
    const char *dot;

    if (code->qualified)
        return (!row->needs_file || (code->file && strstr(code->file, row->file))) &&
               (pattern_matches(row->pattern, code->qualified) ||
                pattern_matches(row->pattern, without_locals(code->qualified)));
    if (!code->name || !code->file)
        return false;
    dot = strrchr(row->pattern, '.');
    return (!dot || dot[1] != '*') && row->file[0] && strstr(code->file, row->file) &&
           pattern_matches(dot ? dot + 1 : row->pattern, code->name);
}

uint32_t phase_verdict(const struct phase_table *t, const struct phase_code *code)
{
    /* a user's row wins over a built-in one, the first of each over later ones */
    for (int user = 1; user >= 0; user--)
        for (size_t i = 0; i < t->row_count; i++) {
            const struct phase_row *row = &t->rows[i];
            if (row->is_user == (user == 1) && row_matches(row, code))
                return NM_PY_VERDICT_KNOWN | (uint32_t)row->tier << 16 |
                       (uint32_t)row->detail << 8 | row->class_id;
        }
    return NM_PY_VERDICT_KNOWN;
}

void phase_owner(const struct phase_table *t, uint32_t phase, char ret[PHASE_OWNER_MAX])
{
    unsigned class_id = NM_PHASE_CLASS(phase), detail = NM_PHASE_DETAIL(phase);

    ret[0] = '\0';
    if (!class_id || class_id > t->class_count)
        return;
    const struct phase_class *c = &t->classes[class_id];
    /* the detail that is the class itself adds nothing */
    if (!detail || detail > t->detail_count || strcmp(t->details[detail], c->word) == 0)
        snprintf(ret, PHASE_OWNER_MAX, "%s", c->owner);
    else
        snprintf(ret, PHASE_OWNER_MAX, "%s@%s", c->owner, t->details[detail]);
}

bool phase_class_is(const struct phase_table *t, uint32_t phase, const char *word)
{
    unsigned class_id = NM_PHASE_CLASS(phase);
    return class_id && class_id <= t->class_count && strcmp(t->classes[class_id].word, word) == 0;
}

void phase_walk_frame(struct phase_walk *w, uint32_t verdict)
{
    unsigned tier = NM_PY_VERDICT_TIER(verdict);

    if (!verdict) {
        w->unnamed++;
        w->unnamed_outside++;
        return;
    }
    if (!w->inner_detail)
        w->inner_detail = NM_PHASE_DETAIL(verdict);
    if (tier && (!w->tier || tier <= w->tier)) {
        w->class_id = NM_PHASE_CLASS(verdict);
        w->detail = w->inner_detail;
        w->tier = (uint8_t)tier;
        w->unnamed_outside = 0;
    }
}

uint32_t phase_walk_end(const struct phase_walk *w, bool is_cut)
{
    uint32_t phase = w->class_id | (uint32_t)w->detail << 8;

    if (w->class_id && (is_cut || w->unnamed_outside))
        phase |= NM_PHASE_INFERRED;
    if (w->unnamed)
        phase |= NM_PHASE_UNNAMED;
    return phase;
}
