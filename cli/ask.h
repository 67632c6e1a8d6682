/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask.h - what all verbs that ask the daemon have in common.
 */
#ifndef NPUMEM_CLI_ASK_H
#define NPUMEM_CLI_ASK_H

#include <json-c/json.h>

#include "cli.h"
#include "out.h"

/* --socket, $NPUMEM_SOCKET, or the place that the daemon's unit uses. */
const char *ask_socket(const struct args *args);

/* A new parameters object with the filters of args. The caller puts it. */
struct json_object *ask_filters(const struct args *args);

/* Adds --since and --until, where they were given. */
void ask_period(const struct args *args, struct json_object *parameters);

/* One call on a connection of its own; ret: the document. Returns a negative errno of client.h. */
int ask(const struct args *args, const char *method, struct json_object *parameters,
        struct json_object **ret, struct error *reterr);

/* Renders a document in a format other than json. Returns an exit code. */
typedef int (*ask_render_fn)(const struct args *args, const struct out *o,
                             struct json_object *document);

/* The whole of a verb: asks, renders, once or every --watch; json is passed through. `key` names
 * the array that --fields applies to and that must not be empty when filters were given (NULL:
 * none). Takes over parameters. Returns an exit code. */
int ask_and_show(const struct args *args, const char *method, struct json_object *parameters,
                 const char *key, ask_render_fn render);

/* Completes a document by further calls before it is shown. Returns 0 or a negative errno of
 * client.h. */
typedef int (*ask_extend_fn)(const struct args *args, struct json_object *document,
                             struct error *reterr);
/* The same as ask_and_show(), with `extend` after each answer. */
int ask_extend_and_show(const struct args *args, const char *method, struct json_object *parameters,
                        ask_extend_fn extend, const char *key, ask_render_fn render);

/* Prints a document that was asked for elsewhere. Returns an exit code. */
int ask_show(const struct args *args, const struct out *o, struct json_object *document,
             const char *key, ask_render_fn render);

#endif
