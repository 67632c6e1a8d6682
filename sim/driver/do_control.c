/* SPDX-License-Identifier: Apache-2.0 */
/*
 * do_control.c - statements about time, meeting points and the end of a process, and the report of
 * truth that a checkpoint writes.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run.h"

HANDLER(do_let)
{
    int64_t value;
    if (!operand_int(t, op, 1, 0, &value))
        return RUN_FAILED;
    t->vars[op->args[0].value] = value;
    return 0;
}

HANDLER(do_seed)
{
    int64_t value;
    if (!operand_int(t, op, 0, 0, &value))
        return RUN_FAILED;
    t->random = (uint64_t)value;
    return 0;
}

static void sleep_until(struct thread *t, int64_t ns)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t end = now.tv_sec * 1000000000 + now.tv_nsec, at = end;
    if (__builtin_add_overflow(end, ns, &end))
        end = INT64_MAX;
    while (at < end && !t->process->stop) {
        int64_t part = end - at < 50000000 ? end - at : 50000000;
        struct timespec pause = {.tv_nsec = part};
        nanosleep(&pause, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        at = now.tv_sec * 1000000000 + now.tv_nsec;
    }
}

HANDLER(do_sleep)
{
    int64_t ns;
    if (!operand_int(t, op, 0, 0, &ns))
        return RUN_FAILED;
    if (ns < 0)
        return thread_fail(t, op, "a negative time");
    sleep_until(t, ns);
    return 0;
}

/* How often this thread has met this name, this time included; 0 when there are too many names. */
static unsigned meeting_count(struct thread *t, const char *prefix, const char *name)
{
    char key[SCENARIO_NAME_MAX];
    snprintf(key, sizeof(key), "%s%.60s", prefix, name);
    for (size_t i = 0; i < t->meeting_count; i++) {
        if (!strcmp(t->meetings[i].name, key))
            return ++t->meetings[i].times;
    }
    if (t->meeting_count == BARRIERS_PER_THREAD)
        return 0;
    strcpy(t->meetings[t->meeting_count].name, key);
    return t->meetings[t->meeting_count++].times = 1;
}

/* Without count=, every rank whose text has a barrier of this name takes part once. */
static int64_t participants_count(const struct scenario *s, const struct op *op)
{
    int64_t count = 0;
    for (uint32_t r = 0; r < s->rank_count; r++) {
        bool found = false;
        for (uint32_t i = s->ranks[r].begin; i < s->ranks[r].end; i++)
            found |=
                s->ops[i].code == OP_BARRIER && !strcmp(s->ops[i].args[0].text, op->args[0].text);
        count += found;
    }
    return count;
}

HANDLER(do_barrier)
{
    char name[SCENARIO_LINE_MAX], self[SCENARIO_NAME_MAX * 3];
    int64_t needed;
    if (!operand_text(t, op, 0, name, sizeof(name)) || !operand_int(t, op, 1, 0, &needed))
        return RUN_FAILED;
    if (op->args[1].kind == OPERAND_NONE)
        needed = participants_count(t->process->scenario, op);
    control_name(name);
    snprintf(self, sizeof(self), "%s.%ld", t->process->name, syscall(SYS_gettid));
    unsigned nth = meeting_count(t, "b", name);
    if (!nth)
        return thread_fail(t, op, "more than %d different barriers", BARRIERS_PER_THREAD);
    int r = control_barrier(&t->process->control, name, nth, self, (unsigned)needed);
    if (r < 0)
        return thread_fail(t, op, "barrier %s: %s", name,
                           r == -EPIPE ? "another rank has failed" : strerror(-r));
    return 0;
}

static void torch_write(const struct process *process, FILE *f)
{
    struct torch_stats stats;
    if (!process->has_torch || process->device < 0)
        return;
    process->torch.stats((int)process->device, &stats);
    fprintf(f,
            ",\"torch\":{\"allocated_bytes\":%lld,\"reserved_bytes\":%lld,\"active_bytes\":%lld,"
            "\"workspace_bytes\":%lld}",
            (long long)stats.allocated_bytes, (long long)stats.reserved_bytes,
            (long long)stats.active_bytes, (long long)stats.workspace_bytes);
}

static int truth_append(const struct process *process, const char *text, size_t size)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/%s.jsonl", process->truth_directory, process->name);
    if (n < 0 || (size_t)n >= sizeof(path))
        return -ENAMETOOLONG;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    ssize_t written = write(fd, text, size);
    int error = written == (ssize_t)size ? 0 : written < 0 ? errno : ENOSPC;
    close(fd);
    return -error;
}

