/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan.c - see scan.h.
 *
 * Owns: the queue, the running child and its pipe, the kept results.
 * Must not: wait for the child; trust its bytes.
 * Invariants: at most one child; a request is answered by exactly one ended().
 */
#include "scan.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <unistd.h>

#include "clock.h"
#include "log.h"
#include "child.h"

#define READ_AT_ONCE (256u << 10)
#define TEXT_MAX 200u /* of the child's words */

struct scan_request {
    uint32_t tgid;
    bool is_thorough;
    bool is_pool; /* look for a pool of KV blocks, and for nothing else */
    uint64_t start_ticks;
};

struct scan_kept {
    uint32_t tgid;
    uint64_t time_ns, bytes;
    unsigned count; /* scans of this process so far */
    struct scan_result *result;
    struct scan_kept *next; /* newest first */
};

struct scans {
    sd_event *event;
    char *roots_dir;
    const struct scans_handler *handler;
    void *userdata;
    struct scan_request waiting[SCANS_WAITING_MAX];
    size_t waiting_count;
    struct scan_request running; /* tgid 0: none */
    pid_t child;
    int fd;
    sd_event_source *io, *timer;
    char *data;
    size_t bytes, capacity;
    struct scan_kept *kept;
    uint64_t kept_bytes;
};

static void run_next(struct scans *s);

