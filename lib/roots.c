/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots.c - built-in and added rows of the table of roots.
 *
 * Owns: copies of the words of added rows.
 */
#include "roots.h"

#include <ctype.h>
#include <string.h>

static const struct roots_row builtin[] = {
#define ROOT_FRAME(framework, subject, object) {ROOTS_FRAME, framework, subject, object},
#define ROOT_TYPE(framework, subject, object) {ROOTS_TYPE, framework, subject, object},
#define ROOT_PATH(framework, subject, object) {ROOTS_PATH, framework, subject, object},
#define ROOT_GLOBALS(framework, subject, object) {ROOTS_GLOBALS, framework, subject, object},
#define ROOT_POOL_FRAME(framework, subject, object) {ROOTS_POOL_FRAME, framework, subject, object},
#define ROOT_POOL_TYPE(framework, subject, object) {ROOTS_POOL_TYPE, framework, subject, object},
#define ROOT_POOL(framework, subject, object) {ROOTS_POOL, framework, subject, object},
#define ROOT_PRUNE(subject) {ROOTS_PRUNE, "", subject, ""},
#include "roots.def"
#undef ROOT_FRAME
#undef ROOT_TYPE
#undef ROOT_PATH
#undef ROOT_GLOBALS
#undef ROOT_POOL_FRAME
#undef ROOT_POOL_TYPE
#undef ROOT_POOL
#undef ROOT_PRUNE
};

/* How a line begins, and the least and most words that follow. */
static const struct {
    const char *word;
    enum roots_kind kind;
    unsigned least, most;
} forms[] = {
    {"frame", ROOTS_FRAME, 3, 3},
    {"type", ROOTS_TYPE, 2, 3},
    {"path", ROOTS_PATH, 3, 3},
    {"globals", ROOTS_GLOBALS, 3, 3},
    {"pool-frame", ROOTS_POOL_FRAME, 3, 3},
    {"pool-type", ROOTS_POOL_TYPE, 2, 3},
    {"pool", ROOTS_POOL, 3, 3},
    {"prune", ROOTS_PRUNE, 1, 1},
};

struct roots_table {
    struct roots_row rows[ROOTS_ROWS_MAX];
    size_t added, count; /* added rows come first */
    char *texts[ROOTS_ROWS_MAX];
};

int roots_table_new(struct roots_table **ret)
{
    struct roots_table *t = calloc(1, sizeof(*t));

    if (!t)
        return -ENOMEM;
    memcpy(t->rows, builtin, sizeof(builtin));
    t->count = ARRAY_SIZE(builtin);
    *ret = t;
    return 0;
}

struct roots_table *roots_table_free(struct roots_table *t)
{
    if (!t)
        return NULL;
    for (size_t i = 0; i < t->added; i++)
        free(t->texts[i]);
    free(t);
    return NULL;
}

size_t roots_count(const struct roots_table *t)
{
    return t->count;
}

const struct roots_row *roots_row(const struct roots_table *t, size_t i)
{
    return &t->rows[i];
}

bool roots_match(const char *pattern, const char *name)
{
    size_t length = strlen(pattern);

    if (length && pattern[length - 1] == '*')
        return strncmp(pattern, name, length - 1) == 0;
    return strcmp(pattern, name) == 0;
}

static bool word_plausible(const char *word)
{
    for (const char *c = word; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_.@*<>-[]", *c))
            return false;
    return strlen(word) < ROOTS_WORD_MAX;
}

/* One line, which it divides. The table keeps `line` when a row came of it. */
static int line_add(struct roots_table *t, char *line, const char *name, unsigned number,
                    struct error *reterr)
{
    char *words[5], *save = NULL;
    unsigned count = 0;

    for (char *w = strtok_r(line, " \t\r", &save); w && count < 5;
         w = strtok_r(NULL, " \t\r", &save))
        words[count++] = w;
    for (unsigned i = 0; i < count; i++)
        if (!word_plausible(words[i]))
            return error_set(reterr, EINVAL, "%s:%u: not a name: %.40s", name, number, words[i]);
    for (size_t f = 0; f < ARRAY_SIZE(forms); f++) {
        if (strcmp(words[0], forms[f].word) != 0)
            continue;
        if (count - 1 < forms[f].least || count - 1 > forms[f].most)
            return error_set(reterr, EINVAL, "%s:%u: `%s` takes %u words, not %u", name, number,
                             forms[f].word, forms[f].most, count - 1);
        if (t->count == ROOTS_ROWS_MAX)
            return error_set(reterr, E2BIG, "%s:%u: more than %u rows", name, number,
                             ROOTS_ROWS_MAX);
        bool is_prune = forms[f].kind == ROOTS_PRUNE;
        memmove(&t->rows[t->added + 1], &t->rows[t->added],
                (t->count - t->added) * sizeof(t->rows[0]));
        t->rows[t->added] = (struct roots_row){
            .kind = forms[f].kind,
            .framework = is_prune ? "" : words[1],
            .subject = is_prune ? words[1] : words[2],
            .object = count > 3 ? words[3] : "",
        };
        t->texts[t->added++] = line;
        t->count++;
        return 1;
    }
    return error_set(reterr, EINVAL,
                     "%s:%u: begins with none of frame, type, path, globals, pool-frame, "
                     "pool-type, pool, prune",
                     name, number);
}

int roots_table_add(struct roots_table *t, const char *name, const char *text, size_t bytes,
                    struct error *reterr)
{
    unsigned number = 0;

    for (const char *end = text + bytes; text < end; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((newline ? newline : end) - text);
        const char *first = text;
        while (first < text + length && (*first == ' ' || *first == '\t' || *first == '\r'))
            first++;
        if (first < text + length && *first != '#') {
            char *line = strndup(text, length);
            int r = line ? line_add(t, line, name, number + 1, reterr) : -ENOMEM;
            if (r <= 0) {
                free(line);
                return r;
            }
        }
        text += length + 1;
    }
    return 0;
}