int truth_report(struct thread *t, const char *checkpoint, char **ret_text, size_t *ret_size)
{
    struct process *process = t->process;
    char *text = NULL;
    size_t size = 0;
    struct timespec now;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return -ENOMEM;
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(f, "{\"checkpoint\":");
    json_text(f, checkpoint);
    fprintf(f, ",\"rank\":");
    json_text(f, process->name);
    fprintf(f, ",\"tgid\":%d,\"device\":%lld,\"time_ns\":%lld,", getpid(),
            (long long)process->device, (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    truth_write(process->truth, f, process->scenario->phases);
    torch_write(process, f);
    fprintf(f, "}\n");
    if (fclose(f) != 0) {
        free(text);
        return -ENOMEM;
    }
    int r = process->truth_directory ? truth_append(process, text, size) : 0;
    if (ret_text) {
        *ret_text = text;
        *ret_size = size;
    } else {
        free(text);
    }
    return r;
}

HANDLER(do_checkpoint)
{
    char name[SCENARIO_LINE_MAX], label[300], file[NAME_MAX + 1], go_rank[NAME_MAX + 1],
        go[NAME_MAX + 1];
    const struct control *control = &t->process->control;
    char *text = NULL;
    size_t size = 0;

    if (!operand_text(t, op, 0, name, sizeof(name)))
        return RUN_FAILED;
    control_name(name);
    unsigned nth = meeting_count(t, "c", name);
    if (!nth)
        return thread_fail(t, op, "more than %d different checkpoints", BARRIERS_PER_THREAD);
    if (nth == 1)
        snprintf(label, sizeof(label), "%.80s", name);
    else
        snprintf(label, sizeof(label), "%.80s.%u", name, nth);
    int r = truth_report(t, label, &text, &size);
    snprintf(file, sizeof(file), "reached.%.100s.%.100s", t->process->name, label);
    if (r == 0)
        r = control_put(control, file, text, size);
    free(text);
    if (r < 0)
        return thread_fail(t, op, "cannot be written: %s", strerror(-r));
    snprintf(go, sizeof(go), "go.%.100s", label);
    snprintf(go_rank, sizeof(go_rank), "go.%.100s.%.100s", t->process->name, label);
    while (control->stepping && !t->process->stop && !control_exists(control, go) &&
           !control_exists(control, go_rank) && !control_exists(control, "go.all")) {
        struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
    }
    return 0;
}

HANDLER(do_hold)
{
    char name[SCENARIO_LINE_MAX], file[NAME_MAX + 1];
    if (op->args[0].kind != OPERAND_NONE)
        return do_sleep(t, op);
    if (op->args[2].kind != OPERAND_NONE) {
        if (!operand_text(t, op, 2, name, sizeof(name)))
            return RUN_FAILED;
        control_name(name);
        snprintf(file, sizeof(file), "flag.%.200s", name);
        control_await(&t->process->control, file, 0);
        return 0;
    }
    bool has_file = op->args[1].kind != OPERAND_NONE;
    if (has_file && !operand_text(t, op, 1, name, sizeof(name)))
        return RUN_FAILED;
    while (!t->process->stop && !(has_file && access(name, F_OK) == 0)) {
        struct timespec pause = {.tv_nsec = 5000000};
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* What a process was told to do, so that whoever reaps it can tell it from an accident. */
static void end_announce(const struct thread *t, const char *how, int number)
{
    char file[64], text[64];
    snprintf(file, sizeof(file), "end.%d", getpid());
    int n = snprintf(text, sizeof(text), "%s %d", how, number);
    control_put(&t->process->control, file, text, (size_t)n);
}

HANDLER(do_wait)
{
    int status;
    pid_t tgid;
    while ((tgid = waitpid(-1, &status, 0)) > 0 || errno == EINTR) {
        if (tgid <= 0)
            continue;
        char file[64], path[PATH_MAX], text[64] = "", end[64];
        snprintf(file, sizeof(file), "end.%d", tgid);
        snprintf(path, sizeof(path), "%s/%s", t->process->control.directory, file);
        FILE *f = fopen(path, "re");
        if (f) {
            if (!fgets(text, sizeof(text), f))
                text[0] = '\0';
            fclose(f);
        }
        if (WIFSIGNALED(status))
            snprintf(end, sizeof(end), "signal %d", WTERMSIG(status));
        else
            snprintf(end, sizeof(end), "exit %d", WEXITSTATUS(status));
        if (strcmp(*text ? text : "exit 0", end) != 0)
            return thread_fail(t, op, "child %d ended with %s", tgid, end);
    }
    return 0;
}

HANDLER(do_exit)
{
    int64_t code;
    if (!operand_int(t, op, 0, 0, &code))
        return RUN_FAILED;
    if (code < 0 || code > 255)
        return thread_fail(t, op, "an exit code of %lld", (long long)code);
    if (t->process->truth_directory)
        truth_report(t, "end", NULL, NULL);
    end_announce(t, "exit", (int)code);
    fflush(NULL);
    exit((int)code);
}

HANDLER(do_abort)
{
    (void)op;
    end_announce(t, "signal", SIGABRT);
    abort();
}

HANDLER(do_kill)
{
    end_announce(t, "signal", SIGKILL);
    kill(getpid(), SIGKILL);
    pause();
    return thread_fail(t, op, "still alive");
}

HANDLER(do_print)
{
    char text[SCENARIO_LINE_MAX];
    if (!operand_text(t, op, 0, text, sizeof(text)))
        return RUN_FAILED;
    printf("%s: %s\n", t->process->name, text);
    fflush(stdout);
    return 0;
}