int scans_new(sd_event *event, const char *roots_dir, const struct scans_handler *handler,
              void *userdata, struct scans **ret)
{
    struct scans *s = calloc(1, sizeof(*s));

    if (!s)
        return -ENOMEM;
    s->event = sd_event_ref(event);
    s->handler = handler;
    s->userdata = userdata;
    s->fd = -1;
    s->child = -1;
    s->roots_dir = strdup(roots_dir ? roots_dir : "");
    if (!s->roots_dir) {
        scans_free(s);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}

static void kept_remove(struct scans *s, struct scan_kept **at)
{
    struct scan_kept *k = *at;

    *at = k->next;
    s->kept_bytes -= k->bytes;
    scan_result_free(k->result);
    free(k);
}

/* Ends the child if it still runs; it is ours and dies of SIGKILL at once. */
static int child_end(struct scans *s, bool kill_it)
{
    int status = 0;

    s->io = sd_event_source_disable_unref(s->io);
    s->timer = sd_event_source_disable_unref(s->timer);
    closep(&s->fd);
    s->fd = -1;
    if (s->child > 0) {
        if (kill_it)
            kill(s->child, SIGKILL);
        while (waitpid(s->child, &status, 0) < 0 && errno == EINTR)
            ;
    }
    s->child = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct scans *scans_free(struct scans *s)
{
    if (!s)
        return NULL;
    child_end(s, true);
    while (s->kept)
        kept_remove(s, &s->kept);
    free(s->data);
    free(s->roots_dir);
    sd_event_unref(s->event);
    free(s);
    return NULL;
}

/* Keeps a result, in place of an older one of the same process; the oldest go when there are too
 * many bytes. */
static void result_keep(struct scans *s, uint32_t tgid, struct scan_result *result, uint64_t bytes)
{
    struct scan_kept *k = calloc(1, sizeof(*k));
    unsigned count = scans_count(s, tgid) + 1;

    scans_forget(s, tgid);
    if (!k) {
        scan_result_free(result);
        return;
    }
    *k = (struct scan_kept){.tgid = tgid,
                            .time_ns = clock_ns(CLOCK_BOOTTIME),
                            .bytes = bytes,
                            .count = count,
                            .result = result,
                            .next = s->kept};
    s->kept = k;
    s->kept_bytes += bytes;
    while (s->kept_bytes > SCAN_KEPT_BYTES_MAX && s->kept->next) {
        struct scan_kept **at = &s->kept->next;
        while ((*at)->next)
            at = &(*at)->next;
        kept_remove(s, at);
    }
}

/* What a child that failed said: what happened and the way out, each ended by a NUL. */
static void words_take(const struct scans *s, int code, struct error *reterr)
{
    size_t what = strnlen(s->data ? s->data : "", s->bytes);
    size_t fix = what < s->bytes ? strnlen(s->data + what + 1, s->bytes - what - 1) : 0;

    if (code > 0 && what)
        error_set(reterr, EIO, "%.*s", (int)(what < TEXT_MAX ? what : TEXT_MAX), s->data);
    else
        error_set(reterr, EIO, "process %u: the scan died", s->running.tgid);
    if (code > 0 && fix)
        error_fix(reterr, EIO, "%.*s", (int)(fix < TEXT_MAX ? fix : TEXT_MAX), s->data + what + 1);
}

/* The child's bytes as a pool; false: they are none. */
static bool pool_take(const struct scans *s, struct kv_pool *ret)
{
    if (s->bytes != sizeof(*ret))
        return false;
    memcpy(ret, s->data, sizeof(*ret));
    return kv_pool_check(ret);
}

static void finish(struct scans *s, bool kill_it, const char *why)
{
    struct error error = {0};
    struct scan_result *result = NULL;
    struct scan_request request = s->running;
    uint32_t tgid = request.tgid;
    int code = child_end(s, kill_it);
    struct kv_pool pool;
    bool is_right = false;

    if (why)
        error_set(&error, ETIMEDOUT, "process %u: %s", tgid, why);
    else if (code != 0)
        words_take(s, code, &error);
    else if (!(is_right = request.is_pool ? pool_take(s, &pool)
                                          : scan_result_decode(s->data, s->bytes, &result) == 0))
        error_set(&error, EBADMSG, "process %u: the scan's answer is no answer", tgid);
    s->running = (struct scan_request){0};
    if (request.is_pool)
        s->handler->pool_ended(s->userdata, tgid, is_right ? &pool : NULL, &error);
    else if (s->handler->ended)
        s->handler->ended(s->userdata, tgid, result, &error);
    if (result)
        result_keep(s, tgid, result, s->bytes);
    free(s->data);
    s->data = NULL;
    s->bytes = s->capacity = 0;
    run_next(s);
}

static int on_output(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    struct scans *s = userdata;
    ssize_t n;

    if (s->capacity - s->bytes < READ_AT_ONCE) {
        size_t capacity = s->capacity ? 2 * s->capacity : 4 * READ_AT_ONCE;
        char *data = capacity <= SCAN_WIRE_BYTES_MAX ? realloc(s->data, capacity) : NULL;
        if (!data) {
            finish(s, true, "the scan's answer is too long");
            return 0;
        }
        s->data = data;
        s->capacity = capacity;
    }
    n = read(fd, s->data + s->bytes, READ_AT_ONCE);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        finish(s, false, NULL);
    else
        s->bytes += (size_t)n;
    return 0;
}

static int on_timeout(sd_event_source *source, uint64_t usec, void *userdata)
{
    finish(userdata, true, "the scan took too long");
    return 0;
}

static pid_t spawn_child(const struct scans *s, int output)
{
    char tgid[16], ticks[24], thorough[2];
    const char *const argv[] = {"npumemd", "--scan", tgid, ticks, thorough, s->roots_dir, NULL};

    snprintf(tgid, sizeof(tgid), "%u", s->running.tgid);
    snprintf(ticks, sizeof(ticks), "%llu", (unsigned long long)s->running.start_ticks);
    snprintf(thorough, sizeof(thorough), "%c",
             s->running.is_pool       ? SCAN_POOL
             : s->running.is_thorough ? SCAN_THOROUGH
                                      : SCAN_USUAL);
    return child_spawn(argv, output);
}

static int child_start(struct scans *s)
{
    int fds[2], r;

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    fcntl(fds[1], F_SETFL, 0); /* the child may wait */
    s->fd = fds[0];
    s->child = spawn_child(s, fds[1]);
    close(fds[1]);
    r = s->child < 0 ? -EAGAIN : 0;
    if (r == 0)
        r = sd_event_add_io(s->event, &s->io, s->fd, EPOLLIN, on_output, s);
    if (r >= 0)
        r = sd_event_add_time_relative(s->event, &s->timer, CLOCK_MONOTONIC,
                                       SCAN_CHILD_TIMEOUT_NS / 1000, 0, on_timeout, s);
    return r < 0 ? r : 0;
}

static void run_next(struct scans *s)
{
    if (s->running.tgid || !s->waiting_count)
        return;
    s->running = s->waiting[0];
    s->waiting_count--;
    memmove(&s->waiting[0], &s->waiting[1], s->waiting_count * sizeof(s->waiting[0]));
    if (s->handler->began && !s->running.is_pool)
        s->handler->began(s->userdata, s->running.tgid);
    if (child_start(s) < 0)
        finish(s, true, "the scan could not be started");
}

static int request_add(struct scans *s, const struct scan_request *request, bool is_anew)
{
    for (size_t i = 0; i < s->waiting_count; i++)
        if (s->waiting[i].tgid == request->tgid && s->waiting[i].is_pool == request->is_pool) {
            s->waiting[i].is_thorough |= request->is_thorough;
            return 0;
        }
    if (!is_anew && s->running.tgid == request->tgid && s->running.is_pool == request->is_pool &&
        s->running.is_thorough >= request->is_thorough)
        return 0;
    if (s->waiting_count == SCANS_WAITING_MAX)
        return -ENOSPC;
    s->waiting[s->waiting_count++] = *request;
    run_next(s);
    return 0;
}

int scans_request(struct scans *s, uint32_t tgid, uint64_t start_ticks, bool is_thorough)
{
    const struct scan_request request = {
        .tgid = tgid, .start_ticks = start_ticks, .is_thorough = is_thorough};

    return request_add(s, &request, false);
}

int scans_request_anew(struct scans *s, uint32_t tgid, uint64_t start_ticks, bool is_thorough)
{
    const struct scan_request request = {
        .tgid = tgid, .start_ticks = start_ticks, .is_thorough = is_thorough};

    return request_add(s, &request, true);
}

bool scans_is_running(const struct scans *s, uint32_t tgid)
{
    return s->running.tgid == tgid && !s->running.is_pool;
}

int scans_request_pool(struct scans *s, uint32_t tgid, uint64_t start_ticks)
{
    const struct scan_request request = {.tgid = tgid, .start_ticks = start_ticks, .is_pool = true};

    return request_add(s, &request, false);
}

void scans_prefer(struct scans *s, uint32_t tgid)
{
    for (size_t i = 0; i < s->waiting_count; i++)
        if (s->waiting[i].tgid == tgid && !s->waiting[i].is_pool) {
            struct scan_request chosen = s->waiting[i];
            memmove(&s->waiting[1], &s->waiting[0], i * sizeof(s->waiting[0]));
            s->waiting[0] = chosen;
            return;
        }
}

const struct scan_result *scans_result(const struct scans *s, uint32_t tgid, uint64_t *ret_time_ns)
{
    for (const struct scan_kept *k = s->kept; k; k = k->next)
        if (k->tgid == tgid) {
            if (ret_time_ns)
                *ret_time_ns = k->time_ns;
            return k->result;
        }
    return NULL;
}

unsigned scans_count(const struct scans *s, uint32_t tgid)
{
    for (const struct scan_kept *k = s->kept; k; k = k->next)
        if (k->tgid == tgid)
            return k->count;
    return 0;
}

void scans_forget(struct scans *s, uint32_t tgid)
{
    for (struct scan_kept **at = &s->kept; *at; at = &(*at)->next)
        if ((*at)->tgid == tgid) {
            kept_remove(s, at);
            return;
        }
}
