/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.c - from the text of a scenario to struct scenario.
 *
 * Owns blocks and the statements that are no operations (param, array, devices, rank, env); words
 * and names are names.c, parameters of the other statements statement_parse.c, files scenario.c.
 * Must not run or load anything.
 * Invariants: blocks are kept on an explicit stack, never on the C stack; all arrays are bounded by
 * the constants of scenario.h; the first error is the one reported.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

static int constant_parse(struct parser *p, const char *word, int64_t *ret)
{
    struct expr expr;
    if (expr_parse(p, word, false, &expr) < 0)
        return -EINVAL;
    free(expr.items);
    if (!expr.constant)
        return parse_error(p, "'%.60s' must be a constant here", word);
    *ret = expr.value;
    return 0;
}

static int param_parse(struct parser *p)
{
    const char *name = p->words[1], *value = p->words[2];
    size_t length = strlen(name);
    uint32_t index;

    if (p->word_count != 3)
        return parse_error(p, "param NAME VALUE");
    for (uint32_t i = 0; i < p->scenario->var_count; i++) {
        if (!strcmp(p->scenario->vars[i], name))
            return parse_error(p, "'%.60s' exists already", name);
    }
    for (size_t i = 0; i < p->define_count; i++) {
        if (!strncmp(p->defines[i], name, length) && p->defines[i][length] == '=') {
            value = p->defines[i] + length + 1;
            p->define_used[i] = true;
        }
    }
    int64_t number;
    if (constant_parse(p, value, &number) < 0 || var_find(p, name, true, &index) < 0)
        return -EINVAL;
    p->scenario->var_values[index] = number;
    p->scenario->var_is_param[index] = true;
    return 0;
}

static int devices_parse(struct parser *p)
{
    struct scenario *s = p->scenario;
    if (p->word_count != 3 && p->word_count != 4)
        return parse_error(p, "devices COUNT SIZE [BASELINE]");
    if (constant_parse(p, p->words[1], &s->devices) < 0 ||
        constant_parse(p, p->words[2], &s->device_bytes) < 0 ||
        (p->word_count == 4 && constant_parse(p, p->words[3], &s->baseline_bytes) < 0))
        return -EINVAL;
    if (s->devices < 1 || s->devices > 16)
        return parse_error(p, "devices: between 1 and 16");
    if (s->device_bytes < 1 || s->baseline_bytes < 0 || s->baseline_bytes > s->device_bytes)
        return parse_error(p, "devices: the size must be more than 0, the baseline not more");
    return 0;
}

static int array_parse(struct parser *p)
{
    const struct scenario_name *ignored;
    int64_t slots;
    if (p->word_count != 3)
        return parse_error(p, "array NAME COUNT");
    for (uint32_t i = 0; i < p->scenario->name_count; i++) {
        if (!strcmp(p->scenario->names[i].name, p->words[1]))
            return parse_error(p, "'%s' exists already", p->words[1]);
    }
    if (constant_parse(p, p->words[2], &slots) < 0)
        return -EINVAL;
    return name_add(p, p->words[1], slots, true, &ignored);
}

static int text_set(struct parser *p, char **target, const char *value)
{
    char expanded[SCENARIO_LINE_MAX];
    free(*target);
    *target = strdup(value);
    if (!*target)
        return parse_error(p, "out of memory");
    if (text_expand(p->scenario, NULL, value, expanded, sizeof(expanded)) < 0)
        return parse_error(p, "'%.60s': unknown or malformed $variable", value);
    return 0;
}

static int rank_options(struct parser *p, struct rank *rank)
{
    for (size_t i = 2; i < p->word_count; i++) {
        char word[SCENARIO_NAME_MAX];
        const char *value = strchr(p->words[i], '=');
        int r;
        if (!value || value - p->words[i] >= (ptrdiff_t)sizeof(word))
            return parse_error(
                p, "'%.60s': rank options are device= title= comm= parent=", p->words[i]);
        snprintf(word, sizeof(word), "%.*s", (int)(value - p->words[i]), p->words[i]);
        value++;
        if (!strcmp(word, "title")) {
            r = text_set(p, &rank->title, value);
        } else if (!strcmp(word, "comm")) {
            r = text_set(p, &rank->comm, value);
        } else if (!strcmp(word, "parent")) {
            r = text_set(p, &rank->parent, value);
        } else if (!strcmp(word, "device")) {
            rank->has_device = strcmp(value, "none") != 0;
            free(rank->device.items);
            rank->device = (struct expr){0};
            r = rank->has_device ? expr_parse(p, value, false, &rank->device) : 0;
        } else {
            r = parse_error(p, "unknown rank option '%.60s'", word);
        }
        if (r < 0)
            return r;
    }
    return 0;
}

