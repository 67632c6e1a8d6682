/* SPDX-License-Identifier: Apache-2.0 */
/*
 * statement_parse.c - the parameters of one statement, driven by its row of statements.c.
 *
 * Required parameters come in order, optional ones as name=value, `expect CODE` last. Must not know
 * what a statement does; the exceptions are the flags that say which libraries a scenario needs.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

static const struct scenario_name *name_find(const struct scenario *s, const char *name)
{
    for (uint32_t i = 0; i < s->name_count; i++) {
        if (!strcmp(s->names[i].name, name))
            return &s->names[i];
    }
    return NULL;
}

int ref_parse(struct parser *p, const char *word, bool may_define, bool may_all,
              struct operand *ret)
{
    char name[SCENARIO_NAME_MAX];
    const char *bracket = strchr(word, '[');
    size_t length = bracket ? (size_t)(bracket - word) : strlen(word);
    struct operand ref = {.kind = OPERAND_REF};

    if (!strcmp(word, "-") && may_define) {
        ref.anonymous = true;
        *ret = ref;
        return 0;
    }
    if (length >= sizeof(name))
        return parse_error(p, "name '%.60s' is too long", word);
    memcpy(name, word, length);
    name[length] = '\0';
    const struct scenario_name *found = name_find(p->scenario, name);
    if (!found && bracket)
        return parse_error(p, "'%s' is no array (declare it: array %s COUNT)", name, name);
    if (!found && !may_define)
        return parse_error(p, "unknown name '%s'", name);
    if (!found && name_add(p, name, 1, false, &found) < 0)
        return -EINVAL;
    if (found->array != !!bracket)
        return parse_error(p, found->array ? "'%s' is an array: %s[INDEX]" : "'%s' is no array",
                           name, name);
    ref.slot = found->slot;
    ref.slots = found->slots;
    if (bracket) {
        char index[SCENARIO_LINE_MAX];
        size_t n = strlen(bracket);
        if (bracket[n - 1] != ']' || n < 3)
            return parse_error(p, "'%.60s': [ without ]", word);
        memcpy(index, bracket + 1, n - 2);
        index[n - 2] = '\0';
        if (!strcmp(index, "*")) {
            if (!may_all)
                return parse_error(p, "'%.60s': [*] is not possible here", word);
            ref.all = true;
        } else if (expr_parse(p, index, false, &ref.expr) < 0) {
            return -EINVAL;
        } else if (ref.expr.constant &&
                   (ref.expr.value < 0 || ref.expr.value >= (int64_t)found->slots)) {
            free(ref.expr.items);
            return parse_error(p, "'%.60s': the index must be below %u", word, found->slots);
        }
    }
    *ret = ref;
    return 0;
}

static int choice_parse(struct parser *p, const struct param *param, const char *word,
                        struct operand *ret)
{
    const char *at = param->words;
    size_t length = strlen(word);
    for (int64_t position = 0;; position++) {
        size_t n = strcspn(at, "|");
        if (n == length && !strncmp(at, word, n)) {
            ret->value = position;
            break;
        }
        if (!at[n])
            return parse_error(p, "%s='%.60s': one of %s", param->name, word, param->words);
        at += n + 1;
    }
    ret->kind = OPERAND_CHOICE;
    ret->text = strdup(word);
    return ret->text ? 0 : parse_error(p, "out of memory");
}

static int text_parse(struct parser *p, const char *word, struct operand *ret)
{
    char expanded[SCENARIO_LINE_MAX];
    if (text_expand(p->scenario, NULL, word, expanded, sizeof(expanded)) < 0)
        return parse_error(p, "'%.60s': unknown or malformed $variable", word);
    ret->kind = OPERAND_TEXT;
    ret->text = strdup(word);
    return ret->text ? 0 : parse_error(p, "out of memory");
}

static int operand_parse(struct parser *p, const struct statement *statement,
                         const struct param *param, const char *word, struct operand *ret)
{
    uint32_t index;
    switch (param->kind) {
    case PARAM_EXPR:
        if (statement->code == OP_REPEAT && !strcmp(word, "forever"))
            word = "0x7fffffffffffffff";
        ret->kind = OPERAND_EXPR;
        return expr_parse(p, word, false, &ret->expr);
    case PARAM_DURATION:
        ret->kind = OPERAND_EXPR;
        return expr_parse(p, word, true, &ret->expr);
    case PARAM_REF:
    case PARAM_NEW:
        return ref_parse(p, word, param->kind == PARAM_NEW, statement->flags & STATEMENT_ALL, ret);
    case PARAM_CHOICE:
        return choice_parse(p, param, word, ret);
    case PARAM_TEXT:
        return text_parse(p, word, ret);
    case PARAM_VAR:
        if (var_find(p, word, true, &index) < 0)
            return -EINVAL;
        if (index < VAR_USER || p->scenario->var_is_param[index])
            return parse_error(p, "'$%.60s' cannot be set", word);
        ret->kind = OPERAND_CHOICE;
        ret->value = index;
        return 0;
    case PARAM_END:
        break;
    }
    return parse_error(p, "'%s' takes no such parameter", statement->name);
}

static int expect_parse(struct parser *p, const struct statement *statement, const char *word,
                        int64_t *ret)
{
    static const struct {
        const char *name;
        int64_t code;
    } names[] = {{"oom", 207001},
                 {"missing", EXPECT_MISSING},
                 {"any", EXPECT_ANY},
                 {"no_context", 107002},
                 {"invalid", 107000}};
    struct expr expr;

    if (!(statement->flags & STATEMENT_EXPECT))
        return parse_error(p, "'%s' has no result to expect", statement->name);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!strcmp(names[i].name, word)) {
            *ret = names[i].code;
            return 0;
        }
    }
    if (expr_parse(p, word, false, &expr) < 0)
        return -EINVAL;
    free(expr.items);
    if (!expr.constant)
        return parse_error(p, "expect takes a number or oom, missing, any, no_context, invalid");
    *ret = expr.value;
    return 0;
}

/* name=value of an optional parameter; returns 1 when the word is one, 0 when it is not. */
static int option_parse(struct parser *p, const struct statement *statement, const char *word,
                        struct op *op)
{
    const char *value = strchr(word, '=');
    if (!value)
        return 0;
    for (size_t i = 0; i < OP_ARGS_MAX && statement->params[i].kind != PARAM_END; i++) {
        const struct param *param = &statement->params[i];
        size_t length = strlen(param->name);
        if (!param->optional || length != (size_t)(value - word) ||
            strncmp(param->name, word, length))
            continue;
        if (op->args[i].kind != OPERAND_NONE)
            return parse_error(p, "%s= is given twice", param->name);
        return operand_parse(p, statement, param, value + 1, &op->args[i]) < 0 ? -EINVAL : 1;
    }
    return 0;
}

