/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_version.c - npumem version: both programs, so that a mismatch is seen.
 */
#include <inttypes.h>

#include "ask.h"
#include "client.h"
#include "doc.h"

/* The daemon's answer, NULL when it is not there: no failure, the client has a version anyway. */
static struct json_object *daemon_version(const struct args *args)
{
    _cleanup_(client_freep) struct client *client = NULL;
    struct json_object *reply = NULL;

    if (client_connect(ask_socket(args), args->timeout_ns, &client, NULL) < 0 ||
        client_call(client, "Version", NULL, &reply, NULL) < 0)
        return NULL;
    return reply;
}

int verb_version(const struct args *args)
{
    struct json_object *daemon = daemon_version(args);
    struct out o;
    char text[64];
    int64_t abi = 0;

    out_init(&o, args);
    if (args->format == FORMAT_JSON || args->format == FORMAT_JSONL) {
        struct json_object *both = json_object_new_object();
        json_object_object_add(both, "version", json_object_new_string(NPUMEM_VERSION));
        json_object_object_add(both, "daemon", json_object_get(daemon));
        out_json(both, args->format == FORMAT_JSONL);
        json_object_put(both);
    } else {
        printf("npumem %s\n", NPUMEM_VERSION);
        if (daemon && doc_int(daemon, "event_abi", &abi))
            printf("npumemd %s (event ABI %" PRId64 ")\n",
                   out_clean(text, sizeof(text), doc_text(daemon, "version", "?")), abi);
        else if (!args->quiet)
            printf("npumemd: not reachable at %s\n", ask_socket(args));
    }
    json_object_put(daemon);
    return out_finish(&o, EXIT_DONE);
}
