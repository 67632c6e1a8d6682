/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_set.c - loading the kernel programs, and their switches and counters; see probe_set.h.
 * Links to library files: probe_link.c.
 */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "probe.skel.h"
#include "probe_legacy.skel.h"

#include "log.h"
#include "probe_set_internal.h"
#include "probes.h"
#include "seccomp_risk.h"

static int quiet_print(enum libbpf_print_level level, const char *format, va_list ap)
{
    if (level == LIBBPF_WARN && log_get_level() >= LOG_DEBUG)
        log_vprint(LOG_DEBUG, format, ap);
    return 0;
}

/* Whether this kernel has what the legacy build does without: task storage (5.11) and bpf_loop()
 * (5.17). The third, atomic fetch-and-add, is older (5.12; aarch64: 5.18). */
static bool kernel_is_recent(void)
{
    return libbpf_probe_bpf_map_type(BPF_MAP_TYPE_TASK_STORAGE, NULL) > 0 &&
           libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_task_storage_get, NULL) > 0 &&
           libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_loop, NULL) > 0;
}

/* Byte offset of a member of struct task_struct from the kernel's BTF; 0 unknown. */
static uint32_t task_member_offset(const struct btf *btf, const char *name)
{
    int id = btf ? btf__find_by_name_kind(btf, "task_struct", BTF_KIND_STRUCT) : -ENOENT;
    const struct btf_type *type = id > 0 ? btf__type_by_id(btf, id) : NULL;

    for (int i = 0; type && i < btf_vlen(type); i++) {
        const char *member = btf__name_by_offset(btf, btf_members(type)[i].name_off);
        if (member && strcmp(member, name) == 0)
            return btf_member_bit_offset(type, i) / 8;
    }
    return 0;
}

/* Both builds have the same globals; C has no way to say so but to say it twice. */
#define CONFIGURE(s, config, btf)                                                                  \
    do {                                                                                           \
        (s)->rodata->nm_group_leader_offset = task_member_offset(btf, "group_leader");             \
        (s)->rodata->nm_start_boottime_offset = task_member_offset(btf, "start_boottime");         \
        (s)->rodata->nm_ns_per_tick = 1000000000u / (uint32_t)sysconf(_SC_CLK_TCK);                \
        if ((config)->ring_bytes / 64 < (s)->rodata->nm_wakeup_bytes)                              \
            (s)->rodata->nm_wakeup_bytes = (config)->ring_bytes / 64;                              \
        (s)->data->nm_block_threshold_bytes = (config)->block_threshold_bytes;                     \
        (s)->data->nm_block_enabled = (config)->block_enabled;                                     \
        (s)->data->nm_py_stack_threshold_bytes = (config)->stack_threshold_bytes;                  \
        (s)->rodata->nm_py_backlog_bytes = (config)->ring_bytes / 2;                               \
        (s)->rodata->nm_py_enabled = (config)->python_enabled;                                     \
    } while (0)

static size_t ring_size(size_t bytes)
{
    size_t size = sysconf(_SC_PAGESIZE);
    while (size < bytes && size < ((size_t)1 << 30))
        size <<= 1;
    return size;
}

static int set_open(struct probe_set *set, const struct probe_set_config *config)
{
    struct btf *btf = btf__load_vmlinux_btf();

    if (libbpf_get_error(btf))
        btf = NULL;
    if (set->mode == PROBE_LINK_PERF_LEGACY) {
        set->legacy = probe_legacy__open();
        if (!set->legacy) {
            btf__free(btf);
            return -errno;
        }
        CONFIGURE(set->legacy, config, btf);
        set->object = set->legacy->obj;
    } else {
        set->skeleton = probe__open();
        if (!set->skeleton) {
            btf__free(btf);
            return -errno;
        }
        CONFIGURE(set->skeleton, config, btf);
        set->object = set->skeleton->obj;
    }
    btf__free(btf);
    return 0;
}

/* Loads only the programs that this mode attaches: the two for all rows, or the pairs per row. */
static void set_select_programs(struct probe_set *set)
{
    struct bpf_program *p;

    bpf_object__for_each_program(p, set->object)
    {
        const char *name = bpf_program__name(p);
        bool for_all = strcmp(name, "enter_all") == 0 || strcmp(name, "leave_all") == 0 ||
                       strcmp(name, "access_all") == 0;
        bool needed = for_all == (set->mode == PROBE_LINK_MULTI);

        if (!for_all && set->mode == PROBE_LINK_MULTI && strncmp(name, "enter_", 6) == 0)
            for (unsigned row = 1; row < PROBE_COUNT && !needed; row++)
                needed = probe_row(row)->is_entry_only && strcmp(name + 6, probe_id_name(row)) == 0;
        bpf_program__set_autoload(p, needed);
        if (set->mode == PROBE_LINK_MULTI)
            bpf_program__set_expected_attach_type(p, ATTACH_TRACE_UPROBE_MULTI);
    }
}

int probe_set_map_fd(const struct probe_set *set, const char *name)
{
    struct bpf_map *map = bpf_object__find_map_by_name(set->object, name);
    return map ? bpf_map__fd(map) : -ENOENT;
}

