/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.h - a Varlink client for the daemon's control socket.
 *
 * Failures are negative errno, and mean the same wherever they come from:
 *   -ENOTCONN nobody serves the socket (exit 3), -EACCES not permitted (5), -ESRCH no such process,
 *   rank or event (4), -EINVAL a bad parameter (2), -ETIMEDOUT, -EBADMSG a reply that is none,
 *   -EMSGSIZE a reply above the bound, -EPROTO any other error of the daemon (1).
 */
#ifndef NPUMEM_CLI_CLIENT_H
#define NPUMEM_CLI_CLIENT_H

#include <json-c/json.h>
#include <stdint.h>

#include "cleanup.h"
#include "err.h"

/* A list of a million blocks takes about 250 bytes each. */
#define CLIENT_REPLY_MAX_BYTES (256u << 20)
/* Deeper than any document of ours; bounds the parser's stack. */
#define CLIENT_DEPTH_MAX 32

struct client;

/* Connects. timeout_ns bounds connecting and the wait for each reply. */
int client_connect(const char *path, uint64_t timeout_ns, struct client **ret,
                   struct error *reterr);
struct client *client_free(struct client *client);
DEFINE_CLEANUP(struct client *, client_free)

/* Calls a method of io.npumem.Control. parameters: borrowed, may be NULL. ret: the reply's
 * parameters, the caller puts them (json_object_put). */
int client_call(struct client *client, const char *method, struct json_object *parameters,
                struct json_object **ret, struct error *reterr);

/* Calls with `more` and passes the parameters of each reply to fn until it returns non-zero
 * (returned, when positive as success), the stream ends (0) or fails. No time-out between replies.
 */
int client_stream(struct client *client, const char *method, struct json_object *parameters,
                  int (*fn)(void *userdata, struct json_object *parameters), void *userdata,
                  struct error *reterr);

#endif