static int rank_add(struct parser *p, const char *name, int64_t number, struct rank **ret)
{
    struct scenario *s = p->scenario;
    if (s->rank_count == SCENARIO_RANKS_MAX)
        return parse_error(p, "more than %d ranks", SCENARIO_RANKS_MAX);
    for (uint32_t i = 0; i < s->rank_count; i++) {
        if (!strcmp(s->ranks[i].name, name))
            return parse_error(p, "rank '%.60s' exists already", name);
    }
    struct rank *rank = &s->ranks[s->rank_count];
    *rank = (struct rank){.number = number, .line = p->line, .begin = s->op_count};
    rank->name = strdup(name);
    if (!rank->name)
        return parse_error(p, "out of memory");
    s->rank_count++;
    *ret = rank;
    return 0;
}

/* rank NAME, rank N or rank A..B: a range shares one body, each instance has its own $rank. */
static int rank_open(struct parser *p)
{
    struct scenario *s = p->scenario;
    int64_t from, to, number;
    char name[SCENARIO_NAME_MAX];

    if (p->rank)
        return parse_error(p, "rank inside rank (its `end` is missing)");
    if (p->word_count < 2)
        return parse_error(p, "rank NAME [device=] [title=] [comm=] [parent=]");
    char *range = strstr(p->words[1], "..");
    if (range) {
        *range = '\0';
        if (constant_parse(p, p->words[1], &from) < 0 || constant_parse(p, range + 2, &to) < 0)
            return -EINVAL;
    } else if (isdigit((unsigned char)p->words[1][0])) {
        if (constant_parse(p, p->words[1], &from) < 0)
            return -EINVAL;
        to = from;
    } else {
        if (!name_valid(p->words[1]))
            return parse_error(p, "'%.60s' is no rank name", p->words[1]);
        from = to = -1;
    }
    if (to < from || from < -1 || to - from >= SCENARIO_RANKS_MAX || to > 1000000)
        return parse_error(p, "rank range %lld..%lld is empty or too large", (long long)from,
                           (long long)to);
    uint32_t first = s->rank_count;
    for (number = from; number <= to; number++) {
        struct rank *rank = NULL;
        snprintf(name, sizeof(name), "%lld", (long long)number);
        if (rank_add(p, number < 0 ? p->words[1] : name, number, &rank) < 0)
            return -EINVAL;
        if (rank_options(p, rank) < 0)
            return -EINVAL;
    }
    p->rank = &s->ranks[first];
    p->open[p->depth].rank = true;
    p->open[p->depth++].op = s->op_count;
    return 0;
}

static int env_parse(struct parser *p)
{
    struct scenario *s = p->scenario;
    if (!p->rank || p->depth != 1)
        return parse_error(p, "env belongs directly into a rank");
    if (p->word_count != 2 || !strchr(p->words[1], '=') || p->words[1][0] == '=')
        return parse_error(p, "env NAME=VALUE");
    for (struct rank *rank = p->rank; rank < s->ranks + s->rank_count; rank++) {
        if (rank->envs == SCENARIO_ENV_MAX)
            return parse_error(p, "more than %d env lines", SCENARIO_ENV_MAX);
        if (text_set(p, &rank->env[rank->envs], p->words[1]) < 0)
            return -EINVAL;
        rank->envs++;
    }
    return 0;
}

static int op_add(struct parser *p, struct op **ret)
{
    struct scenario *s = p->scenario;
    if (s->op_count == SCENARIO_OPS_MAX)
        return parse_error(p, "more than %d statements", SCENARIO_OPS_MAX);
    if (s->op_count == p->op_capacity) {
        uint32_t capacity = p->op_capacity ? p->op_capacity * 2 : 64;
        struct op *grown = realloc(s->ops, capacity * sizeof(*grown));
        if (!grown)
            return parse_error(p, "out of memory");
        s->ops = grown;
        p->op_capacity = capacity;
    }
    *ret = &s->ops[s->op_count++];
    **ret = (struct op){.line = p->line};
    return 0;
}

