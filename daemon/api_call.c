/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the replies of one call.
 * Invariant: a call has at most one last reply; after it the connection goes on to the next
 * message.
 */
#include "api_internal.h"

#include <string.h>

#include "json_write.h"

/* The last reply is out: the connection goes on, the call ends. */
static void call_end(struct api_call *call)
{
    call->answered = true;
    varlink_conn_set_data(call->conn, NULL);
    varlink_next(call->conn);
    call->conn = NULL;
    if (!call->in_handler)
        api_call_free(call);
}

static int send_reply(struct api_call *call, const char *parameters, bool more)
{
    const char *tail = more ? ",\"continues\":true}" : "}";
    int r;

    if (call->oneway)
        return 0;
    r = varlink_send(call->conn, "{\"parameters\":", 14);
    if (r == 0)
        r = varlink_send(call->conn, parameters, strlen(parameters));
    if (r == 0)
        r = varlink_send(call->conn, tail, strlen(tail) + 1);
    return r;
}

int api_reply(struct api_call *call, const char *parameters)
{
    int r;

    if (call->answered)
        return -EALREADY;
    if (!parameters)
        parameters = "{}";
    if (strlen(parameters) + 64 > call->api->options.max_output_bytes)
        return api_error(call, "Failed", "the answer is too large to be sent",
                         "narrow it with --pid, --rank or --device");
    r = send_reply(call, parameters, false);
    call_end(call);
    return r;
}

int api_reply_more(struct api_call *call, const char *parameters)
{
    if (call->answered || !call->more)
        return -EINVAL;
    return send_reply(call, parameters ? parameters : "{}", true);
}

int api_reply_json(struct api_call *call, struct json *json)
{
    int r = json_finish(json);

    if (r < 0)
        return api_error(call, "Failed",
                         r == -ENOMEM ? "out of memory" : "answer could not be built", NULL);
    return api_reply(call, json->data);
}

static void send_error(struct varlink_conn *conn, const char *name, const char *const *pairs)
{
    struct json j = {0};
    char full[128];

    snprintf(full, sizeof(full), "%s%s", strchr(name, '.') ? "" : API_INTERFACE ".", name);
    json_object(&j);
    json_kstr(&j, "error", full);
    json_kobject(&j, "parameters");
    for (; pairs[0]; pairs += 2)
        json_kstr(&j, pairs[0], pairs[1]);
    json_end(&j);
    json_end(&j);
    if (json_finish(&j) == 0)
        varlink_send(conn, j.data, j.length + 1);
    json_done(&j);
}

void api_send_error(struct varlink_conn *conn, const char *name, const char *message,
                    const char *fix)
{
    send_error(conn, name, (const char *const[]){"message", message, "fix", fix ? fix : "", NULL});
}

static int call_error(struct api_call *call, const char *name, const char *const *pairs)
{
    if (call->answered)
        return -EALREADY;
    if (!call->oneway)
        send_error(call->conn, name, pairs);
    call_end(call);
    return 0;
}

int api_error(struct api_call *call, const char *name, const char *message, const char *fix)
{
    return call_error(call, name,
                      (const char *const[]){"message", message, "fix", fix ? fix : "", NULL});
}

int api_error_detail(struct api_call *call, const char *name, const struct error *error)
{
    return api_error(call, name, error->what, error->fix);
}

int api_error_named(struct api_call *call, const char *name, const char *key, const char *value)
{
    return call_error(call, name, (const char *const[]){key, value, NULL});
}

bool api_call_more(const struct api_call *call)
{
    return call->more;
}

const struct varlink_peer *api_call_peer(const struct api_call *call)
{
    return varlink_conn_peer(call->conn);
}

size_t api_call_pending(const struct api_call *call)
{
    return varlink_conn_pending(call->conn);
}

void api_call_defer(struct api_call *call)
{
    call->deferred = true;
}

void api_call_on_close(struct api_call *call, void (*fn)(struct api_call *, void *), void *userdata)
{
    call->close_fn = fn;
    call->close_data = userdata;
}
