/* SPDX-License-Identifier: Apache-2.0 */
/* file_watch.c - see file_watch.h. */
#include "file_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

struct file_watch {
    int fd;
    sd_event_source *io;
    file_watch_fn on_write;
    void *userdata;
};

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    (void)source, (void)fd, (void)events;
    file_watch_drain(userdata);
    return 0;
}

int file_watch_new(sd_event *event, file_watch_fn on_write, void *userdata, struct file_watch **ret)
{
    _cleanup_(file_watch_freep) struct file_watch *w = calloc(1, sizeof(*w));
    int r;

    if (!w)
        return -ENOMEM;
    w->on_write = on_write;
    w->userdata = userdata;
    w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (w->fd < 0)
        return -errno;
    r = sd_event_add_io(event, &w->io, w->fd, EPOLLIN, on_io, w);
    if (r >= 0)
        r = sd_event_source_set_priority(w->io, SD_EVENT_PRIORITY_IMPORTANT);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(w);
    return 0;
}

struct file_watch *file_watch_free(struct file_watch *w)
{
    if (!w)
        return NULL;
    sd_event_source_unref(w->io);
    if (w->fd >= 0)
        close(w->fd);
    free(w);
    return NULL;
}

int file_watch_add(struct file_watch *w, const char *path)
{
    int watch = inotify_add_watch(w->fd, path, IN_MODIFY);
    return watch < 0 ? -errno : watch;
}

void file_watch_remove(struct file_watch *w, int watch)
{
    (void)inotify_rm_watch(w->fd, watch); /* gone already with its file system */
}

void file_watch_drain(struct file_watch *w)
{
    _Alignas(struct inotify_event) char buffer[4096]; /* without names: of files, not directories */
    ssize_t n;

    while ((n = read(w->fd, buffer, sizeof(buffer))) > 0)
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *event = (const struct inotify_event *)(buffer + at);
            at += (ssize_t)(sizeof(*event) + event->len);
            if (event->mask & (IN_MODIFY | IN_Q_OVERFLOW))
                w->on_write(w->userdata, event->wd);
        }
}
