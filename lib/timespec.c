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
    struct tm tm;
    int64_t ns;
    bool has_zone;
    int zone_minutes; /* east of UTC */
};

/* "07:32", "07:32:18", "07:32:18.5" */
static const char *clock_read(const char *p, struct when *w)
{
    p = digits_read(p, 2, &w->tm.tm_hour);
    if (!p || *p++ != ':' || !(p = digits_read(p, 2, &w->tm.tm_min)))
        return NULL;
    if (*p == ':') {
        p = digits_read(p + 1, 2, &w->tm.tm_sec);
        if (!p || !(p = fraction_read(p, &w->ns)))
            return NULL;
    }
    if (w->tm.tm_hour > 23 || w->tm.tm_min > 59 || w->tm.tm_sec > 60)
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

/* Days since 1970 of a date of the Gregorian calendar; 0 = no such day. */
static bool date_valid(int year, int month, int day)
{
    static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return year >= 1970 && month >= 1 && month <= 12 && day >= 1 &&
           day <= days[month - 1] + (month == 2 && leap);
}

/* Source: the proleptic Gregorian calendar, counted in eras of 400 years from March 1st. */
static int64_t utc_seconds(const struct tm *tm)
{
    int64_t year = tm->tm_year + 1900 - (tm->tm_mon < 2);
    int64_t month = (tm->tm_mon + 10) % 12, day = tm->tm_mday - 1;
    int64_t days =
        year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 719468;
    return ((days * 24 + tm->tm_hour) * 60 + tm->tm_min) * 60 + tm->tm_sec;
}

static int64_t seconds_of(struct when *w, time_t (*local_fn)(struct tm *))
{
    w->tm.tm_isdst = -1;
    if (w->has_zone || !local_fn)
        return utc_seconds(&w->tm) - (int64_t)w->zone_minutes * 60;
    return local_fn(&w->tm);
}

/* Midnight of today plus `days`, or today's date into *tm. */
static void today(int64_t now_ns, time_t (*local_fn)(struct tm *), int days, struct tm *tm)
{
    /* normalised by local_fn: 1970-01-01 plus seconds, whatever the zone makes of them */
    int64_t offset = 0, seconds = now_ns / NS, day;
    if (local_fn) {
        struct tm epoch = {.tm_year = 70, .tm_mday = 1, .tm_isdst = 0};
        epoch.tm_mday += (int)(seconds / 86400);
        epoch.tm_sec = (int)(seconds % 86400);
        epoch.tm_isdst = -1;
        offset = seconds - local_fn(&epoch); /* seconds east of UTC at about now */
    }
    day = (seconds + offset) / 86400 + days;
    *tm = (struct tm){.tm_year = 70, .tm_mday = 1};
    int64_t era_day = day + 719468, era = era_day / 146097, of_era = era_day % 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100),
            month = (5 * of_year + 2) / 153;
    tm->tm_mday = (int)(of_year - (153 * month + 2) / 5) + 1;
    tm->tm_mon = (int)((month + 2) % 12);
    tm->tm_year = (int)(year + era * 400 + (tm->tm_mon < 2)) - 1900;
}

static int parse_calendar(const char *p, int64_t now_ns, time_t (*local_fn)(struct tm *),
                          int64_t *ret)
{
    struct when w = {0};
    int year, month, day;
    const char *end = digits_read(p, 4, &year);

    if (end && *end == '-') {
        end = digits_read(end + 1, 2, &month);
        if (!end || *end != '-' || !(end = digits_read(end + 1, 2, &day)) ||
            !date_valid(year, month, day))
            return -EINVAL;
        w.tm = (struct tm){.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day};
        if (*end == 'T' || (*end == ' ' && is_digit(*blanks_skip(end))))
            end = clock_read(blanks_skip(end + 1), &w);
    } else {
        today(now_ns, local_fn, 0, &w.tm);
        end = clock_read(p, &w);
    }
    if (end && *blanks_skip(end))
        end = zone_read(blanks_skip(end), &w);
    if (!end || *blanks_skip(end))
        return -EINVAL;
    return add_ns(seconds_of(&w, local_fn), w.ns, ret);
}

static int parse_day(const char *p, int64_t now_ns, time_t (*local_fn)(struct tm *), int64_t *ret)
{
    static const char *const words[] = {"yesterday", "today", "tomorrow"};
    struct when w = {0};

    for (int i = 0; i < 3; i++) {
        if (strcmp(p, words[i]) != 0)
            continue;
        today(now_ns, local_fn, i - 1, &w.tm);
        return add_ns(seconds_of(&w, local_fn), 0, ret);
    }
    return -EINVAL;
}

int timespec_parse(const char *text, int64_t now_ns, time_t (*local_fn)(struct tm *),
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
