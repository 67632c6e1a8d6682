/* SPDX-License-Identifier: Apache-2.0 */
/*
 * advice.c - rows of advice, and the small things that analyses share.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "analysis.h"

void advice_add(struct advice_list *list, const char *setting, const char *from, const char *to,
                uint64_t saves_bytes, const char *confidence, const char *evidence, ...)
{
    struct advice *a;
    va_list ap;

    if (list->count == ADVICE_MAX)
        return;
    a = &list->items[list->count++];
    *a = (struct advice){.saves_bytes = saves_bytes, .confidence = confidence};
    snprintf(a->setting, sizeof(a->setting), "%s", setting);
    snprintf(a->from, sizeof(a->from), "%s", from ? from : "");
    snprintf(a->to, sizeof(a->to), "%s", to);
    va_start(ap, evidence);
    vsnprintf(a->evidence, sizeof(a->evidence), evidence, ap);
    va_end(ap);
}

/* By the form of its name: a variable, a call, what is said of a card, or else an option. */
const char *advice_where(const struct advice *a)
{
    const char *s = a->setting;

    if (strcmp(s, "placement") == 0)
        return "card";
    if (strcmp(s, "per_process_memory_fraction") == 0 || (s[0] < 'a' && s[0] && s[1] < 'a'))
        return "environment";
    if (strchr(s, '(') || strncmp(s, "gc.", 3) == 0 || strcmp(s, "reference cycles") == 0 ||
        strcmp(s, "set_per_process_memory_fraction") == 0)
        return "program";
    return "server";
}

void advice_write_members(const struct advice *a, struct json *j)
{
    const char *where = advice_where(a);

    json_kstr(j, "setting", a->setting);
    json_kstr(j, "from", a->from[0] ? a->from : NULL);
    json_kstr(j, "to", a->to);
    analysis_u64(j, "saves_bytes", a->saves_bytes);
    json_kstr(j, "confidence", a->confidence);
    json_kstr(j, "evidence", a->evidence);
    json_kstr(j, "verb", a->verb);
    json_kstr(j, "where", where);
    json_kbool(j, "restart", strcmp(where, "card") != 0 && strcmp(a->setting, "gc.garbage") != 0);
}

void advice_write(const struct advice_list *list, struct json *j)
{
    json_karray(j, "advice");
    for (size_t i = 0; i < list->count; i++) {
        json_object(j);
        advice_write_members(&list->items[i], j);
        json_end(j);
    }
    json_end(j);
}

bool analysis_option(const char *title, const char *option, char *ret, size_t size)
{
    size_t n = strlen(option);

    for (const char *at = title; at && (at = strstr(at, option)); at += n) {
        bool starts = at == title || at[-1] == ' ';
        if (!starts || (at[n] != ' ' && at[n] != '='))
            continue;
        const char *value = at + n + 1;
        size_t length = strcspn(value, " ");
        if (length == 0 || length >= size)
            return false;
        memcpy(ret, value, length);
        ret[length] = '\0';
        return true;
    }
    return false;
}

bool analysis_runs(const char *line, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = line; (at = strstr(at, name)); at += n) {
        bool starts = at == line || at[-1] == ' ' || at[-1] == '/';
        size_t rest = strcspn(at, " /");
        if (starts && (at[n] == '\0' || at[n] == ' ' || (at[n] == '.' && at[rest] != '/')))
            return true;
    }
    return false;
}

void analysis_u64(struct json *j, const char *key, uint64_t value)
{
    json_ku64_or_null(j, key, value != ANALYSIS_UNKNOWN, value);
}

uint64_t analysis_scale(uint64_t a, uint64_t b, uint64_t c)
{
    return c ? (uint64_t)((unsigned __int128)a * b / c) : 0;
}
