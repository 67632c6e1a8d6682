/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api_internal.h - shared by api.c (server and dispatch), api_parse.c and api_param.c (requests,
 * json-c), api_call.c (replies, lib/json_write) and api_service.c (org.varlink.service).
 */
#ifndef NPUMEM_DAEMON_API_INTERNAL_H
#define NPUMEM_DAEMON_API_INTERNAL_H

#include "api.h"
#include "limits.h"

struct json_object;
struct json_tokener;

struct api {
    struct varlink_server *server;
    struct api_options options;
    struct json_tokener *tokener;
    char *path; /* NULL: not ours to remove */
    int lock_fd;
};

struct api_call {
    struct api *api;
    struct varlink_conn *conn;             /* NULL once answered */
    struct json_object *root, *parameters; /* root owns parameters, which may be NULL */
    bool more, oneway, deferred, in_handler, answered;
    const char *asked[LIMIT_PARAMETERS];
    unsigned asked_count;
    void (*close_fn)(struct api_call *, void *);
    void *close_data;
};

struct api_call *api_call_free(struct api_call *call);
DEFINE_CLEANUP(struct api_call *, api_call_free)

/* Parses one message into a new call (conn not set). Returns 0, or -EINVAL / -ENOMEM with a
 * message. *ret_method is borrowed from the call. Used by the fuzzer as it is. */
int api_call_parse(struct json_tokener *tokener, const char *text, size_t length,
                   struct api_call **ret, const char **ret_method, struct error *reterr);

/* New tokener with our depth and flags; NULL without memory. */
struct json_tokener *api_tokener_new(void);
void api_tokener_free(struct json_tokener *tokener);

/* {"error":name,"parameters":{"message","fix"}} and a NUL, outside a call. */
void api_send_error(struct varlink_conn *conn, const char *name, const char *message,
                    const char *fix);

/* An error with one string parameter, as org.varlink.service defines them. */
int api_error_named(struct api_call *call, const char *name, const char *key, const char *value);

/* Handles org.varlink.service.*; the method's name without the interface. */
int api_service_call(struct api_call *call, const char *method);

#endif
