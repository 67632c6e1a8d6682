/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_help.c - npumem help [VERB], from the tables.
 */
#include <string.h>

#include "cli.h"
#include "out.h"

#define TEXT_COLUMNS 78

/* Prints text in lines of at most TEXT_COLUMNS, each after `indent` blanks; the first line begins
 * where the cursor is. */
static void print_wrapped(const char *text, int indent)
{
    int column = indent;

    while (*text) {
        int word = (int)strcspn(text, " ");
        if (column > indent && column + 1 + word > TEXT_COLUMNS) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", word, text);
        column += word;
        text += word + (text[word] == ' ');
    }
    putchar('\n');
}

static void print_option(const struct option_row *o)
{
    char left[64], shown[24] = "";

    if (o->argument[0])
        snprintf(shown, sizeof(shown), " %s", o->argument);
    if (o->short_name)
        snprintf(left, sizeof(left), "-%c, --%s%s", o->short_name, o->name, shown);
    else
        snprintf(left, sizeof(left), "    --%s%s", o->name, shown);
    printf("  %-24s ", left);
    if (strlen(left) > 24)
        printf("\n%27s", "");
    print_wrapped(o->help, 27);
    if (o->values[0])
        printf("%27s%s\n", "", o->values);
}

static void print_options(const char *title, unsigned groups)
{
    bool first = true;
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (!(option_rows[i].groups & groups))
            continue;
        if (first)
            printf("\n%s\n", title);
        first = false;
        print_option(&option_rows[i]);
    }
}

void help_overview(void)
{
    printf("npumem - who holds the device memory of this host\n\n"
           "usage: npumem [OPTION...] VERB [ARGUMENT...]\n\nverbs\n");
    for (size_t i = 0; i < verb_count; i++) {
        char left[40];
        snprintf(left, sizeof(left), "%s%s%s", verb_rows[i].name,
                 verb_rows[i].arguments[0] ? " " : "", verb_rows[i].arguments);
        printf("  %-24s %s\n", left, verb_rows[i].summary);
    }
    print_options("options of every verb", GROUP_GLOBAL);
    printf("\nOptions may stand before or after the verb; `npumem help VERB` lists the others.\n"
           "\nexit codes\n"
           "  0 done, 1 run-time error, 2 usage, 3 daemon not running, 4 no such process, rank or\n"
           "  event, 5 not permitted, 6 data incomplete (only with --strict)\n");
}

void help_verb(const struct verb_row *v)
{
    printf("npumem %s - %s\n\nusage: npumem %s [OPTION...]%s%s%s\n", v->name, v->summary, v->name,
           v->arguments[0] ? " " : "", v->arguments, v->most > 1 ? "..." : "");
    if (v->text[0]) {
        putchar('\n');
        print_wrapped(v->text, 0);
    }
    print_options("options", v->groups);
    print_options("options of every verb", GROUP_GLOBAL);
    printf("\nexamples\n");
    for (const char *p = v->examples; *p;) {
        int length = (int)strcspn(p, "\n");
        printf("  %.*s\n", length, p);
        p += length + (p[length] == '\n');
    }
}

int verb_help(const struct args *args)
{
    struct out o;

    out_init(&o, args);
    if (args->operand_count == 0) {
        help_overview();
        return out_finish(&o, EXIT_DONE);
    }
    const struct verb_row *verb = verb_find(args->operands[0]);
    if (!verb) {
        const char *words[] = {"npumem", args->operands[0], NULL};
        struct error error = {0};
        struct args ignored;
        args_parse(2, (char **)words, &ignored, &error); /* the same message as for the verb */
        return fail(EXIT_USAGE, &error);
    }
    help_verb(verb);
    return out_finish(&o, EXIT_DONE);
}
