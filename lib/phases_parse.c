/* SPDX-License-Identifier: Apache-2.0 */
/*
 * phases_parse.c - a user's phase table as text; the form is in docs/PHASES.md.
 *
 * Invariant: a text is added as a whole or not at all.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "phases_internal.h"

#define LINE_MAX_BYTES 512
#define WORDS_MAX 6

struct line {
    const char *origin;
    unsigned number;
    char text[LINE_MAX_BYTES];
    char *words[WORDS_MAX];
    unsigned word_count;
};

static int refuse(const struct line *l, struct error *reterr, const char *why, const char *what)
{
    return error_set(reterr, EINVAL, "%s:%u: %s \"%.40s\"", l->origin, l->number, why, what);
}

static int line_split(struct line *l, struct error *reterr)
{
    char *p = l->text;

    l->word_count = 0;
    for (;;) {
        while (isspace((unsigned char)*p))
            *p++ = '\0';
        if (!*p || *p == '#')
            break;
        if (l->word_count == WORDS_MAX)
            return refuse(l, reterr, "too many words from", p);
        l->words[l->word_count++] = p;
        while (*p && !isspace((unsigned char)*p)) {
            if (!isprint((unsigned char)*p))
                return refuse(l, reterr, "unprintable character in", "");
            p++;
        }
    }
    *p = '\0';
    return 0;
}

static bool is_word(const char *s)
{
    size_t length = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return length && !s[length] && length < PHASE_WORD_MAX;
}

static bool is_owner(const char *s)
{
    size_t length = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-@");
    return length && !s[length] && length < sizeof(((struct phase_class *)0)->owner) &&
           s[0] != '@' && s[length - 1] != '@' && !strstr(s, "@@");
}

/* class WORD OWNER */
static int line_class(struct phase_table *t, const struct line *l, struct error *reterr)
{
    int known;

    if (l->word_count != 3)
        return refuse(l, reterr, "wanted: class WORD OWNER, got", l->words[0]);
    if (!is_word(l->words[1]))
        return refuse(l, reterr, "not a word of a-z, 0-9 and _:", l->words[1]);
    if (!is_owner(l->words[2]))
        return refuse(l, reterr, "not an owner:", l->words[2]);
    known = phase_class_find(t, l->words[1]);
    if (known) { /* another owner for a class that is there */
        snprintf(t->classes[known].owner, sizeof(t->classes[known].owner), "%s", l->words[2]);
        return 0;
    }
    return phase_class_add(t, l->words[1], l->words[2]);
}

/* detail WORD */
static int line_detail(struct phase_table *t, const struct line *l, struct error *reterr)
{
    if (l->word_count != 2 || !is_word(l->words[1]))
        return refuse(l, reterr, "wanted: detail WORD, got", l->words[l->word_count > 1 ? 1 : 0]);
    return phase_detail_find(t, l->words[1]) ? 0 : phase_detail_add(t, l->words[1]);
}

/* CLASS, CLASS@DETAIL or @DETAIL */
static int phase_word(const struct phase_table *t, const struct line *l, char *word,
                      struct phase_row *row, struct error *reterr)
{
    char *at = strchr(word, '@');

    if (at) {
        *at++ = '\0';
        row->detail = (uint8_t)phase_detail_find(t, at);
        if (!row->detail)
            return refuse(l, reterr, "no detail", at);
    }
    if (word[0]) {
        row->class_id = (uint8_t)phase_class_find(t, word);
        if (!row->class_id)
            return refuse(l, reterr, "no class", word);
    }
    return 0;
}

/* code PHASE TIER PATTERN [FILE] */
static int line_code(struct phase_table *t, const struct line *l, struct error *reterr)
{
    struct phase_row row = {.is_user = true};
    const char *star, *pattern;
    char *end;
    unsigned long tier;
    int r;

    if (l->word_count != 4 && l->word_count != 5)
        return refuse(l, reterr, "wanted: code PHASE TIER PATTERN [FILE], got", l->words[0]);
    r = phase_word(t, l, l->words[1], &row, reterr);
    if (r < 0)
        return r;
    tier = strtoul(l->words[2], &end, 10);
    if (*end || !isdigit((unsigned char)l->words[2][0]) || tier > 15 ||
        (tier == 0) != (row.class_id == 0))
        return refuse(l, reterr, "tier must be 1 to 15, or 0 for a detail alone, not", l->words[2]);
    row.tier = (uint8_t)tier;
    pattern = l->words[3];
    star = strchr(pattern, '*');
    if (strlen(pattern) >= sizeof(row.pattern) || strcmp(pattern, "*") == 0 ||
        (star && star != pattern && star[1]) || (star == pattern && strchr(star + 1, '*')))
        return refuse(l, reterr, "pattern must be a name with at most one * at one end, not",
                      pattern);
    snprintf(row.pattern, sizeof(row.pattern), "%s", pattern);
    if (l->word_count == 5) {
        if (strlen(l->words[4]) >= sizeof(row.file))
            return refuse(l, reterr, "file part too long:", l->words[4]);
        snprintf(row.file, sizeof(row.file), "%s", l->words[4]);
        row.needs_file = true;
    }
    return phase_row_add(t, &row);
}

static int line_apply(struct phase_table *t, struct line *l, struct error *reterr)
{
    int r = line_split(l, reterr);

    if (r < 0 || !l->word_count)
        return r;
    if (strcmp(l->words[0], "class") == 0)
        r = line_class(t, l, reterr);
    else if (strcmp(l->words[0], "detail") == 0)
        r = line_detail(t, l, reterr);
    else if (strcmp(l->words[0], "code") == 0)
        r = line_code(t, l, reterr);
    else
        return refuse(l, reterr, "a line begins with class, detail or code, not", l->words[0]);
    if (r == -ENOSPC)
        return error_set(reterr, r, "%s:%u: too many phases", l->origin, l->number);
    return r < 0 ? r : 0;
}

int phase_table_parse(struct phase_table *t, const char *text, size_t bytes, const char *origin,
                      struct error *reterr)
{
    struct line l = {.origin = origin};
    struct phase_table *before = malloc(sizeof(*before));
    int r = 0;

    if (!before)
        return -ENOMEM;
    *before = *t;
    while (bytes && r == 0) {
        const char *end = memchr(text, '\n', bytes);
        size_t length = end ? (size_t)(end - text) : bytes;

        l.number++;
        if (length >= sizeof(l.text)) {
            r = refuse(&l, reterr, "line too long:", "");
            break;
        }
        memcpy(l.text, text, length);
        l.text[length] = '\0';
        if (strlen(l.text) != length)
            r = refuse(&l, reterr, "NUL in line:", l.text);
        else
            r = line_apply(t, &l, reterr);
        text += length + (end ? 1 : 0);
        bytes -= length + (end ? 1 : 0);
    }
    if (r < 0) {
        struct phase_row *rows = t->rows;
        size_t capacity = t->row_capacity;
        *t = *before;
        t->rows = rows; /* the rows before are still the first ones */
        t->row_capacity = capacity;
    }
    free(before);
    return r;
}
