/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c - words of a line, names of blocks and variables, and the error with its place.
 *
 * Must not know statements. Invariant: the first error of a parse is the one that is kept.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

int parse_error(struct parser *p, const char *format, ...)
{
    if (p->message[0])
        return -EINVAL;
    int n = snprintf(p->message, p->message_size, "%s:%u: ", p->scenario->path, p->line);
    if (n > 0 && (size_t)n < p->message_size) {
        va_list ap;
        va_start(ap, format);
        vsnprintf(p->message + n, p->message_size - (size_t)n, format, ap);
        va_end(ap);
    }
    return -EINVAL;
}

bool name_valid(const char *name)
{
    size_t n = 0;
    if (!isalpha((unsigned char)name[0]) && name[0] != '_')
        return false;
    while (isalnum((unsigned char)name[n]) || name[n] == '_')
        n++;
    return !name[n] && n < SCENARIO_NAME_MAX;
}

int var_find(struct parser *p, const char *name, bool define, uint32_t *ret)
{
    struct scenario *s = p->scenario;
    for (uint32_t i = 0; i < s->var_count; i++) {
        if (!strcmp(s->vars[i], name)) {
            *ret = i;
            return 0;
        }
    }
    if (!define)
        return parse_error(p, "unknown variable '$%.60s'", name);
    if (!name_valid(name))
        return parse_error(p, "'%.60s' is no variable name", name);
    if (s->var_count == SCENARIO_VARS_MAX)
        return parse_error(p, "more than %d variables", SCENARIO_VARS_MAX);
    strcpy(s->vars[s->var_count], name);
    *ret = s->var_count++;
    return 0;
}

int name_add(struct parser *p, const char *name, int64_t slots, bool array,
             const struct scenario_name **ret)
{
    struct scenario *s = p->scenario;
    if (!name_valid(name))
        return parse_error(p, "'%.60s' is no name (letters, digits and _, at most %d)", name,
                           SCENARIO_NAME_MAX - 1);
    if (s->name_count == SCENARIO_NAMES_MAX)
        return parse_error(p, "more than %d names", SCENARIO_NAMES_MAX);
    if (slots < 1 || slots > SCENARIO_SLOTS_MAX - (int64_t)s->slot_count)
        return parse_error(p, "'%s' with %lld places: between 1 and %d in all are possible", name,
                           (long long)slots, SCENARIO_SLOTS_MAX);
    if (!s->names) {
        s->names = calloc(SCENARIO_NAMES_MAX, sizeof(*s->names));
        if (!s->names)
            return parse_error(p, "out of memory");
    }
    struct scenario_name *added = &s->names[s->name_count++];
    *added =
        (struct scenario_name){.slot = s->slot_count, .slots = (uint32_t)slots, .array = array};
    strcpy(added->name, name);
    s->slot_count += (uint32_t)slots;
    *ret = added;
    return 0;
}

int line_split(struct parser *p, char *line)
{
    char *at = line;
    p->word_count = 0;
    for (;;) {
        while (*at == ' ' || *at == '\t' || *at == '\r')
            at++;
        if (!*at || *at == '#')
            return 0;
        if ((unsigned char)*at < 0x20)
            return parse_error(p, "control character 0x%02x", (unsigned char)*at);
        if (p->word_count == PARSE_WORDS_MAX)
            return parse_error(p, "more than %d words", PARSE_WORDS_MAX);
        if (*at == '"') {
            p->words[p->word_count++] = ++at;
            at = strchr(at, '"');
            if (!at)
                return parse_error(p, "text without closing \"");
            *at++ = '\0';
            if (*at && *at != ' ' && *at != '\t' && *at != '\r')
                return parse_error(p, "a blank is missing after \"");
            continue;
        }
        p->words[p->word_count++] = at;
        while ((unsigned char)*at > ' ')
            at++;
        if (*at == ' ' || *at == '\t' || *at == '\r')
            *at++ = '\0';
        else if (*at)
            return parse_error(p, "control character 0x%02x", (unsigned char)*at);
    }
}