static int block_end(struct parser *p)
{
    struct op *op;
    if (!p->depth)
        return parse_error(p, "end without a block");
    if (p->word_count > 1)
        return parse_error(p, "end takes no parameters");
    if (op_add(p, &op) < 0)
        return -EINVAL;
    struct scenario *s = p->scenario;
    uint32_t index = s->op_count - 1;
    p->depth--;
    if (!p->open[p->depth].rank) {
        s->ops[p->open[p->depth].op].jump = index;
        op->jump = p->open[p->depth].op;
        return 0;
    }
    for (struct rank *rank = p->rank; rank < s->ranks + s->rank_count; rank++)
        rank->end = index;
    p->rank = NULL;
    return 0;
}

static int block_open(struct parser *p, const struct statement *statement)
{
    if (p->depth == SCENARIO_DEPTH_MAX)
        return parse_error(p, "'%s' nested deeper than %d blocks", statement->name,
                           SCENARIO_DEPTH_MAX);
    return 0;
}

static int line_parse(struct parser *p, char *line)
{
    if (line_split(p, line) < 0)
        return -EINVAL;
    if (!p->word_count)
        return 0;
    const char *word = p->words[0];
    if (!strcmp(word, "rank"))
        return rank_open(p);
    if (!strcmp(word, "env"))
        return env_parse(p);
    if (!strcmp(word, "param") || !strcmp(word, "devices")) {
        if (p->rank)
            return parse_error(p, "%s belongs before the first rank", word);
        return word[0] == 'p' ? param_parse(p) : devices_parse(p);
    }
    if (!strcmp(word, "array"))
        return array_parse(p);
    if (!strcmp(word, "seed") && !p->rank) {
        if (p->word_count != 2)
            return parse_error(p, "seed NUMBER");
        return constant_parse(p, p->words[1], &p->scenario->seed);
    }
    const struct statement *statement = statement_find(word);
    if (!statement)
        return parse_error(p, "unknown statement '%.60s'", word);
    if (statement->code == OP_END)
        return block_end(p);
    if (!p->rank)
        return parse_error(p, "'%s' outside a rank", statement->name);
    if ((statement->flags & STATEMENT_OPENS) && block_open(p, statement) < 0)
        return -EINVAL;
    struct op parsed = {.line = p->line, .code = statement->code}, *op;
    if (statement_parse(p, statement, 1, &parsed) < 0 || op_add(p, &op) < 0) {
        for (size_t i = 0; i < OP_ARGS_MAX; i++) {
            free(parsed.args[i].expr.items);
            free(parsed.args[i].text);
        }
        return -EINVAL;
    }
    *op = parsed;
    if (statement->flags & STATEMENT_OPENS) {
        p->open[p->depth].rank = false;
        p->open[p->depth++].op = p->scenario->op_count - 1;
    }
    return 0;
}

int scenario_parse(struct parser *p, char *text, size_t length)
{
    char *line = text, *end = text + length;
    p->line = 1;
    if (memchr(text, '\0', length))
        return parse_error(p, "the file holds a NUL byte: it is no text");
    for (p->line = 0; line < end;) {
        char *next = memchr(line, '\n', (size_t)(end - line));
        p->line++;
        if (!next)
            next = end;
        if (next - line >= SCENARIO_LINE_MAX)
            return parse_error(p, "line longer than %d bytes", SCENARIO_LINE_MAX - 1);
        *next = '\0';
        if (line_parse(p, line) < 0)
            return -EINVAL;
        line = next + 1;
    }
    if (!p->line)
        p->line = 1;
    if (p->depth) {
        uint32_t op = p->open[p->depth - 1].op;
        bool rank = p->open[p->depth - 1].rank;
        return parse_error(p, "end of file inside the '%s' of line %u (its `end` is missing)",
                           rank ? "rank" : statement_of(p->scenario->ops[op].code)->name,
                           rank ? p->rank->line : p->scenario->ops[op].line);
    }
    if (!p->scenario->rank_count)
        return parse_error(p, "no rank in this scenario");
    for (size_t i = 0; i < p->define_count; i++) {
        if (!p->define_used[i])
            return parse_error(p, "-D %.60s: the scenario has no such param", p->defines[i]);
    }
    return 0;
}
