/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_kernel.c - what the kernel offers, and whether this user may use it.
 *
 * Sources: capabilities(7); bpf(2); measured needs of perf and multi uprobes with and without each
 * capability (docs/ARCHITECTURE.md).
 */
#include <errno.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>

#include "check.h"
#include "out.h"

/* First kernel with what the programs use: the ring buffer and CAP_BPF (5.8); uprobe_multi (6.6).
 */
#define KERNEL_LEAST_MAJOR 5
#define KERNEL_LEAST_MINOR 8
#define KERNEL_MULTI_MAJOR 6
#define KERNEL_MULTI_MINOR 6

#ifndef CAP_PERFMON
#define CAP_PERFMON 38
#endif
#ifndef CAP_BPF
#define CAP_BPF 39
#endif

void finding_set(struct finding *f, enum finding_state state, const char *fix, const char *format,
                 ...)
{
    va_list ap;

    f->state = state;
    va_start(ap, format);
    vsnprintf(f->detail, sizeof(f->detail), format, ap);
    va_end(ap);
    snprintf(f->fix, sizeof(f->fix), "%s", fix ? fix : "");
}

void check_header(struct json_object *document)
{
    struct utsname u;
    struct timespec t;
    char host[sizeof(u.nodename)];

    clock_gettime(CLOCK_REALTIME, &t);
    json_object_object_add(document, "time_ns",
                           json_object_new_int64((int64_t)t.tv_sec * 1000000000 + t.tv_nsec));
    json_object_object_add(
        document, "host",
        json_object_new_string(uname(&u) == 0 ? out_clean(host, sizeof(host), u.nodename) : ""));
}

/* First line of a small file without its newline; false if it cannot be read. */
static bool read_line(const char *path, char *ret, size_t size)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    if (!f || !fgets(ret, (int)size, f))
        return false;
    ret[strcspn(ret, "\n")] = '\0';
    return true;
}

static bool kernel_at_least(int major, int minor, char *ret_release, size_t size)
{
    struct utsname u;
    int a = 0, b = 0;

    if (uname(&u) < 0 || sscanf(u.release, "%d.%d", &a, &b) != 2)
        return false;
    snprintf(ret_release, size, "%.60s", u.release);
    return a > major || (a == major && b >= minor);
}

void check_kernel(const struct args *args, struct finding *f)
{
    char release[65] = "unknown";

    if (kernel_at_least(KERNEL_LEAST_MAJOR, KERNEL_LEAST_MINOR, release, sizeof(release)))
        finding_set(f, STATE_OK, NULL, "Linux %s", release);
    else
        finding_set(f, STATE_MISSING, "a kernel of at least 5.8", "Linux %s", release);
}

/* Effective capabilities of this process, one bit each. */
static uint64_t effective_capabilities(void)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    uint64_t caps = 0;

    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "CapEff: %" SCNx64, &caps) == 1)
            break;
    }
    return caps;
}

static bool has(uint64_t caps, int capability)
{
    return (caps & (UINT64_C(1) << capability)) != 0;
}

void check_privileges(const struct args *args, struct finding *f)
{
    uint64_t caps = effective_capabilities();
    char missing[160] = "", release[65];
    bool multi = kernel_at_least(KERNEL_MULTI_MAJOR, KERNEL_MULTI_MINOR, release, sizeof(release));
    bool admin = has(caps, CAP_SYS_ADMIN);
    const struct {
        int capability;
        const char *name;
        bool replaced; /* by CAP_SYS_ADMIN */
    } wanted[] = {{CAP_BPF, "CAP_BPF", true},
                  {CAP_PERFMON, "CAP_PERFMON", true},
                  {CAP_SYS_PTRACE, "CAP_SYS_PTRACE", false},
                  {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", false}};

    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        if (has(caps, wanted[i].capability) || (wanted[i].replaced && admin))
            continue;
        snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), " %s",
                 wanted[i].name);
    }
    /* without uprobe_multi, perf uprobes are the way, and those want CAP_SYS_ADMIN */
    if (!multi && !admin)
        snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), " CAP_SYS_ADMIN");
    if (missing[0])
        finding_set(f, STATE_MISSING, "sudo npumem check", "this user lacks%s", missing);
    else
        finding_set(f, STATE_OK, NULL, "all capabilities that npumemd needs");
}

