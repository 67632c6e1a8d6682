/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procfacts.c - stat, status, cmdline, cgroup and environ of a process, from their text.
 *
 * Owns nothing. Must not allocate, open or log. Text is never taken to end in a NUL.
 */
#include "procfacts.h"

#include <errno.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f');
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* A decimal number at *p; *p is moved behind it. */
static bool number_take(const char **p, const char *end, uint64_t *ret)
{
    uint64_t value = 0;
    const char *begin = *p;

    for (; *p < end && is_digit(**p); (*p)++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(**p - '0'), &value))
            return false;
    *ret = value;
    return *p > begin;
}

int stat_parse(const char *text, size_t bytes, struct stat_facts *ret)
{
    const char *open = memchr(text, '(', bytes);
    const char *close = memrchr(text, ')', bytes);
    const char *end = text + bytes;
    uint64_t ppid = 0;

    memset(ret, 0, sizeof(*ret));
    if (!open || !close || close < open || end - close < 4 || close[1] != ' ')
        return -EBADMSG;
    size_t comm_bytes = (size_t)(close - open - 1);
    if (comm_bytes >= sizeof(ret->comm))
        comm_bytes = sizeof(ret->comm) - 1;
    memcpy(ret->comm, open + 1, comm_bytes);
    ret->state = close[2];

    const char *p = close + 3; /* behind field 3; every field begins with a blank */
    for (unsigned field = 4; field <= 22; field++) {
        uint64_t value;
        if (p >= end || *p != ' ')
            return -EBADMSG;
        p++;
        if (field != 4 && field != 22) {
            while (p < end && *p != ' ')
                p++;
            continue;
        }
        if (!number_take(&p, end, &value))
            return -EBADMSG;
        if (field == 22)
            ret->start_ticks = value;
        else
            ppid = value;
    }
    if (ppid > UINT32_MAX)
        return -EBADMSG;
    ret->ppid = (uint32_t)ppid;
    return 0;
}

/* The next line of text, without its newline. */
static bool line_next(const char **p, const char *end, const char **ret_line, size_t *ret_bytes)
{
    if (*p >= end)
        return false;
    const char *newline = memchr(*p, '\n', (size_t)(end - *p));
    *ret_line = *p;
    *ret_bytes = (size_t)((newline ? newline : end) - *p);
    *p = newline ? newline + 1 : end;
    return true;
}

static bool key_is(const char *line, size_t bytes, const char *key)
{
    size_t key_bytes = strlen(key);
    return bytes >= key_bytes && memcmp(line, key, key_bytes) == 0;
}

int status_parse(const char *text, size_t bytes, struct status_facts *ret)
{
    const char *p = text, *end = text + bytes, *line;
    size_t line_bytes;
    bool uid_seen = false;

    memset(ret, 0, sizeof(*ret));
    while (line_next(&p, end, &line, &line_bytes)) {
        const char *q = line, *line_end = line + line_bytes;
        uint64_t value;
        if (key_is(line, line_bytes, "Uid:")) {
            for (q += 4; q < line_end && (*q == '\t' || *q == ' '); q++)
                ;
            if (!number_take(&q, line_end, &value) || value > UINT32_MAX)
                return -EBADMSG;
            ret->uid = (uint32_t)value;
            uid_seen = true;
        } else if (key_is(line, line_bytes, "NSpid:")) {
            unsigned n = 0;
            for (q += 6; q < line_end; n++) {
                while (q < line_end && (*q == '\t' || *q == ' '))
                    q++;
                if (!number_take(&q, line_end, &value) || value > UINT32_MAX)
                    break;
                ret->ns_tgid = (uint32_t)value;
            }
            ret->ns_depth = n > 0 ? n - 1 : 0;
        }
    }
    return uid_seen ? 0 : -EBADMSG;
}

void title_from_cmdline(const char *text, size_t bytes, char *ret, size_t ret_bytes)
{
    size_t n = 0, used = 0;
    for (; n < bytes && n + 1 < ret_bytes; n++) {
        unsigned char c = (unsigned char)text[n];
        ret[n] = c == '\0' ? ' ' : c < ' ' || c == 0x7f ? '?' : (char)c;
        if (ret[n] != ' ')
            used = n + 1;
    }
    if (ret_bytes > 0)
        ret[used] = '\0';
}

