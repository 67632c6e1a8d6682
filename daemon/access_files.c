/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access_files.c - the probes of a window: NM_ACCESS rows in the libraries that its process maps.
 *
 * Must not: probe any other process. Unlike the probes of attach.c these belong to one process, so
 * they are found anew at each window and kept nowhere.
 */
#include "access_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "elf_image.h"
#include "links.h"
#include "log.h"
#include "mapped_file.h"
#include "probes.h"
#include "procfs.h"

#define MAPS_BYTES_MAX (16u << 20)
static bool file_is_new(struct access_files *f, const struct stat *st)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->seen[i].dev == st->st_dev && f->seen[i].ino == st->st_ino)
            return false;
    if (f->count == ACCESS_FILES_MAX)
        return false;
    f->seen[f->count].dev = st->st_dev;
    f->seen[f->count++].ino = st->st_ino;
    return true;
}

static size_t points_find(const struct elf_image *e, struct probe_point *points)
{
    const char *names[PROBE_COUNT - PROBE_ALWAYS_COUNT];
    uint64_t offsets[PROBE_COUNT - PROBE_ALWAYS_COUNT];
    size_t count = 0;

    for (unsigned row = PROBE_ALWAYS_COUNT; row < PROBE_COUNT; row++)
        names[row - PROBE_ALWAYS_COUNT] = probe_name(row);
    if (elf_image_symbols(e, names, PROBE_COUNT - PROBE_ALWAYS_COUNT, offsets) <= 0)
        return 0;
    for (unsigned row = PROBE_ALWAYS_COUNT; row < PROBE_COUNT; row++) {
        uint64_t offset = offsets[row - PROBE_ALWAYS_COUNT];
        bool is_known = offset == ELF_NO_OFFSET;
        for (size_t i = 0; i < count; i++)
            is_known |= points[i].offset == offset; /* two names of one function */
        if (!is_known)
            points[count++] = (struct probe_point){
                .row = row, .offset = offset, .entry_offset = elf_probe_offset_hint(e, offset)};
    }
    return count;
}

static int links_take(struct access_window *w, int *links, int count)
{
    int *more = reallocarray(w->links, w->link_count + (size_t)count, sizeof(*more));

    if (!more) {
        links_close_later(links, (size_t)count);
        return -ENOMEM;
    }
    memcpy(more + w->link_count, links, (size_t)count * sizeof(*links));
    free(links);
    w->links = more;
    w->link_count += (size_t)count;
    return 0;
}

static int file_attach(struct access_window *w, const struct mapped_file *file, const char *path)
{
    _cleanup_free_ struct elf_image *e = calloc(1, sizeof(*e));
    struct probe_point points[PROBE_COUNT];
    struct error error = {0};
    size_t count;
    int *links, r;

    if (!e)
        return -ENOMEM;
    if (elf_image_init(e, file->data, file->bytes, &error) < 0 ||
        elf_image_check_host(e, &error) < 0)
        return 0; /* attach.c has said so */
    count = points_find(e, points);
    if (!count || file->is_torn)
        return 0;
    r = probe_set_link_access(w->owner->m->probes, file->fd, points, count, w->request.tgid, &links,
                              &error);
    if (r < 0) {
        log_warning("process %u: %s: %s; its uses of memory are not seen", w->request.tgid, path,
                    error.what);
        return 0;
    }
    w->functions += (unsigned)count;
    return links_take(w, links, r);
}

static int mapping_attach(struct access_window *w, const struct maps_entry *entry)
{
    _cleanup_mapped_file_ struct mapped_file file = MAPPED_FILE_NONE;

    if (mapped_file_open(w->request.tgid, entry, &file) < 0 || !file_is_new(&w->files, &file.st) ||
        mapped_file_map(&file, UINT64_MAX) < 0)
        return 0;
    return file_attach(w, &file, entry->path);
}

int access_files_attach(struct access_window *w)
{
    _cleanup_free_ char *text = NULL;
    ssize_t bytes = procfs_read(w->request.tgid, "maps", MAPS_BYTES_MAX, &text);
    struct maps_reader reader;
    struct maps_entry entry;
    int r = 0;

    if (bytes < 0)
        return (int)bytes;
    maps_reader_init(&reader, text, (size_t)bytes);
    while (r == 0 && maps_next(&reader, &entry) > 0)
        if (entry.executable && entry.path && library_has_access(entry.path))
            r = mapping_attach(w, &entry);
    return r < 0 ? r : (int)w->functions;
}
