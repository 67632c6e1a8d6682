/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the server of the control interface, who may call what, dispatch.
 * Must not: know what a method does.
 * Invariant: every message gets its answer (none for oneway) before the next one of its connection
 * is looked at; what is not a request ends the connection with an error that says why.
 */
#include "api_internal.h"

#include <grp.h>
#include <string.h>

#include "log.h"

static struct log_ratelimit denied_log = {.interval_ns = 60ull * 1000000000, .burst = 5};

static bool peer_is_owner(const struct varlink_peer *peer)
{
    return peer->uid == 0 || peer->uid == geteuid();
}

static int call_denied(struct api_call *call, const char *method)
{
    const struct varlink_peer *peer = api_call_peer(call);

    log_limited(&denied_log, LOG_WARNING, "control socket: uid %u (process %d) may not call %s",
                (unsigned)peer->uid, (int)peer->tgid, method);
    return api_error(call, "NotPermitted", "not permitted: this needs root", "sudo npumem ...");
}

static int call_dispatch(struct api_call *call, const char *name)
{
    const struct api_options *o = &call->api->options;
    const struct varlink_peer *peer = api_call_peer(call);
    const char *dot = strrchr(name, '.');
    size_t interface = dot ? (size_t)(dot - name) : 0;

    if (!peer_is_owner(peer) && !peer->in_group)
        return api_error(call, "NotPermitted",
                         "not permitted: neither root nor in the socket's group",
                         "sudo, or: usermod -aG npumem USER");
    if (interface == strlen("org.varlink.service") &&
        strncmp(name, "org.varlink.service", interface) == 0)
        return api_service_call(call, dot + 1);
    if (interface != strlen(API_INTERFACE) || strncmp(name, API_INTERFACE, interface) != 0) {
        char unknown[128];
        snprintf(unknown, sizeof(unknown), "%.*s", dot ? (int)interface : (int)strlen(name), name);
        return api_error_named(call, "org.varlink.service.InterfaceNotFound", "interface", unknown);
    }
    for (size_t i = 0; i < o->method_count; i++) {
        const struct api_method *m = &o->methods[i];
        if (strcmp(m->name, dot + 1) != 0)
            continue;
        if ((m->flags & API_ROOT) && !peer_is_owner(peer))
            return call_denied(call, m->name);
        if ((m->flags & API_MORE) && !call->more)
            return api_error_named(call, "org.varlink.service.ExpectedMore", NULL, NULL);
        return m->handler(call, o->userdata);
    }
    return api_error_named(call, "org.varlink.service.MethodNotFound", "method", name);
}

static void on_message(void *userdata, struct varlink_conn *conn, char *text, size_t length)
{
    struct api *api = userdata;
    struct api_call *call;
    struct error error = {0};
    const char *method;
    int r;

    r = api_call_parse(api->tokener, text, length, &call, &method, &error);
    if (r < 0) {
        api_send_error(conn, "BadParameter", error.what, "varlink: one JSON object and a NUL byte");
        varlink_finish(conn);
        return;
    }
    call->api = api;
    call->conn = conn;
    varlink_conn_set_data(conn, call);
    call->in_handler = true;
    r = call_dispatch(call, method);
    call->in_handler = false;
    if (!call->answered && (r < 0 || !call->deferred)) {
        snprintf(error.what, sizeof(error.what), "%.100s: %s", method,
                 r < 0 ? strerror(-r) : "the method gave no answer");
        api_error(call, "Failed", error.what, NULL); /* frees the call */
        return;
    }
    if (call->answered)
        api_call_free(call);
}

static void on_refused(void *userdata, struct varlink_conn *conn, enum varlink_refusal why)
{
    char message[160];

    switch (why) {
    case VARLINK_TOO_MANY:
        api_send_error(conn, "Busy", "too many connections",
                       "try again, or control.max_connections");
        break;
    case VARLINK_TOO_LARGE:
        snprintf(message, sizeof(message), "request is larger than %zu bytes",
                 ((struct api *)userdata)->options.max_request_bytes);
        api_send_error(conn, "BadParameter", message, "control.max_request_bytes");
        break;
    case VARLINK_TOO_SLOW:
        api_send_error(conn, "BadParameter", "request did not end in time (no NUL byte)", "");
        break;
    }
}

