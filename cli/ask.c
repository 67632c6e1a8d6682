/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask.c - from arguments to a document, and to exit codes.
 *
 * Owns: the default socket, the watch loop, the meaning of --strict and of "no such process".
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "ask.h"
#include "client.h"
#include "doc.h"

#define SOCKET_DEFAULT "/run/npumem/control.sock"

const char *ask_socket(const struct args *args)
{
    const char *from_environment = getenv("NPUMEM_SOCKET");
    if (args->socket)
        return args->socket;
    return from_environment && from_environment[0] ? from_environment : SOCKET_DEFAULT;
}

static void add_numbers(struct json_object *o, const char *key, const struct cli_numbers *list)
{
    if (list->count == 0)
        return;
    struct json_object *array = json_object_new_array();
    for (size_t i = 0; i < list->count; i++)
        json_object_array_add(array, json_object_new_int64(list->items[i]));
    json_object_object_add(o, key, array);
}

static void add_words(struct json_object *o, const char *key, const struct cli_words *list)
{
    if (list->count == 0)
        return;
    struct json_object *array = json_object_new_array();
    for (size_t i = 0; i < list->count; i++)
        json_object_array_add(array, json_object_new_string(list->items[i]));
    json_object_object_add(o, key, array);
}

struct json_object *ask_filters(const struct args *args)
{
    struct json_object *o = json_object_new_object();
    add_numbers(o, "tgid", &args->tgids);
    add_numbers(o, "rank", &args->ranks);
    add_numbers(o, "device", &args->devices);
    add_words(o, "container", &args->containers);
    add_words(o, "owner", &args->owners);
    add_words(o, "level", &args->levels);
    if (args->at[0])
        json_object_object_add(o, "at", json_object_new_string(args->at));
    return o;
}

void ask_period(const struct args *args, struct json_object *parameters)
{
    if (args->since_ns)
        json_object_object_add(parameters, "since_ns", json_object_new_int64(args->since_ns));
    if (args->until_ns)
        json_object_object_add(parameters, "until_ns", json_object_new_int64(args->until_ns));
}

int ask(const struct args *args, const char *method, struct json_object *parameters,
        struct json_object **ret, struct error *reterr)
{
    _cleanup_(client_freep) struct client *client = NULL;
    struct json_object *reply = NULL;
    int r = client_connect(ask_socket(args), args->timeout_ns, &client, reterr);

    if (r == 0)
        r = client_call(client, method, parameters, &reply, reterr);
    if (r < 0)
        return r;
    struct json_object *document = doc_get(reply, "document");
    if (!document || !json_object_is_type(document, json_type_object)) {
        json_object_put(reply);
        error_set(reterr, EBADMSG, "daemon: an answer without a document");
        return error_fix(reterr, -EBADMSG, "npumem version (are both of one version?)");
    }
    *ret = json_object_get(document);
    json_object_put(reply);
    return 0;
}

static bool has_filter(const struct args *args)
{
    return args->tgids.count || args->ranks.count || args->devices.count || args->containers.count;
}

/* Leaves only --fields in the rows of a JSON document. */
static void reduce_fields(const struct args *args, struct json_object *document, const char *key)
{
    size_t rows = key ? doc_count(document, key) : 0;

    for (size_t i = 0; i < rows && args->fields.count; i++) {
        struct json_object *row = doc_item(document, key, i);
        struct json_object *part = json_object_new_object();
        for (size_t k = 0; k < args->fields.count; k++) {
            const char *field = args->fields.items[k];
            json_object_object_add(part, field, json_object_get(doc_get(row, field)));
        }
        json_object_array_put_idx(doc_get(document, key), i, part);
    }
}

/* People read it under the table, programs beside their data. */
static void note_incomplete(const struct args *args, const struct out *o,
                            struct json_object *document)
{
    char text[256];
    int64_t lost = 0;
    bool table = args->format == FORMAT_TABLE;
    FILE *f = table ? stdout : stderr;

    if (args->quiet || !doc_incomplete(document))
        return;
    doc_int(document, "lost_events", &lost);
    fflush(stdout);
    fprintf(f, "%s%s", table ? out_on(o, STYLE_BAD) : "", table ? "" : "npumem: note: ");
    const char *of_recording = doc_text(doc_get(document, "recording"), "missing", NULL);
    const char *missing = doc_text(document, "missing", of_recording);
    if (missing)
        fprintf(f, "incomplete: %s%s", of_recording ? "of the recording: " : "",
                out_clean(text, sizeof(text), missing));
    else if (strncmp(doc_text(document, "compared", ""), "recording", 9) == 0)
        fprintf(f, "incomplete: not all that happened is in the recordings");
    else if (lost > 0)
        fprintf(f, "incomplete: %" PRId64 " events lost", lost);
    else
        fprintf(f, "incomplete: some processes are seen in part (npumem status)");
    fprintf(f, "%s\n", table ? out_off(o, STYLE_BAD) : "");
}

int ask_show(const struct args *args, const struct out *o, struct json_object *document,
             const char *key, ask_render_fn render)
{
    int code = EXIT_DONE;

    if (key && has_filter(args) && doc_count(document, key) == 0)
        return fail(EXIT_NOT_FOUND, &(struct error){.what = "filter: no observed process fits it",
                                                    .fix = "npumem ps"});
    if (args->format == FORMAT_JSON) {
        reduce_fields(args, document, key);
        out_json(document, args->watch_ns != 0);
    } else {
        code = render(args, o, document);
        if (code == EXIT_DONE)
            note_incomplete(args, o, document);
    }
    if (code == EXIT_DONE && args->strict && doc_incomplete(document))
        return EXIT_INCOMPLETE;
    return code;
}

static void sleep_ns(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
        ;
}

int ask_and_show(const struct args *args, const char *method, struct json_object *parameters,
                 const char *key, ask_render_fn render)
{
    return ask_extend_and_show(args, method, parameters, NULL, key, render);
}

int ask_extend_and_show(const struct args *args, const char *method, struct json_object *parameters,
                        ask_extend_fn extend, const char *key, ask_render_fn render)
{
    struct out o;
    int code;

    out_init(&o, args);
    for (;;) {
        struct json_object *document = NULL;
        struct error error = {0};
        int r = ask(args, method, parameters, &document, &error);
        if (r == 0 && extend)
            r = extend(args, document, &error);
        if (r < 0) {
            json_object_put(document);
            code = fail(exit_code_of(r), &error);
            break;
        }
        if (args->watch_ns && o.terminal)
            fputs("\033[H\033[2J", stdout);
        if (args->format == FORMAT_TABLE)
            out_pager(&o, args);
        code = ask_show(args, &o, document, key, render);
        json_object_put(document);
        if (!args->watch_ns || code != EXIT_DONE || fflush(stdout) != 0)
            break;
        sleep_ns(args->watch_ns);
    }
    json_object_put(parameters);
    return out_finish(&o, code);
}
