/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_link.c - links from the loaded programs to functions of library files: uprobe_multi, or one
 * perf link per function.
 *
 * Must not: know processes or libraries. Invariant: a link is made with the return program before
 * the entry program; C++ rows (entry-only) have no return program at all.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "probe_set_internal.h"
#include "probes.h"

#define UPROBE_MULTI_RETURN 1
/* The members of bpf_attr.link_create, see ATTACH_TRACE_UPROBE_MULTI. */
struct uprobe_multi_attr {
    uint32_t prog_fd, target_fd, attach_type, flags;
    uint64_t path, offsets, ref_ctr_offsets, cookies;
    uint32_t count, multi_flags, pid;
    uint32_t zero;
};

/* pid 0: every process */
static int uprobe_multi_link(int prog_fd, const char *path, const uint64_t *offsets,
                             const uint64_t *cookies, uint32_t count, bool is_return, uint32_t pid)
{
    struct uprobe_multi_attr attr = {
        .prog_fd = prog_fd,
        .attach_type = ATTACH_TRACE_UPROBE_MULTI,
        .path = (uintptr_t)path,
        .offsets = (uintptr_t)offsets,
        .cookies = (uintptr_t)cookies,
        .count = count,
        .multi_flags = is_return ? UPROBE_MULTI_RETURN : 0,
        .pid = pid,
    };
    int fd = syscall(__NR_bpf, BPF_LINK_CREATE, &attr, offsetof(struct uprobe_multi_attr, zero));
    return fd < 0 ? -errno : fd;
}

/* The kernel looks at the path before it looks at the program's functions, so that a link to a
 * directory tells (-EBADF) from an unknown attach type (-EINVAL). */
int probe_link_has_multi(void)
{
    struct bpf_insn insns[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
        {.code = BPF_JMP | BPF_EXIT},
    };
    LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = ATTACH_TRACE_UPROBE_MULTI);
    uint64_t offset = 0;
    int link;
    _cleanup_close_ int prog =
        bpf_prog_load(BPF_PROG_TYPE_KPROBE, "npumem_probe", "GPL", insns, 2, &opts);

    if (prog < 0)
        return prog;
    link = uprobe_multi_link(prog, "/", &offset, NULL, 1, false, 0);
    if (link >= 0)
        close(link);
    return link == -EBADF;
}

/* Descriptors of the links made so far; closed again unless taken. */
struct links {
    int *fds;
    size_t count;
};

static void links_done(struct links *l)
{
    while (l->count)
        close(l->fds[--l->count]);
    free(l->fds);
    l->fds = NULL;
}

static int link_multi(struct probe_set *set, const char *path, const struct probe_point *points,
                      size_t n, struct links *links)
{
    uint64_t offsets[PROBE_COUNT], entries[PROBE_COUNT], rows[PROBE_COUNT];
    uint32_t count = 0;
    int fd;

    for (size_t i = 0; i < n && count < PROBE_COUNT; i++)
        if (!probe_row(points[i].row)->is_entry_only) {
            offsets[count] = points[i].offset;
            entries[count] = points[i].entry_offset;
            rows[count++] = points[i].row;
        }
    if (count) {
        fd = uprobe_multi_link(set->leave_all_fd, path, offsets, rows, count, true, 0);
        if (fd < 0)
            return fd;
        links->fds[links->count++] = fd;
        fd = uprobe_multi_link(set->enter_all_fd, path, entries, rows, count, false, 0);
        if (fd < 0)
            return fd;
        links->fds[links->count++] = fd;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t row = points[i].row;
        if (!probe_row(row)->is_entry_only)
            continue;
        fd = uprobe_multi_link(probe_set_program_fd(set, "enter", probe_id_name(row)), path,
                               &points[i].entry_offset, &row, 1, false, 0);
        if (fd < 0)
            return fd;
        links->fds[links->count++] = fd;
    }
    return 0;
}

