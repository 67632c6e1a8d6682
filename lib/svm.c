/* SPDX-License-Identifier: Apache-2.0 */
/*
 * svm.c - rows of the driver's memory tables.
 *
 * Owns nothing. Must not allocate. A row is recognised by its shape alone (eight or more words, the
 * last five of them numbers), so that unknown lines, headers and column widths do not matter.
 */
#include "svm.h"

#include <string.h>
#include <strings.h>

enum { WORDS_MAX = 16, ROW_WORDS = 8 };

struct word {
    const char *text;
    size_t bytes;
};

void svm_reader_init(struct svm_reader *r, const char *text, size_t bytes)
{
    *r = (struct svm_reader){.text = text, .bytes = bytes};
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Splits a line; more than WORDS_MAX words: 0, it is no row. */
static unsigned words_split(const char *p, const char *end, struct word ret[WORDS_MAX])
{
    unsigned n = 0;
    while (p < end) {
        while (p < end && is_blank(*p))
            p++;
        if (p == end)
            break;
        if (n == WORDS_MAX)
            return 0;
        ret[n].text = p;
        while (p < end && !is_blank(*p))
            p++;
        ret[n].bytes = (size_t)(p - ret[n].text);
        n++;
    }
    return n;
}

static bool number_parse(const char *text, size_t bytes, uint64_t *ret)
{
    uint64_t value = 0;
    if (bytes == 0)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value))
            return false;
    }
    *ret = value;
    return true;
}

static bool device_parse(const struct word *w, uint16_t *ret)
{
    uint64_t value;
    const char *text = w->text;
    size_t bytes = w->bytes;

    if (bytes == 2 && strncasecmp(text, "NA", 2) == 0) {
        *ret = SVM_DEVICE_NONE;
        return true;
    }
    if (bytes > 3 && strncasecmp(text, "dev", 3) == 0) {
        text += 3;
        bytes -= 3;
    }
    if (!number_parse(text, bytes, &value) || value >= SVM_DEVICE_NONE)
        return false;
    *ret = (uint16_t)value;
    return true;
}

static void name_copy(char to[SVM_NAME_MAX], const char *from, size_t bytes)
{
    if (bytes >= SVM_NAME_MAX)
        bytes = SVM_NAME_MAX - 1;
    memcpy(to, from, bytes);
    to[bytes] = '\0';
}

static bool row_parse(const struct word *words, unsigned n, struct svm_row *ret)
{
    uint64_t module;
    const struct word *last = words + n - 5; /* the numbers; names may be of several words */

    if (n < ROW_WORDS || !device_parse(&words[0], &ret->device) ||
        !number_parse(last[0].text, last[0].bytes, &module) || module > UINT8_MAX ||
        !number_parse(last[1].text, last[1].bytes, &ret->current_bytes) ||
        !number_parse(last[2].text, last[2].bytes, &ret->peak_bytes) ||
        !number_parse(last[3].text, last[3].bytes, &ret->alloc_count) ||
        !number_parse(last[4].text, last[4].bytes, &ret->free_count))
        return false;
    ret->module_id = (uint8_t)module;
    name_copy(ret->mem_type, words[1].text, words[1].bytes);
    const struct word *module_end = last - 1;
    name_copy(ret->module_name, words[2].text,
              (size_t)(module_end->text + module_end->bytes - words[2].text));
    return true;
}

/* "Hostpid=4711" */
static bool host_pid_parse(const struct word *w, uint32_t *ret)
{
    static const char key[] = "Hostpid=";
    const size_t key_bytes = sizeof(key) - 1;
    uint64_t value;

    if (w->bytes <= key_bytes || strncasecmp(w->text, key, key_bytes) != 0 ||
        !number_parse(w->text + key_bytes, w->bytes - key_bytes, &value) || value > INT32_MAX)
        return false;
    *ret = (uint32_t)value;
    return true;
}

int svm_next(struct svm_reader *r, struct svm_row *ret)
{
    while (r->at < r->bytes) {
        const char *line = r->text + r->at;
        size_t left = r->bytes - r->at;
        const char *newline = memchr(line, '\n', left);
        size_t bytes = newline ? (size_t)(newline - line) : left;
        struct word words[WORDS_MAX];

        r->at += bytes + (newline != NULL);
        unsigned n = words_split(line, line + bytes, words);
        if (n == 1)
            (void)host_pid_parse(&words[0], &r->tgid);
        if (n < ROW_WORDS)
            continue;
        memset(ret, 0, sizeof(*ret));
        if (row_parse(words, n, ret)) {
            ret->tgid = r->tgid;
            return 1;
        }
    }
    return 0;
}

bool svm_row_is_device(const struct svm_row *row)
{
    return row->device != SVM_DEVICE_NONE && strncmp(row->mem_type, "HOST", 4) != 0 &&
           !strstr(row->mem_type, "TS_DDR");
}
