/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the table of settings (from schema/config.def) and the text that is made from it.
 * Must not: read files (config_file.c) or know what a setting does.
 * Invariant: a value in struct config is always inside the range of its row.
 */
#include "config_value.h"

#include <inttypes.h>
#include <string.h>

#include "cleanup.h"
#include "log.h"
#include "units.h"

struct config_row {
    enum config_type type;
    const char *section, *key;
    uint64_t minimum, maximum;
    const char *fallback, *values, *help;
    size_t offset;
};

static const struct config_row rows[] = {
#define CONFIG(type, section, key, minimum, maximum, fallback, values, help)                       \
    {CONFIG_TYPE_##type,                                                                           \
     #section,                                                                                     \
     #key,                                                                                         \
     minimum,                                                                                      \
     maximum,                                                                                      \
     fallback,                                                                                     \
     values,                                                                                       \
     help,                                                                                         \
     offsetof(struct config, section##_##key)},
#include "config.def"
#undef CONFIG
};

static const struct config_row *row_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t length = strlen(rows[i].section);
        if (strncmp(name, rows[i].section, length) == 0 && name[length] == '.' &&
            strcmp(name + length + 1, rows[i].key) == 0)
            return &rows[i];
    }
    return NULL;
}

/* "50ms to 10s", "yes or no", "off, large or all": what a value may be. */
static void row_describe(const struct config_row *row, char *ret, size_t size)
{
    char low[32], high[32];

    switch (row->type) {
    case CONFIG_TYPE_BYTES:
        config_format_bytes(row->minimum, low, sizeof(low));
        config_format_bytes(row->maximum, high, sizeof(high));
        snprintf(ret, size, "%s to %s", low, high);
        break;
    case CONFIG_TYPE_DURATION:
        config_format_duration(row->minimum, low, sizeof(low));
        config_format_duration(row->maximum, high, sizeof(high));
        snprintf(ret, size, "%s to %s", low, high);
        break;
    case CONFIG_TYPE_INT:
        snprintf(ret, size, "%" PRIu64 " to %" PRIu64, row->minimum, row->maximum);
        break;
    case CONFIG_TYPE_BOOL:
        snprintf(ret, size, "yes or no");
        break;
    case CONFIG_TYPE_STRING:
        snprintf(ret, size, "text of at most %" PRIu64 " bytes", row->maximum);
        break;
    case CONFIG_TYPE_PATH:
        snprintf(ret, size, "absolute path");
        break;
    case CONFIG_TYPE_ENUM:
        snprintf(ret, size, "%s", row->values);
        break;
    }
}

static int value_text(const struct config_row *row, const char *value, void *field)
{
    size_t length = strlen(value);

    if (length < row->minimum || length > row->maximum || length >= CONFIG_TEXT_BYTES)
        return -ERANGE;
    if (row->type == CONFIG_TYPE_PATH && value[0] != '/')
        return -EINVAL;
    memcpy(field, value, length + 1);
    return 0;
}

static int value_set(const struct config_row *row, const char *value, void *field)
{
    uint64_t number = 0;
    int64_t integer;
    int r;

    switch (row->type) {
    case CONFIG_TYPE_BOOL:
        return config_parse_bool(value, field);
    case CONFIG_TYPE_ENUM:
        r = config_parse_enum(value, row->values);
        if (r >= 0)
            *(int *)field = r;
        return r < 0 ? r : 0;
    case CONFIG_TYPE_STRING:
    case CONFIG_TYPE_PATH:
        return value_text(row, value, field);
    case CONFIG_TYPE_INT:
        r = config_parse_int(value, &integer);
        if (r < 0)
            return r;
        if (integer < (int64_t)row->minimum || integer > (int64_t)row->maximum)
            return -ERANGE;
        *(int64_t *)field = integer;
        return 0;
    case CONFIG_TYPE_BYTES:
        r = units_parse_bytes(value, &number);
        break;
    case CONFIG_TYPE_DURATION:
        r = units_parse_duration(value, &number);
        break;
    default:
        return -EINVAL;
    }
    if (r < 0)
        return r;
    if (number < row->minimum || number > row->maximum)
        return -ERANGE;
    *(uint64_t *)field = number;
    return 0;
}

int config_set(struct config *config, const char *name, const char *value, const char *origin,
               struct error *reterr)
{
    const struct config_row *row = row_find(name);
    char range[128];
    int r;

    if (!row) {
        r = error_set(reterr, ENOENT, "%s: no setting \"%.64s\"", origin, name);
        return error_fix(reterr, r, "npumemd --help lists all settings");
    }
    r = value_set(row, value, (char *)config + row->offset);
    if (r == 0)
        return 0;
    row_describe(row, range, sizeof(range));
    r = error_set(reterr, r, "%s: %s = \"%.64s\" %s", origin, name, value,
                  r == -ERANGE ? "is out of range" : "is not a valid value");
    return error_fix(reterr, r, "%s", range);
}

int config_set_assignment(struct config *config, const char *assignment, const char *origin,
                          struct error *reterr)
{
    const char *equals = strchr(assignment, '=');
    char name[64];

    if (!equals || equals == assignment || (size_t)(equals - assignment) >= sizeof(name)) {
        int r =
            error_set(reterr, EINVAL, "%s: \"%.64s\" is not SECTION.KEY=VALUE", origin, assignment);
        return error_fix(reterr, r, "--set store.max_bytes=2GiB");
    }
    memcpy(name, assignment, (size_t)(equals - assignment));
    name[equals - assignment] = '\0';
    return config_set(config, name, equals + 1, origin, reterr);
}

void config_init(struct config *config)
{
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        /* A default outside its own range is a bug of the table; a test reads every row back. */
        value_set(&rows[i], rows[i].fallback, (char *)config + rows[i].offset);
}

int config_log_level(const struct config *config)
{
    static const int levels[] = {LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO, LOG_DEBUG};

    return levels[config->daemon_log_level];
}

void config_print_help(FILE *f)
{
    char range[128];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        row_describe(&rows[i], range, sizeof(range));
        fprintf(f, "  %s.%s=%s\n      %s (%s)\n", rows[i].section, rows[i].key, rows[i].fallback,
                rows[i].help, range);
    }
}

void config_print_sample(FILE *f)
{
    const char *section = "";
    char range[128];

    fprintf(f, "# npumemd.conf - settings of npumemd(8). Every line shows the default.\n"
               "# Local changes are best put into npumemd.conf.d/NAME.conf beside this file.\n");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (strcmp(section, rows[i].section) != 0)
            fprintf(f, "\n[%s]\n", rows[i].section);
        section = rows[i].section;
        row_describe(&rows[i], range, sizeof(range));
        fprintf(f, "# %s (%s)\n#%s = %s\n", rows[i].help, range, rows[i].key, rows[i].fallback);
    }
}
