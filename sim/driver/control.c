/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control.c - the control directory of control.h. Waits poll every 1 to 5 ms: meeting points are
 * rare, and polling works through every kind of container and with every driver.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "control.h"

static int path_make(const struct control *control, const char *name, char path[static PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s/%s", control->directory, name);
    return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

void control_name(char *text)
{
    for (; *text; text++) {
        if (*text == '/' || (unsigned char)*text <= ' ')
            *text = '_';
    }
}

int control_put(const struct control *control, const char *name, const void *data, size_t size)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    int n =
        snprintf(temporary, sizeof(temporary), "%s/tmp.%d.%s", control->directory, getpid(), name);
    if (path_make(control, name, path) < 0 || n < 0 || n >= PATH_MAX)
        return -ENAMETOOLONG;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    ssize_t written = write(fd, data, size);
    int error = written == (ssize_t)size ? 0 : written < 0 ? errno : ENOSPC;
    if (close(fd) < 0 && !error)
        error = errno;
    if (!error && rename(temporary, path) < 0)
        error = errno;
    return -error;
}

bool control_exists(const struct control *control, const char *name)
{
    char path[PATH_MAX];
    return path_make(control, name, path) == 0 && access(path, F_OK) == 0;
}

static void poll_pause(unsigned tries)
{
    struct timespec pause = {.tv_nsec = tries < 50 ? 1000000 : 5000000};
    nanosleep(&pause, NULL);
}

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int control_await(const struct control *control, const char *name, unsigned seconds)
{
    double end = now_seconds() + seconds;
    for (unsigned tries = 0;; tries++) {
        if (control_exists(control, name))
            return 1;
        if (control->stop && *control->stop)
            return 0;
        if (seconds && now_seconds() > end)
            return -ETIMEDOUT;
        poll_pause(tries);
    }
}

int control_get_key(const struct control *control, const char *name, void *data, size_t size)
{
    char file[NAME_MAX + 1], path[PATH_MAX];
    snprintf(file, sizeof(file), "key.%.200s", name);
    int r = control_await(control, file, CONTROL_WAIT_SECONDS);
    if (r <= 0)
        return r < 0 ? r : -EINTR;
    if (path_make(control, file, path) < 0)
        return -ENAMETOOLONG;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, data, size);
    int error = errno;
    close(fd);
    return n < 0 ? -error : (int)n;
}

static unsigned entries_count(const char *path)
{
    unsigned count = 0;
    DIR *directory = opendir(path);
    if (!directory)
        return 0;
    for (const struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

int control_barrier(const struct control *control, const char *name, unsigned nth, const char *self,
                    unsigned needed)
{
    char meeting[NAME_MAX + 1], path[PATH_MAX], mine[2 * NAME_MAX + 3];
    double end = now_seconds() + CONTROL_WAIT_SECONDS;

    snprintf(meeting, sizeof(meeting), "b.%.150s.%u", name, nth);
    if (path_make(control, meeting, path) < 0)
        return -ENAMETOOLONG;
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return -errno;
    snprintf(mine, sizeof(mine), "%s/%s", path + strlen(control->directory) + 1, self);
    char full[PATH_MAX];
    if (path_make(control, mine, full) < 0)
        return -ENAMETOOLONG;
    int fd = open(full, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    close(fd);
    for (unsigned tries = 0;; tries++) {
        bool failed = control_exists(control, "failed");
        if (entries_count(path) >= needed)
            return 0;
        if (failed)
            return -EPIPE;
        if (now_seconds() > end)
            return -ETIMEDOUT;
        if (control->stop && *control->stop)
            return 0;
        poll_pause(tries);
    }
}
