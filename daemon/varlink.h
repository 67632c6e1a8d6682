/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varlink.h - a server of NUL-terminated messages on a unix stream socket, bounded in every way.
 *
 * Owns: the listening socket, the connections, their buffers and deadlines. Knows nothing of JSON:
 * one message goes to the handler, bytes come back. Messages of one connection are handed over in
 * order, one per turn of the event loop (so that a client that pipelines cannot starve the others),
 * and the next one only when the handler has finished with the one before.
 *
 * A connection is closed when a request is larger than its bound, takes longer than its time from
 * the first byte to its NUL, when unsent replies grow over their bound, or when a reader takes none
 * for a while. Everything runs on one sd-event loop in one thread.
 */
#ifndef NPUMEM_DAEMON_VARLINK_H
#define NPUMEM_DAEMON_VARLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "cleanup.h"
#include "err.h"

struct varlink_server;
struct varlink_conn;

/* Who is on the other end, as the kernel said when it connected (SO_PEERCRED, SO_PEERGROUPS). */
struct varlink_peer {
    uid_t uid;
    gid_t gid;
    pid_t tgid;
    bool in_group; /* primary or supplementary member of the server's group */
};

struct varlink_limits {
    unsigned max_connections;
    size_t max_request_bytes;    /* without the NUL */
    size_t max_output_bytes;     /* unsent bytes of one connection */
    size_t pause_output_bytes;   /* above this no further message is handed over */
    uint64_t request_timeout_ns; /* first byte of a message to its NUL */
    uint64_t stall_timeout_ns;   /* unsent bytes without progress */
};

enum varlink_refusal { VARLINK_TOO_MANY, VARLINK_TOO_LARGE, VARLINK_TOO_SLOW };

struct varlink_handler {
    /* One message, length bytes and a NUL after them; may be changed in place. The handler calls
     * varlink_next() when it is ready for the next one, now or later. */
    void (*message)(void *userdata, struct varlink_conn *conn, char *text, size_t length);
    /* The connection is about to be closed for this reason; the handler may send a last word. */
    void (*refused)(void *userdata, struct varlink_conn *conn, enum varlink_refusal why);
    /* The connection is gone; conn dies after the call. */
    void (*closed)(void *userdata, struct varlink_conn *conn);
};

struct varlink_stats {
    uint64_t accepted, refused_connections, messages, too_large, too_slow, stalled, overflowed;
    unsigned connections;
};

/* Binds a listening socket to a path, mode 0660, group gid ((gid_t)-1: left alone). A socket that
 * nobody listens on is replaced. *ret_lock_fd holds a lock on PATH.lock for as long as the daemon
 * runs, so that two that start at once cannot both win.
 * Returns the descriptor; -EADDRINUSE already running; -ENAMETOOLONG; -ENOTSOCK something else is
 * there; other errno. Owns: the caller closes both. */
int varlink_listen(const char *path, gid_t gid, int *ret_lock_fd, struct error *reterr);

/* The socket that systemd passed. Returns it; -ENOENT none was passed; -EINVAL not one unix stream
 * socket. */
int varlink_listen_activated(struct error *reterr);

/* Serves listen_fd, which it takes over also on failure. gid is the group whose members count as
 * in_group ((gid_t)-1: none). */
int varlink_server_new(sd_event *event, int listen_fd, gid_t gid,
                       const struct varlink_limits *limits, const struct varlink_handler *handler,
                       void *userdata, struct varlink_server **ret);
/* Sends what can be sent without waiting, then closes every connection. */
struct varlink_server *varlink_server_free(struct varlink_server *server);
DEFINE_CLEANUP(struct varlink_server *, varlink_server_free)

const struct varlink_stats *varlink_server_stats(const struct varlink_server *server);

const struct varlink_peer *varlink_conn_peer(const struct varlink_conn *conn);
void varlink_conn_set_data(struct varlink_conn *conn, void *data);
void *varlink_conn_data(const struct varlink_conn *conn);

/* Queues length bytes (the NUL among them). Returns 0; -EPIPE connection is ending; -ENOBUFS over
 * the bound: the connection ends; -ENOMEM. conn stays valid until closed() ran. */
int varlink_send(struct varlink_conn *conn, const void *data, size_t length);

/* Unsent bytes. */
size_t varlink_conn_pending(const struct varlink_conn *conn);

/* Ready for the next message. */
void varlink_next(struct varlink_conn *conn);

/* Closes once everything queued is sent; no further message is handed over. */
void varlink_finish(struct varlink_conn *conn);

#endif
