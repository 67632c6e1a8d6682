/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supervise.c - starts the ranks, waits for every process of the scenario, and tells whether each
 * ended as the scenario says.
 *
 * It is the sub-reaper of the tree: a rank whose parent has gone is waited for too.
 */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"

static volatile sig_atomic_t stop_signal;

static void signal_note(int number)
{
    stop_signal = number;
}

static int entry_remove(const char *path, const struct stat *stat, int kind, struct FTW *ftw)
{
    (void)stat;
    (void)kind;
    (void)ftw;
    return remove(path);
}

void tree_remove(const char *path)
{
    nftw(path, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
}

static void end_read(const struct options *options, pid_t tgid, char *out, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/end.%d", options->control, tgid);
    FILE *f = fopen(path, "re");
    snprintf(out, size, "exit 0");
    if (f) {
        if (!fgets(out, (int)size, f))
            snprintf(out, size, "exit 0");
        fclose(f);
    }
}

static void end_record(const struct options *options, pid_t tgid, const char *end, bool meant)
{
    char path[PATH_MAX];
    if (!options->truth)
        return;
    snprintf(path, sizeof(path), "%s/exits.jsonl", options->truth);
    FILE *f = fopen(path, "ae");
    if (!f)
        return;
    fprintf(f, "{\"tgid\":%d,\"end\":\"%s\",\"meant\":%s}\n", tgid, end, meant ? "true" : "false");
    fclose(f);
}

/* Returns whether the process ended as it announced (exit 0 when it announced nothing). */
static bool child_judge(const struct options *options, const struct scenario *s, pid_t tgid,
                        int status)
{
    char meant[64], end[64];
    struct control control = {0};
    end_read(options, tgid, meant, sizeof(meant));
    if (WIFSIGNALED(status))
        snprintf(end, sizeof(end), "signal %d", WTERMSIG(status));
    else
        snprintf(end, sizeof(end), "exit %d", WEXITSTATUS(status));
    bool as_meant = strcmp(meant, end) == 0;
    if (!as_meant && stop_signal && WIFSIGNALED(status))
        as_meant = true; /* we were told to stop: a rank outside a hold may die of it */
    end_record(options, tgid, end, as_meant);
    if (!as_meant) {
        fprintf(stderr, "%s: process %d ended with %s, not %s\n", s->path, tgid, end, meant);
        snprintf(control.directory, sizeof(control.directory), "%s", options->control);
        control_put(&control, "failed", end, strlen(end));
    }
    return as_meant;
}

/* Sends a signal to all processes below this one, directly or not. */
static void tree_signal(pid_t root, int number)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", root);
    DIR *tasks = opendir(path);
    if (!tasks)
        return;
    for (const struct dirent *task; (task = readdir(tasks));) {
        char children[PATH_MAX];
        int child;
        snprintf(children, sizeof(children), "/proc/%d/task/%s/children", root, task->d_name);
        FILE *f = task->d_name[0] == '.' ? NULL : fopen(children, "re");
        if (!f)
            continue;
        while (fscanf(f, "%d", &child) == 1) {
            tree_signal(child, number);
            kill(child, number);
        }
        fclose(f);
    }
    closedir(tasks);
}

static int children_wait(const struct options *options, const struct scenario *s)
{
    bool all_meant = true;
    int status, forwarded = 0;
    for (;;) {
        if (stop_signal && !forwarded) {
            forwarded = stop_signal;
            tree_signal(getpid(), SIGTERM);
        }
        pid_t tgid = waitpid(-1, &status, 0);
        if (tgid < 0 && errno == EINTR)
            continue;
        if (tgid < 0)
            break;
        all_meant &= child_judge(options, s, tgid, status);
    }
    return all_meant ? 0 : 1;
}

static int node_prepare(const struct options *options, const struct scenario *s)
{
    char text[4096];
    if (!s->devices)
        return 0;
    snprintf(text, sizeof(text), "%lld", (long long)s->devices);
    setenv("NPUSIM_DEVICES", text, 0);
    snprintf(text, sizeof(text), "%lld", (long long)s->device_bytes);
    setenv("NPUSIM_HBM", text, 0);
    snprintf(text, sizeof(text), "%lld", (long long)s->baseline_bytes);
    setenv("NPUSIM_BASELINE", text, 0);
    if (getenv("NPUSIM_DIR"))
        return 0;
    snprintf(text, sizeof(text), "%s/node", options->control);
    if (mkdir(text, 0755) < 0 && errno != EEXIST)
        return -errno;
    setenv("NPUSIM_DIR", text, 1);
    return 0;
}

int supervise(struct options *options, const struct scenario *s)
{
    char temporary[] = "/tmp/npusim-XXXXXX";
    struct sigaction action = {.sa_handler = signal_note};
    int code = 1;
    bool own = !options->control;

    if (own && !mkdtemp(temporary)) {
        fprintf(stderr, "npusim-run: %s: %s\n", temporary, strerror(errno));
        return 1;
    }
    if (own)
        options->control = temporary;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    int r = node_prepare(options, s);
    if (r == 0)
        r = ranks_spawn(options, s, "");
    if (r < 0)
        fprintf(stderr, "npusim-run: ranks cannot be started: %s\n", strerror(-r));
    code = children_wait(options, s);
    if (own)
        tree_remove(temporary);
    return r < 0 ? 1 : code;
}