static void on_closed(void *userdata, struct varlink_conn *conn)
{
    struct api_call *call = varlink_conn_data(conn);

    if (!call)
        return;
    if (call->close_fn)
        call->close_fn(call, call->close_data);
    api_call_free(call);
}

/* gid of a group, (gid_t)-1 when there is none. */
static gid_t group_find(const char *name)
{
    const struct group *g;

    if (!name || !*name)
        return (gid_t)-1;
    g = getgrnam(name);
    if (!g)
        log_notice("group \"%s\" does not exist: only root can use the control socket", name);
    return g ? g->gr_gid : (gid_t)-1;
}

static int api_start(struct api *api, sd_event *event, int listen_fd, gid_t gid)
{
    static const struct varlink_handler handler = {on_message, on_refused, on_closed};
    struct api_options *o = &api->options;
    struct varlink_limits limits;

    if (!o->max_connections)
        o->max_connections = 32;
    if (!o->max_request_bytes)
        o->max_request_bytes = 1u << 20;
    if (!o->max_output_bytes)
        o->max_output_bytes = LIMIT_OUTPUT_BYTES;
    limits = (struct varlink_limits){
        .max_connections = o->max_connections,
        .max_request_bytes = o->max_request_bytes,
        .max_output_bytes = o->max_output_bytes,
        .pause_output_bytes = LIMIT_REPLY_PAUSE_BYTES,
        .request_timeout_ns =
            o->request_timeout_ns ? o->request_timeout_ns : LIMIT_REQUEST_TIMEOUT_NS,
        .stall_timeout_ns = o->stall_timeout_ns ? o->stall_timeout_ns : LIMIT_STALL_TIMEOUT_NS,
    };
    return varlink_server_new(event, listen_fd, gid, &limits, &handler, api, &api->server);
}

static struct api *api_alloc(const struct api_options *options)
{
    struct api *api = calloc(1, sizeof(*api));

    if (!api)
        return NULL;
    api->options = *options;
    api->lock_fd = -1;
    api->tokener = api_tokener_new();
    return api->tokener ? api : api_free(api);
}

int api_new_fd(sd_event *event, int listen_fd, const struct api_options *options, struct api **ret)
{
    _cleanup_(api_freep) struct api *api = api_alloc(options);
    int r;

    if (!api) {
        close(listen_fd);
        return -ENOMEM;
    }
    r = api_start(api, event, listen_fd, group_find(options->group));
    if (r < 0)
        return r;
    *ret = TAKE_PTR(api);
    return 0;
}

int api_new(sd_event *event, const char *path, const struct api_options *options, struct api **ret,
            struct error *reterr)
{
    _cleanup_(api_freep) struct api *api = api_alloc(options);
    gid_t gid = group_find(options->group);
    int fd, r;

    if (!api)
        return error_set(reterr, ENOMEM, "control socket: out of memory");
    fd = varlink_listen_activated(reterr);
    if (fd == -ENOENT) {
        fd = varlink_listen(path, gid, &api->lock_fd, reterr);
        if (fd >= 0)
            api->path = strdup(path);
    }
    if (fd < 0)
        return fd;
    r = api_start(api, event, fd, gid);
    if (r < 0)
        return error_set(reterr, r, "control socket: %s", strerror(-r));
    *ret = TAKE_PTR(api);
    return 0;
}

struct api *api_free(struct api *api)
{
    if (!api)
        return NULL;
    varlink_server_free(api->server);
    if (api->path)
        unlink(api->path);
    free(api->path);
    if (api->lock_fd >= 0)
        close(api->lock_fd);
    api_tokener_free(api->tokener);
    free(api);
    return NULL;
}

const struct varlink_stats *api_stats(const struct api *api)
{
    return varlink_server_stats(api->server);
}