int probe_set_program_fd(const struct probe_set *set, const char *prefix, const char *id)
{
    char name[64];
    struct bpf_program *p;

    snprintf(name, sizeof(name), "%s_%s", prefix, id);
    p = bpf_object__find_program_by_name(set->object, name);
    return p ? bpf_program__fd(p) : -ENOENT;
}

static int explain_load(int r, struct error *reterr)
{
    if (r == -EPERM) { /* EACCES is what the verifier refuses with, whoever asks */
        error_set(reterr, r, "cannot load the kernel programs: %s", strerror(-r));
        return error_fix(reterr, r, "run as root, or with CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN");
    }
    if (libbpf_probe_bpf_map_type(BPF_MAP_TYPE_RINGBUF, NULL) <= 0) {
        error_set(reterr, ENOSYS, "this kernel has no BPF ring buffer");
        return error_fix(reterr, -ENOSYS, "use kernel 5.8 or later");
    }
    error_set(reterr, r, "cannot load the kernel programs: %s", strerror(-r));
    return error_fix(reterr, r, "npumem check says what this kernel lacks");
}

/* Where the return programs of the legacy build go on. */
static int set_leave_next(struct probe_set *set)
{
    int map = probe_set_map_fd(set, "leave_next"), next = probe_set_program_fd(set, "leave", "any");
    uint32_t zero = 0;

    return bpf_map_update_elem(map, &zero, &next, BPF_ANY) < 0 ? -errno : 0;
}

static int set_load(struct probe_set *set, const struct probe_set_config *config,
                    struct error *reterr)
{
    int r = set_open(set, config);

    if (r < 0)
        return error_set(reterr, r, "cannot open the kernel programs: %s", strerror(-r));
    set_select_programs(set);
    r = bpf_map__set_max_entries(bpf_object__find_map_by_name(set->object, "ring"),
                                 ring_size(config->ring_bytes));
    if (r == 0)
        r = set->legacy ? probe_legacy__load(set->legacy) : probe__load(set->skeleton);
    if (r == 0 && set->legacy)
        r = set_leave_next(set);
    return r < 0 ? explain_load(r, reterr) : 0;
}

static void set_close(struct probe_set *set)
{
    if (set->skeleton)
        probe__destroy(set->skeleton);
    if (set->legacy)
        probe_legacy__destroy(set->legacy);
    set->skeleton = NULL;
    set->legacy = NULL;
}

/* What takes the place of PROBE_LINK_AUTO. A kernel that does not let us ask says why when the
 * programs are loaded. */
static int mode_choose(enum probe_link_mode wanted, enum probe_link_mode *ret, struct error *reterr)
{
    int has_multi =
        wanted == PROBE_LINK_AUTO || wanted == PROBE_LINK_MULTI ? probe_link_has_multi() : 0;

    if (wanted == PROBE_LINK_MULTI && !has_multi) {
        int r = error_set(reterr, EOPNOTSUPP,
                          "--links multi: this kernel has no uprobe_multi links, Linux 6.6 has");
        return error_fix(reterr, r, "--links auto, which takes what there is");
    }
    *ret = wanted != PROBE_LINK_AUTO ? wanted
           : has_multi > 0           ? PROBE_LINK_MULTI
           : kernel_is_recent()      ? PROBE_LINK_PERF
                                     : PROBE_LINK_PERF_LEGACY;
    return 0;
}

/* Where it cannot be tried no probe can be made, either; loading says why. */
static int seccomp_check(struct error *reterr)
{
    bool survives;

    if (return_probe_try(SECCOMP_URETPROBE, &survives) < 0 || survives)
        return 0;
    error_set(reterr, EOPNOTSUPP,
              "this kernel kills a process under seccomp (as containers are) that returns from a "
              "probed function");
    return error_fix(
        reterr, -EOPNOTSUPP,
        "Linux 6.12.14, 6.13.3, 6.14 or later; probes.allow_seccomp_risk = yes where no "
        "observed process is under seccomp");
}

int probe_set_new(const struct probe_set_config *config, struct probe_set **ret,
                  struct error *reterr)
{
    _cleanup_(probe_set_freep) struct probe_set *set = calloc(1, sizeof(*set));
    struct probe_set_config with = *config;
    int r;

    if (!set)
        return -ENOMEM;
    libbpf_set_print(quiet_print);
    r = mode_choose(config->mode, &set->mode, reterr);
    if (r == 0 && !config->allow_seccomp_risk)
        r = seccomp_check(reterr);
    if (r < 0)
        return r;
    r = set_load(set, &with, reterr);
    if (r < 0 && r != -EPERM && with.python_enabled) {
        log_notice("this kernel refuses the walk of Python frames: no phases");
        with.python_enabled = false;
        set_close(set);
        r = set_load(set, &with, reterr);
    }
    if (r < 0)
        return r;
    set->has_python = with.python_enabled;
    set->ring_fd = probe_set_map_fd(set, "ring");
    set->counters_fd = probe_set_map_fd(set, "counters");
    set->excluded_fd = probe_set_map_fd(set, "excluded");
    set->detailed_fd = probe_set_map_fd(set, "detailed");
    set->pools_fd = probe_set_map_fd(set, "pools");
    set->small_fd = probe_set_map_fd(set, "small");
    set->atb_fd = probe_set_map_fd(set, "atb_ops");
    set->enter_all_fd = probe_set_program_fd(set, "enter", "all");
    set->leave_all_fd = probe_set_program_fd(set, "leave", "all");
    set->access_all_fd = probe_set_program_fd(set, "access", "all");
    set->cpu_count = libbpf_num_possible_cpus();
    set->cpu_values = calloc(set->cpu_count > 0 ? set->cpu_count : 1, sizeof(*set->cpu_values));
    if (!set->cpu_values)
        return -ENOMEM;
    *ret = TAKE_PTR(set);
    return 0;
}

