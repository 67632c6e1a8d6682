/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args.c - the command line, from the tables verbs.def and options.def. What the value of an option
 * means: args_value.c.
 *
 * Owns: struct args and the words of usage errors. getopt_long(3) is not used because it neither
 * suggests the nearest option nor knows which options a verb takes.
 * Invariants: nothing is guessed: an option that the verb does not take is an error.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "args_value.h"
#include "cli.h"

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
            return args_bad_value(id, value, "takes no value", reterr);
        args_set_switch(p->args, id);
        return 0;
    }
    if (!value && p->next < p->argc)
        value = p->argv[p->next++];
    if (!value) {
        error_set(reterr, EINVAL, "--%s: needs %s", o->name, o->argument);
        return error_fix(reterr, -EINVAL, "--%s %s", o->name,
                         o->values[0] ? o->values : o->argument);
    }
    return args_set_value(p->args, id, value, reterr);
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
