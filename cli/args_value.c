/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args_value.c - see args_value.h.
 */
#include "args_value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "local_time.h"
#include "timespec.h"

#define WATCH_MIN_NS 100000000ull

int args_bad_value(enum option_id id, const char *value, const char *why, struct error *reterr)
{
    const struct option_row *o = &option_rows[id];
    char near[40];

    error_set(reterr, EINVAL, "--%s %.40s: %s", o->name, value, why);
    if (o->values[0] && suggest_values(value, o->values, near, sizeof(near)))
        return error_fix(reterr, -EINVAL, "--%s %s", o->name, near);
    if (o->values[0])
        return error_fix(reterr, -EINVAL, "one of %s", o->values);
    return error_fix(reterr, -EINVAL, "--%s %s", o->name, o->example);
}

/* Index of value among the '|'-divided words, -1 none. */
static int value_index(const char *values, const char *value)
{
    int index = 0;
    for (const char *p = values; *p; index++) {
        size_t length = strcspn(p, "|");
        if (strlen(value) == length && strncmp(p, value, length) == 0)
            return index;
        p += length + (p[length] == '|');
    }
    return -1;
}

static int parse_number(const char *text, int64_t max, int64_t *ret)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end || text[0] < '0' || text[0] > '9' || n > max)
        return -EINVAL;
    *ret = n;
    return 0;
}

