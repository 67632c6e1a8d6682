/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_mark.c - npumem mark NAME.
 */
#include "ask.h"
#include "doc.h"

static int render(const struct args *args, const struct out *o, struct json_object *document)
{
    char name[80];

    if (args->format != FORMAT_TABLE)
        return fail_with(EXIT_USAGE, "mark: has no rows; -o json has everything");
    if (!args->quiet)
        printf("mark:%s\n", out_clean(name, sizeof(name), doc_text(document, "mark", "?")));
    return EXIT_DONE;
}

int verb_mark(const struct args *args)
{
    struct json_object *parameters = json_object_new_object();

    json_object_object_add(parameters, "name", json_object_new_string(args->operands[0]));
    return ask_and_show(args, "Mark", parameters, NULL, render);
}
