/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expr_parse.c - numbers with units, variables, references and arithmetic, compiled to postfix.
 *
 * Owns the grammar of an expression (one word). Invariants: what it accepts never needs more than
 * EXPR_STACK_MAX stack entries or EXPR_ITEMS_MAX items; recursion is bounded by
 * PARSE_PARENTHESES_MAX; a number is exact or refused.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

struct cursor {
    struct parser *parser;
    const char *at, *word;
    struct expr_item items[EXPR_ITEMS_MAX];
    uint32_t count;
    int stack;
    unsigned nesting;
    bool times, constant;
    bool saw_time;
};

struct unit {
    const char *name;
    int64_t factor;
    enum parse_unit kind;
};

static const struct unit units[] = {
    {"B", 1, UNIT_SIZE},           {"KiB", 1ll << 10, UNIT_SIZE},   {"K", 1ll << 10, UNIT_SIZE},
    {"MiB", 1ll << 20, UNIT_SIZE}, {"M", 1ll << 20, UNIT_SIZE},     {"GiB", 1ll << 30, UNIT_SIZE},
    {"G", 1ll << 30, UNIT_SIZE},   {"TiB", 1ll << 40, UNIT_SIZE},   {"T", 1ll << 40, UNIT_SIZE},
    {"ns", 1, UNIT_TIME},          {"us", 1000, UNIT_TIME},         {"ms", 1000000, UNIT_TIME},
    {"s", 1000000000, UNIT_TIME},  {"min", 60000000000, UNIT_TIME},
};

static int sum_parse(struct cursor *c);

static int item_add(struct cursor *c, enum expr_code code, int64_t value, int stack_change)
{
    if (c->count == EXPR_ITEMS_MAX)
        return parse_error(c->parser, "expression '%.60s' is longer than %d items", c->word,
                           EXPR_ITEMS_MAX);
    c->stack += stack_change;
    if (c->stack > EXPR_STACK_MAX)
        return parse_error(c->parser, "expression '%.60s' needs more than %d values at once",
                           c->word, EXPR_STACK_MAX);
    c->items[c->count++] = (struct expr_item){code, value};
    return 0;
}

static int unit_apply(struct cursor *c, int64_t whole, int64_t part, int64_t part_scale,
                      int64_t *ret)
{
    char name[8] = "";
    size_t n = 0;
    while (isalpha((unsigned char)c->at[n]) && n + 1 < sizeof(name)) {
        name[n] = c->at[n];
        n++;
    }
    const struct unit *unit = NULL;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]) && n; i++) {
        if (!strcmp(units[i].name, name))
            unit = &units[i];
    }
    if (n && !unit)
        return parse_error(c->parser,
                           "unknown unit '%s' (sizes: B KiB MiB GiB TiB, short K M G T; "
                           "times: ns us ms s min)",
                           name);
    c->at += n;
    if (unit && unit->kind == UNIT_TIME && !c->times)
        return parse_error(c->parser, "'%.60s' is a time where a number or size is wanted",
                           c->word);
    if (unit && unit->kind == UNIT_SIZE && c->times)
        return parse_error(c->parser, "'%.60s' is a size where a time is wanted", c->word);
    if (unit && unit->kind == UNIT_TIME)
        c->saw_time = true;
    if (part && !unit)
        return parse_error(c->parser, "'%.60s': a fraction needs a unit", c->word);
    int64_t factor = unit ? unit->factor : 1;
    int64_t extra = (int64_t)((__int128)part * factor / part_scale);
    if (__builtin_mul_overflow(whole, factor, ret) || __builtin_add_overflow(*ret, extra, ret))
        return parse_error(c->parser, "number '%.60s' is too large", c->word);
    return 0;
}

