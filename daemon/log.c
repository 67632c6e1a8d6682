/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the process-wide log state. Must not: allocate, fail, or change errno.
 * Invariant: one message is one line and one write().
 */
#include "log.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "clock.h"

static struct {
    int level;
    bool journal;
} log_state = {.level = LOG_INFO};

static const struct {
    const char *name;
    int level;
} level_names[] = {
    {"error", LOG_ERR}, {"warning", LOG_WARNING}, {"notice", LOG_NOTICE},
    {"info", LOG_INFO}, {"debug", LOG_DEBUG},
};

void log_open(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    uint64_t device, inode;
    char rest;
    struct stat st;

    log_state.journal = stream &&
                        sscanf(stream, "%" SCNu64 ":%" SCNu64 "%c", &device, &inode, &rest) == 2 &&
                        fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

bool log_to_journal(void)
{
    return log_state.journal;
}

void log_set_level(int level)
{
    log_state.level = level;
}

int log_get_level(void)
{
    return log_state.level;
}

int log_level_parse(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(level_names); i++)
        if (strcmp(name, level_names[i].name) == 0)
            return level_names[i].level;
    return -EINVAL;
}

static const char *level_word(int level)
{
    for (size_t i = 0; i < ARRAY_SIZE(level_names); i++)
        if (level_names[i].level == level)
            return level_names[i].name;
    return "critical";
}

static size_t line_begin(char *line, size_t size, int level)
{
    struct timespec now;
    struct tm tm;
    size_t length;

    if (log_state.journal)
        return (size_t)snprintf(line, size, "<%d>", level & LOG_PRIMASK);
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    length = strftime(line, size, "%Y-%m-%dT%H:%M:%S", &tm);
    length += (size_t)snprintf(line + length, size - length,
                               ".%03ld npumemd %s: ", now.tv_nsec / 1000000, level_word(level));
    return length;
}

void log_vprint(int level, const char *format, va_list ap)
{
    char line[LOG_LINE_BYTES];
    int saved_errno = errno, n;
    size_t begin, length;

    if (level > log_state.level)
        return;
    begin = line_begin(line, sizeof(line), level);
    /* %m in a format means the caller's errno. */
    errno = saved_errno;
    n = vsnprintf(line + begin, sizeof(line) - begin - 1, format, ap);
    length = begin + (n < 0 ? 0 : (size_t)n);
    if (length > sizeof(line) - 2)
        length = sizeof(line) - 2;
    for (size_t i = begin; i < length; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[length++] = '\n';
    /* A full or closed stderr must not stop the daemon; there is nowhere to report it either. */
    if (write(STDERR_FILENO, line, length) < 0) {
    }
    errno = saved_errno;
}

void log_print(int level, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    log_vprint(level, format, ap);
    va_end(ap);
}

int log_error(int code, const char *format, ...)
{
    char text[LOG_LINE_BYTES];
    va_list ap;

    code = abs(code);
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    log_print(LOG_ERR, "%s: %s", text, strerror(code));
    return -code;
}

int log_error_detail(int level, int code, const struct error *error)
{
    log_print(level, "%s%s%s", error->what, error->fix[0] ? "; try: " : "", error->fix);
    return -abs(code);
}

bool log_limited(struct log_ratelimit *limit, int level, const char *format, ...)
{
    uint64_t now_ns = clock_ns(CLOCK_MONOTONIC), suppressed;
    char text[LOG_LINE_BYTES];
    va_list ap;

    if (limit->begin_ns == 0 || now_ns - limit->begin_ns >= limit->interval_ns) {
        limit->begin_ns = now_ns;
        limit->count = 0;
    }
    if (limit->count >= limit->burst) {
        limit->suppressed++;
        return false;
    }
    limit->count++;
    suppressed = limit->suppressed;
    limit->suppressed = 0;
    va_start(ap, format);
    if (suppressed == 0) {
        log_vprint(level, format, ap);
    } else {
        vsnprintf(text, sizeof(text), format, ap);
        log_print(level, "%s (%" PRIu64 " more like this were left out)", text, suppressed);
    }
    va_end(ap);
    return true;
}
