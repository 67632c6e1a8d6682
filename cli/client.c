/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.c - NUL-terminated JSON over a unix socket, as Varlink has it.
 *
 * Owns: the connection and its receive buffer. Must not: print; know a document.
 * Invariants: at most CLIENT_REPLY_MAX_BYTES are kept; SIGPIPE is never raised by the socket.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "doc.h"

#define INTERFACE "io.npumem.Control."
#define NO_TIMEOUT UINT64_MAX

struct client {
    int fd;
    uint64_t timeout_ns;
    char *buffer;
    size_t used, capacity;
    size_t scanned;  /* bytes of the buffer known to hold no NUL */
    size_t consumed; /* the message handed out last, dropped at the next read */
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Waits for events on the socket. Returns 0, -ETIMEDOUT or -errno. */
static int wait_for(const struct client *c, short events, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd p = {.fd = c->fd, .events = events};
        int timeout = -1;
        if (deadline_ns != NO_TIMEOUT) {
            uint64_t now = now_ns();
            uint64_t left_ms = now < deadline_ns ? (deadline_ns - now + 999999) / 1000000 : 0;
            timeout = left_ms > INT32_MAX ? INT32_MAX : (int)left_ms;
        }
        int r = poll(&p, 1, timeout);
        if (r > 0)
            return 0;
        if (r == 0)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

static int connect_failed(const char *path, int code, struct error *reterr)
{
    switch (code) {
    case ENOENT:
    case ENOTDIR:
    case ECONNREFUSED:
        error_set(reterr, ENOTCONN, "daemon not running: nobody serves %.150s", path);
        return error_fix(reterr, -ENOTCONN, "sudo systemctl start npumemd");
    case EACCES:
    case EPERM:
        error_set(reterr, EACCES, "%.150s: not permitted", path);
        return error_fix(reterr, -EACCES,
                         "sudo, or become a member: sudo usermod -aG npumem $USER");
    default:
        return error_set(reterr, EPROTO, "%.150s: %s", path, strerror(code));
    }
}

int client_connect(const char *path, uint64_t timeout_ns, struct client **ret, struct error *reterr)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval send_timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                                   .tv_usec = (suseconds_t)(timeout_ns / 1000 % 1000000)};
    _cleanup_(client_freep) struct client *c = NULL;

