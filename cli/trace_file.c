/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_file.c - see trace_file.h. Read, not mapped: what is mapped counts as memory, and a disk
 * that fails would end the program.
 */
#include "trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "local_time.h"

static int64_t read_part(void *userdata, uint64_t offset, void *data, size_t bytes)
{
    const struct trace_file *f = userdata;
    size_t at = 0;

    while (at < bytes) {
        ssize_t n = pread(f->fd, (char *)data + at, bytes - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        at += (size_t)n;
    }
    return (int64_t)at;
}

int trace_file_open(const char *path, struct trace_file *ret, struct error *reterr)
{
    struct error why = {0};
    struct stat st;
    int r = 0;

    *ret = (struct trace_file)TRACE_FILE_NONE;
    ret->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (ret->fd < 0 || fstat(ret->fd, &st) < 0)
        r = error_set(&why, errno, "%s", strerror(errno));
    else if (!S_ISREG(st.st_mode))
        r = error_set(&why, EINVAL, "not a regular file");
    if (r == 0)
        r = trace_open_window(read_part, ret, (uint64_t)st.st_size, &ret->reader, &why);
    if (r == 0)
        return 0;
    trace_file_close(ret);
    error_set(reterr, r, "%.100s: %.120s", path, why.what);
    return error_fix(reterr, r, "a file that npumem record made (npumem record ls)");
}

void trace_file_close(struct trace_file *f)
{
    trace_close(&f->reader);
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

struct local_moment local_moment(void)
{
    struct local_moment m = {.host = ""};
    struct timespec now;

    gethostname(m.host, sizeof(m.host) - 1);
    clock_gettime(CLOCK_REALTIME, &now);
    m.wall_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return m;
}

int document_show(const struct args *args, struct json_object *document, const char *key,
                  ask_render_fn render)
{
    struct out o;

    out_init(&o, args);
    int code = document ? ask_show(args, &o, document, key, render) : EXIT_RUNTIME;
    json_object_put(document);
    return out_finish(&o, code);
}

/* The numbers of the filters as views take them. */
struct filters {
    uint32_t tgids[CLI_LIST_MAX];
    int32_t ranks[CLI_LIST_MAX];
    uint16_t devices[CLI_LIST_MAX];
};

static struct recording_query query_of(const struct args *args, const char *host, struct filters *f)
{
    for (size_t i = 0; i < args->tgids.count; i++)
        f->tgids[i] = (uint32_t)args->tgids.items[i];
    for (size_t i = 0; i < args->ranks.count; i++)
        f->ranks[i] = (int32_t)args->ranks.items[i];
    for (size_t i = 0; i < args->devices.count; i++)
        f->devices[i] = (uint16_t)args->devices.items[i];
    return (struct recording_query){
        .host = host,
        .tgids = f->tgids,
        .tgid_count = args->tgids.count,
        .ranks = f->ranks,
        .rank_count = args->ranks.count,
        .devices = f->devices,
        .device_count = args->devices.count,
        .containers = args->containers.items,
        .container_count = args->containers.count,
        .at = args->at_text,
        .since = args->since_text,
        .until = args->until_text,
        .local_fn = local_seconds,
        .request_bytes = args->request_bytes,
        .with_map = args->verbose && args->format == FORMAT_JSON,
        .mark = args->mark,
        .steps = (uint32_t)args->steps,
        .limit = (uint32_t)args->limit,
    };
}

int trace_file_show(const struct args *args, recording_fn fn, ask_render_fn render)
{
    struct local_moment here = local_moment();
    struct trace_file trace;
    struct error error = {0};
    struct filters filters;
    char *text = NULL;

    if (args->watch_ns)
        return fail_with(EXIT_USAGE, "%s: a recording does not change; try: without --watch",
                         args->verb->name);
    if (trace_file_open(args->from, &trace, &error) < 0)
        return fail(EXIT_RUNTIME, &error);
    struct recording_query q = query_of(args, here.host, &filters);
    int r = recording_text(fn, &trace.reader, &q, &text, &error);
    trace_file_close(&trace);
    if (r < 0)
        return fail(r == -EINVAL   ? EXIT_USAGE
                    : r == -ENOENT ? EXIT_NOT_FOUND
                                   : EXIT_RUNTIME,
                    &error);
    struct json_object *document = json_tokener_parse(text);
    free(text);
    return document_show(args, document, NULL, render);
}