void check_bpf(const struct args *args, struct finding *f)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof(attr)); /* the kernel wants every unused byte 0 */
    attr.map_type = BPF_MAP_TYPE_RINGBUF;
    attr.max_entries = 1u << 16; /* a power of two of pages on 4 KiB and 64 KiB page kernels */
    _cleanup_close_ int fd = (int)syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));

    if (fd >= 0)
        finding_set(f, STATE_OK, NULL, "a ring buffer could be made");
    else if (errno == EPERM)
        finding_set(f, STATE_MISSING, "sudo npumem check", "bpf(2) is not permitted to this user");
    else if (errno == ENOSYS)
        finding_set(f, STATE_MISSING, "a kernel with CONFIG_BPF_SYSCALL=y", "no bpf(2)");
    else if (errno == EINVAL)
        finding_set(f, STATE_MISSING, "a kernel of at least 5.8", "no BPF ring buffer");
    else
        finding_set(f, STATE_MISSING, "dmesg | tail", "bpf(2): %s", strerror(errno));
}

void check_lockdown(const struct args *args, struct finding *f)
{
    char line[128];

    if (!read_line("/sys/kernel/security/lockdown", line, sizeof(line)))
        finding_set(f, STATE_OK, NULL, "kernel lockdown is not in use");
    else if (strstr(line, "[confidentiality]"))
        finding_set(f, STATE_MISSING, "boot with lockdown=integrity",
                    "lockdown=confidentiality forbids BPF programs to read process memory");
    else
        finding_set(f, STATE_OK, NULL, "lockdown: %s", line);
}

/* Names and blocks of processes that ran before the daemon are read from their memory. */
void check_late_attach(const struct args *args, struct finding *f)
{
    char line[16];

    if (read_line("/proc/sys/kernel/yama/ptrace_scope", line, sizeof(line)) && line[0] == '3')
        finding_set(f, STATE_INFO, "boot without kernel.yama.ptrace_scope=3 (sysctl.d)",
                    "no process may read another's memory: what they held before has no names");
    else if (!has(effective_capabilities(), CAP_SYS_PTRACE))
        finding_set(f, STATE_INFO, "sudo npumem check",
                    "this user may not read a server's memory (names of what it held before)");
    else
        finding_set(f, STATE_OK, NULL, "the memory of a running server can be read, for names");
}

void check_uprobes(const struct args *args, struct finding *f)
{
    char line[32];

    if (read_line("/sys/bus/event_source/devices/uprobe/type", line, sizeof(line)))
        finding_set(f, STATE_OK, NULL, "perf event type %s", line);
    else
        finding_set(f, STATE_MISSING, "a kernel with CONFIG_UPROBE_EVENTS=y, and /sys mounted",
                    "no uprobes: /sys/bus/event_source/devices/uprobe/type is not there");
}

/* See daemon/seccomp_risk.h; distributions have the correction in other versions, too. */
void check_return_probes(const struct args *args, struct finding *f)
{
    char release[65] = "unknown";
    struct utsname u = {0};

    if (uname(&u) == 0 && strcmp(u.machine, "x86_64") == 0 &&
        kernel_at_least(6, 11, release, sizeof(release)) &&
        !kernel_at_least(6, 14, release, sizeof(release)))
        finding_set(f, STATE_INFO, NULL,
                    "some of Linux 6.11 to 6.13 kill probed processes under seccomp; npumemd tries "
                    "it on a child of its own, and does not start on such a kernel");
    else
        finding_set(f, STATE_OK, NULL, "harmless under seccomp");
}

void check_uprobe_multi(const struct args *args, struct finding *f)
{
    char release[65] = "unknown";

    if (kernel_at_least(KERNEL_MULTI_MAJOR, KERNEL_MULTI_MINOR, release, sizeof(release)))
        finding_set(f, STATE_OK, NULL, "attach and detach of all probes at once");
    else
        finding_set(f, STATE_INFO, NULL,
                    "not in Linux %s (from 6.6): probes are attached one by one, detach is slow",
                    release);
}

void check_btf(const struct args *args, struct finding *f)
{
    struct stat st;

    if (stat("/sys/kernel/btf/vmlinux", &st) == 0)
        finding_set(f, STATE_OK, NULL, "/sys/kernel/btf/vmlinux");
    else
        finding_set(f, STATE_INFO, NULL,
                    "no BTF: events carry no process start time, a reused pid is told by /proc");
}

void check_perf_events(const struct args *args, struct finding *f)
{
    uint64_t caps = effective_capabilities();
    char line[32];

    if (!read_line("/proc/sys/kernel/perf_event_paranoid", line, sizeof(line)))
        finding_set(f, STATE_MISSING, "a kernel with CONFIG_PERF_EVENTS=y", "no perf events");
    else if (has(caps, CAP_PERFMON) || has(caps, CAP_SYS_ADMIN))
        finding_set(f, STATE_OK, NULL, "perf_event_paranoid = %s, does not bind this user", line);
    else if (strtol(line, NULL, 10) <= -1)
        finding_set(f, STATE_OK, NULL, "perf_event_paranoid = %s", line);
    else
        finding_set(f, STATE_MISSING, "sudo npumem check",
                    "perf_event_paranoid = %s binds this user", line);
}
