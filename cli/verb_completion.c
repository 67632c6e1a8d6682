/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_completion.c - npumem completion SHELL, from the tables.
 *
 * Texts of the tables stand in scripts: a quote in one is written as the shell wants it.
 */
#include <string.h>

#include "cli.h"
#include "out.h"

static bool takes(const struct verb_row *v, const struct option_row *o)
{
    return (o->groups & (v->groups | GROUP_GLOBAL)) != 0;
}

static void print_values(const char *values)
{
    for (; *values; values++)
        putchar(*values == '|' ? ' ' : *values);
}

/* Words that may stand after a verb: help takes verbs, completion shells. */
static void print_operands(const struct verb_row *v)
{
    if (strcmp(v->name, "help") == 0) {
        for (size_t i = 0; i < verb_count; i++)
            printf("%s ", verb_rows[i].name);
    } else if (strchr(v->arguments, '|')) {
        print_values(v->arguments);
    }
}

static void bash(void)
{
    printf("# bash completion of npumem\n"
           "_npumem() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= word\n"
           "    for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
           "        case $word in ");
    for (size_t i = 0; i < verb_count; i++)
        printf("%s%s", i ? "|" : "", verb_rows[i].name);
    printf(") verb=$word; break ;; esac\n    done\n    case $prev in\n");
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option_row *o = &option_rows[i];
        if (!o->argument[0])
            continue;
        printf("    ");
        if (o->short_name)
            printf("-%c|", o->short_name);
        printf("--%s) ", o->name);
        if (o->values[0]) {
            printf("COMPREPLY=($(compgen -W '");
            print_values(o->values);
            printf("' -- \"$cur\"))");
        } else if (strcmp(o->argument, "PATH") == 0) {
            printf("COMPREPLY=($(compgen -f -- \"$cur\"))");
        }
        printf("%sreturn ;;\n", o->values[0] || strcmp(o->argument, "PATH") == 0 ? "; " : "");
    }
    printf("    esac\n    case $verb in\n");
    for (size_t i = 0; i < verb_count; i++) {
        printf("    %s) COMPREPLY=($(compgen -W '", verb_rows[i].name);
        print_operands(&verb_rows[i]);
        for (size_t k = 0; k < OPTION_COUNT; k++) {
            if (takes(&verb_rows[i], &option_rows[k]))
                printf(" --%s", option_rows[k].name);
        }
        printf("' -- \"$cur\")) ;;\n");
    }
    printf("    *) COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < verb_count; i++)
        printf("%s ", verb_rows[i].name);
    for (size_t k = 0; k < OPTION_COUNT; k++)
        printf("--%s ", option_rows[k].name);
    printf("' -- \"$cur\")) ;;\n    esac\n}\ncomplete -F _npumem npumem\n");
}

/* Text within single quotes; `special` characters get a backslash (zsh's specs). */
static void print_quoted(const char *text, const char *special)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            printf("%s%c", strchr(special, *text) ? "\\" : "", *text);
    }
}

static void zsh_option(const struct option_row *o)
{
    printf(" \\\n            ");
    if (o->short_name)
        printf("'(-%c --%s)'{-%c,--%s}", o->short_name, o->name, o->short_name, o->name);
    else
        printf("--%s", o->name);
    printf("%s'[", o->argument[0] && !o->short_name ? "=" : "");
    print_quoted(o->help, "[]:");
    putchar(']');
    if (o->argument[0]) {
        printf(":%s:", o->argument);
        if (o->values[0]) {
            putchar('(');
            print_values(o->values);
            putchar(')');
        } else if (strcmp(o->argument, "PATH") == 0) {
            printf("_files");
        }
    }
    putchar('\'');
}

static void zsh(void)
{
    printf("#compdef npumem\n_npumem() {\n    local -a verbs\n    verbs=(\n");
    for (size_t i = 0; i < verb_count; i++) {
        printf("        '%s:", verb_rows[i].name);
        print_quoted(verb_rows[i].summary, ":");
        printf("'\n");
    }
    printf("    )\n    local word verb=\n"
           "    for word in ${words[2,CURRENT-1]}; do\n"
           "        if (( ${verbs[(I)$word:*]} )); then verb=$word; break; fi\n    done\n"
           "    case $verb in\n");
    for (size_t i = 0; i < verb_count; i++) {
        printf("        %s) _arguments -S '1: : '", verb_rows[i].name);
        for (size_t k = 0; k < OPTION_COUNT; k++) {
            if (takes(&verb_rows[i], &option_rows[k]))
                zsh_option(&option_rows[k]);
        }
        printf(" \\\n            '*:argument:(");
        print_operands(&verb_rows[i]);
        printf(")' ;;\n");
    }
    printf("        *) _describe verb verbs ;;\n    esac\n}\n"
           "if [ \"$funcstack[1]\" = _npumem ]; then _npumem \"$@\"; else compdef _npumem npumem; "
           "fi\n");
}

static void fish(void)
{
    printf("# fish completion of npumem\ncomplete -c npumem -f\n");
    for (size_t i = 0; i < verb_count; i++) {
        printf("complete -c npumem -n __fish_use_subcommand -a %s -d '", verb_rows[i].name);
        for (const char *p = verb_rows[i].summary; *p; p++)
            printf("%s%c", *p == '\'' ? "\\" : "", *p);
        printf("'\n");
        if (strcmp(verb_rows[i].name, "help") != 0 && !strchr(verb_rows[i].arguments, '|'))
            continue;
        printf("complete -c npumem -n '__fish_seen_subcommand_from %s' -a '", verb_rows[i].name);
        print_operands(&verb_rows[i]);
        printf("'\n");
    }
    for (size_t k = 0; k < OPTION_COUNT; k++) {
        const struct option_row *o = &option_rows[k];
        printf("complete -c npumem");
        if (!(o->groups & GROUP_GLOBAL)) {
            printf(" -n '__fish_seen_subcommand_from");
            for (size_t i = 0; i < verb_count; i++) {
                if (takes(&verb_rows[i], o))
                    printf(" %s", verb_rows[i].name);
            }
            putchar('\'');
        }
        printf(" -l %s", o->name);
        if (o->short_name)
            printf(" -s %c", o->short_name);
        if (o->argument[0])
            printf(" -r%s", strcmp(o->argument, "PATH") == 0 ? "F" : "");
        if (o->values[0]) {
            printf(" -a '");
            print_values(o->values);
            putchar('\'');
        }
        printf(" -d '");
        for (const char *p = o->help; *p; p++)
            printf("%s%c", *p == '\'' ? "\\" : "", *p);
        printf("'\n");
    }
}

int verb_completion(const struct args *args)
{
    const char *shell = args->operands[0];
    struct out o;

    out_init(&o, args);
    if (strcmp(shell, "bash") == 0)
        bash();
    else if (strcmp(shell, "zsh") == 0)
        zsh();
    else if (strcmp(shell, "fish") == 0)
        fish();
    else {
        struct error error = {0};
        char near[16];
        error_set(&error, EINVAL, "completion %.40s: unknown shell", shell);
        error_fix(&error, 0, "%s",
                  suggest_values(shell, args->verb->arguments, near, sizeof(near))
                      ? near
                      : args->verb->arguments);
        return fail(EXIT_USAGE, &error);
    }
    return out_finish(&o, EXIT_DONE);
}
