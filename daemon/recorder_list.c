/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder_list.c - what recordings there are: those that run, and the files of those that ended.
 *
 * Must not: trust a file in the directory more than any other.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json_write.h"
#include "recorder_internal.h"
#include "trace_io.h"

#define FILES_MAX 4096u

uint64_t recorder_directory_bytes(const struct recorder *r)
{
    DIR *d = opendir(r->directory);
    const struct dirent *e;
    uint64_t bytes = 0;
    struct stat st;

    while (d && (e = readdir(d)))
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_size;
    if (d)
        closedir(d);
    return bytes;
}

static void head_write(const struct nm_trace_header *h, const char *path, const char *state,
                       struct json *j)
{
    json_kstr(j, "path", path);
    json_ku64(j, "tgid", h->tgid);
    json_kstr(j, "comm", h->comm);
    json_kindex(j, "rank", h->rank);
    json_ku64(j, "device", h->device);
    json_kstr(j, "state", state);
    json_ku64(j, "begin_ns", h->begin_wall_ns);
}

static void tail_write(const struct nm_trace_header *h, uint64_t duration_ns, uint64_t records,
                       uint64_t bytes, uint64_t lost_events, struct json *j)
{
    json_ku64(j, "duration_ns", duration_ns);
    json_ku64(j, "records", records);
    json_ku64(j, "bytes", bytes);
    json_ku64(j, "lost_events", lost_events);
    json_kbool(j, "late", h->flags & NM_TRACE_LATE);
    json_kbool(j, "small_missing", h->flags & NM_TRACE_NO_SMALL);
    json_kbool(j, "full", h->flags & NM_TRACE_FULL);
}

void recording_write(struct recording *rec, struct json *j)
{
    uint64_t end = rec->is_ending ? rec->header.end_boot_ns : manager_boot_ns();
    struct trace_writer_stats s;

    trace_writer_stats(rec->writer, &s);
    json_object(j);
    head_write(&rec->header, rec->path,
               rec->is_written  ? "ended"
               : rec->is_ending ? "ending"
                                : "recording",
               j);
    tail_write(&rec->header, end - rec->header.begin_boot_ns, s.records, s.bytes, rec->lost_events,
               j);
    json_end(j);
}

struct found {
    char name[256];
    struct nm_trace_header header;
    uint64_t bytes;
};

/* A file that no writer works on. Returns false for everything else. */
static bool file_read(const struct recorder *r, int directory_fd, const char *name,
                      struct found *ret)
{
    _cleanup_close_ int fd =
        openat(directory_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char path[sizeof(((struct recording *)NULL)->path)];
    struct trace_reader reader;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        pread(fd, &ret->header, sizeof(ret->header), 0) != sizeof(ret->header) ||
        trace_open(&ret->header, sizeof(ret->header), &reader, NULL) < 0)
        return false;
    snprintf(path, sizeof(path), "%s/%s", r->directory, name);
    for (const struct recording *rec = r->first; rec; rec = rec->next)
        if (strcmp(rec->path, path) == 0)
            return false;
    snprintf(ret->name, sizeof(ret->name), "%s", name);
    ret->header = reader.header;
    ret->bytes = (uint64_t)st.st_size;
    return true;
}

static int found_compare(const void *one, const void *other)
{
    const struct found *a = one, *b = other;

    if (a->header.begin_wall_ns != b->header.begin_wall_ns)
        return a->header.begin_wall_ns > b->header.begin_wall_ns ? -1 : 1;
    return strcmp(a->name, b->name);
}

static void found_write(const struct recorder *r, const struct found *f, struct json *j)
{
    const struct nm_trace_header *h = &f->header;
    char path[sizeof(((struct recording *)NULL)->path)];

    snprintf(path, sizeof(path), "%s/%s", r->directory, f->name);
    json_object(j);
    head_write(h, path, h->flags & NM_TRACE_OPEN ? "cut" : "ended", j);
    tail_write(h, h->end_boot_ns > h->begin_boot_ns ? h->end_boot_ns - h->begin_boot_ns : 0,
               (f->bytes - h->header_bytes) / h->record_bytes, f->bytes, h->lost_events, j);
    json_end(j);
}

int recorder_write_finished(const struct recorder *r, struct json *j)
{
    _cleanup_free_ struct found *found = calloc(FILES_MAX, sizeof(*found));
    DIR *d = opendir(r->directory);
    const struct dirent *e;
    size_t count = 0;

    if (!found || !d) {
        if (d)
            closedir(d);
        return found ? 0 : -ENOMEM; /* no directory: nothing was recorded yet */
    }
    while (count < FILES_MAX && (e = readdir(d)))
        count += file_read(r, dirfd(d), e->d_name, &found[count]);
    closedir(d);
    qsort(found, count, sizeof(*found), found_compare);
    for (size_t i = 0; i < count; i++)
        found_write(r, &found[i], j);
    return (int)count;
}
