/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api_fixture.h - a control socket with a few methods, and a client of plain bytes, in one thread.
 */
#ifndef NPUMEM_TEST_API_FIXTURE_H
#define NPUMEM_TEST_API_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "api.h"
#include "json_write.h"
#include "log.h"

struct fixture {
    sd_event *event;
    struct api *api;
    struct api_options options;
    char dir[64], path[96];
    struct api_call *stream;
    unsigned stream_closed, oneway_calls;
};

static inline uint64_t test_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Runs the loop for about ms milliseconds, at least until it is idle once. */
static inline void pump(struct fixture *f, unsigned ms)
{
    uint64_t end = test_now_ms() + ms;

    do {
        assert_true(sd_event_run(f->event, 1000) >= 0);
    } while (test_now_ms() < end);
}

static inline int client_connect_path(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        int code = errno;
        close(fd);
        return -code;
    }
    return fd;
}

static inline int client_connect(struct fixture *f)
{
    int fd = client_connect_path(f->path);

    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    pump(f, 0);
    return fd;
}

/* Sends all; returns how much was taken before the server closed. */
static inline size_t client_send(struct fixture *f, int fd, const void *data, size_t length)
{
    size_t sent = 0;

    while (sent < length) {
        ssize_t n = send(fd, (const char *)data + sent, length - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return sent;
        if (n > 0)
            sent += (size_t)n;
        pump(f, 0);
    }
    return sent;
}

static inline void client_send_text(struct fixture *f, int fd, const char *text)
{
    assert_int_equal(client_send(f, fd, text, strlen(text) + 1), strlen(text) + 1);
}

/* One message, to be freed; NULL at the end of the connection. Fails the test after 5 s. */
static inline char *client_receive(struct fixture *f, int fd)
{
    size_t length = 0, capacity = 4096;
    char *text = malloc(capacity);
    uint64_t end = test_now_ms() + 5000;

    while (test_now_ms() < end) {
        char *nul;
        ssize_t n;

        if (capacity - length < 65536)
            text = realloc(text, capacity = 2 * capacity + 65536);
        /* Looks first: bytes after the NUL belong to the next message. */
        n = recv(fd, text + length, 65536, MSG_PEEK);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            free(text);
            return NULL;
        }
        if (n < 0) {
            pump(f, 0);
            continue;
        }
        nul = memchr(text + length, '\0', (size_t)n);
        n = recv(fd, text + length, nul ? (size_t)(nul - text) - length + 1 : (size_t)n, 0);
        length += (size_t)n;
        if (nul)
            return text;
    }
    free(text);
    fail_msg("no answer in 5 s");
    return NULL;
}

/* Sends one request on a new connection and wants exactly this answer. */
static inline void expect_reply(struct fixture *f, const char *request, const char *expected)
{
    int fd = client_connect(f);
    char *reply;

    client_send_text(f, fd, request);
    reply = client_receive(f, fd);
    assert_non_null(reply);
    assert_string_equal(reply, expected);
    free(reply);
    close(fd);
    pump(f, 1);
}

/* Sends bytes on a new connection and wants an answer that holds all of the given parts. */
static inline void expect_parts(struct fixture *f, const char *request, const char *const *parts)
{
    int fd = client_connect(f);
    char *reply;

    client_send_text(f, fd, request);
    reply = client_receive(f, fd);
    assert_non_null(reply);
    for (; *parts; parts++)
        if (!strstr(reply, *parts))
            fail_msg("%s\nlacks: %s\nis: %s", request, *parts, reply);
    free(reply);
    close(fd);
    pump(f, 1);
}
#define EXPECT(f, request, ...) expect_parts(f, request, (const char *const[]){__VA_ARGS__, NULL})

/* The connection ends within 5 s; what came before is dropped. */
static inline void expect_end(struct fixture *f, int fd)
{
    char *reply;

    while ((reply = client_receive(f, fd)))
        free(reply);
    close(fd);
}

/* Methods */