struct probe_set *probe_set_free(struct probe_set *set)
{
    if (!set)
        return NULL;
    set_close(set);
    free(set->cpu_values);
    free(set);
    return NULL;
}

enum probe_link_mode probe_set_mode(const struct probe_set *set)
{
    return set->mode;
}

const char *probe_link_mode_name(enum probe_link_mode mode)
{
    static const char *const names[] = {"auto", "uprobe_multi", "perf", "perf-legacy"};
    return names[mode];
}

int probe_set_ring_fd(const struct probe_set *set)
{
    return set->ring_fd;
}

int probe_set_pools_fd(const struct probe_set *set)
{
    return set->pools_fd;
}

int probe_set_small_fd(const struct probe_set *set)
{
    return set->small_fd;
}

int probe_set_atb_fd(const struct probe_set *set)
{
    return set->atb_fd;
}

int probe_set_counters(const struct probe_set *set, struct nm_cpu_counters *ret)
{
    uint32_t zero = 0;

    memset(ret, 0, sizeof(*ret));
    if (bpf_map_lookup_elem(set->counters_fd, &zero, set->cpu_values) < 0)
        return -errno;
    for (int i = 0; i < set->cpu_count; i++) {
        ret->attempted += set->cpu_values[i].attempted;
        ret->lost += set->cpu_values[i].lost;
        ret->read_failed += set->cpu_values[i].read_failed;
        ret->stale_calls += set->cpu_values[i].stale_calls;
        ret->map_full += set->cpu_values[i].map_full;
    }
    return 0;
}

/* The globals are mapped: a store is seen by the programs at once. */
#define GLOBAL_STORE(set, area, name, value)                                                       \
    do {                                                                                           \
        if ((set)->legacy)                                                                         \
            (set)->legacy->area->name = (value);                                                   \
        else                                                                                       \
            (set)->skeleton->area->name = (value);                                                 \
    } while (0)

bool probe_set_has_python(const struct probe_set *set)
{
    return set->has_python;
}

void probe_set_python_changed(struct probe_set *set)
{
    uint32_t next =
        (set->legacy ? set->legacy->bss->nm_py_generation : set->skeleton->bss->nm_py_generation) +
        1;
    GLOBAL_STORE(set, bss, nm_py_generation, next);
}

void probe_set_block_detail(struct probe_set *set, bool enabled, uint64_t threshold_bytes)
{
    GLOBAL_STORE(set, data, nm_block_threshold_bytes, threshold_bytes);
    GLOBAL_STORE(set, data, nm_block_enabled, enabled);
}

static uint32_t keys_count(int fd)
{
    uint32_t count = 0, key, next;

    for (int r = bpf_map_get_next_key(fd, NULL, &next); r == 0;
         r = bpf_map_get_next_key(fd, &key, &next)) {
        count++;
        key = next;
    }
    return count;
}

int probe_set_detail(struct probe_set *set, uint32_t tgid, bool all)
{
    uint32_t users = 0;
    int r = bpf_map_lookup_elem(set->detailed_fd, &tgid, &users);

    if (r < 0)
        users = 0;
    users = all ? users + 1 : users ? users - 1 : 0;
    if (users)
        r = bpf_map_update_elem(set->detailed_fd, &tgid, &users, BPF_ANY);
    else if (r == 0)
        r = bpf_map_delete_elem(set->detailed_fd, &tgid);
    else
        return 0;
    if (r < 0)
        return errno == E2BIG ? -ENOSPC : -errno;
    if (users)
        GLOBAL_STORE(set, bss, nm_detailed_used, 1);
    GLOBAL_STORE(set, bss, nm_detailed_count, keys_count(set->detailed_fd));
    return 0;
}

int probe_set_exclude(struct probe_set *set, uint32_t tgid, bool exclude)
{
    uint32_t one = 1;
    int r = exclude ? bpf_map_update_elem(set->excluded_fd, &tgid, &one, BPF_ANY)
                    : bpf_map_delete_elem(set->excluded_fd, &tgid);

    if (r < 0 && !(errno == ENOENT && !exclude))
        return -errno;
    GLOBAL_STORE(set, bss, nm_excluded_count, keys_count(set->excluded_fd));
    return 0;
}

void probe_set_access_windows(struct probe_set *set, uint32_t count)
{
    GLOBAL_STORE(set, bss, nm_access_open_count, count);
}