static int add_numbers(enum option_id id, char *value, int64_t max, struct cli_numbers *list,
                       struct error *reterr)
{
    char *save = NULL;
    for (char *word = strtok_r(value, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        if (list->count == CLI_LIST_MAX)
            return args_bad_value(id, word, "too many", reterr);
        if (parse_number(word, max, &list->items[list->count]) < 0)
            return args_bad_value(id, word, "not a number that fits", reterr);
        list->count++;
    }
    return 0;
}

static int add_words(enum option_id id, char *value, struct cli_words *list, struct error *reterr)
{
    char *save = NULL;
    for (char *word = strtok_r(value, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        if (list->count == CLI_LIST_MAX)
            return args_bad_value(id, word, "too many", reterr);
        if (option_rows[id].values[0] && value_index(option_rows[id].values, word) < 0)
            return args_bad_value(id, word, "unknown", reterr);
        list->items[list->count++] = word;
    }
    return 0;
}

static int64_t wall_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

int args_moment(enum option_id id, const char *value, char *ret, size_t size, struct error *reterr)
{
    struct timespec_value v;

    if (timespec_parse(value, wall_now_ns(), local_seconds, &v) < 0)
        return args_bad_value(id, value, "not a moment", reterr);
    if (v.kind == TIMESPEC_AT)
        snprintf(ret, size, "@%lld.%09lld", (long long)(v.wall_ns / 1000000000),
                 (long long)(v.wall_ns % 1000000000));
    else if (snprintf(ret, size, "%s", value) >= (int)size)
        return args_bad_value(id, value, "too long", reterr);
    return 0;
}

/* --since, --until and the ages: a bound of when a block was allocated. */
static int set_bound(struct args *a, enum option_id id, const char *value, struct error *reterr)
{
    struct timespec_value v = {.wall_ns = wall_now_ns()};
    uint64_t age;

    if (id == OPTION_SINCE || id == OPTION_UNTIL) {
        if (timespec_parse(value, v.wall_ns, local_seconds, &v) < 0 || v.kind != TIMESPEC_AT)
            return args_bad_value(id, value, "not a time", reterr);
        *(id == OPTION_SINCE ? &a->since_text : &a->until_text) = value;
    } else {
        if (units_parse_duration(value, &age) < 0 || age >= (uint64_t)v.wall_ns)
            return args_bad_value(id, value, "not an age", reterr);
        v.wall_ns -= (int64_t)age;
    }
    if (v.wall_ns == 0)
        v.wall_ns = 1;
    bool since = id == OPTION_SINCE || id == OPTION_MAX_AGE;
    if (since && v.wall_ns > a->since_ns)
        a->since_ns = v.wall_ns;
    if (!since && (!a->until_ns || v.wall_ns < a->until_ns))
        a->until_ns = v.wall_ns;
    return 0;
}

static int add_handle(enum option_id id, const char *value, struct cli_numbers *list,
                      struct error *reterr)
{
    char *end;

    errno = 0;
    unsigned long long handle = strtoull(value, &end, 0);
    if (errno || end == value || *end || value[0] < '0' || value[0] > '9' || handle > INT64_MAX)
        return args_bad_value(id, value, "not a handle", reterr);
    if (list->count == CLI_LIST_MAX)
        return args_bad_value(id, value, "too many", reterr);
    list->items[list->count++] = (int64_t)handle;
    return 0;
}

static int set_quantity(struct args *a, enum option_id id, const char *value, struct error *reterr)
{
    int64_t number;

    switch (id) {
    case OPTION_WATCH:
        if (units_parse_duration(value, &a->watch_ns) < 0)
            return args_bad_value(id, value, "not a time", reterr);
        if (a->watch_ns < WATCH_MIN_NS)
            return args_bad_value(id, value, "shorter than 100ms", reterr);
        return 0;
    case OPTION_TIMEOUT:
        if (units_parse_duration(value, &a->timeout_ns) < 0 || a->timeout_ns == 0)
            return args_bad_value(id, value, "not a time", reterr);
        return 0;
    case OPTION_STEPS:
        if (parse_number(value, 240, &number) < 0 || number == 0)
            return args_bad_value(id, value, "not a number from 1 to 240", reterr);
        a->steps = (uint64_t)number;
        return 0;
    case OPTION_FOR:
        if (units_parse_duration(value, &a->for_ns) < 0 || a->for_ns == 0)
            return args_bad_value(id, value, "not a time", reterr);
        return 0;
    case OPTION_IDLE:
        if (units_parse_duration(value, &a->idle_ns) < 0 || a->idle_ns == 0)
            return args_bad_value(id, value, "not a time", reterr);
        return 0;
    case OPTION_OPERATIONS:
        if (parse_number(value, UINT32_MAX, &number) < 0)
            return args_bad_value(id, value, "not a number that fits", reterr);
        a->operations = (uint64_t)number;
        return 0;
    case OPTION_MIN_SIZE:
        if (units_parse_bytes(value, &a->min_size_bytes) < 0 || a->min_size_bytes > INT64_MAX)
            return args_bad_value(id, value, "not a size", reterr);
        return 0;
    case OPTION_REQUEST:
        if (units_parse_bytes(value, &a->request_bytes) < 0 || a->request_bytes > INT64_MAX ||
            a->request_bytes == 0)
            return args_bad_value(id, value, "not a size", reterr);
        return 0;
    default: /* OPTION_LIMIT */
        if (parse_number(value, UINT32_MAX, &number) < 0)
            return args_bad_value(id, value, "not a number that fits", reterr);
        a->limit = (uint64_t)number;
        return 0;
    }
}

int args_set_value(struct args *a, enum option_id id, char *value, struct error *reterr)
{
    const char *values = option_rows[id].values;
    int index = value_index(values, value);

    switch (id) {
    case OPTION_OUTPUT:
        a->format = (enum format)index;
        break;
    case OPTION_COLOR:
        a->color = (enum color)index;
        break;
    case OPTION_UNITS:
        index = units_parse_scale(value, &a->units);
        break;
    case OPTION_PID:
        return add_numbers(id, value, INT32_MAX, &a->tgids, reterr);
    case OPTION_RANK:
        return add_numbers(id, value, INT32_MAX, &a->ranks, reterr);
    case OPTION_DEVICE:
        return add_numbers(id, value, UINT16_MAX, &a->devices, reterr);
    case OPTION_CONTAINER:
        return add_words(id, value, &a->containers, reterr);
    case OPTION_OWNER: /* owners may hold commas: one per option */
        if (a->owners.count == CLI_LIST_MAX)
            return args_bad_value(id, value, "too many", reterr);
        a->owners.items[a->owners.count++] = value;
        return 0;
    case OPTION_LEVEL:
        return add_words(id, value, &a->levels, reterr);
    case OPTION_FIELDS:
        return add_words(id, value, &a->fields, reterr);
    case OPTION_SOCKET:
        a->socket = value;
        return 0;
    case OPTION_FROM:
        a->from = value;
        return 0;
    case OPTION_TO:
        a->to = value;
        return 0;
    case OPTION_MARK:
        a->mark = value;
        return 0;
    case OPTION_AT:
        a->at_text = value;
        return args_moment(id, value, a->at, sizeof(a->at), reterr);
    case OPTION_SINCE:
    case OPTION_UNTIL:
    case OPTION_MIN_AGE:
    case OPTION_MAX_AGE:
        return set_bound(a, id, value, reterr);
    case OPTION_STREAM:
        return add_handle(id, value, &a->streams, reterr);
    default:
        return set_quantity(a, id, value, reterr);
    }
    return index < 0 ? args_bad_value(id, value, "unknown", reterr) : 0;
}

void args_set_switch(struct args *a, enum option_id id)
{
    switch (id) {
    case OPTION_NO_HEADER:
        a->no_header = true;
        break;
    case OPTION_NO_PAGER:
        a->no_pager = true;
        break;
    case OPTION_QUIET:
        a->quiet = true;
        break;
    case OPTION_PEAK:
        snprintf(a->at, sizeof(a->at), "peak");
        a->at_text = a->at;
        break;
    case OPTION_EQUAL:
        a->equal = true;
        break;
    case OPTION_TREE:
        a->tree = true;
        break;
    case OPTION_BEGIN:
        a->begin = true;
        break;
    case OPTION_END:
        a->end = true;
        break;
    case OPTION_VERBOSE:
        a->verbose = true;
        break;
    case OPTION_STRICT:
        a->strict = true;
        break;
    case OPTION_HELP:
        a->help = true;
        break;
    case OPTION_VERSION:
        a->version = true;
        break;
    default: /* --follow: what events does anyway */
        break;
    }
}
