/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_write.c - streaming JSON writer.
 *
 * Owns: the growing buffer of struct json.
 * Must not: format floats or integers beyond 64 bits, look at locales, or emit invalid UTF-8.
 * Invariants: once error is set nothing is written any more; data is NUL-terminated after finish;
 * one bit per depth in in_array (container is an array), has_item (a comma is due) and want_value
 * (a key was written, its value is due).
 */
#include "json_write.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JSON_MAX_DEPTH 64
#define JSON_FIRST_CAPACITY 256
/* Longest text of one double: sign, 17 digits, point, exponent of 5. */
#define JSON_NUMBER_CHARS 40

static char *json_room(struct json *j, size_t extra)
{
    if (j->error)
        return NULL;
    if (extra >= SIZE_MAX / 4 || j->length >= SIZE_MAX / 4) {
        j->error = -ENOMEM;
        return NULL;
    }
    size_t need = j->length + extra + 1;
    if (need > j->capacity) {
        size_t capacity = j->capacity ? j->capacity : JSON_FIRST_CAPACITY;
        while (capacity < need)
            capacity *= 2;
        char *data = realloc(j->data, capacity);
        if (!data) {
            j->error = -ENOMEM;
            return NULL;
        }
        j->data = data;
        j->capacity = capacity;
    }
    return j->data + j->length;
}

static void json_raw(struct json *j, const char *text, size_t length)
{
    char *at = json_room(j, length);
    if (!at)
        return;
    memcpy(at, text, length);
    j->length += length;
}

static uint64_t json_bit(const struct json *j)
{
    return (uint64_t)1 << (j->depth - 1);
}

/* Checks that a value may stand here, and writes the comma that is due. */
static bool json_value_begin(struct json *j)
{
    if (j->error)
        return false;
    if (j->depth == 0) {
        if (j->length)
            j->error = -EINVAL; /* a second top-level value */
        return !j->error;
    }
    uint64_t bit = json_bit(j);
    if (j->in_array & bit) {
        if (j->has_item & bit)
            json_raw(j, ",", 1);
        j->has_item |= bit;
    } else {
        if (!(j->want_value & bit))
            j->error = -EINVAL;
        j->want_value &= ~bit;
    }
    return !j->error;
}

static void json_open(struct json *j, bool array)
{
    if (!json_value_begin(j))
        return;
    if (j->depth == JSON_MAX_DEPTH) {
        j->error = -EINVAL;
        return;
    }
    json_raw(j, array ? "[" : "{", 1);
    j->depth++;
    uint64_t bit = json_bit(j);
    j->in_array = array ? j->in_array | bit : j->in_array & ~bit;
    j->has_item &= ~bit;
    j->want_value &= ~bit;
}

void json_done(struct json *j)
{
    free(j->data);
    j->data = NULL;
    j->length = j->capacity = 0;
}

void json_object(struct json *j)
{
    json_open(j, false);
}

void json_array(struct json *j)
{
    json_open(j, true);
}

void json_end(struct json *j)
{
    if (j->error)
        return;
    if (j->depth == 0 || (j->want_value & json_bit(j))) {
        j->error = -EINVAL;
        return;
    }
    json_raw(j, (j->in_array & json_bit(j)) ? "]" : "}", 1);
    j->depth--;
}

/*
 * Length of the valid UTF-8 sequence at s (RFC 3629: no overlong forms, no surrogates, at most
 * U+10FFFF), 0 if there is none.
 */
static size_t utf8_valid(const unsigned char *s, size_t left)
{
    if (s[0] < 0x80)
        return 1;
    size_t need = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || left < need)
        return 0;
    for (size_t i = 1; i < need; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return need;
}

static void json_escape(struct json *j, unsigned char c)
{
    static const char letters[] = "btn\0fr"; /* 8..13 */
    char text[8];
    if (c == '"' || c == '\\') {
        text[0] = '\\';
        text[1] = (char)c;
        json_raw(j, text, 2);
    } else if (c >= 8 && c <= 13 && letters[c - 8]) {
        text[0] = '\\';
        text[1] = letters[c - 8];
        json_raw(j, text, 2);
    } else {
        snprintf(text, sizeof(text), "\\u%04x", c);
        json_raw(j, text, 6);
    }
}

