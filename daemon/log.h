/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - the daemon's only logger.
 *
 * Messages go to stderr, one line and one write() each: with the priority prefix `<N>` that the
 * journal understands when $JOURNAL_STREAM names stderr's device and inode (sd-daemon(3)), with the
 * wall-clock time otherwise. Control characters in a message become '?', so that the title of a
 * hostile process can neither forge a line nor drive a terminal.
 *
 * The state is process-wide and meant for the daemon's one thread. A line costs one write(); longer
 * than LOG_LINE_BYTES it is cut.
 */
#ifndef NPUMEM_DAEMON_LOG_H
#define NPUMEM_DAEMON_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <syslog.h>

#include "err.h"

/* Below PIPE_BUF (4096), so that a line to a pipe is never torn. */
#define LOG_LINE_BYTES 2048

/* Finds out where stderr goes. Called once, early; before it, lines go to stderr with the time. */
void log_open(void);

/* Whether stderr is the journal's stream. */
bool log_to_journal(void);

/* Messages above this syslog level are dropped; the default is LOG_INFO. */
void log_set_level(int level);
int log_get_level(void);

/* "error", "warning", "notice", "info", "debug" -> syslog level; -EINVAL for another word. */
int log_level_parse(const char *name);

/* One line. Keeps errno. */
void log_print(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_vprint(int level, const char *format, va_list ap) __attribute__((format(printf, 2, 0)));

#define log_debug(...) log_print(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_print(LOG_INFO, __VA_ARGS__)
#define log_notice(...) log_print(LOG_NOTICE, __VA_ARGS__)
#define log_warning(...) log_print(LOG_WARNING, __VA_ARGS__)

/* "MESSAGE: strerror(code)" at error level. code is an errno of either sign; returns it negative,
 * so that a failure is logged and returned in one statement. */
int log_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "WHAT; try: FIX" of an error that a function filled. Returns -|code|. */
int log_error_detail(int level, int code, const struct error *error);

/* At most `burst` lines per `interval_ns`; what was left out is said with the next line let
 * through. Zero-initialised beside the two limits. */
struct log_ratelimit {
    uint64_t interval_ns;
    uint32_t burst;
    uint32_t count;
    uint64_t begin_ns;
    uint64_t suppressed; /* since the last line that was let through */
};

/* Returns true when the line was let through. */
bool log_limited(struct log_ratelimit *limit, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
