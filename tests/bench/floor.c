/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floor.c - attaches empty programs at file offsets until stdin closes.
 *
 * usage: bench_floor multi|perf FILE e:OFFSET|r:OFFSET...   (e entry, r return; offsets in hex)
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "empty.skel.h"

/* Source: kernel 6.6 uapi linux/bpf.h */
struct multi_attr {
    uint32_t prog_fd, target_fd, attach_type, flags;
    uint64_t path, offsets, ref_ctr_offsets, cookies;
    uint32_t count, multi_flags, pid;
};

static int attach_multi(struct empty *s, const char *path, int argc, char **argv, bool is_return)
{
    uint64_t offsets[64];
    struct multi_attr a = {.attach_type = 48,
                           .path = (uintptr_t)path,
                           .offsets = (uintptr_t)offsets,
                           .multi_flags = is_return};

    for (int i = 0; i < argc; i++)
        if ((argv[i][0] == 'r') == is_return && a.count < 64)
            offsets[a.count++] = strtoull(argv[i] + 2, NULL, 16);
    if (!a.count)
        return 0;
    a.prog_fd = bpf_program__fd(is_return ? s->progs.empty_leave : s->progs.empty_enter);
    /* pid is the last member: no padding after it is passed */
    return syscall(SYS_bpf, BPF_LINK_CREATE, &a, 60) < 0 ? -errno : 0;
}

static int attach_perf(struct empty *s, const char *path, int argc, char **argv, bool is_return)
{
    for (int i = 0; i < argc; i++) {
        LIBBPF_OPTS(bpf_uprobe_opts, o, .retprobe = is_return);
        if ((argv[i][0] == 'r') != is_return)
            continue;
        if (!bpf_program__attach_uprobe_opts(is_return ? s->progs.empty_leave
                                                       : s->progs.empty_enter,
                                             -1, path, strtoull(argv[i] + 2, NULL, 16), &o))
            return -errno;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct bpf_program *p;
    struct empty *s = empty__open();
    bool multi;
    int r;

    if (argc < 4 || !s)
        return 2;
    multi = strcmp(argv[1], "multi") == 0;
    bpf_object__for_each_program(p, s->obj) if (multi) bpf_program__set_expected_attach_type(p, 48);
    if (empty__load(s) < 0)
        return 1;
    r = (multi ? attach_multi : attach_perf)(s, argv[2], argc - 3, argv + 3, true);
    if (r == 0)
        r = (multi ? attach_multi : attach_perf)(s, argv[2], argc - 3, argv + 3, false);
    if (r < 0) {
        fprintf(stderr, "bench_floor: %s\n", strerror(-r));
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    _exit(0);
}
