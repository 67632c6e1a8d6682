/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args.c - the command line, from the tables verbs.def and options.def.
 *
 * Owns: struct args and the words of usage errors. getopt_long(3) is not used because it neither
 * suggests the nearest option nor knows which options a verb takes.
 * Invariants: nothing is guessed: an option that the verb does not take is an error.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "local_time.h"
#include "timespec.h"

const struct option_row option_rows[OPTION_COUNT] = {
#define OPTION(id, short_, name_, argument_, groups_, values_, example_, help_)                    \
    {short_, name_, argument_, values_, example_, help_, groups_},
#include "options.def"
#undef OPTION
};

const struct verb_row verb_rows[] = {
#define VERB(name_, arguments_, least_, most_, groups_, summary_, text_, examples_)                \
    {.name = #name_,                                                                               \
     .arguments = arguments_,                                                                      \
     .least = least_,                                                                              \
     .most = most_,                                                                                \
     .groups = groups_,                                                                            \
     .summary = summary_,                                                                          \
     .text = text_,                                                                                \
     .examples = examples_,                                                                        \
     .run = verb_##name_},
#include "verbs.def"
#undef VERB
};
const size_t verb_count = ARRAY_SIZE(verb_rows);

/* Longest wait for an answer: a reply of 256 MiB takes seconds, a daemon that hangs forever. */
#define TIMEOUT_DEFAULT_NS 30000000000ull
#define WATCH_MIN_NS 100000000ull

const struct verb_row *verb_find(const char *name)
{
    for (size_t i = 0; i < verb_count; i++) {
        if (strcmp(verb_rows[i].name, name) == 0)
            return &verb_rows[i];
    }
    return NULL;
}

static int bad_verb(const char *name, struct error *reterr)
{
    const char *names[ARRAY_SIZE(verb_rows)];
    for (size_t i = 0; i < verb_count; i++)
        names[i] = verb_rows[i].name;
    const char *near = suggest(name, names, verb_count);
    error_set(reterr, EINVAL, "%.40s: unknown verb", name);
    return error_fix(reterr, -EINVAL, "npumem %s", near ? near : "help");
}

static int bad_option(const char *given, struct error *reterr)
{
    const char *names[OPTION_COUNT];
    char name[64];

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(given, "="), given);
    for (size_t i = 0; i < OPTION_COUNT; i++)
        names[i] = option_rows[i].name;
    const char *near = strncmp(name, "--", 2) == 0 ? suggest(name + 2, names, OPTION_COUNT) : NULL;
    error_set(reterr, EINVAL, "%.40s: unknown option", name);
    return error_fix(reterr, -EINVAL, "--%s", near ? near : "help");
}

static int bad_value(enum option_id id, const char *value, const char *why, struct error *reterr)
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
            return bad_value(id, word, "too many", reterr);
        if (parse_number(word, max, &list->items[list->count]) < 0)
            return bad_value(id, word, "not a number that fits", reterr);
        list->count++;
    }
    return 0;
}

