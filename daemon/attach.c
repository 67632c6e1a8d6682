/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.c - from a mapping of a process to live probes in its inode; see attach.h.
 *
 * The file is opened once; ELF parsing and links use that descriptor, so a file that is replaced
 * meanwhile cannot be probed at the old one's offsets.
 */
#include "attach.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "file_watch.h"
#include "links.h"
#include "log.h"
#include "mapped_file.h"
#include "procfs.h"

/* Files without users are kept for a while, so that of processes that come and go each is seen from
 * its first call, and probes need not be made again; for a while only, since a link keeps the
 * file's mount busy. Beyond this many the longest unused are detached at once. */
#define UNUSED_FILES_MAX 64

struct attach {
    struct probe_set *set;
    sd_event_source *trim; /* when the next unused file goes */
    uint64_t keep_ns;
    struct file_watch *writes; /* NULL: the kernel grants none */
    struct attach_file *files;
};

static void file_detach(struct attach_file *f)
{
    links_close(f->links, f->link_count);
    f->link_count = 0;
}

/* Detaches without waiting for the kernel: a new process must not be seen late because of an old
 * file. */
static void file_detach_later(struct attach_file *f)
{
    links_close_later(f->links, f->link_count);
    f->links = NULL;
    f->link_count = 0;
}

static struct attach_file *file_free(struct attach_file *f)
{
    if (!f)
        return NULL;
    file_detach(f);
    free(f->links);
    free(f->points);
    free(f->path);
    free(f);
    return NULL;
}
DEFINE_CLEANUP(struct attach_file *, file_free)

struct attach *attach_free(struct attach *a)
{
    int *fds = NULL;
    size_t count = 0;

    if (!a)
        return NULL;
    for (struct attach_file *f = a->files; f; f = f->next)
        count += f->link_count;
    fds = calloc(count + 1, sizeof(*fds));
    count = 0;
    for (struct attach_file *f = fds ? a->files : NULL; f; f = f->next) {
        memcpy(fds + count, f->links, f->link_count * sizeof(*fds));
        count += f->link_count;
        f->link_count = 0;
    }
    links_close(fds, count);
    free(fds);
    while (a->files) {
        struct attach_file *next = a->files->next;
        file_free(a->files);
        a->files = next;
    }
    file_watch_free(a->writes);
    sd_event_source_unref(a->trim);
    free(a);
    return NULL;
}

const struct attach_file *attach_first(const struct attach *a)
{
    return a->files;
}

static struct attach_file *file_find(struct attach *a, const struct stat *st)
{
    for (struct attach_file *f = a->files; f; f = f->next)
        if (!f->is_overwritten && f->dev == st->st_dev && f->ino == st->st_ino &&
            f->size == st->st_size && f->mtime.tv_sec == st->st_mtim.tv_sec &&
            f->mtime.tv_nsec == st->st_mtim.tv_nsec)
            return f;
    return NULL;
}

