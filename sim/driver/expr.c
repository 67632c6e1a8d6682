/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expr.c - evaluation of compiled expressions and expansion of $variables in words.
 *
 * Must not allocate: it runs in loops of millions. Every arithmetic step is overflow-checked.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "scenario.h"

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int binary_apply(enum expr_code code, int64_t a, int64_t b, int64_t *ret)
{
    switch (code) {
    case EXPR_ADD:
        return __builtin_add_overflow(a, b, ret) ? -ERANGE : 0;
    case EXPR_SUB:
        return __builtin_sub_overflow(a, b, ret) ? -ERANGE : 0;
    case EXPR_MUL:
        return __builtin_mul_overflow(a, b, ret) ? -ERANGE : 0;
    case EXPR_DIV:
    case EXPR_MOD:
        if (b == 0)
            return -EDOM;
        if (a == INT64_MIN && b == -1)
            return -ERANGE;
        *ret = code == EXPR_DIV ? a / b : a % b;
        return 0;
    case EXPR_EQ:
        *ret = a == b;
        return 0;
    case EXPR_NE:
        *ret = a != b;
        return 0;
    case EXPR_LT:
        *ret = a < b;
        return 0;
    case EXPR_LE:
        *ret = a <= b;
        return 0;
    case EXPR_GT:
        *ret = a > b;
        return 0;
    case EXPR_GE:
        *ret = a >= b;
        return 0;
    default:
        return -EINVAL;
    }
}

static int random_apply(const struct expr_context *context, int64_t low, int64_t high, int64_t *ret)
{
    if (high < low || !context->random)
        return -EDOM;
    uint64_t span = (uint64_t)high - (uint64_t)low + 1;
    uint64_t draw = random_next(context->random);
    *ret = (int64_t)((uint64_t)low + (span ? draw % span : draw));
    return 0;
}

/* The parser guarantees that no sequence of items under- or overflows the stack. */
static int items_eval(const struct expr *expr, const struct expr_context *context, int64_t *ret)
{
    int64_t stack[EXPR_STACK_MAX];
    size_t top = 0;

    for (uint32_t i = 0; i < expr->count; i++) {
        const struct expr_item *item = &expr->items[i];
        int r = 0;
        switch (item->code) {
        case EXPR_PUSH:
            stack[top++] = item->value;
            break;
        case EXPR_VAR:
            stack[top++] = context->vars[item->value];
            break;
        case EXPR_ADDRESS:
            if (!context->address)
                return -EINVAL;
            r = context->address(context->userdata, &context->scenario->refs[item->value],
                                 &stack[top]);
            top++;
            break;
        case EXPR_RAND:
            top--;
            r = random_apply(context, stack[top - 1], stack[top], &stack[top - 1]);
            break;
        case EXPR_CHOICE:
            top -= (size_t)item->value;
            stack[top] = stack[top + random_next(context->random) % (uint64_t)item->value];
            top++;
            break;
        default:
            top--;
            r = binary_apply(item->code, stack[top - 1], stack[top], &stack[top - 1]);
            break;
        }
        if (r < 0)
            return r;
    }
    *ret = stack[0];
    return 0;
}

int expr_eval(const struct expr *expr, const struct expr_context *context, int64_t *ret)
{
    if (expr->constant) {
        *ret = expr->value;
        return 0;
    }
    return items_eval(expr, context, ret);
}

static int name_read(const char **cursor, char name[static SCENARIO_NAME_MAX])
{
    const char *p = *cursor;
    bool braced = *p == '{';
    size_t n = 0;
    if (braced)
        p++;
    while ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
           *p == '_') {
        if (n + 1 >= SCENARIO_NAME_MAX)
            return -EINVAL;
        name[n++] = *p++;
    }
    name[n] = '\0';
    if (!n || (braced && *p++ != '}'))
        return -EINVAL;
    *cursor = p;
    return 0;
}

int text_expand(const struct scenario *scenario, const int64_t *vars, const char *text, char *out,
                size_t size)
{
    size_t n = 0;
    while (*text) {
        if (*text != '$') {
            if (n + 1 >= size)
                return -ENAMETOOLONG;
            out[n++] = *text++;
            continue;
        }
        char name[SCENARIO_NAME_MAX];
        uint32_t v = 0;
        text++;
        if (name_read(&text, name) < 0)
            return -EINVAL;
        while (v < scenario->var_count && strcmp(scenario->vars[v], name))
            v++;
        if (v == scenario->var_count)
            return -EINVAL;
        int r = snprintf(out + n, size - n, "%lld", (long long)(vars ? vars[v] : 0));
        if (r < 0 || (size_t)r >= size - n)
            return -ENAMETOOLONG;
        n += (size_t)r;
    }
    out[n] = '\0';
    return 0;
}