static int add_words(enum option_id id, char *value, struct cli_words *list, struct error *reterr)
{
    char *save = NULL;
    for (char *word = strtok_r(value, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        if (list->count == CLI_LIST_MAX)
            return bad_value(id, word, "too many", reterr);
        if (option_rows[id].values[0] && value_index(option_rows[id].values, word) < 0)
            return bad_value(id, word, "unknown", reterr);
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
        return bad_value(id, value, "not a moment", reterr);
    if (v.kind == TIMESPEC_AT)
        snprintf(ret, size, "@%lld.%09lld", (long long)(v.wall_ns / 1000000000),
                 (long long)(v.wall_ns % 1000000000));
    else if (snprintf(ret, size, "%s", value) >= (int)size)
        return bad_value(id, value, "too long", reterr);
    return 0;
}

/* --since, --until and the ages: a bound of when a block was allocated. */
static int set_bound(struct args *a, enum option_id id, const char *value, struct error *reterr)
{
    struct timespec_value v = {.wall_ns = wall_now_ns()};
    uint64_t age;

    if (id == OPTION_SINCE || id == OPTION_UNTIL) {
        if (timespec_parse(value, v.wall_ns, local_seconds, &v) < 0 || v.kind != TIMESPEC_AT)
            return bad_value(id, value, "not a time", reterr);
        *(id == OPTION_SINCE ? &a->since_text : &a->until_text) = value;
    } else {
        if (units_parse_duration(value, &age) < 0 || age >= (uint64_t)v.wall_ns)
            return bad_value(id, value, "not an age", reterr);
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
        return bad_value(id, value, "not a handle", reterr);
    if (list->count == CLI_LIST_MAX)
        return bad_value(id, value, "too many", reterr);
    list->items[list->count++] = (int64_t)handle;
    return 0;
}

static int set_quantity(struct args *a, enum option_id id, const char *value, struct error *reterr)
{
    int64_t number;

    switch (id) {
    case OPTION_WATCH:
        if (units_parse_duration(value, &a->watch_ns) < 0)
            return bad_value(id, value, "not a time", reterr);
        if (a->watch_ns < WATCH_MIN_NS)
            return bad_value(id, value, "shorter than 100ms", reterr);
        return 0;
    case OPTION_TIMEOUT:
        if (units_parse_duration(value, &a->timeout_ns) < 0 || a->timeout_ns == 0)
            return bad_value(id, value, "not a time", reterr);
        return 0;
    case OPTION_STEPS:
        if (parse_number(value, 240, &number) < 0 || number == 0)
            return bad_value(id, value, "not a number from 1 to 240", reterr);
        a->steps = (uint64_t)number;
        return 0;
    case OPTION_FOR:
        if (units_parse_duration(value, &a->for_ns) < 0 || a->for_ns == 0)
            return bad_value(id, value, "not a time", reterr);
        return 0;
    case OPTION_IDLE:
        if (units_parse_duration(value, &a->idle_ns) < 0 || a->idle_ns == 0)
            return bad_value(id, value, "not a time", reterr);
        return 0;
    case OPTION_OPERATIONS:
        if (parse_number(value, UINT32_MAX, &number) < 0)
            return bad_value(id, value, "not a number that fits", reterr);
        a->operations = (uint64_t)number;
        return 0;
    case OPTION_MIN_SIZE:
        if (units_parse_bytes(value, &a->min_size_bytes) < 0 || a->min_size_bytes > INT64_MAX)
            return bad_value(id, value, "not a size", reterr);
        return 0;
    case OPTION_REQUEST:
        if (units_parse_bytes(value, &a->request_bytes) < 0 || a->request_bytes > INT64_MAX ||
            a->request_bytes == 0)
            return bad_value(id, value, "not a size", reterr);
        return 0;
    default: /* OPTION_LIMIT */
        if (parse_number(value, UINT32_MAX, &number) < 0)
            return bad_value(id, value, "not a number that fits", reterr);
        a->limit = (uint64_t)number;
        return 0;
    }
}

static int set_with_argument(struct args *a, enum option_id id, char *value, struct error *reterr)
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
            return bad_value(id, value, "too many", reterr);
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
    return index < 0 ? bad_value(id, value, "unknown", reterr) : 0;
}

static void set_switch(struct args *a, enum option_id id)
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

struct parser {
    int argc, next;
    char **argv;
    struct args *args;
    uint64_t options_used; /* one bit per option_id */
};

static int take(struct parser *p, enum option_id id, char *value, struct error *reterr)
{
    const struct option_row *o = &option_rows[id];

    p->options_used |= UINT64_C(1) << id;
    if (!o->argument[0]) {
        if (value)
            return bad_value(id, value, "takes no value", reterr);
        set_switch(p->args, id);
        return 0;
    }
    if (!value && p->next < p->argc)
        value = p->argv[p->next++];
    if (!value) {
        error_set(reterr, EINVAL, "--%s: needs %s", o->name, o->argument);
        return error_fix(reterr, -EINVAL, "--%s %s", o->name,
                         o->values[0] ? o->values : o->argument);
    }
    return set_with_argument(p->args, id, value, reterr);
}

static int take_long(struct parser *p, char *word, struct error *reterr)
{
    size_t length = strcspn(word + 2, "=");

    for (int id = 0; id < OPTION_COUNT; id++) {
        const char *name = option_rows[id].name;
        if (strlen(name) == length && strncmp(name, word + 2, length) == 0)
            return take(p, id, word[2 + length] ? word + 3 + length : NULL, reterr);
    }
    return bad_option(word, reterr);
}

static int take_short(struct parser *p, char *word, struct error *reterr)
{
    for (char *c = word + 1; *c; c++) {
        int id = 0;
        while (id < OPTION_COUNT && option_rows[id].short_name != *c)
            id++;
        if (id == OPTION_COUNT)
            return bad_option(word, reterr);
        if (option_rows[id].argument[0])
            return take(p, id, c[1] ? c + 1 : NULL, reterr);
        int r = take(p, id, NULL, reterr);
        if (r < 0)
            return r;
    }
    return 0;
}

static int take_operand(struct args *a, char *word, struct error *reterr)
{
    if (!a->verb) {
        a->verb = verb_find(word);
        return a->verb ? 0 : bad_verb(word, reterr);
    }
    if (a->operand_count == CLI_LIST_MAX)
        return error_set(reterr, EINVAL, "%s: too many arguments", a->verb->name);
    a->operands[a->operand_count++] = word;
    return 0;
}

static int check_fit(const struct parser *p, struct error *reterr)
{
    const struct args *a = p->args;
    const struct verb_row *v = a->verb;

    if (!v || a->help)
        return 0;
    for (int id = 0; id < OPTION_COUNT; id++) {
        if (!(p->options_used & (UINT64_C(1) << id)) ||
            (option_rows[id].groups & (v->groups | GROUP_GLOBAL)))
            continue;
        error_set(reterr, EINVAL, "--%s: %s does not take it", option_rows[id].name, v->name);
        return error_fix(reterr, -EINVAL, "npumem help %s", v->name);
    }
    if (a->operand_count < v->least || a->operand_count > v->most) {
        error_set(reterr, EINVAL, "%s: %s", v->name,
                  a->operand_count < v->least ? "an argument is missing" : "too many arguments");
        return error_fix(reterr, -EINVAL, "npumem %s%s%s", v->name, v->arguments[0] ? " " : "",
                         v->arguments);
    }
    return 0;
}

_Static_assert(OPTION_COUNT <= 64, "options_used is a word");

int args_parse(int argc, char **argv, struct args *ret, struct error *reterr)
{
    struct parser p = {.argc = argc, .next = 1, .argv = argv, .args = ret};
    bool only_operands = false;
    int r = 0;

    *ret = (struct args){
        .limit = UINT64_MAX, .operations = UINT64_MAX, .timeout_ns = TIMEOUT_DEFAULT_NS};
    while (p.next < argc && r == 0) {
        char *word = argv[p.next++];
        if (only_operands || word[0] != '-' || word[1] == '\0')
            r = take_operand(ret, word, reterr);
        else if (strcmp(word, "--") == 0)
            only_operands = true;
        else if (word[1] == '-')
            r = take_long(&p, word, reterr);
        else
            r = take_short(&p, word, reterr);
    }
    return r < 0 ? r : check_fit(&p, reterr);
}