static int number_parse(struct cursor *c)
{
    int64_t whole = 0, part = 0, scale = 1, value = 0;
    if (c->at[0] == '0' && (c->at[1] == 'x' || c->at[1] == 'X')) {
        char *end;
        errno = 0;
        uint64_t hex = strtoull(c->at, &end, 16);
        if (errno || end == c->at + 2 || isalnum((unsigned char)*end))
            return parse_error(c->parser, "number '%.60s' is no hexadecimal number of 64 bits",
                               c->word);
        c->at = end;
        return item_add(c, EXPR_PUSH, (int64_t)hex, 1);
    }
    while (isdigit((unsigned char)*c->at)) {
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, *c->at - '0', &whole))
            return parse_error(c->parser, "number '%.60s' is too large", c->word);
        c->at++;
    }
    if (c->at[0] == '.' && isdigit((unsigned char)c->at[1])) {
        c->at++;
        for (int digits = 0; isdigit((unsigned char)*c->at); digits++) {
            if (digits >= 9)
                return parse_error(c->parser, "number '%.60s' has more than 9 decimals", c->word);
            part = part * 10 + (*c->at++ - '0');
            scale *= 10;
        }
    }
    if (unit_apply(c, whole, part, scale, &value) < 0)
        return -EINVAL;
    return item_add(c, EXPR_PUSH, value, 1);
}

static size_t name_take(struct cursor *c, char name[static SCENARIO_NAME_MAX])
{
    size_t n = 0;
    while ((isalnum((unsigned char)c->at[n]) || c->at[n] == '_') && n + 1 < SCENARIO_NAME_MAX) {
        name[n] = c->at[n];
        n++;
    }
    name[n] = '\0';
    c->at += n;
    return n;
}

static int variable_parse(struct cursor *c)
{
    char name[SCENARIO_NAME_MAX];
    uint32_t index;
    c->at++;
    bool braced = *c->at == '{';
    c->at += braced;
    name_take(c, name);
    if (braced && *c->at++ != '}')
        return parse_error(c->parser, "'%.60s': ${ without }", c->word);
    if (var_find(c->parser, name, false, &index) < 0)
        return -EINVAL;
    if (c->parser->scenario->var_is_param[index])
        return item_add(c, EXPR_PUSH, c->parser->scenario->var_values[index], 1);
    c->constant = false;
    return item_add(c, EXPR_VAR, index, 1);
}

/* @name or @name[index]: the address that the block has when the statement runs. */
static int address_parse(struct cursor *c)
{
    char word[256];
    size_t n = 0;
    int nesting = 0;
    struct operand ref;
    struct scenario *s = c->parser->scenario;

    c->at++;
    while (*c->at && n + 1 < sizeof(word)) {
        if (*c->at == '[')
            nesting++;
        if (!nesting && !isalnum((unsigned char)*c->at) && *c->at != '_')
            break;
        word[n++] = *c->at;
        if (*c->at++ == ']' && --nesting == 0)
            break;
    }
    word[n] = '\0';
    if (++c->nesting > PARSE_PARENTHESES_MAX)
        return parse_error(c->parser, "expression '%.60s' is nested too deeply", c->word);
    if (ref_parse(c->parser, word, false, false, &ref) < 0)
        return -EINVAL;
    if (s->ref_count == c->parser->ref_capacity) {
        uint32_t capacity = c->parser->ref_capacity ? c->parser->ref_capacity * 2 : 16;
        struct operand *grown = realloc(s->refs, capacity * sizeof(*grown));
        if (!grown) {
            free(ref.expr.items);
            return parse_error(c->parser, "out of memory");
        }
        s->refs = grown;
        c->parser->ref_capacity = capacity;
    }
    s->refs[s->ref_count] = ref;
    c->constant = false;
    return item_add(c, EXPR_ADDRESS, s->ref_count++, 1);
}

static int function_parse(struct cursor *c)
{
    char name[SCENARIO_NAME_MAX];
    int64_t values = 0;
    name_take(c, name);
    bool is_rand = !strcmp(name, "rand"), is_choice = !strcmp(name, "choice");
    if ((!is_rand && !is_choice) || *c->at != '(')
        return parse_error(c->parser,
                           "'%.60s' is no number, $variable, @block, rand(low,high) or "
                           "choice(a,b,...)",
                           c->word);
    do {
        c->at++;
        if (sum_parse(c) < 0)
            return -EINVAL;
        values++;
    } while (*c->at == ',');
    if (*c->at != ')')
        return parse_error(c->parser, "'%.60s': ( without )", c->word);
    c->at++;
    if (is_rand && values != 2)
        return parse_error(c->parser, "rand takes low and high, not %lld values",
                           (long long)values);
    c->constant = false;
    return item_add(c, is_rand ? EXPR_RAND : EXPR_CHOICE, values, (int)(1 - values));
}

