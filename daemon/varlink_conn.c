/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: one connection: its buffers, deadlines and event sources.
 * Must not: interpret a message; free a connection while a handler may hold it.
 * Invariants:
 *   - a connection dies in its own step callback (or with the server), never inside varlink_send();
 *   - at most one message is at the handler;
 *   - `in` never holds more than max_request_bytes + 1, `out` never more than max_output_bytes.
 */
#include "clock.h"
#include "varlink_internal.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define READ_BYTES 65536

static size_t buffer_length(const struct varlink_buffer *b)
{
    return b->end - b->begin;
}

/* Makes room for `more` bytes after the content; never beyond `bound` bytes of content. */
static int buffer_reserve(struct varlink_buffer *b, size_t more, size_t bound)
{
    size_t need = buffer_length(b) + more, capacity = b->capacity ? b->capacity : 4096;
    char *data;

    if (need > bound)
        return -ENOBUFS;
    if (b->end + more <= b->capacity)
        return 0;
    if (b->begin) {
        memmove(b->data, b->data + b->begin, buffer_length(b));
        b->end -= b->begin;
        b->begin = 0;
    }
    while (capacity < need)
        capacity *= 2;
    if (capacity <= b->capacity)
        return 0;
    data = realloc(b->data, capacity);
    if (!data)
        return -ENOMEM;
    b->data = data;
    b->capacity = capacity;
    return 0;
}

static void buffer_consume(struct varlink_buffer *b, size_t length)
{
    b->begin += length;
    if (b->begin == b->end) {
        b->begin = b->end = 0;
        /* One large message must not keep its memory for the connection's life. */
        if (b->capacity > READ_BYTES) {
            free(b->data);
            *b = (struct varlink_buffer){0};
        }
    }
}

static void conn_drop_output(struct varlink_conn *c)
{
    buffer_consume(&c->out, buffer_length(&c->out));
    c->stall_deadline_ns = 0;
}

void varlink_conn_flush(struct varlink_conn *c)
{
    while (buffer_length(&c->out)) {
        ssize_t n = send(c->fd, c->out.data + c->out.begin, buffer_length(&c->out),
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            /* EPIPE: nobody reads any more. What it still asked for (a oneway call) is done anyway.
             */
            if (errno != EAGAIN) {
                c->hangup = true;
                conn_drop_output(c);
            }
            return;
        }
        buffer_consume(&c->out, (size_t)n);
        c->stall_deadline_ns = buffer_length(&c->out)
                                   ? clock_ns(CLOCK_MONOTONIC) + c->server->limits.stall_timeout_ns
                                   : 0;
    }
}

static void conn_scan(struct varlink_conn *c)
{
    const char *from = c->in.data + c->in.begin + c->scanned;
    size_t length = buffer_length(&c->in) - c->scanned;
    const char *nul = length ? memchr(from, '\0', length) : NULL;

    c->has_message = nul != NULL;
    c->scanned += nul ? (size_t)(nul - from) : length;
    if (c->has_message || buffer_length(&c->in) == 0)
        c->request_deadline_ns = 0;
    else if (c->request_deadline_ns == 0)
        c->request_deadline_ns = clock_ns(CLOCK_MONOTONIC) + c->server->limits.request_timeout_ns;
}

static void conn_refuse(struct varlink_conn *c, enum varlink_refusal why)
{
    if (c->finishing || c->dead)
        return;
    c->request_deadline_ns = 0;
    if (why == VARLINK_TOO_LARGE)
        c->server->stats.too_large++;
    else
        c->server->stats.too_slow++;
    c->server->handler.refused(c->server->userdata, c, why);
    varlink_finish(c);
}