/* tgid -1: every process */
static int link_perf_one(struct probe_set *set, const char *prefix, const char *path, unsigned row,
                         uint64_t offset, pid_t tgid, struct links *links)
{
    LIBBPF_OPTS(bpf_uprobe_opts, opts, .retprobe = prefix[0] == 'l');
    char name[64];
    struct bpf_program *program;
    struct bpf_link *link;

    snprintf(name, sizeof(name), "%s_%s", prefix, probe_id_name(row));
    program = bpf_object__find_program_by_name(set->object, name);
    if (!program)
        return -ENOENT;
    link = bpf_program__attach_uprobe_opts(program, tgid, path, offset, &opts);
    if (!link)
        return -errno;
    /* keep only the descriptor: all links are closed alike */
    int fd = fcntl(bpf_link__fd(link), F_DUPFD_CLOEXEC, 3);
    if (fd < 0) {
        int r = -errno;
        bpf_link__destroy(link);
        return r;
    }
    bpf_link__destroy(link);
    links->fds[links->count++] = fd;
    return 0;
}

static int link_perf(struct probe_set *set, const char *path, const struct probe_point *points,
                     size_t n, struct links *links)
{
    int r;

    for (size_t i = 0; i < n; i++)
        if (!probe_row(points[i].row)->is_entry_only) {
            r = link_perf_one(set, "leave", path, points[i].row, points[i].offset, -1, links);
            if (r < 0)
                return r;
        }
    for (size_t i = 0; i < n; i++) {
        r = link_perf_one(set, "enter", path, points[i].row, points[i].entry_offset, -1, links);
        if (r < 0)
            return r;
    }
    return 0;
}

int probe_set_link(struct probe_set *set, int file_fd, const struct probe_point *points, size_t n,
                   int **ret_links, struct error *reterr)
{
    _cleanup_(links_done) struct links links = {.fds = calloc(2 * n + 2, sizeof(int))};
    char path[64];
    int r;

    if (!links.fds)
        return -ENOMEM;
    /* through the descriptor: the inode that was looked at, whatever the name means by now */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file_fd);
    r = set->mode == PROBE_LINK_MULTI ? link_multi(set, path, points, n, &links)
                                      : link_perf(set, path, points, n, &links);
    if (r < 0)
        return error_set(reterr, r, "cannot attach uprobes: %s", strerror(-r));
    *ret_links = TAKE_PTR(links.fds);
    r = links.count;
    links.count = 0;
    return r;
}

/*
 * The link's own filter keeps the breakpoints out of other processes. Before 6.10 it also lost
 * every thread but the first (kernel 46ba0e49b642): there the programs filter alone.
 */
static bool kernel_filters_threads(void)
{
    unsigned major = 0, minor = 0;
    struct utsname u;

    return uname(&u) == 0 && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 10));
}

int probe_set_link_access(struct probe_set *set, int file_fd, const struct probe_point *points,
                          size_t n, uint32_t tgid, int **ret_links, struct error *reterr)
{
    _cleanup_(links_done) struct links links = {.fds = calloc(n + 1, sizeof(int))};
    uint64_t offsets[PROBE_COUNT], rows[PROBE_COUNT];
    char path[64];
    int r = 0;

    if (!links.fds || n > PROBE_COUNT)
        return -ENOMEM;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file_fd);
    if (set->mode == PROBE_LINK_MULTI) {
        for (size_t i = 0; i < n; i++) {
            offsets[i] = points[i].entry_offset;
            rows[i] = points[i].row;
        }
        r = uprobe_multi_link(set->access_all_fd, path, offsets, rows, n, false,
                              kernel_filters_threads() ? tgid : 0);
        if (r >= 0)
            links.fds[links.count++] = r;
    } else {
        for (size_t i = 0; i < n && r >= 0; i++)
            r = link_perf_one(set, "access", path, points[i].row, points[i].entry_offset,
                              (pid_t)tgid, &links);
    }
    if (r < 0)
        return error_set(reterr, r, "cannot attach uprobes: %s", strerror(-r));
    *ret_links = TAKE_PTR(links.fds);
    r = links.count;
    links.count = 0;
    return r;
}
