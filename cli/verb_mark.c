/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_mark.c - npumem mark NAME [--begin | --end] [--pid PID].
 */
#include <string.h>

#include "ask.h"
#include "doc.h"

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    char name[80], owner[80];
    const char *label = doc_text(document, "label", "");

    if (args->format != FORMAT_TABLE)
        return fail_with(EXIT_USAGE, "mark: has no rows; -o json has everything");
    if (args->quiet)
        return EXIT_DONE;
    printf("mark:%s\n", out_clean(name, sizeof(name), doc_text(document, "mark", "?")));
    out_clean(owner, sizeof(owner), doc_text(document, "owner", "?"));
    if (strcmp(label, "begin") == 0)
        printf("owner %s begins; try: npumem mark %s --end\n", owner, name);
    else if (strcmp(label, "end") == 0)
        printf("owner %s has ended\n", owner);
    return EXIT_DONE;
}

int verb_mark(const struct args *args)
{
    if (args->begin && args->end)
        return fail_with(EXIT_USAGE, "mark: --begin and --end; try: one of them");
    if (args->tgids.count && !args->begin && !args->end)
        return fail_with(EXIT_USAGE, "mark: a moment is of all processes; try: --begin with --pid");
    struct json_object *parameters = ask_filters(args);

    if (args->begin || args->end)
        json_object_object_add(parameters, "label",
                               json_object_new_string(args->begin ? "begin" : "end"));
    json_object_object_add(parameters, "name", json_object_new_string(args->operands[0]));
    return ask_and_show(args, "Mark", parameters, NULL, render);
}
