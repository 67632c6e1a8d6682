/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timespec.c - see timespec.h. Owns nothing; every part of the text must be understood, or it is an
 * error.
 */
#include "timespec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "units.h"

#define NS 1000000000ll
#define TEXT_MAX 128

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *blanks_skip(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

/* Exactly `count` digits; NULL: not there. */
static const char *digits_read(const char *p, int count, int *ret)
{
    *ret = 0;
    for (int i = 0; i < count; i++) {
        if (!is_digit(p[i]))
            return NULL;
        *ret = *ret * 10 + (p[i] - '0');
    }
    return p + count;
}

/* ".25" as ns; nothing there is 0. NULL: a point without digits. */
static const char *fraction_read(const char *p, int64_t *ret_ns)
{
    int64_t scale = NS / 10;

    *ret_ns = 0;
    if (*p != '.')
        return p;
    if (!is_digit(*++p))
        return NULL;
    for (; is_digit(*p); p++, scale /= 10)
        *ret_ns += (*p - '0') * scale;
    return p;
}

static int add_ns(int64_t seconds, int64_t ns, int64_t *ret)
{
    int64_t total;

    if (__builtin_mul_overflow(seconds, NS, &total) || __builtin_add_overflow(total, ns, &total) ||
        total < 0)
        return -ERANGE;
    *ret = total;
    return 0;
}

static int parse_epoch(const char *p, int64_t *ret)
{
    int64_t seconds = 0, ns;

    if (!is_digit(*p))
        return -EINVAL;
    for (; is_digit(*p); p++)
        if (__builtin_mul_overflow(seconds, 10, &seconds) ||
            __builtin_add_overflow(seconds, *p - '0', &seconds))
            return -ERANGE;
    p = fraction_read(p, &ns);
    if (!p || *p)
        return -EINVAL;
    return add_ns(seconds, ns, ret);
}

/* now - or + a duration; sign 0: the word "ago" must stand behind it. */
static int parse_relative(const char *p, int sign, int64_t now_ns, int64_t *ret)
{
    char text[TEXT_MAX];
    size_t bytes = strlen(p);
    uint64_t ns;
    int r;

    if (bytes >= sizeof(text))
        return -EINVAL;
    memcpy(text, p, bytes + 1);
    if (!sign) {
        while (bytes && text[bytes - 1] == ' ')
            text[--bytes] = '\0';
        if (bytes < 4 || strcmp(text + bytes - 4, " ago") != 0)
            return -EINVAL;
        text[bytes - 4] = '\0';
        sign = -1;
    }
    r = units_parse_duration(text, &ns);
    if (r < 0)
        return r;
    if (ns > INT64_MAX || __builtin_add_overflow(now_ns, sign * (int64_t)ns, ret) || *ret < 0)
        return -ERANGE;
    return 0;
}

struct when {
    struct calendar_time tm;
    int64_t ns;
    bool has_zone;
    int zone_minutes; /* east of UTC */
};

/* "07:32", "07:32:18", "07:32:18.5" */
static const char *clock_read(const char *p, struct when *w)
{
    p = digits_read(p, 2, &w->tm.hour);
    if (!p || *p++ != ':' || !(p = digits_read(p, 2, &w->tm.minute)))
        return NULL;
    if (*p == ':') {
        p = digits_read(p + 1, 2, &w->tm.second);
        if (!p || !(p = fraction_read(p, &w->ns)))
            return NULL;
    }
    if (w->tm.hour > 23 || w->tm.minute > 59 || w->tm.second > 60)
        return NULL;
    return p;
}

/* "Z", "UTC", "+02:00", "-0500" */
static const char *zone_read(const char *p, struct when *w)
{
    int hours, minutes = 0, sign = *p == '-' ? -1 : 1;

    w->has_zone = true;
    if (*p == 'Z')
        return p + 1;
    if (strncmp(p, "UTC", 3) == 0)
        return p + 3;
    if (*p != '+' && *p != '-')
        return NULL;
    p = digits_read(p + 1, 2, &hours);
    if (!p)
        return NULL;
    if (*p == ':')
        p++;
    p = digits_read(p, 2, &minutes);
    if (!p || hours > 23 || minutes > 59)
        return NULL;
    w->zone_minutes = sign * (hours * 60 + minutes);
    return p;
}

static bool date_valid(int year, int month, int day)
{
    static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return year >= 1970 && month >= 1 && month <= 12 && day >= 1 &&
           day <= days[month - 1] + (month == 2 && leap);
}

/* Source: the proleptic Gregorian calendar, counted in eras of 400 years from March 1st. */
static int64_t utc_seconds(const struct calendar_time *t)
{
    int64_t year = t->year - (t->month < 3), month = (t->month + 9) % 12, day = t->day - 1;
    int64_t days =
        year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 719468;
    return ((days * 24 + t->hour) * 60 + t->minute) * 60 + t->second;
}

static int64_t seconds_of(const struct when *w, timespec_local_fn local_fn)
{
    if (w->has_zone || !local_fn)
        return utc_seconds(&w->tm) - (int64_t)w->zone_minutes * 60;
    return local_fn(&w->tm);
}

/* The date of today plus `days`, at midnight. */
static struct calendar_time date_of(int64_t now_ns, timespec_local_fn local_fn, int days)
{
    int64_t seconds = now_ns / NS, offset = 0;
    if (local_fn) { /* seconds east of UTC at about now: the same digits read both ways */
        struct calendar_time t = {.year = 1970,
                                  .month = 1,
                                  .day = 1 + (int)(seconds / 86400),
                                  .second = (int)(seconds % 86400)};
        offset = seconds - local_fn(&t);
    }
    int64_t era_day = (seconds + offset) / 86400 + days + 719468;
    int64_t era = era_day / 146097, of_era = era_day % 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100),
            month = (5 * of_year + 2) / 153;
    struct calendar_time t = {.day = (int)(of_year - (153 * month + 2) / 5) + 1,
                              .month = (int)((month + 2) % 12) + 1};
    t.year = (int)(year + era * 400) + (t.month < 3);
    return t;
}

