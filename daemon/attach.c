/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.c - from a mapping of a process to live probes in its inode; see attach.h.
 *
 * The file is opened once; ELF parsing and links use that descriptor, so a file that is replaced
 * meanwhile cannot be probed at the old one's offsets.
 */
#include "attach.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <unistd.h>

#include "blockfn.h"
#include "clock.h"
#include "log.h"
#include "probes.h"
#include "procfs.h"

/* Files without users are kept, so that the next worker of the same image is seen from its first
 * call; beyond this many the longest unused are detached. */
#define UNUSED_FILES_MAX 64

struct attach {
    struct probe_set *set;
    struct attach_file *files;
};

int attach_new(struct probe_set *set, struct attach **ret)
{
    struct attach *a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    a->set = set;
    *ret = a;
    return 0;
}

static void *close_one(void *fd)
{
    close((int)(intptr_t)fd);
    return NULL;
}

/* Closing a link waits for a grace period of the kernel (about 50 ms); closed at the same time,
 * links share one. A thread that cannot be made costs time only. */
static void links_close(const int *fds, size_t n)
{
    pthread_t threads[64];

    while (n) {
        size_t batch = n < ARRAY_SIZE(threads) ? n : ARRAY_SIZE(threads), started = 0;
        for (size_t i = 0; i < batch; i++) {
            void *fd = (void *)(intptr_t)fds[i];
            if (pthread_create(&threads[started], NULL, close_one, fd) == 0)
                started++;
            else
                close_one(fd);
        }
        while (started)
            pthread_join(threads[--started], NULL);
        fds += batch;
        n -= batch;
    }
}

static void file_detach(struct attach_file *f)
{
    links_close(f->links, f->link_count);
    f->link_count = 0;
}

struct late_close {
    int *fds;
    size_t count;
};

static void *close_late(void *userdata)
{
    struct late_close *c = userdata;

    for (size_t i = 0; i < c->count; i++)
        close(c->fds[i]);
    free(c->fds);
    free(c);
    return NULL;
}

void links_close_later(int *links, size_t count)
{
    struct late_close *c = malloc(sizeof(*c));
    pthread_attr_t attributes;
    pthread_t thread;
    int r = ENOMEM;

    if (c && count) {
        *c = (struct late_close){links, count};
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        r = pthread_create(&thread, &attributes, close_late, c);
        pthread_attr_destroy(&attributes);
    }
    if (r == 0)
        return;
    links_close(links, count);
    free(links);
    free(c);
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
        if (f->dev == st->st_dev && f->ino == st->st_ino && f->size == st->st_size &&
            f->mtime.tv_sec == st->st_mtim.tv_sec && f->mtime.tv_nsec == st->st_mtim.tv_nsec)
            return f;
    return NULL;
}

static void point_add(struct attach_file *f, const struct elf_image *e, unsigned row,
                      uint64_t offset)
{
    for (size_t i = 0; i < f->point_count; i++)
        if (f->points[i].offset == offset)
            return; /* two names of one function: one fact */
    f->points[f->point_count++] = (struct probe_point){
        .row = row,
        .offset = offset,
        .entry_offset = elf_probe_offset_hint(e, offset),
    };
}

/* A program exports its functions only on demand: .symtab has them unless it is stripped. */
static int program_resolve(struct attach_file *f, const struct elf_image *e)
{
    static const unsigned rows[] = {PROBE_TAG_PUSH, PROBE_TAG_POP, PROBE_TAG_MEMORY};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct elf_symbol symbol;
        uint64_t offset;
        if ((elf_image_dynamic(e, probe_name(rows[i]), &symbol) == 0 ||
             elf_image_static(e, probe_name(rows[i]), &symbol) == 0) &&
            elf_vaddr_to_offset(e, symbol.vaddr, &offset) == 0)
            point_add(f, e, rows[i], offset);
    }
    return 0;
}