/* Whether the process sees other bytes at the first entry point than the file has: a breakpoint. */
static bool is_probed_in(const struct attach_file *f, uint32_t tgid, const struct maps_entry *entry)
{
    uint64_t offset = f->points[0].entry_offset;
    char path[64], bytes[sizeof(f->first_bytes)];
    ssize_t n;

    if (offset < entry->offset ||
        offset - entry->offset + sizeof(bytes) > entry->end - entry->start)
        return false;
    snprintf(path, sizeof(path), "/proc/%u/mem", tgid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = pread(fd, bytes, sizeof(bytes), entry->start + (offset - entry->offset));
    return n == sizeof(bytes) && memcmp(bytes, f->first_bytes, sizeof(bytes)) != 0;
}

static bool has_same_points(const struct attach_file *f, const struct attach_file *o)
{
    if (o->point_count != f->point_count)
        return false;
    for (size_t i = 0; i < f->point_count; i++)
        if (o->points[i].row != f->points[i].row || o->points[i].offset != f->points[i].offset)
            return false;
    return true;
}

/* The live record of the same inode, seen through another mount or touched since: same content,
 * inode number and size, and its probes are in this process already. */
static struct attach_file *find_alias(struct attach *a, const struct attach_file *f, uint32_t tgid,
                                      const struct maps_entry *entry)
{
    if (!is_probed_in(f, tgid, entry))
        return NULL;
    for (struct attach_file *o = a->files; o; o = o->next)
        if (o->state == ATTACH_LIVE && !o->alias_of && o->ino == f->ino && o->size == f->size &&
            o->build_id_bytes == f->build_id_bytes &&
            memcmp(o->build_id, f->build_id, f->build_id_bytes) == 0 && has_same_points(f, o))
            return o;
    return NULL;
}

/* --- files that nobody uses, and files that are overwritten in place --- */

static bool is_original(const struct attach *a, const struct attach_file *of)
{
    for (const struct attach_file *f = a->files; f; f = f->next)
        if (f->alias_of == of)
            return true;
    return false;
}

static bool is_watched_by(const struct attach_file *f, int watch)
{
    for (size_t i = 0; i < f->watch_count; i++)
        if (f->watches[i] == watch)
            return true;
    return false;
}

/* Another record of the same inode may have the same watch. */
static void watches_end(struct attach *a, struct attach_file *f)
{
    while (f->watch_count) {
        int watch = f->watches[--f->watch_count];
        bool is_used = false;
        for (const struct attach_file *o = a->files; o; o = o->next)
            is_used |= is_watched_by(o, watch);
        if (!is_used)
            file_watch_remove(a->writes, watch);
    }
}

/* The place of the one that has been without users for longest; NULL none. */
static struct attach_file **unused_find(struct attach *a, size_t *ret_count)
{
    struct attach_file **longest = NULL;

    *ret_count = 0;
    for (struct attach_file **p = &a->files; *p; p = &(*p)->next)
        if (!(*p)->users && !is_original(a, *p)) {
            ++*ret_count;
            if (!longest || (*p)->unused_ns < (*longest)->unused_ns)
                longest = p;
        }
    return longest;
}

static void file_remove(struct attach *a, struct attach_file **place)
{
    struct attach_file *f = *place;

    *place = f->next;
    watches_end(a, f);
    file_detach_later(f);
    file_free(f);
}

static void unused_trim(struct attach *a)
{
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    struct attach_file **longest;
    size_t count;

    while ((longest = unused_find(a, &count)) &&
           (count > UNUSED_FILES_MAX || (*longest)->is_overwritten ||
            now - (*longest)->unused_ns >= a->keep_ns))
        file_remove(a, longest);
    if (!longest)
        return;
    sd_event_source_set_time(a->trim, ((*longest)->unused_ns + a->keep_ns) / 1000 + 1);
    sd_event_source_set_enabled(a->trim, SD_EVENT_ONESHOT);
}

static int on_trim(sd_event_source *source, uint64_t usec, void *userdata)
{
    (void)source, (void)usec;
    unused_trim(userdata);
    return 0;
}

static void file_overwritten(struct attach *a, struct attach_file *f)
{
    struct attach_file *original = attach_file_original(f);

    for (struct attach_file *o = a->files; o; o = o->next)
        if (o == original || o->alias_of == original) {
            o->is_overwritten = true;
            o->unused_ns = 0; /* the first to go */
            o->state = ATTACH_FAILED;
            error_set(&o->error, ESTALE,
                      "the file was overwritten in place: its probes were taken out, since they "
                      "could stand in the middle of other instructions");
        }
    log_warning("%s: %s; processes that map it from now on are seen", original->path,
                original->error.what);
}

static void on_write(void *userdata, int watch)
{
    struct attach *a = userdata;

    for (struct attach_file *f = a->files; f; f = f->next)
        if (f->state == ATTACH_LIVE && (watch < 0 || is_watched_by(f, watch))) {
            file_overwritten(a, f);
            file_detach_later(attach_file_original(f));
        }
    unused_trim(a);
}

/* Before it is read, so that no change is missed. As the process names it, too: the mapped inode of
 * an overlay is its lower file on some kernels, which is not told of writes through the overlay. */
static void file_watch(struct attach *a, struct attach_file *f, const struct mapped_file *file,
                       uint32_t tgid, const struct maps_entry *entry)
{
    char paths[ARRAY_SIZE(f->watches)][MAPS_PATH_MAX + 64];
    struct stat st;

    if (!a->writes)
        return;
    snprintf(paths[0], sizeof(paths[0]), "/proc/self/fd/%d", file->fd);
    snprintf(paths[1], sizeof(paths[1]), "/proc/%u/root%s", tgid, entry->path);
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        if (i && (stat(paths[i], &st) < 0 || st.st_ino != file->st.st_ino ||
                  st.st_dev == file->st.st_dev))
            continue;
        int watch = file_watch_add(a->writes, paths[i]);
        if (watch >= 0)
            f->watches[f->watch_count++] = watch;
        else
            log_warning("%s: cannot watch whether it is overwritten: %s", f->path,
                        strerror(-watch));
    }
}

/* Of the same inode with other content, where no watch told of it (a network file system, a write
 * through a mapping): their breakpoints are in this process now, at the wrong places. */
static void outdated_detach(struct attach *a, const struct attach_file *f)
{
    for (struct attach_file *o = a->files; o; o = o->next)
        if (o->state == ATTACH_LIVE && !o->alias_of && o->dev == f->dev && o->ino == f->ino) {
            file_overwritten(a, o);
            file_detach(o);
        }
}

int attach_new(sd_event *event, struct probe_set *set, uint64_t keep_ns, struct attach **ret)
{
    _cleanup_(attach_freep) struct attach *a = calloc(1, sizeof(*a));
    int r;

    if (!a)
        return -ENOMEM;
    a->set = set;
    a->keep_ns = keep_ns;
    r = file_watch_new(event, on_write, a, &a->writes);
    if (r < 0 && r != -ENOMEM) {
        /* a daemon that sees is worth more; a server is stopped, mostly, when its files change */
        log_warning(
            "inotify: %s: that a library is overwritten in place is noticed late, so probes "
            "are not kept in one that no process maps; try: sysctl "
            "fs.inotify.max_user_instances=1024",
            strerror(-r));
        a->keep_ns = 0;
        r = 0;
    }
    if (r >= 0)
        r = sd_event_add_time(event, &a->trim, CLOCK_MONOTONIC, UINT64_MAX, 0, on_trim, a);
    if (r >= 0)
        r = sd_event_source_set_enabled(a->trim, SD_EVENT_OFF);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(a);
    return 0;
}

