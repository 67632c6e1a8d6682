/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procmaps.c - lines of /proc/PID/maps and the names of the files in them.
 *
 * Owns nothing. Must not allocate, open or log. Every line is parsed within its own bytes; the path
 * is decoded into the reader's buffer.
 */
#include "procmaps.h"

#include <ctype.h>
#include <string.h>

void maps_reader_init(struct maps_reader *r, const char *text, size_t bytes)
{
    r->text = text;
    r->bytes = bytes;
    r->at = 0;
    r->malformed_count = 0;
}

/* A number of base 10 or 16 at *p, at most 16 digits. False: no digit, or too many. */
static bool number_take(const char **p, const char *end, unsigned base, uint64_t *ret)
{
    uint64_t value = 0;
    unsigned digits = 0;

    for (; *p < end; (*p)++, digits++) {
        unsigned char c = (unsigned char)**p;
        unsigned digit;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if (base == 16 && c >= 'a' && c <= 'f')
            digit = c - 'a' + 10u;
        else
            break;
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *ret = value;
    return digits > 0;
}

static bool char_take(const char **p, const char *end, char c)
{
    if (*p >= end || **p != c)
        return false;
    (*p)++;
    return true;
}

/* Copies a path and decodes "\012". False: too long, or a NUL inside. */
static bool path_decode(char *to, const char *from, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++, n++) {
        if (n + 1 >= MAPS_PATH_MAX || from[i] == '\0')
            return false;
        if (bytes - i >= 4 && memcmp(from + i, "\\012", 4) == 0) {
            to[n] = '\n';
            i += 3;
        } else {
            to[n] = from[i];
        }
    }
    to[n] = '\0';
    return true;
}

static bool line_parse(struct maps_reader *r, const char *p, const char *end,
                       struct maps_entry *ret)
{
    static const char deleted[] = " (deleted)";
    const size_t deleted_bytes = sizeof(deleted) - 1;
    uint64_t major, minor;

    memset(ret, 0, sizeof(*ret));
    if (!number_take(&p, end, 16, &ret->start) || !char_take(&p, end, '-') ||
        !number_take(&p, end, 16, &ret->end) || !char_take(&p, end, ' ') || end - p < 5 ||
        ret->end <= ret->start)
        return false;
    ret->readable = p[0] == 'r';
    ret->writable = p[1] == 'w';
    ret->executable = p[2] == 'x';
    ret->shared = p[3] == 's';
    p += 4;
    if (!char_take(&p, end, ' ') || !number_take(&p, end, 16, &ret->offset) ||
        !char_take(&p, end, ' ') || !number_take(&p, end, 16, &major) || !char_take(&p, end, ':') ||
        !number_take(&p, end, 16, &minor) || !char_take(&p, end, ' ') ||
        !number_take(&p, end, 10, &ret->inode) || major > UINT32_MAX || minor > UINT32_MAX)
        return false;
    ret->dev_major = (uint32_t)major;
    ret->dev_minor = (uint32_t)minor;
    while (p < end && *p == ' ')
        p++;

    size_t bytes = (size_t)(end - p);
    if (bytes > deleted_bytes && memcmp(end - deleted_bytes, deleted, deleted_bytes) == 0) {
        ret->deleted = true;
        bytes -= deleted_bytes;
    }
    ret->path = r->path;
    return path_decode(r->path, p, bytes);
}

int maps_next(struct maps_reader *r, struct maps_entry *ret)
{
    while (r->at < r->bytes) {
        const char *line = r->text + r->at;
        size_t left = r->bytes - r->at;
        const char *newline = memchr(line, '\n', left);
        size_t bytes = newline ? (size_t)(newline - line) : left;

        r->at += bytes + (newline != NULL);
        if (line_parse(r, line, line + bytes, ret))
            return 1;
        if (bytes > 0)
            r->malformed_count++;
    }
    return 0;
}

static const struct {
    const char *stem, *name;
} libraries[] = {
#define NM_LIBRARY(stem, name) {stem, name},
#include "libraries.def"
#undef NM_LIBRARY
};

int library_count(void)
{
    return (int)ARRAY_SIZE(libraries);
}

int library_by_name(const char *name)
{
    for (int i = 0; i < library_count(); i++)
        if (strcmp(libraries[i].name, name) == 0)
            return i;
    return -1;
}

const char *library_name(int id)
{
    return libraries[id].name;
}

const char *library_stem(int id)
{
    return libraries[id].stem;
}

static const char *path_basename(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ".so" and nothing, or a version of digits and dots. */
static bool is_so_suffix(const char *s)
{
    if (strncmp(s, ".so", 3) != 0)
        return false;
    s += 3;
    if (*s == '\0')
        return true;
    return *s == '.' && isdigit((unsigned char)s[1]) && s[strspn(s, ".0123456789")] == '\0';
}

static bool is_named(const char *path, const char *stem)
{
    const char *base = path_basename(path);
    size_t bytes = strlen(stem);

    return strncmp(base, stem, bytes) == 0 && is_so_suffix(base + bytes);
}

int library_match(const char *path)
{
    for (int i = 0; i < library_count(); i++)
        if (is_named(path, libraries[i].stem))
            return i;
    return -1;
}

bool library_has_access(const char *path)
{
    static const char *const stems[] = {
#define NM_LIBRARY(stem, name)
#define NM_ACCESS_LIBRARY(stem) stem,
#include "libraries.def"
#undef NM_LIBRARY
    };

    for (size_t i = 0; i < ARRAY_SIZE(stems); i++)
        if (is_named(path, stems[i]))
            return true;
    return library_match(path) >= 0;
}

/* Length of a file name without its shared-object suffix. */
static size_t stem_bytes(const char *base)
{
    for (const char *dot = strchr(base, '.'); dot; dot = strchr(dot + 1, '.'))
        if (is_so_suffix(dot) || strncmp(dot, ".cpython-", 9) == 0 || strcmp(dot, ".abi3.so") == 0)
            return (size_t)(dot - base);
    return strlen(base);
}

/* auditwheel renames libx.so to libx-<8 hex digits>.so; length without that. */
static size_t hash_strip(const char *name, size_t bytes)
{
    if (bytes < 10 || name[bytes - 9] != '-')
        return bytes;
    for (size_t i = bytes - 8; i < bytes; i++)
        if (!strchr("0123456789abcdef", name[i]))
            return bytes;
    return bytes - 9;
}

void caller_name_from_path(const char *path, char ret_name[CALLER_NAME_MAX])
{
    const char *base = path_basename(path);
    int id = library_match(path);

    ret_name[0] = '\0';
    if (path[0] != '/')
        return;
    size_t bytes;
    if (id >= 0) {
        base = libraries[id].name;
        bytes = strlen(base);
    } else {
        bytes = stem_bytes(base);
        if (bytes > 3 && strncmp(base, "lib", 3) == 0 && base[bytes] != '\0') {
            base += 3;
            bytes -= 3;
        }
        bytes = hash_strip(base, bytes);
        /* python, python3, python3.11, python3.13t (free-threaded), python3.11d (debug) */
        if (bytes >= 6 && strncmp(base, "python", 6) == 0 &&
            6 + strspn(base + 6, ".0123456789td") >= bytes)
            bytes = 6;
    }
    if (bytes >= CALLER_NAME_MAX)
        bytes = CALLER_NAME_MAX - 1;
    memcpy(ret_name, base, bytes);
    ret_name[bytes] = '\0';
}
