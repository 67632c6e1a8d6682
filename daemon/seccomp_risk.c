/* SPDX-License-Identifier: Apache-2.0 */
/* seccomp_risk.c - see seccomp_risk.h. The probe is a perf event without a program, of the child
 * alone. */
#include "seccomp_risk.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "procfs.h"
#include "procmaps.h"

#define UPROBE_TYPE "/sys/bus/event_source/devices/uprobe/type"
#define CONFIG_RETURN 1u /* bit 0, ../format/retprobe */
#define MAPS_BYTES_MAX (16u << 20)
#define WAIT_MS 2000
#define WAIT_STEP_MS 2

static __attribute__((noinline, noclone)) int probed(int n)
{
    __asm__ volatile("" : "+r"(n));
    return n + 1;
}

/* Where that function is in this program's file. */
static int probed_offset(uint64_t *ret)
{
    _cleanup_free_ char *text = NULL;
    ssize_t bytes = procfs_read((uint32_t)getpid(), "maps", MAPS_BYTES_MAX, &text);
    uint64_t address = (uint64_t)(uintptr_t)probed;
    struct maps_reader reader;
    struct maps_entry entry;

    if (bytes < 0)
        return (int)bytes;
    maps_reader_init(&reader, text, (size_t)bytes);
    while (maps_next(&reader, &entry) > 0)
        if (address >= entry.start && address < entry.end) {
            *ret = entry.offset + (address - entry.start);
            return 0;
        }
    return -ENOENT;
}

static int uprobe_type(uint32_t *ret)
{
    _cleanup_fclose_ FILE *f = fopen(UPROBE_TYPE, "re");

    return f && fscanf(f, "%u", ret) == 1 ? 0 : -ENOSYS;
}

/* Ends the child: 0 the function returned what it should. */
static void child_run(int go, unsigned denied)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, denied, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = ARRAY_SIZE(code), .filter = code};
    static const int deaths[] = {SIGILL, SIGSEGV, SIGBUS, SIGTRAP, SIGSYS};
    struct rlimit none = {0};
    char byte;

    for (size_t i = 0; i < ARRAY_SIZE(deaths); i++)
        signal(deaths[i], SIG_DFL);
    setrlimit(RLIMIT_CORE, &none); /* it is meant to die where the kernel is such */
    if (read(go, &byte, 1) != 1 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        _exit(2);                                      /* nothing was tried */
    syscall(SYS_exit_group, probed(41) == 42 ? 0 : 1); /* not _exit(), which has a second way */
    __builtin_trap();
}

static int child_wait(pid_t child, bool *ret_survives)
{
    const struct timespec step = {.tv_nsec = WAIT_STEP_MS * 1000000};
    int status = 0;
    pid_t r = 0;

    for (int waited = 0; waited < WAIT_MS && r == 0; waited += WAIT_STEP_MS) {
        r = waitpid(child, &status, WNOHANG);
        if (r == 0)
            nanosleep(&step, NULL);
    }
    if (r == 0) { /* it runs in circles */
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    }
    if (r < 0)
        return -errno;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        return -ENOSYS;
    *ret_survives = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return 0;
}

int return_probe_try(unsigned denied, bool *ret_survives)
{
    struct perf_event_attr attr = {
        .size = sizeof(attr),
        .config = CONFIG_RETURN,
        .uprobe_path = (uint64_t)(uintptr_t) "/proc/self/exe",
    };
    _cleanup_close_ int go = -1, event = -1;
    uint64_t offset;
    int ends[2], r;
    pid_t child;

    r = uprobe_type(&attr.type);
    if (r == 0)
        r = probed_offset(&offset);
    if (r < 0)
        return r;
    attr.probe_offset = offset;
    if (pipe(ends) < 0)
        return -errno;
    go = ends[1];
    child = fork();
    if (child == 0) {
        close(ends[1]);
        child_run(ends[0], denied);
    }
    r = child < 0 ? -errno : 0;
    close(ends[0]);
    if (r < 0)
        return r;
    event = (int)syscall(SYS_perf_event_open, &attr, child, -1, -1, PERF_FLAG_FD_CLOEXEC);
    r = event < 0 ? -errno : 0;
    if (event < 0 || write(go, "g", 1) != 1)
        kill(child, SIGKILL);
    int waited = child_wait(child, ret_survives);
    return r < 0 ? r : waited;
}
