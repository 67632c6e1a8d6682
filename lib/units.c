/* SPDX-License-Identifier: Apache-2.0 */
/*
 * units.c - bytes and durations as text.
 *
 * Must not: use floating point (64-bit values need all their digits) or the locale.
 * Invariant: a number is an integer part and a fraction of at most FRACTION_DIGITS digits, and
 * every product is checked for overflow.
 */
#include "units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A fraction of 9 digits times the largest unit below (2^50) stays below 2^80: see number_scale().
 */
#define FRACTION_DIGITS 9
#define FRACTION_ONE 1000000000u

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit byte_units[] = {
    {"B", 1},
    {"K", 1024},
    {"KiB", 1024},
    {"M", (uint64_t)1 << 20},
    {"MiB", (uint64_t)1 << 20},
    {"G", (uint64_t)1 << 30},
    {"GiB", (uint64_t)1 << 30},
    {"T", (uint64_t)1 << 40},
    {"TiB", (uint64_t)1 << 40},
    {"P", (uint64_t)1 << 50},
    {"PiB", (uint64_t)1 << 50},
    {NULL, 0},
};

#define NS_PER_S 1000000000u

static const struct unit time_units[] = {
    {"ns", 1},
    {"us", 1000},
    {"ms", 1000000},
    {"s", NS_PER_S},
    {"sec", NS_PER_S},
    {"min", (uint64_t)60 * NS_PER_S},
    {"h", (uint64_t)3600 * NS_PER_S},
    {"d", (uint64_t)86400 * NS_PER_S},
    {"w", (uint64_t)7 * 86400 * NS_PER_S},
    {NULL, 0},
};

struct number {
    uint64_t whole;
    uint32_t fraction; /* in 1 / FRACTION_ONE */
};

static const char *skip_blanks(const char *s)
{
    while (*s == ' ' || *s == '\t')
        s++;
    return s;
}

/* Reads digits[.digits]; returns the first character behind it. */
static int number_parse(const char **s, struct number *ret)
{
    const char *p = *s;
    struct number n = {0};
    if (!isdigit((unsigned char)*p))
        return -EINVAL;
    for (; isdigit((unsigned char)*p); p++) {
        if (__builtin_mul_overflow(n.whole, (uint64_t)10, &n.whole) ||
            __builtin_add_overflow(n.whole, (uint64_t)(*p - '0'), &n.whole))
            return -ERANGE;
    }
    if (*p == '.') {
        uint32_t place = FRACTION_ONE / 10;
        if (!isdigit((unsigned char)*++p))
            return -EINVAL;
        for (; isdigit((unsigned char)*p); p++, place /= 10) {
            if (!place && *p != '0')
                return -EINVAL; /* more digits than are kept */
            n.fraction += place * (uint32_t)(*p - '0');
        }
    }
    *s = p;
    *ret = n;
    return 0;
}

static const struct unit *unit_parse(const char **s, const struct unit *table)
{
    size_t length = 0;
    while (isalpha((unsigned char)(*s)[length]))
        length++;
    for (const struct unit *u = table; u->name; u++) {
        if (strlen(u->name) == length && strncasecmp(u->name, *s, length) == 0) {
            *s += length;
            return u;
        }
    }
    return NULL;
}

/* number x factor; exact says that a remainder is an error. */
static int number_scale(struct number n, uint64_t factor, bool exact, uint64_t *ret)
{
    uint64_t whole;
    if (__builtin_mul_overflow(n.whole, factor, &whole))
        return -ERANGE;
    unsigned __int128 part = (unsigned __int128)n.fraction * factor;
    if (exact && part % FRACTION_ONE)
        return -EINVAL;
    if (__builtin_add_overflow(whole, (uint64_t)(part / FRACTION_ONE), &whole))
        return -ERANGE;
    *ret = whole;
    return 0;
}