/* --- files at first sight --- */

static int file_probe(struct attach *a, struct attach_file *f, const struct mapped_file *file,
                      uint32_t tgid, const struct maps_entry *entry)
{
    struct elf_image *e = calloc(1, sizeof(*e));
    _cleanup_free_ struct elf_image *owned = e;
    uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    int r;

    if (!e)
        return -ENOMEM;
    r = elf_image_init(e, file->data, file->bytes, &f->error);
    if (r == 0)
        r = elf_image_check_host(e, &f->error);
    if (r == 0)
        r = attach_file_resolve(f, e);
    if (r == 0 && f->point_count) {
        elf_image_build_id(e, f->build_id, &f->build_id_bytes);
        if (f->points[0].entry_offset + sizeof(f->first_bytes) <= file->bytes)
            memcpy(f->first_bytes, (const char *)file->data + f->points[0].entry_offset,
                   sizeof(f->first_bytes));
        f->alias_of = find_alias(a, f, tgid, entry);
    }
    if (file->is_torn) {
        f->alias_of = NULL;
        r = error_set(&f->error, EIO, "the file was cut, or cannot be read");
    }
    if (!f->alias_of)
        outdated_detach(a, f);
    if (r < 0 || f->alias_of || !f->point_count)
        return r;
    r = probe_set_link(a->set, file->fd, f->points, f->point_count, &f->links, &f->error);
    if (r < 0)
        return r;
    f->link_count = r;
    f->attach_ns = clock_ns(CLOCK_BOOTTIME);
    f->link_cost_ns = clock_ns(CLOCK_MONOTONIC) - begin;
    return 0;
}

static int file_new(struct attach *a, struct mapped_file *file, uint32_t tgid,
                    const struct maps_entry *entry, int library, struct attach_file **ret)
{
    _cleanup_(file_freep) struct attach_file *f = calloc(1, sizeof(*f));
    int r;

    if (!f || !(f->path = strdup(entry->path)))
        return -ENOMEM;
    file_watch(a, f, file, tgid, entry);
    r = fstat(file->fd, &file->st) < 0 ? -errno : mapped_file_map(file, UINT64_MAX);
    f->dev = file->st.st_dev;
    f->ino = file->st.st_ino;
    f->size = file->st.st_size;
    f->mtime = file->st.st_mtim;
    f->library = library;
    if (r < 0)
        error_set(&f->error, r, "cannot map the file: %s", strerror(-r));
    else
        r = file_probe(a, f, file, tgid, entry);
    if (r == -ENOMEM) {
        watches_end(a, f);
        return r;
    }
    f->state = r < 0 ? ATTACH_FAILED : f->point_count ? ATTACH_LIVE : ATTACH_EMPTY;
    if (f->state != ATTACH_LIVE)
        watches_end(a, f);
    if (r < 0)
        log_warning("%s: %s; its calls are not seen", f->path, f->error.what);
    else if (f->alias_of)
        log_info("%s: the same file as %s through another mount", f->path, f->alias_of->path);
    else if (f->state == ATTACH_LIVE)
        log_info("%s: %zu functions probed in %.1f ms", f->path, f->point_count,
                 f->link_cost_ns / 1e6);
    if (f->state != ATTACH_FAILED && f->error.what[0])
        log_warning("%s: %s; blocks are not seen", f->path, f->error.what);
    f->next = a->files;
    a->files = f;
    *ret = TAKE_PTR(f);
    return 0;
}

int attach_mapping(struct attach *a, uint32_t tgid, const struct maps_entry *entry, int library,
                   struct attach_file **ret, struct error *reterr)
{
    _cleanup_mapped_file_ struct mapped_file file = MAPPED_FILE_NONE;
    struct attach_file *f;
    int r;

    if (a->writes)
        file_watch_drain(a->writes); /* what is known of a file is of before */
    r = mapped_file_open(tgid, entry, &file);
    if (r < 0)
        return error_set(reterr, r, "%s: cannot open: %s", entry->path, strerror(-r));
    f = file_find(a, &file.st);
    if (!f) {
        r = file_new(a, &file, tgid, entry, library, &f);
        if (r < 0)
            return error_set(reterr, r, "%s: %s", entry->path, strerror(-r));
    }
    f->users++;
    *ret = f;
    return 0;
}

void attach_release(struct attach *a, struct attach_file *file)
{
    if (file->users)
        file->users--;
    if (!file->users && !file->is_overwritten)
        file->unused_ns = clock_ns(CLOCK_MONOTONIC);
    unused_trim(a);
}