/* Finds what can be probed in an image. Errors of the block function are kept, not returned. */
static int file_resolve(struct attach_file *f, const struct elf_image *e)
{
    const char *names[PROBE_COUNT];
    uint64_t offsets[PROBE_COUNT];
    struct blockfn block;
    int found, r;

    f->points = calloc(PROBE_COUNT, sizeof(*f->points));
    if (!f->points)
        return -ENOMEM;
    if (strcmp(library_name(f->library), "program") == 0)
        return program_resolve(f, e);
    for (unsigned row = 1; row < PROBE_ALWAYS_COUNT; row++)
        names[row - 1] = probe_name(row);
    found = elf_image_symbols(e, names, PROBE_ALWAYS_COUNT - 1, offsets);
    if (found < 0)
        return found;
    for (unsigned row = 1; row < PROBE_ALWAYS_COUNT; row++)
        if (offsets[row - 1] != ELF_NO_OFFSET) {
            point_add(f, e, row, offsets[row - 1]);
            f->has_hal |= probe_row(row)->level == PROBE_LEVEL_HAL;
            f->has_acl |= probe_row(row)->level == PROBE_LEVEL_ACL;
        }
    if (strcmp(library_name(f->library), "torch_npu") != 0)
        return 0;
    r = blockfn_find(e, &block, &f->error);
    if (r == 0 && block.layout == BLOCKFN_LAYOUT_UNKNOWN)
        error_set(&f->error, ENOTSUP,
                  "block function found, but its argument has an unknown layout");
    else if (r == 0) {
        point_add(f, e, block.layout == BLOCKFN_LAYOUT_V24 ? PROBE_BLOCK_V24 : PROBE_BLOCK,
                  block.offset);
        f->has_block = true;
        f->block_layout = blockfn_layout_name(block.layout);
    }
    return 0;
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

/* The live record of the same inode, seen through another mount: same content, inode number and
 * size, and its probes are in this process already. */
static struct attach_file *find_alias(struct attach *a, const struct attach_file *f, uint32_t tgid,
                                      const struct maps_entry *entry)
{
    if (!f->point_count || !is_probed_in(f, tgid, entry))
        return NULL;
    for (struct attach_file *o = a->files; o; o = o->next)
        if (o->state == ATTACH_LIVE && !o->alias_of && o->ino == f->ino && o->size == f->size &&
            o->build_id_bytes == f->build_id_bytes &&
            memcmp(o->build_id, f->build_id, f->build_id_bytes) == 0)
            return o;
    return NULL;
}

static int file_probe(struct attach *a, struct attach_file *f, int fd, const void *data,
                      size_t size, uint32_t tgid, const struct maps_entry *entry)
{
    struct elf_image *e = calloc(1, sizeof(*e));
    _cleanup_free_ struct elf_image *owned = e;
    uint64_t begin = clock_ns(CLOCK_MONOTONIC);
    int r;

    if (!e)
        return -ENOMEM;
    r = elf_image_init(e, data, size, &f->error);
    if (r == 0)
        r = elf_image_check_host(e, &f->error);
    if (r == 0)
        r = file_resolve(f, e);
    if (r < 0)
        return r;
    if (!f->point_count)
        return 0;
    elf_image_build_id(e, f->build_id, &f->build_id_bytes);
    if (f->points[0].entry_offset + sizeof(f->first_bytes) <= size)
        memcpy(f->first_bytes, (const char *)data + f->points[0].entry_offset,
               sizeof(f->first_bytes));
    f->alias_of = find_alias(a, f, tgid, entry);
    if (f->alias_of)
        return 0;
    r = probe_set_link(a->set, fd, f->points, f->point_count, &f->links, &f->error);
    if (r < 0)
        return r;
    f->link_count = r;
    f->attach_ns = clock_ns(CLOCK_BOOTTIME);
    f->link_cost_ns = clock_ns(CLOCK_MONOTONIC) - begin;
    return 0;
}

static int file_new(struct attach *a, int fd, const struct stat *st, uint32_t tgid,
                    const struct maps_entry *entry, int library, struct attach_file **ret)
{
    _cleanup_(file_freep) struct attach_file *f = calloc(1, sizeof(*f));
    void *data;
    int r;

    if (!f || !(f->path = strdup(entry->path)))
        return -ENOMEM;
    f->dev = st->st_dev;
    f->ino = st->st_ino;
    f->size = st->st_size;
    f->mtime = st->st_mtim;
    f->library = library;
    /* Shared: into a private mapping the kernel writes the breakpoints of live probes, here as in
     * any process, and what is looked at would not be what the file has. */
    data = st->st_size > 0 ? mmap(NULL, st->st_size, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (data == MAP_FAILED) {
        r = error_set(&f->error, st->st_size > 0 ? errno : ENODATA, "cannot map the file");
    } else {
        r = file_probe(a, f, fd, data, st->st_size, tgid, entry);
        munmap(data, st->st_size);
    }
    if (r == -ENOMEM)
        return r;
    f->state = r < 0 ? ATTACH_FAILED : f->point_count ? ATTACH_LIVE : ATTACH_EMPTY;
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
    struct attach_file *f;
    struct stat st;
    int r;
    _cleanup_close_ int fd = procfs_open_mapping(tgid, entry);

    if (fd < 0)
        return error_set(reterr, fd, "%s: cannot open: %s", entry->path, strerror(-fd));
    if (fstat(fd, &st) < 0)
        return error_set(reterr, errno, "%s: cannot stat", entry->path);
    if (!S_ISREG(st.st_mode))
        return error_set(reterr, EINVAL, "%s: not a regular file", entry->path);
    f = file_find(a, &st);
    if (!f) {
        r = file_new(a, fd, &st, tgid, entry, library, &f);
        if (r < 0)
            return error_set(reterr, r, "%s: %s", entry->path, strerror(-r));
    }
    f->users++;
    *ret = f;
    return 0;
}

void attach_release(struct attach *a, struct attach_file *file)
{
    size_t unused = 0;

    if (file->users)
        file->users--;
    for (struct attach_file *f = a->files; f; f = f->next)
        unused += !f->users;
    /* new files go to the front, so the last unused one is the oldest */
    while (unused > UNUSED_FILES_MAX) {
        struct attach_file **victim = NULL;
        for (struct attach_file **p = &a->files; *p; p = &(*p)->next) {
            bool is_original = false;
            for (struct attach_file *f = a->files; f; f = f->next)
                is_original |= f->alias_of == *p;
            if (!(*p)->users && !is_original)
                victim = p;
        }
        if (!victim)
            return;
        struct attach_file *f = *victim;
        *victim = f->next;
        file_detach_later(f);
        file_free(f);
        unused--;
    }
}