    if (strlen(path) >= sizeof(address.sun_path)) {
        error_set(reterr, EINVAL, "--socket: a path of a unix socket has at most %zu bytes",
                  sizeof(address.sun_path) - 1);
        return error_fix(reterr, -EINVAL, "a shorter path");
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    c = calloc(1, sizeof(*c));
    if (!c)
        return error_set(reterr, ENOMEM, "socket: out of memory");
    c->timeout_ns = timeout_ns;
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return error_set(reterr, EPROTO, "socket: %s", strerror(errno));
    /* also bounds connect(2), which waits while the daemon's backlog is full */
    setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &send_timeout, sizeof(send_timeout));
    if (connect(c->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return connect_failed(path, errno, reterr);
    *ret = TAKE_PTR(c);
    return 0;
}

struct client *client_free(struct client *c)
{
    if (!c)
        return NULL;
    if (c->fd >= 0)
        close(c->fd);
    free(c->buffer);
    free(c);
    return NULL;
}

static int send_all(struct client *c, const char *data, size_t length, struct error *reterr)
{
    while (length > 0) {
        ssize_t n = send(c->fd, data, length, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return error_set(reterr, ETIMEDOUT, "daemon: does not read requests");
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return 0; /* a daemon that refuses a connection has said why before it closed it */
        if (n < 0)
            return error_set(reterr, EPROTO, "daemon: the connection broke: %s", strerror(errno));
        data += n;
        length -= (size_t)n;
    }
    return 0;
}

static int send_request(struct client *c, const char *method, struct json_object *parameters,
                        bool more, struct error *reterr)
{
    char name[96];
    struct json_object *request = json_object_new_object();

    snprintf(name, sizeof(name), INTERFACE "%s", method);
    json_object_object_add(request, "method", json_object_new_string(name));
    if (parameters)
        json_object_object_add(request, "parameters", json_object_get(parameters));
    if (more)
        json_object_object_add(request, "more", json_object_new_boolean(true));
    const char *text = json_object_to_json_string_ext(request, JSON_C_TO_STRING_PLAIN);
    int r = text ? send_all(c, text, strlen(text) + 1, reterr)
                 : error_set(reterr, ENOMEM, "request: out of memory");
    json_object_put(request);
    return r;
}

static int grow(struct client *c, struct error *reterr)
{
    if (c->used < c->capacity)
        return 0;
    if (c->capacity >= CLIENT_REPLY_MAX_BYTES) {
        error_set(reterr, EMSGSIZE, "daemon: the answer is larger than %u MiB",
                  CLIENT_REPLY_MAX_BYTES >> 20);
        return error_fix(reterr, -EMSGSIZE, "a filter or --limit");
    }
    size_t capacity = c->capacity ? 2 * c->capacity : 65536;
    char *buffer = realloc(c->buffer, capacity);
    if (!buffer)
        return error_set(reterr, ENOMEM, "daemon: no memory for the answer");
    c->buffer = buffer;
    c->capacity = capacity;
    return 0;
}

/* Reads up to the next NUL; *ret_length without it. The message stands at c->buffer until the next
 * call. Returns 0; 1 at a clean end of the stream. */
static int read_message(struct client *c, uint64_t timeout_ns, size_t *ret_length,
                        struct error *reterr)
{
    uint64_t deadline = timeout_ns == NO_TIMEOUT ? NO_TIMEOUT : now_ns() + timeout_ns;

    if (c->consumed) {
        memmove(c->buffer, c->buffer + c->consumed, c->used - c->consumed);
        c->used -= c->consumed;
        c->consumed = c->scanned = 0;
    }
    for (;;) {
        char *end = c->used > c->scanned
                        ? memchr(c->buffer + c->scanned, '\0', c->used - c->scanned)
                        : NULL;
        if (end) {
            *ret_length = (size_t)(end - c->buffer);
            c->consumed = *ret_length + 1;
            return 0;
        }
        c->scanned = c->used;
        int r = grow(c, reterr);
        if (r < 0)
            return r;
        r = wait_for(c, POLLIN, deadline);
        if (r == -ETIMEDOUT) {
            error_set(reterr, ETIMEDOUT, "daemon: no answer within %.3g s",
                      (double)timeout_ns / 1e9);
            return error_fix(reterr, -ETIMEDOUT, "--timeout, or journalctl -u npumemd");
        }
        ssize_t n = r < 0 ? r : recv(c->fd, c->buffer + c->used, c->capacity - c->used, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(reterr, EPROTO, "daemon: the connection broke: %s", strerror(errno));
        if (n == 0 && c->used == 0)
            return 1;
        if (n == 0)
            return error_set(reterr, EBADMSG, "daemon: the connection ended within an answer");
        c->used += (size_t)n;
    }
}

static int bad_reply(const char *why, struct error *reterr)
{
    error_set(reterr, EBADMSG, "daemon: an answer that is none: %s", why);
    return error_fix(reterr, -EBADMSG, "npumem version (are both of one version?)");
}

static int parse_reply(const char *text, size_t length, struct json_object **ret,
                       struct error *reterr)
{
    struct json_tokener *tokener = json_tokener_new_ex(CLIENT_DEPTH_MAX);

    if (!tokener)
        return error_set(reterr, ENOMEM, "daemon: no memory for the answer");
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    /* with the NUL: a number at the end is finished by it */
    struct json_object *reply = json_tokener_parse_ex(tokener, text, (int)length + 1);
    enum json_tokener_error error = json_tokener_get_error(tokener);
    json_tokener_free(tokener);
    if (!reply || error != json_tokener_success) {
        json_object_put(reply);
        return bad_reply(error != json_tokener_success ? json_tokener_error_desc(error) : "null",
                         reterr);
    }
    if (!json_object_is_type(reply, json_type_object)) {
        json_object_put(reply);
        return bad_reply("not an object", reterr);
    }
    *ret = reply;
    return 0;
}

/* The daemon's own words, as one line for a terminal. */
static void copy_line(char *ret, size_t size, const char *text)
{
    size_t i = 0;
    for (; text[i] && i + 1 < size; i++)
        ret[i] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? ' ' : text[i];
    ret[i] = '\0';
}

static int daemon_error(struct json_object *reply, struct error *reterr)
{
    static const struct {
        const char *name;
        int code;
    } known[] = {{INTERFACE "NoSuchProcess", ESRCH},
                 {INTERFACE "NotPermitted", EACCES},
                 {INTERFACE "BadParameter", EINVAL},
                 {"org.varlink.service.InvalidParameter", EINVAL}};
    const char *name = doc_text(reply, "error", "an error without a name");
    struct json_object *parameters = doc_get(reply, "parameters");
    char what[200], fix[140];
    int code = EPROTO;

    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        if (strcmp(name, known[i].name) == 0)
            code = known[i].code;
    }
    copy_line(what, sizeof(what), doc_text(parameters, "message", name));
    copy_line(fix, sizeof(fix), doc_text(parameters, "fix", ""));
    /* WHAT: WHY, whatever the daemon's words were */
    error_set(reterr, code, "%s%s", strstr(what, ": ") ? "" : "daemon: ", what);
    return error_fix(reterr, -code, "%s", fix);
}

/* One reply: 0 with its parameters (maybe an empty object), 1 end of the stream. */
static int read_reply(struct client *c, uint64_t timeout_ns, struct json_object **ret,
                      bool *ret_continues, struct error *reterr)
{
    struct json_object *reply = NULL;
    size_t length = 0;
    int r = read_message(c, timeout_ns, &length, reterr);

    if (r == 0)
        r = parse_reply(c->buffer, length, &reply, reterr);
    if (r)
        return r;
    if (doc_get(reply, "error")) {
        r = daemon_error(reply, reterr);
    } else {
        struct json_object *parameters = doc_get(reply, "parameters");
        *ret = parameters ? json_object_get(parameters) : json_object_new_object();
        *ret_continues = doc_bool(reply, "continues", false);
        if (!json_object_is_type(*ret, json_type_object)) {
            json_object_put(*ret);
            r = bad_reply("parameters are not an object", reterr);
        }
    }
    json_object_put(reply);
    return r;
}

int client_call(struct client *c, const char *method, struct json_object *parameters,
                struct json_object **ret, struct error *reterr)
{
    bool continues;
    int r = send_request(c, method, parameters, false, reterr);

    if (r == 0)
        r = read_reply(c, c->timeout_ns, ret, &continues, reterr);
    if (r == 1)
        return error_set(reterr, EBADMSG, "daemon: it closed the connection without an answer");
    return r;
}

int client_stream(struct client *c, const char *method, struct json_object *parameters,
                  int (*fn)(void *userdata, struct json_object *parameters), void *userdata,
                  struct error *reterr)
{
    bool continues = true;
    int r = send_request(c, method, parameters, true, reterr);

    while (r == 0 && continues) {
        struct json_object *reply = NULL;
        r = read_reply(c, NO_TIMEOUT, &reply, &continues, reterr);
        if (r == 1)
            return error_set(reterr, ENOTCONN, "daemon: it ended the stream");
        if (r < 0)
            return r;
        r = fn(userdata, reply);
        json_object_put(reply);
    }
    return r;
}
