/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump.c - a compiled scenario as JSON, so that another driver needs no parser of its own.
 *
 * An expression is an integer or a list in postfix order: integers are pushed, ["var", i],
 * ["ref", i], ["choice", n] and operators as strings ("+", "-", "rand", ...). A text keeps its
 * $variables.
 */
#include <stdio.h>

#include "scenario.h"
#include "truth.h"

static const char *const item_names[] = {
    [EXPR_ADD] = "+", [EXPR_SUB] = "-", [EXPR_MUL] = "*", [EXPR_DIV] = "/",
    [EXPR_MOD] = "%", [EXPR_EQ] = "==", [EXPR_NE] = "!=", [EXPR_LT] = "<",
    [EXPR_LE] = "<=", [EXPR_GT] = ">",  [EXPR_GE] = ">=", [EXPR_RAND] = "rand"};

static void expr_dump(FILE *f, const struct expr *expr)
{
    if (expr->constant) {
        fprintf(f, "%lld", (long long)expr->value);
        return;
    }
    fputc('[', f);
    for (uint32_t i = 0; i < expr->count; i++) {
        const struct expr_item *item = &expr->items[i];
        long long value = (long long)item->value;
        if (i)
            fputc(',', f);
        if (item->code == EXPR_PUSH)
            fprintf(f, "%lld", value);
        else if (item->code == EXPR_VAR)
            fprintf(f, "[\"var\",%lld]", value);
        else if (item->code == EXPR_ADDRESS)
            fprintf(f, "[\"ref\",%lld]", value);
        else if (item->code == EXPR_CHOICE)
            fprintf(f, "[\"choice\",%lld]", value);
        else
            fprintf(f, "\"%s\"", item_names[item->code]);
    }
    fputc(']', f);
}

static void operand_dump(FILE *f, const struct operand *operand)
{
    switch (operand->kind) {
    case OPERAND_EXPR:
        expr_dump(f, &operand->expr);
        break;
    case OPERAND_REF:
        fprintf(
            f, "{\"slot\":%u,\"slots\":%u,\"anonymous\":%s,\"all\":%s,\"index\":", operand->slot,
            operand->slots, operand->anonymous ? "true" : "false", operand->all ? "true" : "false");
        if (operand->expr.count)
            expr_dump(f, &operand->expr);
        else
            fprintf(f, "0");
        fputc('}', f);
        break;
    case OPERAND_CHOICE:
        fprintf(f, "%lld", (long long)operand->value);
        break;
    case OPERAND_TEXT:
        json_text(f, operand->text);
        break;
    case OPERAND_NONE:
        fprintf(f, "null");
        break;
    }
}

static void op_dump(FILE *f, const struct op *op)
{
    const struct statement *statement = statement_of(op->code);
    fprintf(f, "{\"op\":\"%s\",\"line\":%u,\"jump\":%u,\"expect\":%lld,\"phase\":%u,\"args\":{",
            statement->name, op->line, op->jump, (long long)op->expect, op->phase);
    for (size_t i = 0; i < OP_ARGS_MAX && statement->params[i].kind != PARAM_END; i++) {
        fprintf(f, "%s\"%s\":", i ? "," : "", statement->params[i].name);
        operand_dump(f, &op->args[i]);
    }
    fprintf(f, "}}");
}

static void text_dump(FILE *f, const char *name, const char *text)
{
    fprintf(f, ",\"%s\":", name);
    if (text)
        json_text(f, text);
    else
        fprintf(f, "null");
}

static void rank_dump(FILE *f, const struct rank *rank)
{
    fprintf(f, "{\"name\":");
    json_text(f, rank->name);
    fprintf(f, ",\"number\":%lld,\"begin\":%u,\"end\":%u", (long long)rank->number, rank->begin,
            rank->end);
    text_dump(f, "title", rank->title);
    text_dump(f, "comm", rank->comm);
    text_dump(f, "parent", rank->parent);
    fprintf(f, ",\"device\":");
    if (rank->has_device)
        expr_dump(f, &rank->device);
    else
        fprintf(f, "null");
    fprintf(f, ",\"env\":[");
    for (uint32_t i = 0; i < rank->envs; i++) {
        if (i)
            fputc(',', f);
        json_text(f, rank->env[i]);
    }
    fprintf(f, "]}");
}

void scenario_dump(const struct scenario *s, void *stream)
{
    FILE *f = stream;
    fprintf(f, "{\"path\":");
    json_text(f, s->path);
    fprintf(f,
            ",\"slots\":%u,\"seed\":%lld,\"devices\":%lld,\"device_bytes\":%lld,"
            "\"baseline_bytes\":%lld,"
            "\"uses\":{\"torch\":%s,\"hccl\":%s,\"atb\":%s,\"nnop\":%s},\"vars\":[",
            s->slot_count, (long long)s->seed, (long long)s->devices, (long long)s->device_bytes,
            (long long)s->baseline_bytes, s->uses_torch ? "true" : "false",
            s->uses_hccl ? "true" : "false", s->uses_atb ? "true" : "false",
            s->uses_nnop ? "true" : "false");
    for (uint32_t i = 0; i < s->var_count; i++)
        fprintf(f, "%s[\"%s\",%lld]", i ? "," : "", s->vars[i], (long long)s->var_values[i]);
    fprintf(f, "],\"phases\":[\"\"");
    for (uint32_t i = 1; i <= s->phase_count; i++) {
        fputc(',', f);
        json_text(f, s->phases[i]);
    }
    fprintf(f, "],\"refs\":[");
    for (uint32_t i = 0; i < s->ref_count; i++) {
        if (i)
            fputc(',', f);
        operand_dump(f, &s->refs[i]);
    }
    fprintf(f, "],\"ranks\":[");
    for (uint32_t i = 0; i < s->rank_count; i++) {
        fprintf(f, i ? ",\n" : "\n");
        rank_dump(f, &s->ranks[i]);
    }
    fprintf(f, "],\"ops\":[");
    for (uint32_t i = 0; i < s->op_count; i++) {
        fprintf(f, i ? ",\n" : "\n");
        op_dump(f, &s->ops[i]);
    }
    fprintf(f, "]}\n");
}
