/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_threads.c - thread states to kernel thread ids, for CPython before 3.11; see
 * python_internal.h.
 *
 * Those keep the pthread_t alone. The C library keeps the kernel's id somewhere in struct pthread:
 * at an offset where every thread state's own struct has the id of a thread of the process, each
 * another one.
 */
#include <bpf/bpf.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "procfs.h"
#include "python_internal.h"

#define PTHREAD_BYTES 1024 /* glibc: 720 on x86_64, 208 on aarch64; musl: 56 */
#define TASKS_MAX 4096
#define STATUS_BYTES_MAX (64u << 10)

struct task {
    uint32_t tid, ns_tid; /* as the host and as the process count */
};

struct tasks {
    struct task items[TASKS_MAX];
    size_t count;
    uint32_t offset; /* where ids are, 0 being looked for */
    uint64_t candidates[PTHREAD_BYTES / 4 / 64];
    unsigned threads;
    struct python *python;
    struct python_process *process;
    uint32_t asked;
};

/* The last number of the NSpid line. */
static uint32_t status_ns_tid(uint32_t tgid, const char *tid)
{
    _cleanup_free_ char *text = NULL;
    char name[64], *line, *end;

    snprintf(name, sizeof(name), "task/%.16s/status", tid);
    if (procfs_read(tgid, name, STATUS_BYTES_MAX, &text) <= 0)
        return 0;
    line = strstr(text, "\nNSpid:");
    end = line ? strchr(line + 1, '\n') : NULL;
    if (!end)
        return 0;
    while (end > line && end[-1] >= '0' && end[-1] <= '9')
        end--;
    return strtoul(end, NULL, 10);
}

static void tasks_read(struct tasks *t, uint32_t tgid, bool is_inner)
{
    char path[64];
    struct dirent *d;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%u/task", tgid);
    dir = opendir(path);
    while (dir && (d = readdir(dir)) && t->count < TASKS_MAX) {
        uint32_t tid = strtoul(d->d_name, NULL, 10);
        if (!tid)
            continue;
        t->items[t->count++] = (struct task){tid, is_inner ? status_ns_tid(tgid, d->d_name) : tid};
    }
    if (dir)
        closedir(dir);
}

static const struct task *task_find(const struct tasks *t, uint32_t ns_tid)
{
    for (size_t i = 0; ns_tid && i < t->count; i++)
        if (t->items[i].ns_tid == ns_tid)
            return &t->items[i];
    return NULL;
}

/* Keeps the offsets at which this thread's struct pthread has a thread id of the process. */
static int thread_narrow(void *userdata, const struct python_thread *thread)
{
    struct tasks *t = userdata;
    const struct memory_reader *reader = &t->process->runtime.reader;
    uint32_t words[PTHREAD_BYTES / 4] = {};

    for (size_t at = 0; at < PTHREAD_BYTES; at += 64) /* it may end at a page's end */
        if (reader->read(reader->userdata, thread->thread_id + at, (char *)words + at, 64) < 0)
            break;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (!task_find(t, words[i]))
            t->candidates[i / 64] &= ~(1ull << i % 64);
    t->threads++;
    return 0;
}

static void offset_find(struct tasks *t)
{
    memset(t->candidates, 0xff, sizeof(t->candidates));
    t->threads = 0;
    if (python_each_thread(&t->process->runtime, thread_narrow, t) < 0 || !t->threads)
        return;
    for (uint32_t i = 0; i < PTHREAD_BYTES / 4; i++)
        if (t->candidates[i / 64] >> i % 64 & 1) {
            t->offset = i * 4;
            return;
        }
}

static int thread_tell(void *userdata, const struct python_thread *thread)
{
    struct tasks *t = userdata;
    const struct memory_reader *reader = &t->process->runtime.reader;
    struct nm_py_thread value = {
        .thread_state = thread->address,
        .thread_id = thread->thread_id,
        .tgid = t->process->tgid,
    };
    const struct task *task;
    uint32_t ns_tid;

    if (reader->read(reader->userdata, thread->thread_id + t->offset, &ns_tid, sizeof(ns_tid)) < 0)
        return 0;
    task = task_find(t, ns_tid);
    if (!task)
        return 0;
    bpf_map_update_elem(t->python->threads_fd, &task->tid, &value, BPF_ANY);
    if (task->tid == t->asked)
        t->asked = 0;
    return 0;
}

void python_threads_tell(struct python *p, struct python_process *pp, uint32_t tid)
{
    struct tasks *t;

    if (!pp->has_runtime || pp->runtime.layout.walk.thread_native_id)
        return;
    t = calloc(1, sizeof(*t));
    if (!t)
        return;
    t->python = p;
    t->process = pp;
    t->asked = tid;
    t->offset = pp->tid_offset;
    tasks_read(t, pp->tgid, pp->told.ns_ino != 0);
    if (!t->offset)
        offset_find(t);
    if (t->offset) {
        /* with one thread alone another field may have looked like its id */
        if (t->threads > 1)
            pp->tid_offset = t->offset;
        python_each_thread(&pp->runtime, thread_tell, t);
    }
    if (t->asked) {
        struct nm_py_thread none = {.tgid = pp->tgid};
        bpf_map_update_elem(p->threads_fd, &t->asked, &none, BPF_ANY);
    }
    free(t);
}