static inline int method_echo(struct api_call *call, void *userdata)
{
    const char *text = "", *names[4];
    uint64_t number = 0, list[4];
    size_t list_count, name_count;
    bool flag = false;
    struct json j = {0};
    int r;

    if ((r = api_param_str(call, "text", &text)) < 0 ||
        (r = api_param_u64(call, "number", UINT64_MAX, &number)) < 0 ||
        (r = api_param_bool(call, "flag", &flag)) < 0 ||
        (r = api_param_u64s(call, "list", 1000, list, 4, &list_count)) < 0 ||
        (r = api_param_strs(call, "names", names, 4, &name_count)) < 0 ||
        (r = api_params_done(call)) < 0)
        return r;
    json_object(&j);
    json_kstr(&j, "text", text);
    json_ku64(&j, "number", number);
    json_kbool(&j, "flag", flag);
    json_karray(&j, "list");
    for (size_t i = 0; i < list_count; i++)
        json_u64(&j, list[i]);
    json_end(&j);
    json_karray(&j, "names");
    for (size_t i = 0; i < name_count; i++)
        json_str(&j, names[i]);
    json_end(&j);
    json_end(&j);
    r = api_reply_json(call, &j);
    json_done(&j);
    return r;
}

static inline int method_change(struct api_call *call, void *userdata)
{
    ((struct fixture *)userdata)->oneway_calls++;
    return api_reply(call, NULL);
}

/* {"big":"xxx..."} of the size asked for. */
static inline int method_big(struct api_call *call, void *userdata)
{
    uint64_t size = 0;
    char *text;
    int r = api_param_u64(call, "size", 1u << 30, &size);

    if (r < 0)
        return r;
    text = malloc(size + 16);
    strcpy(text, "{\"big\":\"");
    memset(text + 8, 'x', size);
    strcpy(text + 8 + size, "\"}");
    r = api_reply(call, text);
    free(text);
    return r;
}

static inline void on_stream_closed(struct api_call *call, void *userdata)
{
    struct fixture *f = userdata;

    assert_ptr_equal(call, f->stream);
    f->stream = NULL;
    f->stream_closed++;
}

static inline int method_stream(struct api_call *call, void *userdata)
{
    struct fixture *f = userdata;

    f->stream = call;
    api_call_on_close(call, on_stream_closed, f);
    api_call_defer(call);
    return 0;
}

static inline int method_silent(struct api_call *call, void *userdata)
{
    return 0;
}

static inline int method_broken(struct api_call *call, void *userdata)
{
    return -EIO;
}

static const struct api_method fixture_methods[] = {
    {"Echo", method_echo, 0},     {"Change", method_change, API_ROOT},
    {"Big", method_big, 0},       {"Stream", method_stream, API_MORE},
    {"Silent", method_silent, 0}, {"Broken", method_broken, 0},
};

static inline int fixture_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct error error = {0};

    log_set_level(LOG_EMERG);
    strcpy(f->dir, "/tmp/npumem-api-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(chmod(f->dir, 0755), 0);
    snprintf(f->path, sizeof(f->path), "%s/control.sock", f->dir);
    f->options = (struct api_options){
        .methods = fixture_methods,
        .method_count = ARRAY_SIZE(fixture_methods),
        .userdata = f,
        .max_connections = 4,
        .max_request_bytes = 65536,
        .max_output_bytes = 4 << 20,
        .request_timeout_ns = 300 * 1000000ull,
        .stall_timeout_ns = 300 * 1000000ull,
    };
    assert_true(sd_event_new(&f->event) >= 0);
    if (api_new(f->event, f->path, &f->options, &f->api, &error) < 0)
        fail_msg("%s", error.what);
    *state = f;
    return 0;
}

static inline int fixture_teardown(void **state)
{
    struct fixture *f = *state;
    char lock[128];

    api_free(f->api);
    sd_event_unref(f->event);
    snprintf(lock, sizeof(lock), "%s.lock", f->path);
    unlink(lock);
    unlink(f->path);
    rmdir(f->dir);
    free(f);
    return 0;
}

#define WITH_SOCKET(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

#endif