static int atom_parse(struct cursor *c)
{
    if (*c->at == '(') {
        c->at++;
        if (sum_parse(c) < 0)
            return -EINVAL;
        if (*c->at != ')')
            return parse_error(c->parser, "'%.60s': ( without )", c->word);
        c->at++;
        return 0;
    }
    if (*c->at == '-') {
        c->at++;
        if (item_add(c, EXPR_PUSH, 0, 1) < 0 || atom_parse(c) < 0)
            return -EINVAL;
        return item_add(c, EXPR_SUB, 0, -1);
    }
    if (isdigit((unsigned char)*c->at))
        return number_parse(c);
    if (*c->at == '$')
        return variable_parse(c);
    if (*c->at == '@')
        return address_parse(c);
    if (isalpha((unsigned char)*c->at))
        return function_parse(c);
    return parse_error(c->parser, "'%.60s': a value is missing at '%.20s'", c->word, c->at);
}

static int product_parse(struct cursor *c)
{
    if (atom_parse(c) < 0)
        return -EINVAL;
    while (*c->at == '*' || *c->at == '/' || *c->at == '%') {
        enum expr_code code = *c->at == '*' ? EXPR_MUL : *c->at == '/' ? EXPR_DIV : EXPR_MOD;
        c->at++;
        if (atom_parse(c) < 0 || item_add(c, code, 0, -1) < 0)
            return -EINVAL;
    }
    return 0;
}

static int sum_parse(struct cursor *c)
{
    if (++c->nesting > PARSE_PARENTHESES_MAX)
        return parse_error(c->parser, "expression '%.60s' is nested deeper than %d", c->word,
                           PARSE_PARENTHESES_MAX);
    if (product_parse(c) < 0)
        return -EINVAL;
    while (*c->at == '+' || *c->at == '-') {
        enum expr_code code = *c->at == '+' ? EXPR_ADD : EXPR_SUB;
        c->at++;
        if (product_parse(c) < 0 || item_add(c, code, 0, -1) < 0)
            return -EINVAL;
    }
    c->nesting--;
    return 0;
}

static int comparison_parse(struct cursor *c)
{
    static const struct {
        const char *text;
        enum expr_code code;
    } operators[] = {{"==", EXPR_EQ}, {"!=", EXPR_NE}, {"<=", EXPR_LE},
                     {">=", EXPR_GE}, {"<", EXPR_LT},  {">", EXPR_GT}};

    if (sum_parse(c) < 0)
        return -EINVAL;
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
        size_t length = strlen(operators[i].text);
        if (strncmp(c->at, operators[i].text, length))
            continue;
        c->at += length;
        if (sum_parse(c) < 0)
            return -EINVAL;
        return item_add(c, operators[i].code, 0, -1);
    }
    return 0;
}

int expr_parse(struct parser *p, const char *word, bool times, struct expr *ret)
{
    struct cursor c = {.parser = p, .at = word, .word = word, .times = times, .constant = true};
    struct expr expr = {0};

    if (comparison_parse(&c) < 0)
        return -EINVAL;
    if (*c.at)
        return parse_error(p, "'%.60s': unexpected '%.20s'", word, c.at);
    expr.items = calloc(c.count, sizeof(*expr.items));
    if (!expr.items)
        return parse_error(p, "out of memory");
    memcpy(expr.items, c.items, c.count * sizeof(*expr.items));
    expr.count = c.count;
    if (c.constant) {
        struct expr_context context = {.scenario = p->scenario};
        int r = expr_eval(&expr, &context, &expr.value);
        if (r < 0) {
            free(expr.items);
            return parse_error(p, "'%.60s': %s", word,
                               r == -EDOM ? "division by zero" : "result is too large");
        }
        expr.constant = true;
        if (times && expr.value && !c.saw_time) {
            free(expr.items);
            return parse_error(p, "'%.60s' needs a time unit (ns us ms s min)", word);
        }
    }
    *ret = expr;
    return 0;
}