/* Reads until a message is complete, the socket is empty or the bound is reached. */
static void conn_read(struct varlink_conn *c)
{
    size_t bound = c->server->limits.max_request_bytes + 1;

    while (!c->eof && !c->has_message && !c->finishing) {
        size_t room = bound - buffer_length(&c->in);
        ssize_t n;

        if (room == 0) {
            conn_refuse(c, VARLINK_TOO_LARGE);
            return;
        }
        if (room > READ_BYTES)
            room = READ_BYTES;
        if (buffer_reserve(&c->in, room, bound) < 0) {
            c->dead = true;
            return;
        }
        n = recv(c->fd, c->in.data + c->in.end, room, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            c->hangup = true;
        if (n <= 0) {
            c->eof = true;
            return;
        }
        c->in.end += (size_t)n;
        conn_scan(c);
    }
}

static bool conn_may_begin(const struct varlink_conn *c)
{
    return c->has_message && !c->busy && !c->finishing && !c->dead &&
           buffer_length(&c->out) <= c->server->limits.pause_output_bytes;
}

static void conn_begin(struct varlink_conn *c)
{
    char *text = c->in.data + c->in.begin;
    size_t length = c->scanned;

    c->busy = true;
    c->server->stats.messages++;
    /* The bytes stay where they are until the handler returns: nothing reads in between. */
    c->server->handler.message(c->server->userdata, c, text, length);
    c->scanned = 0;
    buffer_consume(&c->in, length + 1);
    conn_scan(c);
}

static bool conn_is_over(const struct varlink_conn *c)
{
    if (c->dead)
        return true;
    if (c->finishing)
        return buffer_length(&c->out) == 0 || c->hangup;
    if (c->has_message)
        return c->busy && c->hangup;
    return (c->hangup && (c->busy || c->eof)) ||
           (c->eof && !c->busy && buffer_length(&c->out) == 0);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Brings the event sources in line with the state. */
static void conn_arm(struct varlink_conn *c)
{
    uint32_t events = 0;
    uint64_t deadline = earlier(c->request_deadline_ns, c->stall_deadline_ns);
    bool step = conn_is_over(c) || conn_may_begin(c);

    if (!c->eof && !c->has_message && !c->finishing)
        events |= EPOLLIN;
    if (buffer_length(&c->out))
        events |= EPOLLOUT;
    sd_event_source_set_io_events(c->io, events);
    sd_event_source_set_enabled(c->io, c->hangup ? SD_EVENT_OFF : SD_EVENT_ON);
    if (deadline) {
        sd_event_source_set_time(c->timer, deadline / 1000 + 1);
        sd_event_source_set_enabled(c->timer, SD_EVENT_ONESHOT);
    } else {
        sd_event_source_set_enabled(c->timer, SD_EVENT_OFF);
    }
    sd_event_source_set_enabled(c->step, step ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

static int on_step(sd_event_source *source, void *userdata)
{
    struct varlink_conn *c = userdata;

    if (conn_may_begin(c))
        conn_begin(c);
    varlink_conn_flush(c);
    if (c->hangup)
        conn_read(c);
    if (conn_is_over(c))
        varlink_conn_destroy(c);
    else
        conn_arm(c);
    return 0;
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
    struct varlink_conn *c = userdata;

    if (revents & (EPOLLHUP | EPOLLERR)) {
        c->hangup = true;
        conn_drop_output(c);
    }
    varlink_conn_flush(c);
    conn_read(c);
    conn_arm(c);
    return 0;
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct varlink_conn *c = userdata;
    uint64_t now = clock_ns(CLOCK_MONOTONIC);

    if (c->stall_deadline_ns && now >= c->stall_deadline_ns) {
        c->server->stats.stalled++;
        c->dead = true;
    } else if (c->request_deadline_ns && now >= c->request_deadline_ns) {
        conn_refuse(c, VARLINK_TOO_SLOW);
    }
    conn_arm(c);
    return 0;
}

int varlink_conn_new(struct varlink_server *server, int fd, const struct varlink_peer *peer,
                     struct varlink_conn **ret)
{
    struct varlink_conn *c = calloc(1, sizeof(*c));
    int r;

    if (!c) {
        close(fd);
        return -ENOMEM;
    }
    c->server = server;
    c->fd = fd;
    c->peer = *peer;
    c->next = server->connections;
    if (c->next)
        c->next->previous = c;
    server->connections = c;
    server->stats.connections++;
    r = sd_event_add_io(server->event, &c->io, fd, EPOLLIN, on_io, c);
    if (r >= 0)
        r = sd_event_add_defer(server->event, &c->step, on_step, c);
    if (r >= 0)
        r = sd_event_source_set_enabled(c->step, SD_EVENT_OFF);
    if (r >= 0)
        r = sd_event_add_time(server->event, &c->timer, CLOCK_MONOTONIC, UINT64_MAX, 1000,
                              on_deadline, c);
    if (r >= 0)
        r = sd_event_source_set_enabled(c->timer, SD_EVENT_OFF);
    if (r < 0) {
        varlink_conn_destroy(c);
        return r;
    }
    *ret = c;
    return 0;
}

void varlink_conn_destroy(struct varlink_conn *c)
{
    c->server->handler.closed(c->server->userdata, c);
    sd_event_source_disable_unref(c->io);
    sd_event_source_disable_unref(c->step);
    sd_event_source_disable_unref(c->timer);
    if (c->next)
        c->next->previous = c->previous;
    if (c->previous)
        c->previous->next = c->next;
    else
        c->server->connections = c->next;
    c->server->stats.connections--;
    close(c->fd);
    free(c->in.data);
    free(c->out.data);
    free(c);
}

int varlink_send(struct varlink_conn *c, const void *data, size_t length)
{
    int r;

    if (c->dead || c->finishing || c->hangup)
        return -EPIPE;
    r = buffer_reserve(&c->out, length, c->server->limits.max_output_bytes);
    if (r < 0) {
        c->server->stats.overflowed++;
        c->dead = true;
        conn_arm(c);
        return r;
    }
    if (buffer_length(&c->out) == 0)
        c->stall_deadline_ns = clock_ns(CLOCK_MONOTONIC) + c->server->limits.stall_timeout_ns;
    memcpy(c->out.data + c->out.end, data, length);
    c->out.end += length;
    conn_arm(c);
    return 0;
}

size_t varlink_conn_pending(const struct varlink_conn *c)
{
    return buffer_length(&c->out);
}

void varlink_next(struct varlink_conn *c)
{
    c->busy = false;
    conn_arm(c);
}

void varlink_finish(struct varlink_conn *c)
{
    c->finishing = true;
    conn_arm(c);
}

const struct varlink_peer *varlink_conn_peer(const struct varlink_conn *c)
{
    return &c->peer;
}

void varlink_conn_set_data(struct varlink_conn *c, void *data)
{
    c->data = data;
}

void *varlink_conn_data(const struct varlink_conn *c)
{
    return c->data;
}
