/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caller_map.c - code address -> file, for one process.
 *
 * Owns one allocation per map: ranges sorted by start, and their names behind them.
 * Invariants: range_count <= CALLER_RANGES_MAX; every name offset is inside names; ranges are
 * sorted by start, so that a lookup is one binary search.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "procmaps.h"

struct caller_range {
    uint64_t start, end;
    uint32_t name; /* offset in names */
};

struct caller_map {
    size_t range_count;
    bool truncated;
    char *names;
    struct caller_range ranges[];
};

static int range_compare(const void *a, const void *b)
{
    const struct caller_range *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

static bool is_code(const struct maps_entry *entry)
{
    return entry->executable && entry->inode != 0 && entry->path[0] == '/';
}

struct caller_map *caller_map_free(struct caller_map *m)
{
    if (m)
        free(m->names);
    free(m);
    return NULL;
}

/* Sizes first, so that each part is allocated once. */
static void sizes_read(const char *text, size_t bytes, size_t *ret_ranges, size_t *ret_names)
{
    struct maps_reader r;
    struct maps_entry entry;
    *ret_ranges = *ret_names = 0;
    maps_reader_init(&r, text, bytes);
    while (maps_next(&r, &entry)) {
        if (!is_code(&entry))
            continue;
        char name[CALLER_NAME_MAX];
        caller_name_from_path(entry.path, name);
        (*ret_ranges)++;
        *ret_names += strlen(name) + 1;
        if (*ret_ranges == CALLER_RANGES_MAX)
            return;
    }
}

int caller_map_new(const char *maps_text, size_t bytes, struct caller_map **ret)
{
    struct maps_reader r;
    struct maps_entry entry;
    size_t range_max, names_bytes, names_used = 0, taken = 0;
    _cleanup_(caller_map_freep) struct caller_map *m = NULL;

    sizes_read(maps_text, bytes, &range_max, &names_bytes);
    m = calloc(1, sizeof(*m) + range_max * sizeof(m->ranges[0]));
    if (!m)
        return -ENOMEM;
    m->names = malloc(names_bytes + 1);
    if (!m->names)
        return -ENOMEM;

    maps_reader_init(&r, maps_text, bytes);
    while (maps_next(&r, &entry)) {
        char name[CALLER_NAME_MAX];
        struct caller_range *last = m->range_count ? &m->ranges[m->range_count - 1] : NULL;
        if (!is_code(&entry))
            continue;
        if (taken++ ==
            range_max) { /* not range_count: ranges merge, and names are sized for these */
            m->truncated = true;
            break;
        }
        caller_name_from_path(entry.path, name);
        bool same = last && strcmp(m->names + last->name, name) == 0;
        if (same && last->end == entry.start) {
            last->end = entry.end;
            continue;
        }
        struct caller_range *range = &m->ranges[m->range_count++];
        *range = (struct caller_range){entry.start, entry.end, same ? last->name : 0};
        if (!same) {
            range->name = (uint32_t)names_used;
            memcpy(m->names + names_used, name, strlen(name) + 1);
            names_used += strlen(name) + 1;
        }
    }
    qsort(m->ranges, m->range_count, sizeof(m->ranges[0]), range_compare);
    *ret = TAKE_PTR(m);
    return 0;
}

const char *caller_map_name(const struct caller_map *m, uint64_t address)
{
    size_t low = 0, high = m ? m->range_count : 0;
    while (low < high) { /* first range that starts above the address */
        size_t middle = low + (high - low) / 2;
        if (m->ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || address >= m->ranges[low - 1].end)
        return "";
    return m->names + m->ranges[low - 1].name;
}

size_t caller_map_count(const struct caller_map *m, bool *ret_truncated)
{
    if (ret_truncated)
        *ret_truncated = m->truncated;
    return m->range_count;
}
