/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procfs.c - files of /proc into buffers and facts; see procfs.h. Parsing is in lib/procfacts.
 */
#include "procfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "procfacts.h"

#define SMALL_FILE_MAX (64u << 10)
#define ENVIRON_MAX (1u << 20) /* more than that is cut off: what is looked for comes early */

int procfs_pidfd(uint32_t tgid)
{
    int fd = syscall(SYS_pidfd_open, (pid_t)tgid, 0);
    return fd < 0 ? -errno : fd;
}

bool procfs_alive(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    return poll(&p, 1, 0) == 0;
}

ssize_t procfs_read_file(const char *path, size_t max_bytes, char **ret)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    _cleanup_free_ char *data = NULL;
    size_t size = 0, capacity = 4096;

    if (fd < 0)
        return -errno;
    for (;;) {
        ssize_t n;
        char *grown = realloc(data, capacity + 1);
        if (!grown)
            return -ENOMEM;
        data = grown;
        n = read(fd, data + size, capacity - size);
        if (n < 0)
            return errno == EINTR ? -EAGAIN : -errno;
        if (n == 0)
            break;
        size += n;
        if (size > max_bytes)
            return -EFBIG;
        if (size == capacity)
            capacity *= 2;
    }
    data[size] = '\0';
    *ret = TAKE_PTR(data);
    return size;
}

ssize_t procfs_read(uint32_t tgid, const char *name, size_t max_bytes, char **ret)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%u/%s", tgid, name);
    return procfs_read_file(path, max_bytes, ret);
}

static uint64_t wall_from_ticks(uint64_t ticks)
{
    struct timespec wall, boot;

    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    return (wall.tv_sec - boot.tv_sec) * 1000000000ull + wall.tv_nsec - boot.tv_nsec +
           ticks * (1000000000ull / sysconf(_SC_CLK_TCK));
}

static void facts_environ(const char *text, size_t bytes, struct process_facts *ret)
{
    char value[1024];
    int n;

    if (environ_get(text, bytes, "ASCEND_RT_VISIBLE_DEVICES", value, sizeof(value)) < 0)
        return;
    n = visible_devices_parse(value, ret->visible_devices);
    ret->visible_count = n > 0 ? n : 0;
}

int procfs_facts(uint32_t tgid, struct process_facts *ret)
{
    _cleanup_free_ char *stat_text = NULL, *cmdline = NULL, *cgroup = NULL, *environ_text = NULL;
    struct stat_facts stat;
    struct container_facts container = {};
    struct rank_inputs inputs = {.hccl_rank = -1, .hccl_world_size = -1};
    struct rank_facts rank;
    ssize_t n;
    int r;

    memset(ret, 0, sizeof(*ret));
    n = procfs_read(tgid, "stat", SMALL_FILE_MAX, &stat_text);
    if (n < 0)
        return n == -ENOENT ? -ESRCH : n;
    r = stat_parse(stat_text, n, &stat);
    if (r < 0)
        return r;
    ret->tgid = tgid;
    ret->start_ticks = stat.start_ticks;
    ret->start_time_ns = wall_from_ticks(stat.start_ticks);
    snprintf(ret->comm, sizeof(ret->comm), "%.15s", stat.comm);
    n = procfs_read(tgid, "cmdline", ENVIRON_MAX, &cmdline);
    if (n > 0)
        title_from_cmdline(cmdline, n, ret->title, sizeof(ret->title));
    inputs.title = ret->title;
    n = procfs_read(tgid, "cgroup", SMALL_FILE_MAX, &cgroup);
    if (n > 0 && cgroup_parse(cgroup, n, &container) > 0)
        snprintf(ret->container, sizeof(ret->container), "%s", container.id);
    n = procfs_read(tgid, "environ", ENVIRON_MAX, &environ_text);
    if (n > 0) {
        facts_environ(environ_text, n, ret);
        inputs.environ_text = environ_text;
        inputs.environ_bytes = n;
    }
    rank_decide(&inputs, &rank);
    ret->rank = rank.rank;
    ret->world_size = rank.world_size;
    snprintf(ret->rank_source, sizeof(ret->rank_source), "%s", rank.source);
    return 0;
}

int procfs_each(int (*fn)(void *, uint32_t tgid), void *userdata)
{
    DIR *dir = opendir("/proc");
    struct dirent *d;
    int r = 0;

    if (!dir)
        return -errno;
    while (r == 0 && (d = readdir(dir))) {
        char *end;
        unsigned long tgid = strtoul(d->d_name, &end, 10);
        if (*end == '\0' && tgid > 0 && tgid <= INT32_MAX)
            r = fn(userdata, tgid);
    }
    closedir(dir);
    return r;
}