int units_parse_bytes(const char *text, uint64_t *ret)
{
    struct number n;
    uint64_t factor = 1, bytes;
    const char *p = skip_blanks(text);
    int r = number_parse(&p, &n);
    if (r < 0)
        return r;
    p = skip_blanks(p);
    if (*p) {
        const struct unit *u = unit_parse(&p, byte_units);
        if (!u)
            return -EINVAL;
        factor = u->factor;
    }
    if (*skip_blanks(p))
        return -EINVAL;
    r = number_scale(n, factor, true, &bytes);
    if (r < 0)
        return r;
    *ret = bytes;
    return 0;
}

int units_parse_scale(const char *text, enum units_scale *ret)
{
    static const char *const names[][2] = {
        [UNITS_AUTO] = {"auto", "auto"}, [UNITS_B] = {"B", "B"},     [UNITS_KIB] = {"KiB", "K"},
        [UNITS_MIB] = {"MiB", "M"},      [UNITS_GIB] = {"GiB", "G"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcasecmp(text, names[i][0]) == 0 || strcasecmp(text, names[i][1]) == 0) {
            *ret = (enum units_scale)i;
            return 0;
        }
    }
    return -EINVAL;
}

char *units_format_bytes(char *text, uint64_t bytes, enum units_scale scale)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB"};
    unsigned step = 0;
    if (scale == UNITS_AUTO) {
        while (step < 3 && bytes >> (10 * (step + 1)))
            step++;
    } else {
        step = (unsigned)scale - UNITS_B;
    }
    if (step == 0) {
        snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " B", bytes);
        return text;
    }
    uint64_t unit = (uint64_t)1 << (10 * step);
    uint64_t whole = bytes / unit;
    uint64_t cents = ((bytes % unit) * 100 + unit / 2) / unit;
    if (cents == 100) {
        whole++;
        cents = 0;
    }
    snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 ".%02" PRIu64 " %s", whole, cents, names[step]);
    return text;
}

char *units_format_signed_bytes(char *text, int64_t bytes, enum units_scale scale)
{
    if (bytes >= 0)
        return units_format_bytes(text, (uint64_t)bytes, scale);
    char positive[UNITS_TEXT_BYTES];
    units_format_bytes(positive, -(uint64_t)bytes, scale);
    snprintf(text, UNITS_TEXT_BYTES, "-%.*s", UNITS_TEXT_BYTES - 2, positive);
    return text;
}

char *units_format_duration(char *text, uint64_t ns)
{
    uint64_t s = ns / NS_PER_S;
    if (ns < 1000)
        snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " ns", ns);
    else if (ns < 1000000)
        snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " us", ns / 1000);
    else if (ns < NS_PER_S)
        snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " ms", ns / 1000000);
    else if (s < 60)
        snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 ".%" PRIu64 " s", s,
                 ns % NS_PER_S / (NS_PER_S / 10));
    else if (s < 3600)
        snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s % 3600 / 60);
    else
        snprintf(text, UNITS_TEXT_BYTES, "%" PRIu64 " d %" PRIu64 " h", s / 86400,
                 s % 86400 / 3600);
    return text;
}

int units_parse_duration(const char *text, uint64_t *ret_ns)
{
    uint64_t sum = 0;
    const char *p = skip_blanks(text);
    bool first = true;
    do {
        struct number n;
        uint64_t factor = NS_PER_S, part;
        int r = number_parse(&p, &n);
        if (r < 0)
            return r;
        p = skip_blanks(p);
        if (*p || !first) { /* only a lone number may go without a unit */
            const struct unit *u = unit_parse(&p, time_units);
            if (!u)
                return -EINVAL;
            factor = u->factor;
        }
        r = number_scale(n, factor, false, &part);
        if (r < 0)
            return r;
        if (__builtin_add_overflow(sum, part, &sum))
            return -ERANGE;
        first = false;
        p = skip_blanks(p);
    } while (*p);
    *ret_ns = sum;
    return 0;
}
