/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_ranges.c - the mapped ranges of a process.
 *
 * Owns: the ranges, in ascending order as the kernel writes them (a line out of order is dropped),
 * and one copy of each path.
 */
#include "image_ranges.h"

#include <errno.h>
#include <string.h>

#include "procmaps.h"

/* What the loader rounds segments to: at least the page size of the machine. */
#define IMAGE_BIAS_PAGE 4096u

struct image_ranges {
    struct image_range *items;
    size_t count, capacity;
    char **paths;
    size_t path_count;
};

static int range_add(struct image_ranges *r, const struct image_range *range)
{
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 256;
        void *items = realloc(r->items, capacity * sizeof(*r->items));
        if (!items)
            return -ENOMEM;
        r->items = items;
        r->capacity = capacity;
    }
    r->items[r->count++] = *range;
    return 0;
}

static bool is_file(const struct maps_entry *e)
{
    return e->inode && e->path[0] == '/' && strncmp(e->path, "/dev/", 5) != 0 &&
           strncmp(e->path, "/SYSV", 5) != 0 && strncmp(e->path, "/memfd:", 7) != 0;
}

/* Lines of one file follow each other, but for a few that others interrupt. */
static int file_number(struct image_ranges *r, const char *path, uint32_t *ret)
{
    for (size_t back = 0; back < 4 && back < r->path_count; back++)
        if (strcmp(r->paths[r->path_count - 1 - back], path) == 0) {
            *ret = (uint32_t)(r->path_count - back);
            return 0;
        }
    if (r->path_count % 64 == 0) {
        void *paths = realloc(r->paths, (r->path_count + 64) * sizeof(*r->paths));
        if (!paths)
            return -ENOMEM;
        r->paths = paths;
    }
    r->paths[r->path_count] = strdup(path);
    if (!r->paths[r->path_count])
        return -ENOMEM;
    *ret = (uint32_t)++r->path_count;
    return 0;
}

int image_ranges_new(const char *maps_text, size_t bytes, struct image_ranges **ret)
{
    _cleanup_(image_ranges_freep) struct image_ranges *r = calloc(1, sizeof(*r));
    _cleanup_free_ struct maps_reader *reader = malloc(sizeof(*reader));
    struct maps_entry e;

    if (!r || !reader)
        return -ENOMEM;
    maps_reader_init(reader, maps_text, bytes);
    while (r->count < IMAGE_RANGES_MAX && maps_next(reader, &e) > 0) {
        struct image_range range = {.start = e.start,
                                    .end = e.end,
                                    .offset = e.offset,
                                    .writable = e.writable,
                                    .executable = e.executable};
        int n = 0;
        if (r->count && e.start < r->items[r->count - 1].end)
            continue;
        if (is_file(&e))
            n = file_number(r, e.path, &range.file);
        if (n == 0)
            n = range_add(r, &range);
        if (n < 0)
            return n;
    }
    *ret = TAKE_PTR(r);
    return 0;
}

struct image_ranges *image_ranges_free(struct image_ranges *r)
{
    if (!r)
        return NULL;
    for (size_t i = 0; i < r->path_count; i++)
        free(r->paths[i]);
    free(r->paths);
    free(r->items);
    free(r);
    return NULL;
}

const struct image_range *image_ranges_find(const struct image_ranges *r, uint64_t address)
{
    size_t low = 0, high = r->count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (address < r->items[middle].start)
            high = middle;
        else if (address >= r->items[middle].end)
            low = middle + 1;
        else
            return &r->items[middle];
    }
    return NULL;
}

bool image_ranges_in_file(const struct image_ranges *r, uint64_t address)
{
    const struct image_range *range = image_ranges_find(r, address);
    return range && range->file;
}

bool image_ranges_in_code(const struct image_ranges *r, uint64_t address)
{
    const struct image_range *range = image_ranges_find(r, address);
    return range && range->file && range->executable;
}

const char *image_ranges_path(const struct image_ranges *r, uint32_t file)
{
    return file && file <= r->path_count ? r->paths[file - 1] : NULL;
}

uint32_t image_ranges_file(const struct image_ranges *r, const char *stem)
{
    size_t length = strlen(stem);

    for (uint32_t file = 1; file <= r->path_count; file++) {
        const char *name = strrchr(r->paths[file - 1], '/') + 1;
        if (strncmp(name, stem, length) == 0 &&
            (!name[length] || name[length] == '.' || name[length] == '-'))
            return file;
    }
    return 0;
}

const struct image_range *image_ranges_first(const struct image_ranges *r, uint32_t file)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->items[i].file == file)
            return &r->items[i];
    return NULL;
}

int image_ranges_bias(const struct image_ranges *r, uint32_t file, const struct elf_image *elf,
                      uint64_t *ret_bias)
{
    const uint64_t page = ~(uint64_t)(IMAGE_BIAS_PAGE - 1);

    for (size_t i = 0; i < r->count; i++) {
        if (r->items[i].file != file)
            continue;
        for (uint16_t s = 0; s < elf->segment_count; s++) {
            const struct elf_segment *segment = &elf->segments[s];
            if ((segment->offset & page) == r->items[i].offset &&
                segment->executable == r->items[i].executable) {
                *ret_bias = r->items[i].start - (segment->vaddr & page);
                return 0;
            }
        }
    }
    return -ENOENT;
}