static int phase_add(struct parser *p, struct op *op)
{
    struct scenario *s = p->scenario;
    const char *name = op->args[0].text;
    if (strlen(name) >= SCENARIO_NAME_MAX && op->code == OP_PHASE)
        return parse_error(p, "phase name '%.60s' is too long", name);
    char label[SCENARIO_NAME_MAX];
    snprintf(label, sizeof(label), "%s", name);
    for (op->phase = 1; op->phase <= s->phase_count; op->phase++) {
        if (!strcmp(s->phases[op->phase], label))
            return 0;
    }
    if (s->phase_count == SCENARIO_PHASES_MAX)
        return parse_error(p, "more than %d phases", SCENARIO_PHASES_MAX);
    strcpy(s->phases[++s->phase_count], label);
    return 0;
}

static int libraries_note(struct parser *p, struct op *op)
{
    switch (op->code) {
    case OP_TENSOR:
    case OP_DEL:
    case OP_WORKSPACE:
    case OP_EMPTY_CACHE:
    case OP_RECORD_STREAM:
    case OP_STREAM_DONE:
        p->scenario->uses_torch = true;
        return 0;
    case OP_HCCL:
        p->scenario->uses_hccl = true;
        return 0;
    case OP_ATB:
        p->scenario->uses_atb = true;
        return 0;
    case OP_OPERATOR:
        p->scenario->uses_atb |= op->args[0].value != 0;
        p->scenario->uses_nnop = true;
        return 0;
    case OP_PHASE:
    case OP_FRAMES:
        return phase_add(p, op);
    default:
        return 0;
    }
}

int statement_parse(struct parser *p, const struct statement *statement, size_t first,
                    struct op *op)
{
    size_t positional = 0;
    for (size_t i = first; i < p->word_count; i++) {
        const char *word = p->words[i];
        if (!strcmp(word, "expect") && i + 2 == p->word_count) {
            if (expect_parse(p, statement, p->words[i + 1], &op->expect) < 0)
                return -EINVAL;
            break;
        }
        const struct param *param = &statement->params[positional];
        bool wants = positional < OP_ARGS_MAX && param->kind != PARAM_END && !param->optional;
        int r = wants && param->kind == PARAM_TEXT ? 0 : option_parse(p, statement, word, op);
        if (r < 0)
            return r;
        if (r)
            continue;
        if (!wants)
            return parse_error(p, "'%s': unexpected '%.60s'", statement->name, word);
        if (operand_parse(p, statement, param, word, &op->args[positional]) < 0)
            return -EINVAL;
        positional++;
    }
    const struct param *missing = &statement->params[positional];
    if (positional < OP_ARGS_MAX && missing->kind != PARAM_END && !missing->optional)
        return parse_error(p, "'%s': %s is missing", statement->name, missing->name);
    return libraries_note(p, op);
}
