/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.h - the control interface: method table, parameters, replies (docs/FORMATS.md).
 *
 * A call is parsed (json-c, nowhere else in the daemon), checked for permission and given to its
 * method's handler. The handler reads parameters through the accessors below, builds the text of
 * its answer with lib/json_write and replies once; with `more`, as often as it likes before the
 * last one.
 *
 * Handler's contract: return 0 after api_reply()/api_error(), or after api_call_defer() (it replies
 * later, from the event loop); a negative errno without a reply makes the error Failed. An accessor
 * that fails has replied already: `if (r < 0) return r;`.
 * A deferred call stays valid until its last reply or until its on_close function has run.
 */
#ifndef NPUMEM_DAEMON_API_H
#define NPUMEM_DAEMON_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "cleanup.h"
#include "err.h"
#include "varlink.h"

#define API_INTERFACE "io.npumem.Control"

struct api;
struct api_call;
struct json; /* lib/json_write.h; its names and json-c's cannot be in one file */

enum api_method_flags {
    API_ROOT = 1 << 0, /* changes something: uid 0 only; the others read */
    API_MORE = 1 << 1, /* a stream: refused without `more` */
};

struct api_method {
    const char *name; /* without the interface: "Status" */
    int (*handler)(struct api_call *call, void *userdata);
    unsigned flags;
};

struct api_options {
    const struct api_method *methods; /* borrowed */
    size_t method_count;
    void *userdata;           /* for handlers */
    const char *group;        /* whose members may read; NULL, "" or unknown: root alone */
    unsigned max_connections; /* 0: 32 */
    size_t max_request_bytes; /* 0: 1 MiB */
    size_t max_output_bytes;  /* 0: LIMIT_OUTPUT_BYTES */
    uint64_t request_timeout_ns, stall_timeout_ns; /* 0: limits.h */
};

/* Serves the socket that systemd passed, else binds `path`. Returns 0; -EADDRINUSE when another
 * daemon serves it; other errno of varlink_listen(). */
int api_new(sd_event *event, const char *path, const struct api_options *options, struct api **ret,
            struct error *reterr);
/* The same on a listening descriptor, which it takes over. */
int api_new_fd(sd_event *event, int listen_fd, const struct api_options *options, struct api **ret);
/* Ends every call (on_close runs), closes, removes a socket that api_new() bound. */
struct api *api_free(struct api *api);
DEFINE_CLEANUP(struct api *, api_free)

const struct varlink_stats *api_stats(const struct api *api);

/* Parameters. Return 1 found, 0 absent or null (*ret untouched), -EINVAL after the error reply.
 * Strings are borrowed until the handler returns or the deferred call ends. */
int api_param_str(struct api_call *call, const char *name, const char **ret);
int api_param_u64(struct api_call *call, const char *name, uint64_t maximum, uint64_t *ret);
int api_param_bool(struct api_call *call, const char *name, bool *ret);
/* Lists: at most `size` items, their number in *ret_count (0 when absent). */
int api_param_u64s(struct api_call *call, const char *name, uint64_t maximum, uint64_t *ret,
                   size_t size, size_t *ret_count);
int api_param_strs(struct api_call *call, const char *name, const char **ret, size_t size,
                   size_t *ret_count);
/* Call after the last accessor: a parameter that none of them asked for is an error.
 * Returns 0 or -EINVAL after the error reply. */
int api_params_done(struct api_call *call);

/* The only reply, or the last one of a stream. parameters is the text of a JSON object; NULL: {}.
 */
int api_reply(struct api_call *call, const char *parameters);
/* One of several; only when api_call_more(). Negative: the connection is ending. */
int api_reply_more(struct api_call *call, const char *parameters);
/* api_reply() of a writer: finishes it; its failure makes the error Failed. */
int api_reply_json(struct api_call *call, struct json *json);
/* name: "NoSuchProcess" of our interface, or a full name with dots. fix may be NULL. Returns 0. */
int api_error(struct api_call *call, const char *name, const char *message, const char *fix);
/* The same from a filled struct error. */
int api_error_detail(struct api_call *call, const char *name, const struct error *error);

bool api_call_more(const struct api_call *call);
const struct varlink_peer *api_call_peer(const struct api_call *call);
/* Unsent bytes of the connection: a stream can slow down before it is dropped at the bound. */
size_t api_call_pending(const struct api_call *call);
void api_call_defer(struct api_call *call);
/* fn runs when the connection ends before the last reply; the call dies after it. */
void api_call_on_close(struct api_call *call, void (*fn)(struct api_call *, void *),
                       void *userdata);

#endif
