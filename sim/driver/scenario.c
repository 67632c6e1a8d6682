/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scenario.c - a scenario's life: read from a file, compiled, freed.
 *
 * Owns struct scenario. Must not interpret text (parse.c) or run it (run.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

static int file_read(const char *path, char **ret_text, size_t *ret_length)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return -errno;
    char *text = malloc((size_t)SCENARIO_TEXT_MAX + 2);
    size_t length = text ? fread(text, 1, (size_t)SCENARIO_TEXT_MAX + 1, f) : 0;
    int error = !text ? ENOMEM : ferror(f) ? EIO : length > SCENARIO_TEXT_MAX ? EFBIG : 0;
    fclose(f);
    if (error) {
        free(text);
        return -error;
    }
    text[length] = '\0';
    *ret_text = text;
    *ret_length = length;
    return 0;
}

int scenario_load(const char *path, char *const *defines, size_t define_count,
                  struct scenario **ret, char *message, size_t size)
{
    char *text = NULL;
    size_t length = 0;

    message[0] = '\0';
    int r = file_read(path, &text, &length);
    if (r < 0) {
        snprintf(message, size, "%s: %s", path, r == -EFBIG ? "larger than 4 MiB" : strerror(-r));
        return r;
    }
    struct scenario *s = calloc(1, sizeof(*s));
    bool *used = calloc(define_count + 1, sizeof(*used));
    r = -ENOMEM;
    if (s && used && (s->path = strdup(path)) &&
        (s->ranks = calloc(SCENARIO_RANKS_MAX, sizeof(*s->ranks)))) {
        static const char *const builtin[VAR_USER] = {"rank", "ranks", "device", "thread"};
        for (; s->var_count < VAR_USER; s->var_count++)
            strcpy(s->vars[s->var_count], builtin[s->var_count]);
        struct parser p = {.scenario = s,
                           .defines = defines,
                           .define_count = define_count,
                           .define_used = used,
                           .message = message,
                           .message_size = size};
        r = scenario_parse(&p, text, length);
    }
    free(used);
    free(text);
    if (r < 0) {
        if (!message[0])
            snprintf(message, size, "%s: out of memory", path);
        scenario_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

static void operand_done(struct operand *operand)
{
    free(operand->expr.items);
    free(operand->text);
}

struct scenario *scenario_free(struct scenario *s)
{
    if (!s)
        return NULL;
    for (uint32_t i = 0; i < s->op_count; i++) {
        for (size_t a = 0; a < OP_ARGS_MAX; a++)
            operand_done(&s->ops[i].args[a]);
    }
    for (uint32_t i = 0; i < s->ref_count; i++)
        operand_done(&s->refs[i]);
    for (uint32_t i = 0; i < s->rank_count; i++) {
        struct rank *rank = &s->ranks[i];
        free(rank->name);
        free(rank->title);
        free(rank->comm);
        free(rank->parent);
        free(rank->device.items);
        for (uint32_t e = 0; e < rank->envs; e++)
            free(rank->env[e]);
    }
    free(s->ops);
    free(s->refs);
    free(s->ranks);
    free(s->names);
    free(s->path);
    free(s);
    return NULL;
}