static int parse_calendar(const char *p, int64_t now_ns, timespec_local_fn local_fn, int64_t *ret)
{
    struct when w = {0};
    int year, month, day;
    const char *end = digits_read(p, 4, &year);

    if (end && *end == '-') {
        end = digits_read(end + 1, 2, &month);
        if (!end || *end != '-' || !(end = digits_read(end + 1, 2, &day)) ||
            !date_valid(year, month, day))
            return -EINVAL;
        w.tm = (struct calendar_time){.year = year, .month = month, .day = day};
        if (*end == 'T' || (*end == ' ' && is_digit(*blanks_skip(end))))
            end = clock_read(blanks_skip(end + 1), &w);
    } else {
        w.tm = date_of(now_ns, local_fn, 0);
        end = clock_read(p, &w);
    }
    if (end && *blanks_skip(end))
        end = zone_read(blanks_skip(end), &w);
    if (!end || *blanks_skip(end))
        return -EINVAL;
    return add_ns(seconds_of(&w, local_fn), w.ns, ret);
}

static int parse_day(const char *p, int64_t now_ns, timespec_local_fn local_fn, int64_t *ret)
{
    static const char *const words[] = {"yesterday", "today", "tomorrow"};
    struct when w = {0};

    for (int i = 0; i < 3; i++) {
        if (strcmp(p, words[i]) != 0)
            continue;
        w.tm = date_of(now_ns, local_fn, i - 1);
        return add_ns(seconds_of(&w, local_fn), 0, ret);
    }
    return -EINVAL;
}

int timespec_parse(const char *text, int64_t now_ns, timespec_local_fn local_fn,
                   struct timespec_value *ret)
{
    struct timespec_value v = {.kind = TIMESPEC_AT};
    const char *p = blanks_skip(text);
    int r;

    if (strncmp(p, "mark:", 5) == 0 && p[5]) {
        v.kind = TIMESPEC_MARK;
        v.mark = p + 5;
        r = 0;
    } else if (strcmp(p, "peak") == 0) {
        v.kind = TIMESPEC_PEAK;
        r = 0;
    } else if (strcmp(p, "now") == 0) {
        v.wall_ns = now_ns;
        r = 0;
    } else if (*p == '@') {
        r = parse_epoch(p + 1, &v.wall_ns);
    } else if (*p == '-' || *p == '+') {
        r = parse_relative(p + 1, *p == '-' ? -1 : 1, now_ns, &v.wall_ns);
    } else {
        r = parse_day(p, now_ns, local_fn, &v.wall_ns);
        if (r == -EINVAL)
            r = parse_calendar(p, now_ns, local_fn, &v.wall_ns);
        if (r == -EINVAL)
            r = parse_relative(p, 0, now_ns, &v.wall_ns);
    }
    if (r == 0)
        *ret = v;
    return r;
}
