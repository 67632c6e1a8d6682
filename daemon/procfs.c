/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procfs.c - files of /proc into buffers and facts; see procfs.h. Parsing is in lib/procfacts.
 */
#include "procfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include <unistd.h>

#include "clock.h"
#include "procfacts.h"

#define SMALL_FILE_MAX (64u << 10)
#define CMDLINE_MAX (64u << 10) /* more than a title holds */

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

static ssize_t file_read(const char *path, size_t max_bytes, bool cut, char **ret)
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
        if (size > max_bytes && !cut)
            return -EFBIG;
        if (size > max_bytes) {
            size = max_bytes;
            break;
        }
        if (size == capacity)
            capacity *= 2;
    }
    data[size] = '\0';
    *ret = TAKE_PTR(data);
    return size;
}

ssize_t procfs_read_file(const char *path, size_t max_bytes, char **ret)
{
    return file_read(path, max_bytes, false, ret);
}

ssize_t procfs_read(uint32_t tgid, const char *name, size_t max_bytes, char **ret)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%u/%s", tgid, name);
    return file_read(path, max_bytes, false, ret);
}

ssize_t procfs_read_some(uint32_t tgid, const char *name, size_t max_bytes, char **ret)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%u/%s", tgid, name);
    return file_read(path, max_bytes, true, ret);
}

/* map_files reaches the mapped inode itself, also when its name is gone or means another file; it
 * needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN. */
int procfs_open_mapping(uint32_t tgid, const struct maps_entry *entry)
{
    char path[MAPS_PATH_MAX + 64];
    int fd;

    snprintf(path, sizeof(path), "/proc/%u/map_files/%llx-%llx", tgid,
             (unsigned long long)entry->start, (unsigned long long)entry->end);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 || entry->deleted)
        return fd >= 0 ? fd : -errno;
    snprintf(path, sizeof(path), "/proc/%u/root%s", tgid, entry->path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd >= 0 ? fd : -errno;
}

void procfs_exe(uint32_t tgid, char *ret, size_t ret_bytes)
{
    char path[64];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%u/exe", tgid);
    n = readlink(path, ret, ret_bytes - 1);
    ret[n > 0 ? n : 0] = '\0';
}

static uint64_t wall_from_ticks(uint64_t ticks)
{
    return clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_BOOTTIME) +
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

static int stat_read(uint32_t tgid, struct stat_facts *ret)
{
    _cleanup_free_ char *text = NULL;
    ssize_t n = procfs_read(tgid, "stat", SMALL_FILE_MAX, &text);

    if (n < 0)
        return n == -ENOENT ? -ESRCH : n;
    return stat_parse(text, n, ret);
}

static void title_read(uint32_t tgid, char *ret, size_t ret_bytes)
{
    _cleanup_free_ char *text = NULL;
    ssize_t n = procfs_read_some(tgid, "cmdline", CMDLINE_MAX, &text);

    ret[0] = '\0';
    if (n > 0)
        title_from_cmdline(text, n, ret, ret_bytes);
}

static void user_name(uint32_t uid, char *ret, size_t ret_bytes)
{
    /* the file and not the name service, which may ask a network and block */
    _cleanup_fclose_ FILE *f = fopen("/etc/passwd", "re");
    struct passwd *p;

    ret[0] = '\0';
    while (f && (p = fgetpwent(f)))
        if (p->pw_uid == uid) {
            snprintf(ret, ret_bytes, "%s", p->pw_name);
            return;
        }
}

static void facts_status(uint32_t tgid, const struct process_facts *before,
                         struct process_facts *ret)
{
    _cleanup_free_ char *text = NULL;
    struct status_facts status;
    ssize_t n = procfs_read(tgid, "status", SMALL_FILE_MAX, &text);

    if (n <= 0 || status_parse(text, n, &status) < 0)
        return;
    ret->uid = status.uid;
    ret->ns_tgid = status.ns_tgid;
    if (before && before->uid == ret->uid)
        memcpy(ret->user, before->user, sizeof(ret->user));
    else
        user_name(ret->uid, ret->user, sizeof(ret->user));
}