static void json_quoted(struct json *j, const char *value, size_t length)
{
    const unsigned char *s = (const unsigned char *)value;
    size_t plain = 0; /* start of the run that needs no change */
    json_raw(j, "\"", 1);
    for (size_t i = 0; i < length && !j->error;) {
        size_t n = utf8_valid(s + i, length - i);
        bool escape = n == 1 && (s[i] < 0x20 || s[i] == '"' || s[i] == '\\' || s[i] == 0x7f);
        if (n && !escape) {
            i += n;
            continue;
        }
        json_raw(j, value + plain, i - plain);
        if (escape)
            json_escape(j, s[i]);
        else
            json_raw(j, "\xef\xbf\xbd", 3); /* U+FFFD */
        plain = ++i;
    }
    if (length > plain)
        json_raw(j, value + plain, length - plain);
    json_raw(j, "\"", 1);
}

void json_key(struct json *j, const char *key)
{
    if (j->error)
        return;
    if (j->depth == 0 || (j->in_array & json_bit(j)) || (j->want_value & json_bit(j)) || !key) {
        j->error = -EINVAL;
        return;
    }
    if (j->has_item & json_bit(j))
        json_raw(j, ",", 1);
    j->has_item |= json_bit(j);
    json_quoted(j, key, strlen(key));
    json_raw(j, ":", 1);
    j->want_value |= json_bit(j);
}

void json_str(struct json *j, const char *value)
{
    if (!value)
        json_null(j);
    else
        json_strn(j, value, strlen(value));
}

void json_strn(struct json *j, const char *value, size_t length)
{
    if (json_value_begin(j))
        json_quoted(j, value, length);
}

void json_u64(struct json *j, uint64_t value)
{
    char text[JSON_NUMBER_CHARS];
    if (json_value_begin(j))
        json_raw(j, text, (size_t)snprintf(text, sizeof(text), "%" PRIu64, value));
}

void json_i64(struct json *j, int64_t value)
{
    char text[JSON_NUMBER_CHARS];
    if (json_value_begin(j))
        json_raw(j, text, (size_t)snprintf(text, sizeof(text), "%" PRId64, value));
}

void json_double(struct json *j, double value)
{
    char text[JSON_NUMBER_CHARS];
    if (!isfinite(value)) {
        json_null(j);
        return;
    }
    if (!json_value_begin(j))
        return;
    /* The shortest of the two forms that reads back as the same number. */
    int length = snprintf(text, sizeof(text), "%.15g", value);
    if (strtod(text, NULL) != value)
        length = snprintf(text, sizeof(text), "%.17g", value);
    for (char *p = text; *p; p++)
        if (*p == ',') /* a locale's decimal comma */
            *p = '.';
    json_raw(j, text, (size_t)length);
}

void json_bool(struct json *j, bool value)
{
    if (json_value_begin(j))
        json_raw(j, value ? "true" : "false", value ? 4 : 5);
}

void json_null(struct json *j)
{
    if (json_value_begin(j))
        json_raw(j, "null", 4);
}

void json_kobject(struct json *j, const char *key)
{
    json_key(j, key);
    json_object(j);
}

void json_karray(struct json *j, const char *key)
{
    json_key(j, key);
    json_array(j);
}

void json_kstr(struct json *j, const char *key, const char *value)
{
    json_key(j, key);
    json_str(j, value);
}

void json_ku64(struct json *j, const char *key, uint64_t value)
{
    json_key(j, key);
    json_u64(j, value);
}

void json_ki64(struct json *j, const char *key, int64_t value)
{
    json_key(j, key);
    json_i64(j, value);
}

void json_ki64_or_null(struct json *j, const char *key, bool is_known, int64_t value)
{
    json_key(j, key);
    if (is_known)
        json_i64(j, value);
    else
        json_null(j);
}

void json_ku64_or_null(struct json *j, const char *key, bool is_known, uint64_t value)
{
    json_key(j, key);
    if (is_known)
        json_u64(j, value);
    else
        json_null(j);
}

void json_kindex(struct json *j, const char *key, int64_t value)
{
    json_ki64_or_null(j, key, value >= 0, value);
}

void json_kdouble_or_null(struct json *j, const char *key, bool is_known, double value)
{
    json_key(j, key);
    if (is_known)
        json_double(j, value);
    else
        json_null(j);
}

void json_kdouble(struct json *j, const char *key, double value)
{
    json_key(j, key);
    json_double(j, value);
}

void json_kbool(struct json *j, const char *key, bool value)
{
    json_key(j, key);
    json_bool(j, value);
}

void json_khex(struct json *j, const char *key, uint64_t value)
{
    char text[24];
    json_key(j, key);
    json_strn(j, text, (size_t)snprintf(text, sizeof(text), "0x%" PRIx64, value));
}

int json_finish(struct json *j)
{
    if (!j->error && (j->depth != 0 || j->length == 0))
        j->error = -EINVAL;
    char *at = json_room(j, 0);
    if (at)
        *at = '\0';
    return j->error;
}
