/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: nothing; pure text conversion. Sizes and times are read by lib/units.
 */
#include "config_value.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "cleanup.h"

struct unit {
    const char *name;
    uint64_t factor;
};

/* Largest first: the formatter takes the first that divides. */
static const struct unit byte_units[] = {
    {"TiB", 1ull << 40}, {"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"KiB", 1ull << 10}, {"B", 1},
};
static const struct unit time_units[] = {
    {"d", 86400000000000},
    {"h", 3600000000000},
    {"min", 60000000000},
    {"s", 1000000000},
    {"ms", 1000000},
    {"us", 1000},
    {"ns", 1},
};

int config_parse_bool(const char *text, bool *ret)
{
    static const char *const yes[] = {"yes", "true", "on", "1"}, *const no[] = {"no", "false",
                                                                                "off", "0"};

    for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0) {
            *ret = true;
            return 0;
        }
        if (strcasecmp(text, no[i]) == 0) {
            *ret = false;
            return 0;
        }
    }
    return -EINVAL;
}

int config_parse_int(const char *text, int64_t *ret)
{
    char *end;
    long long value;

    if (!isdigit((unsigned char)text[0]) && text[0] != '-')
        return -EINVAL;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (end == text || *end)
        return -EINVAL;
    if (errno)
        return -errno;
    *ret = value;
    return 0;
}

int config_parse_enum(const char *text, const char *values)
{
    size_t length = strlen(text);

    for (int i = 0; *values; i++) {
        size_t word = strcspn(values, "|");
        if (word == length && strncasecmp(values, text, length) == 0)
            return i;
        values += word;
        values += *values == '|';
    }
    return -EINVAL;
}

static void format_units(const struct unit *units, size_t count, uint64_t value, char *ret,
                         size_t size)
{
    for (size_t i = 0; i < count; i++)
        if (value && value % units[i].factor == 0) {
            snprintf(ret, size, "%" PRIu64 "%s", value / units[i].factor, units[i].name);
            return;
        }
    snprintf(ret, size, "0");
}

void config_format_bytes(uint64_t bytes, char *ret, size_t size)
{
    format_units(byte_units, ARRAY_SIZE(byte_units), bytes, ret, size);
}

void config_format_duration(uint64_t ns, char *ret, size_t size)
{
    format_units(time_units, ARRAY_SIZE(time_units), ns, ret, size);
}
