/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: how the listening socket comes into being. Must not: remove anything but a dead socket.
 * Invariant: the socket is never reachable by more people than it ends up with.
 */
#include "varlink.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include "limits.h"

static int already_running(const char *path, struct error *reterr)
{
    int r = error_set(reterr, EADDRINUSE, "%.100s: npumemd is already running", path);
    return error_fix(reterr, r, "npumem status, or --runtime-dir for a second one");
}

/* Takes PATH.lock. Two daemons that start at once both find a dead socket; only one gets the lock.
 */
static int lock_take(const char *path, struct error *reterr)
{
    char name[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];
    int fd, code;

    snprintf(name, sizeof(name), "%s.lock", path);
    fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        code = errno;
        return error_set(reterr, code, "%s: %s", name, strerror(code));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        code = errno;
        close(fd);
        if (code == EWOULDBLOCK)
            return already_running(path, reterr);
        return error_set(reterr, code, "%s: lock: %s", name, strerror(code));
    }
    return fd;
}

/* Removes a socket that nobody listens on. */
static int stale_remove(const char *path, const struct sockaddr_un *address, struct error *reterr)
{
    _cleanup_close_ int fd = -1;
    struct stat st;
    int code;

    if (lstat(path, &st) < 0) {
        if (errno == ENOENT)
            return 0;
        code = errno;
        return error_set(reterr, code, "%.100s: %s", path, strerror(code));
    }
    if (!S_ISSOCK(st.st_mode))
        return error_set(reterr, ENOTSOCK, "%.100s: exists and is not a socket", path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        code = errno;
        return error_set(reterr, code, "socket: %s", strerror(code));
    }
    /* EAGAIN: its backlog is full, so somebody listens. */
    if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN)
        return already_running(path, reterr);
    if (errno != ECONNREFUSED && errno != ENOENT) {
        code = errno;
        return error_set(reterr, code, "%.100s: connect: %s", path, strerror(code));
    }
    if (unlink(path) < 0 && errno != ENOENT) {
        code = errno;
        return error_set(reterr, code, "%.100s: remove dead socket: %s", path, strerror(code));
    }
    return 0;
}

static int bind_path(int fd, const char *path, const struct sockaddr_un *address, gid_t gid,
                     struct error *reterr)
{
    mode_t saved = umask(0177);
    int r = bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? -errno : 0;

    umask(saved);
    if (r < 0)
        return error_set(reterr, r, "%.100s: bind: %s", path, strerror(-r));
    if ((gid != (gid_t)-1 && chown(path, (uid_t)-1, gid) < 0) || chmod(path, 0660) < 0 ||
        listen(fd, LIMIT_BACKLOG) < 0) {
        r = -errno;
        unlink(path);
        return error_set(reterr, r, "%.100s: group, mode or listen: %s", path, strerror(-r));
    }
    return 0;
}

int varlink_listen(const char *path, gid_t gid, int *ret_lock_fd, struct error *reterr)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_close_ int lock = -1, fd = -1;
    int r;

    if (strlen(path) >= sizeof(address.sun_path)) {
        r = error_set(reterr, ENAMETOOLONG, "%.100s...: socket path is longer than %zu bytes", path,
                      sizeof(address.sun_path) - 1);
        return error_fix(reterr, r, "a shorter --runtime-dir");
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    lock = lock_take(path, reterr);
    if (lock < 0)
        return lock;
    r = stale_remove(path, &address, reterr);
    if (r < 0)
        return r;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        r = errno;
        return error_set(reterr, r, "socket: %s", strerror(r));
    }
    r = bind_path(fd, path, &address, gid, reterr);
    if (r < 0)
        return r;
    *ret_lock_fd = TAKE_FD(lock);
    return TAKE_FD(fd);
}

int varlink_listen_activated(struct error *reterr)
{
    int count = sd_listen_fds(1), fd = SD_LISTEN_FDS_START, flags;

    if (count < 0)
        return error_set(reterr, count, "socket activation: %s", strerror(-count));
    if (count == 0)
        return -ENOENT;
    if (count > 1 || sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) <= 0) {
        for (int i = 0; i < count; i++)
            close(fd + i);
        return error_set(reterr, EINVAL,
                         "socket activation: %d descriptors passed, expected one listening unix "
                         "stream socket",
                         count);
    }
    flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        int code = errno;
        return error_set(reterr, code, "socket activation: %s", strerror(code));
    }
    return fd;
}
