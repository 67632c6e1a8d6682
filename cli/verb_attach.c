/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_attach.c - npumem attach PID..., and what detach shares with it.
 */
#include <errno.h>
#include <inttypes.h>

#include "ask.h"
#include "doc.h"
#include "verb_attach.h"

static int parse_tgid(const char *text, int64_t *ret)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end || n <= 0 || n > INT32_MAX)
        return -EINVAL;
    *ret = n;
    return 0;
}

static int call_one(const struct args *args, const char *method, const char *done, int64_t tgid)
{
    struct json_object *parameters = json_object_new_object(), *document = NULL;
    struct error error = {0};
    char text[200];

    json_object_object_add(parameters, "tgid", json_object_new_int64(tgid));
    int r = ask(args, method, parameters, &document, &error);
    json_object_put(parameters);
    if (r < 0)
        return fail(exit_code_of(r), &error);
    if (args->format != FORMAT_TABLE)
        out_json(document, args->format != FORMAT_JSON);
    else if (!args->quiet) {
        const char *why = doc_text(document, "reason", NULL);
        printf("%s %" PRId64 "%s%s\n", done, tgid, why ? ": " : "",
               why ? out_clean(text, sizeof(text), why) : "");
    }
    json_object_put(document);
    return EXIT_DONE;
}

int call_for_processes(const struct args *args, const char *method, const char *done)
{
    int64_t tgids[CLI_LIST_MAX];
    int code = EXIT_DONE;
    struct out o;

    if (args->format == FORMAT_CSV || args->fields.count)
        return fail_with(EXIT_USAGE, "%s: has no rows; -o json has everything", args->verb->name);
    for (size_t i = 0; i < args->operand_count;
         i++) { /* all or none: a typing error does nothing */
        if (parse_tgid(args->operands[i], &tgids[i]) < 0) {
            struct error error = {0};
            error_set(&error, EINVAL, "%s %.40s: not a process id", args->verb->name,
                      args->operands[i]);
            error_fix(&error, 0, "npumem ps");
            return fail(EXIT_USAGE, &error);
        }
    }
    out_init(&o, args);
    for (size_t i = 0; i < args->operand_count; i++) {
        int one = call_one(args, method, done, tgids[i]);
        if (code == EXIT_DONE)
            code = one;
    }
    return out_finish(&o, code);
}

int verb_attach(const struct args *args)
{
    return call_for_processes(args, "Attach", "attached to");
}
