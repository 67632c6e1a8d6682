/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_watch.h - tells when a file is written to. Not told of: writes through a mapping, and by
 * another host of a network file system.
 */
#ifndef NPUMEM_DAEMON_FILE_WATCH_H
#define NPUMEM_DAEMON_FILE_WATCH_H

#include <systemd/sd-event.h>

#include "cleanup.h"

struct file_watch;

/* watch: of a file that was written to, once for any number of writes before it is asked; -1: any,
 * the kernel could not keep them all. */
typedef void (*file_watch_fn)(void *userdata, int watch);

/* Its events come before others' of the loop. */
int file_watch_new(sd_event *event, file_watch_fn on_write, void *userdata,
                   struct file_watch **ret);
struct file_watch *file_watch_free(struct file_watch *w);
DEFINE_CLEANUP(struct file_watch *, file_watch_free)

/* Returns the watch, the same one for the same inode, or -errno. */
int file_watch_add(struct file_watch *w, const char *path);
void file_watch_remove(struct file_watch *w, int watch);

/* Calls on_write for what has been written to so far, without waiting. */
void file_watch_drain(struct file_watch *w);

#endif