static void facts_container(uint32_t tgid, struct process_facts *ret)
{
    _cleanup_free_ char *text = NULL;
    struct container_facts container = {};
    ssize_t n = procfs_read(tgid, "cgroup", SMALL_FILE_MAX, &text);

    if (n <= 0 || cgroup_parse(text, n, &container) <= 0)
        return;
    snprintf(ret->container, sizeof(ret->container), "%s", container.id);
    snprintf(ret->runtime, sizeof(ret->runtime), "%s", container.runtime);
    snprintf(ret->pod_uid, sizeof(ret->pod_uid), "%s", container.pod_uid);
}

/* Title and parents: which engine and server it belongs to, and which replica. */
static void facts_family(const struct title_facts *title, struct process_facts *ret)
{
    char text[sizeof(ret->title)];
    struct title_facts parent;
    struct stat_facts stat;

    ret->role = title->kind;
    for (int g = 0; g < GROUP_COUNT; g++)
        ret->group[g] = title->group[g];
    ret->replica = title->group[GROUP_DP];
    if (title->kind != TITLE_WORKER && title->kind != TITLE_ENGINE)
        return;
    if (title->kind == TITLE_ENGINE) {
        ret->engine_tgid = ret->tgid;
        ret->server_tgid = ret->parent_tgid;
        return;
    }
    if (ret->parent_tgid <= 1) {
        ret->orphan = true;
        return;
    }
    title_read(ret->parent_tgid, text, sizeof(text));
    title_parse(text, &parent);
    ret->replica = title_replica(title, &parent);
    ret->engine_tgid = ret->server_tgid = ret->parent_tgid;
    if (parent.kind == TITLE_ENGINE && stat_read(ret->parent_tgid, &stat) == 0 && stat.ppid > 1)
        ret->server_tgid = stat.ppid;
}

static void facts_rank(const struct environ_text *environment, struct process_facts *ret)
{
    struct rank_inputs inputs = {
        .hccl_rank = -1,
        .hccl_world_size = -1,
        .title = ret->title,
        .environ_text = environment->text,
        .environ_bytes = environment->bytes,
    };
    struct rank_facts rank;

    rank_decide(&inputs, &rank);
    ret->rank = rank.rank;
    ret->world_size = rank.world_size;
    ret->local_rank = rank.local_rank;
    ret->rank_inferred = rank.inferred;
    snprintf(ret->rank_source, sizeof(ret->rank_source), "%s", rank.source);
}

int procfs_facts(uint32_t tgid, struct procfs_memory *memory, const struct process_facts *before,
                 struct process_facts *ret)
{
    _cleanup_free_ struct procfs_memory *own = memory ? NULL : calloc(1, sizeof(*own));
    struct stat_facts stat;
    struct title_facts title;
    int r = stat_read(tgid, &stat);

    if (r < 0)
        return r;
    if (!memory && !own)
        return -ENOMEM;
    if (!memory)
        memory = own;
    memset(ret, 0, sizeof(*ret)); /* the padding, too: facts are compared as bytes */
    process_facts_init(ret, tgid);
    ret->start_ticks = stat.start_ticks;
    ret->start_time_ns =
        before && before->start_time_ns ? before->start_time_ns : wall_from_ticks(stat.start_ticks);
    ret->state = stat.state == 'Z' || stat.state == 'X' ? stat.state : 'R'; /* not each nap */
    ret->parent_tgid = stat.ppid;
    snprintf(ret->comm, sizeof(ret->comm), "%.15s", stat.comm);
    title_read(tgid, ret->title, sizeof(ret->title));
    title_parse(ret->title, &title);
    facts_family(&title, ret);
    facts_container(tgid, ret);
    facts_status(tgid, before, ret);
    if (before && strcmp(before->comm, ret->comm) != 0)
        memory->place = (struct environ_place){}; /* perhaps another program by now */
    environ_read(tgid, &memory->place, &memory->environment);
    facts_environ(memory->environment.text, memory->environment.bytes, ret);
    facts_rank(&memory->environment, ret);
    return 0;
}

int procfs_resident(uint32_t tgid, uint64_t *ret_resident_bytes, uint64_t *ret_shared_bytes)
{
    unsigned long long total, resident, shared;
    _cleanup_free_ char *text = NULL;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    ssize_t n = procfs_read(tgid, "statm", 512, &text);

    if (n < 0)
        return (int)n;
    if (sscanf(text, "%llu %llu %llu", &total, &resident, &shared) != 3 ||
        resident > INT64_MAX / page || shared > INT64_MAX / page)
        return -EBADMSG;
    *ret_resident_bytes = resident * page;
    *ret_shared_bytes = shared * page;
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
