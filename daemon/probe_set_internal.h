/* SPDX-License-Identifier: Apache-2.0 */
/* probe_set_internal.h - what loading (probe_set.c) and linking (probe_link.c) share. */
#ifndef NPUMEM_DAEMON_PROBE_SET_INTERNAL_H
#define NPUMEM_DAEMON_PROBE_SET_INTERNAL_H

#include "probe_set.h"

/* bpf_attr.link_create for uprobe_multi. Source: kernel 6.6 uapi linux/bpf.h; the build host's
 * header may be older. */
#define ATTACH_TRACE_UPROBE_MULTI 48

struct probe_set {
    struct bpf_object *object;
    enum probe_link_mode mode;
    int ring_fd, counters_fd, excluded_fd, detailed_fd, pools_fd, small_fd, atb_fd;
    int enter_all_fd, leave_all_fd, access_all_fd;
    int cpu_count;
    bool has_python;
    struct nm_cpu_counters *cpu_values;
    struct probe *skeleton; /* one of the two */
    struct probe_legacy *legacy;
};

/* Descriptor of the program PREFIX_ID; borrowed. -ENOENT. */
int probe_set_program_fd(const struct probe_set *set, const char *prefix, const char *id);

/* probe_link.c: whether this kernel has uprobe_multi links, 1 or 0; -errno: it does not let this
 * process ask. Cost: loads a program of two instructions. */
int probe_link_has_multi(void);

#endif
