/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the accepting side: how many may come in and who they are.
 * Invariant: a client over the bound gets a last word and is closed at once; it never waits in the
 * kernel's backlog for a place.
 */
#include "varlink_internal.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/epoll.h>

#include "log.h"

#define ACCEPT_BURST 16           /* per turn of the loop */
#define ACCEPT_PAUSE_USEC 1000000 /* after EMFILE and the like */
#define PEER_GROUPS 65536         /* NGROUPS_MAX */

int varlink_peer_read(int fd, gid_t gid, struct varlink_peer *ret)
{
    struct ucred cred;
    socklen_t length = sizeof(cred);
    _cleanup_free_ gid_t *groups = NULL;
    gid_t few[64];
    gid_t *list = few;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) < 0)
        return -errno;
    *ret = (struct varlink_peer){.uid = cred.uid, .gid = cred.gid, .tgid = cred.pid};
    if (gid == (gid_t)-1)
        return 0;
    ret->in_group = cred.gid == gid;
    length = sizeof(few);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, few, &length) < 0) {
        if (errno != ERANGE || length > PEER_GROUPS * sizeof(gid_t))
            return -errno;
        list = groups = malloc(length);
        if (!list)
            return -ENOMEM;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, list, &length) < 0)
            return -errno;
    }
    for (size_t i = 0; i < length / sizeof(gid_t); i++)
        ret->in_group |= list[i] == gid;
    return 0;
}

static void server_take(struct varlink_server *s, int fd)
{
    struct varlink_peer peer;
    struct varlink_conn *conn;
    bool full = s->stats.connections >= s->limits.max_connections;

    if (varlink_peer_read(fd, s->gid, &peer) < 0) {
        close(fd);
        return;
    }
    if (varlink_conn_new(s, fd, &peer, &conn) < 0)
        return;
    if (!full) {
        s->stats.accepted++;
        return;
    }
    s->stats.refused_connections++;
    s->handler.refused(s->userdata, conn, VARLINK_TOO_MANY);
    varlink_conn_flush(conn);
    varlink_conn_destroy(conn);
}

static int on_accept_again(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct varlink_server *s = userdata;

    sd_event_source_set_enabled(s->accept, SD_EVENT_ON);
    return 0;
}

/* Out of descriptors: the loop would spin on a socket that stays readable. */
static void server_pause(struct varlink_server *s, int code)
{
    log_error(code, "control socket: accept, trying again in 1 s");
    sd_event_source_set_enabled(s->accept, SD_EVENT_OFF);
    sd_event_source_set_time_relative(s->accept_pause, ACCEPT_PAUSE_USEC);
    sd_event_source_set_enabled(s->accept_pause, SD_EVENT_ONESHOT);
}

static int on_accept(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
    struct varlink_server *s = userdata;

    for (int i = 0; i < ACCEPT_BURST; i++) {
        int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (conn >= 0) {
            server_take(s, conn);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno != EAGAIN)
            server_pause(s, errno);
        break;
    }
    return 0;
}

int varlink_server_new(sd_event *event, int listen_fd, gid_t gid,
                       const struct varlink_limits *limits, const struct varlink_handler *handler,
                       void *userdata, struct varlink_server **ret)
{
    _cleanup_(varlink_server_freep) struct varlink_server *s = calloc(1, sizeof(*s));
    int r;

    if (!s) {
        close(listen_fd);
        return -ENOMEM;
    }
    s->event = sd_event_ref(event);
    s->listen_fd = listen_fd;
    s->gid = gid;
    s->limits = *limits;
    s->handler = *handler;
    s->userdata = userdata;
    r = sd_event_add_io(event, &s->accept, listen_fd, EPOLLIN, on_accept, s);
    if (r < 0)
        return r;
    r = sd_event_add_time(event, &s->accept_pause, CLOCK_MONOTONIC, UINT64_MAX, 0, on_accept_again,
                          s);
    if (r < 0)
        return r;
    r = sd_event_source_set_enabled(s->accept_pause, SD_EVENT_OFF);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(s);
    return 0;
}

struct varlink_server *varlink_server_free(struct varlink_server *s)
{
    if (!s)
        return NULL;
    while (s->connections) {
        varlink_conn_flush(s->connections);
        varlink_conn_destroy(s->connections);
    }
    sd_event_source_disable_unref(s->accept);
    sd_event_source_disable_unref(s->accept_pause);
    close(s->listen_fd);
    sd_event_unref(s->event);
    free(s);
    return NULL;
}

const struct varlink_stats *varlink_server_stats(const struct varlink_server *s)
{
    return &s->stats;
}
