/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varlink_internal.h - shared by varlink.c (server) and varlink_conn.c (one connection).
 */
#ifndef NPUMEM_DAEMON_VARLINK_INTERNAL_H
#define NPUMEM_DAEMON_VARLINK_INTERNAL_H

#include "varlink.h"

struct varlink_buffer {
    char *data;
    size_t begin, end, capacity; /* content is data[begin, end) */
};

struct varlink_conn {
    struct varlink_server *server;
    struct varlink_conn *next, *previous;
    int fd;
    struct varlink_peer peer;
    void *data;
    sd_event_source *io, *step, *timer;
    struct varlink_buffer in, out;
    size_t scanned;   /* bytes of `in` that are known to hold no NUL */
    bool has_message; /* in.data + in.begin + scanned is a NUL */
    bool busy;        /* a message is at the handler */
    bool finishing, eof, hangup, dead;
    uint64_t request_deadline_ns, stall_deadline_ns; /* CLOCK_MONOTONIC, 0 none */
};

struct varlink_server {
    sd_event *event;
    int listen_fd;
    gid_t gid;
    struct varlink_limits limits;
    struct varlink_handler handler;
    void *userdata;
    struct varlink_stats stats;
    struct varlink_conn *connections;
    sd_event_source *accept, *accept_pause;
};

/* Takes fd over, also on failure. Adds itself to the server's list. */
int varlink_conn_new(struct varlink_server *server, int fd, const struct varlink_peer *peer,
                     struct varlink_conn **ret);

/* Tells the handler, closes, removes from the list, frees. Not from inside a handler call. */
void varlink_conn_destroy(struct varlink_conn *conn);

/* Sends what the socket takes now. */
void varlink_conn_flush(struct varlink_conn *conn);

/* Reads SO_PEERCRED and SO_PEERGROUPS. Returns 0 or -errno. */
int varlink_peer_read(int fd, gid_t gid, struct varlink_peer *ret);

#endif
