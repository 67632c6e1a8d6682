/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_demo.c - npumem demo: a simulated server, observed by the real daemon.
 *
 * Owns: the server's process group, from its start to its certain end.
 * Must not: show anything that the daemon did not answer.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "breakdown.h"
#include "client.h"
#include "demo.h"
#include "doc.h"

#define POLL_NS 200000000
#define APPEAR_POLLS 150 /* 30 s for the daemon to see the server */
#define STEADY_POLLS 5   /* what ranks hold is unchanged for 1 s: they serve */
#define SETTLE_POLLS 75  /* 15 s; a scenario that never settles is shown as it is */
#define STOP_POLLS 25    /* 5 s from SIGTERM to SIGKILL */

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

static void nap(void)
{
    struct timespec t = {.tv_nsec = POLL_NS};
    nanosleep(&t, NULL);
}

struct server {
    pid_t pid;
    bool ended;
    int status;
};

static int server_start(const struct args *args, const struct demo_paths *paths, struct server *ret,
                        struct error *reterr)
{
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid < 0)
        return error_set(reterr, errno, "demo: fork: %s", strerror(errno));
    if (pid == 0) {
        setpgid(0, 0);
        int fd = open(args->verbose ? "/dev/stderr" : "/dev/null", O_WRONLY | O_CLOEXEC);
        if (fd >= 0)
            dup2(fd, STDOUT_FILENO);
        execl(paths->program, "npusim-run", "--stay", paths->scenario, (char *)NULL);
        fprintf(stderr, "npumem: %s: %s\n", paths->program, strerror(errno));
        _exit(127);
    }
    setpgid(pid, pid); /* whoever comes first: the group exists before anybody signals it */
    *ret = (struct server){.pid = pid};
    return 0;
}

static bool server_ended(struct server *s)
{
    if (!s->ended && waitpid(s->pid, &s->status, WNOHANG) == s->pid)
        s->ended = true;
    return s->ended;
}

static void server_stop(struct server *s)
{
    if (!server_ended(s))
        kill(-s->pid, SIGTERM);
    for (int i = 0; i < STOP_POLLS && !server_ended(s); i++)
        nap();
    kill(-s->pid, SIGKILL); /* what is left of the group, if anything */
    if (!s->ended) {
        while (waitpid(s->pid, &s->status, 0) < 0 && errno == EINTR)
            ;
        s->ended = true;
    }
}

/* What the server's ranks hold, as one figure to see whether it still changes. */
struct seen {
    struct cli_numbers tgids;
    int64_t bytes;
    bool all_hold; /* every rank holds something */
};

static void look(struct json_object *document, pid_t server, struct seen *ret)
{
    *ret = (struct seen){.all_hold = true};
    for (size_t i = 0; i < doc_count(document, "ranks"); i++) {
        struct json_object *rank = doc_item(document, "ranks", i);
        int64_t tgid = 0, physical = 0, reserved = 0, number;

        if (!doc_int(rank, "tgid", &tgid) || !demo_is_descendant(tgid, server) ||
            ret->tgids.count == CLI_LIST_MAX)
            continue;
        /* an engine maps the libraries like its ranks, but never holds anything */
        if (!doc_int(rank, "rank", &number) && !doc_int(rank, "device", &number))
            continue;
        doc_int(rank, "seen_bytes", &physical);
        doc_int(rank, "reserved_bytes", &reserved);
        ret->tgids.items[ret->tgids.count++] = tgid;
        ret->bytes += physical + reserved; /* not a sum to show: only its change matters */
        ret->all_hold &= physical > 0;
    }
}

/* Waits until the daemon sees all ranks hold steady. */
static int wait_for_server(const struct args *args, struct server *s, struct cli_numbers *ret,
                           struct error *reterr)
{
    struct seen before = {0}, now = {0};
    int steady = 0, present = 0;

    for (int i = 0; i < APPEAR_POLLS; i++) {
        struct json_object *document = NULL;

        if (interrupted)
            return error_set(reterr, EINTR, "demo: interrupted");
        if (server_ended(s)) {
            error_set(reterr, ECHILD, "demo: the simulated server ended early (%s %d)",
                      WIFEXITED(s->status) ? "exit" : "signal",
                      WIFEXITED(s->status) ? WEXITSTATUS(s->status) : WTERMSIG(s->status));
            return error_fix(reterr, -ECHILD, "npumem demo -v");
        }
        int r = ask(args, "Breakdown", NULL, &document, reterr);
        if (r < 0)
            return r;
        look(document, s->pid, &now);
        json_object_put(document);
        bool same = now.tgids.count > 0 && now.all_hold && now.bytes == before.bytes &&
                    now.tgids.count == before.tgids.count;
        steady = same ? steady + 1 : 0;
        present += now.tgids.count > 0 && now.all_hold;
        if (steady >= STEADY_POLLS || present >= SETTLE_POLLS) {
            *ret = now.tgids;
            return 0;
        }
        before = now;
        nap();
    }
    error_set(reterr, ETIMEDOUT, "demo: the daemon did not see the simulated server");
    return error_fix(reterr, -ETIMEDOUT, "npumem status, journalctl -u npumemd");
}

static int run(const struct args *args, const struct demo_paths *paths)
{
    struct server server = {0};
    struct error error = {0};
    struct args shown = *args;
    struct json_object *document = NULL;
    struct out o;

    out_init(&o, args);
    int r = server_start(args, paths, &server, &error);
    if (r < 0)
        return fail(EXIT_RUNTIME, &error);
    r = wait_for_server(args, &server, &shown.tgids, &error);
    if (r == 0) {
        struct json_object *filters = ask_filters(&shown);
        r = ask(args, "Breakdown", filters, &document, &error);
        json_object_put(filters);
    }
    server_stop(&server); /* before printing: a pager may stay open */
    if (r < 0)
        return fail(interrupted ? 128 + interrupted : exit_code_of(r), &error);
    int code = ask_show(&shown, &o, document, "ranks", breakdown_render);
    json_object_put(document);
    return out_finish(&o, code);
}

int verb_demo(const struct args *args)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct json_object *document = NULL;
    struct demo_paths paths;
    struct error error = {0};

    if (breakdown_check_fields(args, &error) < 0)
        return fail(EXIT_USAGE, &error);
    int r = ask(args, "Status", NULL, &document, &error);
    if (r < 0)
        return fail(exit_code_of(r), &error);
    json_object_put(document);
    if (demo_find(args->operand_count ? args->operands[0] : "demo", &paths, &error) < 0)
        return fail(EXIT_RUNTIME, &error);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    return run(args, &paths);
}