/* Where a run of exactly `count` hex digits is, not part of a longer word; the last one. */
static const char *hex_run_last(const char *text, size_t bytes, size_t count)
{
    const char *found = NULL;
    for (size_t i = 0; i < bytes;) {
        size_t run = 0;
        while (i + run < bytes && is_hex(text[i + run]))
            run++;
        if (run == count && (i == 0 || !is_word(text[i - 1])) &&
            (i + run == bytes || !is_word(text[i + run])))
            found = text + i;
        i += run > 0 ? run : 1;
    }
    return found;
}

/* A pod's uid behind "pod": a UUID with '-' or '_', or 32 hex digits (static pods). */
static bool pod_uid_read(const char *line, size_t bytes, char ret[37])
{
    static const uint8_t groups[] = {8, 4, 4, 4, 12};
    for (size_t i = 0; i + 3 + 32 <= bytes; i++) {
        const char *p = line + i + 3;
        size_t n = 0, left = bytes - i - 3;
        if (memcmp(line + i, "pod", 3) != 0)
            continue;
        for (unsigned g = 0; g < sizeof(groups); g++) {
            unsigned k = 0;
            if (g > 0 && n < left && (p[n] == '-' || p[n] == '_'))
                ret[n++] = '-';
            for (; k < groups[g] && n < left && n < 36 && is_hex(p[n]); k++, n++)
                ret[n] = p[n];
            if (k < groups[g])
                break;
        }
        ret[n] = '\0';
        if ((n == 36 || n == 32) && (n == left || !is_word(p[n])))
            return true;
    }
    ret[0] = '\0';
    return false;
}

static const struct {
    const char *mark, *runtime;
} runtimes[] = {
    {"cri-containerd", "containerd"},
    {"crio-", "cri-o"},
    {"libpod-", "podman"},
    {"docker-", "docker"},
    {"/docker/", "docker"},
};

int cgroup_parse(const char *text, size_t bytes, struct container_facts *ret)
{
    const char *p = text, *end = text + bytes, *line;
    size_t line_bytes;

    memset(ret, 0, sizeof(*ret));
    while (line_next(&p, end, &line, &line_bytes)) {
        const char *id = hex_run_last(line, line_bytes, 64);
        if (!id || ret->id[0] || memmem(line, line_bytes, "conmon-", 7))
            continue; /* conmon watches a container and is not in it */
        memcpy(ret->id, id, 64);
        (void)pod_uid_read(line, line_bytes, ret->pod_uid);
        for (unsigned i = 0; i < sizeof(runtimes) / sizeof(runtimes[0]); i++) {
            if (!memmem(line, line_bytes, runtimes[i].mark, strlen(runtimes[i].mark)))
                continue;
            memcpy(ret->runtime, runtimes[i].runtime, strlen(runtimes[i].runtime));
            break;
        }
    }
    return ret->id[0] != '\0';
}

int environ_get(const char *text, size_t bytes, const char *name, char *ret, size_t ret_bytes)
{
    const char *p = text, *end = text + bytes;
    size_t name_bytes = strlen(name);

    while (p < end) {
        const char *nul = memchr(p, '\0', (size_t)(end - p));
        size_t entry_bytes = (size_t)((nul ? nul : end) - p);
        if (entry_bytes > name_bytes && p[name_bytes] == '=' && memcmp(p, name, name_bytes) == 0) {
            size_t value_bytes = entry_bytes - name_bytes - 1;
            if (value_bytes >= ret_bytes)
                return -ENOBUFS;
            memcpy(ret, p + name_bytes + 1, value_bytes);
            ret[value_bytes] = '\0';
            return (int)value_bytes;
        }
        p += entry_bytes + 1;
    }
    return -ENOENT;
}

int visible_devices_parse(const char *value, uint16_t ret[VISIBLE_DEVICES_MAX])
{
    const char *p = value, *end = value + strlen(value);
    int n = 0;

    for (;;) {
        uint64_t id;
        while (p < end && *p == ' ')
            p++;
        if (p == end)
            return n == 0 ? 0 : -EINVAL; /* a list that ends in a comma */
        if (!number_take(&p, end, &id) || id >= 1024 || n == VISIBLE_DEVICES_MAX ||
            (n > 0 && id <= ret[n - 1]))
            return -EINVAL;
        ret[n++] = (uint16_t)id;
        while (p < end && *p == ' ')
            p++;
        if (p == end)
            return n;
        if (*p++ != ',')
            return -EINVAL;
    }
}
