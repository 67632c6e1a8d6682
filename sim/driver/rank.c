/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank.c - a rank as a process: its environment at exec, its title, its libraries.
 *
 * The title is written over the argument area, as setproctitle does, so that /proc/PID/cmdline
 * shows it; the argument vector is padded so that it fits without touching the environment.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "launch.h"

enum { TITLE_MAX = 512 };

extern char **environ;

int rank_text(const struct scenario *s, const struct rank *rank, const char *text, char *out,
              size_t size)
{
    int64_t vars[SCENARIO_VARS_MAX], device = -1;
    struct expr_context context = {.scenario = s, .vars = vars};
    memcpy(vars, s->var_values, sizeof(vars));
    vars[VAR_RANK] = rank->number;
    vars[VAR_RANKS] = s->rank_count;
    if (rank->has_device && expr_eval(&rank->device, &context, &device) < 0)
        return -ERANGE;
    vars[VAR_DEVICE] = device;
    return text_expand(s, vars, text ? text : "", out, size);
}

static int64_t rank_device(const struct scenario *s, const struct rank *rank)
{
    char text[32];
    if (!rank->has_device || rank_text(s, rank, "$device", text, sizeof(text)) < 0)
        return -1;
    return strtoll(text, NULL, 10);
}

static void environment_set(const struct scenario *s, const struct rank *rank)
{
    char text[SCENARIO_LINE_MAX];
    for (uint32_t i = 0; i < rank->envs; i++) {
        if (rank_text(s, rank, rank->env[i], text, sizeof(text)) == 0)
            putenv(strdup(text));
    }
}

int rank_spawn(const struct options *options, const struct scenario *s, uint32_t index)
{
    const struct rank *rank = &s->ranks[index];
    char number[16], padding[TITLE_MAX + 1];
    const char *argv[40 + 2 * DEFINES_MAX];
    size_t n = 0;

    snprintf(number, sizeof(number), "%u", index);
    memset(padding, '-', TITLE_MAX);
    padding[TITLE_MAX] = '\0';
    argv[n++] = options->self;
    argv[n++] = "--rank-index";
    argv[n++] = number;
    argv[n++] = "--lib-dir";
    argv[n++] = options->libraries;
    argv[n++] = "--torch";
    argv[n++] = options->torch;
    argv[n++] = "--control";
    argv[n++] = options->control;
    if (options->truth) {
        argv[n++] = "--truth";
        argv[n++] = options->truth;
    }
    if (options->stepping)
        argv[n++] = "--stepping";
    if (options->stay)
        argv[n++] = "--stay";
    for (size_t i = 0; i < options->define_count; i++) {
        argv[n++] = "-D";
        argv[n++] = options->defines[i];
    }
    argv[n++] = "--padding";
    argv[n++] = padding;
    argv[n++] = options->scenario;
    argv[n] = NULL;
    fflush(NULL);
    pid_t parent = getpid(), tgid = fork();
    if (tgid < 0)
        return -errno;
    if (tgid)
        return tgid;
    if (options->rank_index < 0) { /* a rank dies with the supervisor, not with another rank */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(127);
    }
    environment_set(s, rank);
    execve(options->self, (char *const *)argv, environ);
    fprintf(stderr, "npusim-run: %s: %s\n", options->self, strerror(errno));
    _exit(127);
}

int ranks_spawn(const struct options *options, const struct scenario *s, const char *parent)
{
    char name[SCENARIO_LINE_MAX];
    for (uint32_t i = 0; i < s->rank_count; i++) {
        int r = rank_text(s, &s->ranks[i], s->ranks[i].parent, name, sizeof(name));
        if (r == 0 && strcmp(name, parent) == 0)
            r = rank_spawn(options, s, i);
        if (r < 0)
            return r;
    }
    return 0;
}

static void title_set(const char *title, const char *comm)
{
    char stat[4096], *at;
    unsigned long start = 0, end = 0;
    FILE *f = fopen("/proc/self/stat", "re");
    size_t n = f ? fread(stat, 1, sizeof(stat) - 1, f) : 0;
    if (f)
        fclose(f);
    stat[n] = '\0';
    at = strrchr(stat, ')');
    for (int field = 2; at && field < 48; field++)
        at = strchr(at + 1, ' '); /* proc(5): 48 arg_start, 49 arg_end */
    if (at && sscanf(at, " %lu %lu", &start, &end) == 2 && end > start + 1 && *title) {
        memset((char *)start, 0, end - start);
        snprintf((char *)start, end - start, "%s", title);
    }
    prctl(PR_SET_NAME, *comm ? comm : title);
}

static struct process *running;

static void signal_stop(int number)
{
    (void)number;
    running->stop = 1;
}

static int libraries_load(const struct options *options, struct process *process)
{
    const struct scenario *s = process->scenario;
    char message[512] = "";
    int r = acl_open(options->libraries, s->uses_hccl, s->uses_atb, s->uses_nnop, &process->acl,
                     message, sizeof(message));
    if (r == 0 && s->uses_torch) {
        r = torch_open(options->torch, &process->torch, message, sizeof(message));
        process->has_torch = r == 0;
    }
    if (r == 0 && process->device >= 0 && process->acl.aclInit &&
        (r = process->acl.aclInit(NULL)) != 0)
        snprintf(message, sizeof(message), "aclInit failed: %d", r);
    if (r)
        fprintf(stderr, "npusim-run: rank %s: %s\n", process->name, message);
    return r;
}

int rank_main(const struct options *options, const struct scenario *s, uint32_t index)
{
    const struct rank *rank = &s->ranks[index];
    struct process *process = calloc(1, sizeof(*process));
    char title[SCENARIO_LINE_MAX], comm[SCENARIO_LINE_MAX];
    struct sigaction action = {.sa_handler = signal_stop};

    if (!process || !(process->truth = calloc(1, sizeof(*process->truth))) ||
        !(process->slots = calloc((size_t)s->slot_count + 1, sizeof(*process->slots))) ||
        rank_text(s, rank, rank->title, title, sizeof(title)) < 0 ||
        rank_text(s, rank, rank->comm, comm, sizeof(comm)) < 0) {
        fprintf(stderr, "npusim-run: rank %s: out of memory\n", rank->name);
        return 1;
    }
    process->scenario = s;
    process->rank = rank;
    snprintf(process->name, sizeof(process->name), "%s", rank->name);
    process->truth_directory = options->truth;
    process->device = rank_device(s, rank);
    process->control.stepping = options->stepping;
    process->control.stop = &process->stop;
    snprintf(process->control.directory, sizeof(process->control.directory), "%s",
             options->control);
    running = process;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    if (options->in_process)
        environment_set(s, rank);
    else if (*title || *comm)
        title_set(title, comm);
    char name[SCENARIO_NAME_MAX * 2];
    snprintf(name, sizeof(name), "%s", process->name);
    if (!options->in_process && ranks_spawn(options, s, name) < 0)
        return 1;
    if (libraries_load(options, process))
        return 1;
    int code = process_run(process);
    while (options->stay && code == 0 && !process->stop)
        usleep(10000);
    fflush(NULL);
    return code;
}
