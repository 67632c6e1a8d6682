/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sideband.c - see sideband.h. Pure: neither a kernel nor a clock.
 */
#include "sideband.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "procmaps.h"

struct record_mmap2 {
    struct perf_event_header header;
    uint32_t tgid, tid;
    uint64_t addr, length, offset;
    uint32_t maj, min;
    uint64_t ino, ino_generation;
    uint32_t prot, flags;
    char filename[];
};
struct record_fork {
    struct perf_event_header header;
    uint32_t tgid, parent_tgid, tid, parent_tid;
};
struct record_comm {
    struct perf_event_header header;
    uint32_t tgid, tid;
    char comm[];
};

bool sideband_decode(const void *record, size_t bytes, struct sideband *ret)
{
    const struct perf_event_header *h = record;

    *ret = (struct sideband){};
    if (bytes < sizeof(*h) + sizeof(ret->time_ns))
        return false;
    bytes -= sizeof(ret->time_ns); /* what sample_id_all adds at the end */
    memcpy(&ret->time_ns, (const uint8_t *)record + bytes, sizeof(ret->time_ns));
    switch (h->type) {
    case PERF_RECORD_MMAP2: {
        const struct record_mmap2 *m = record;
        size_t room = bytes > sizeof(*m) ? bytes - sizeof(*m) : 0;
        if (!room || !memchr(m->filename, '\0', room) || library_match(m->filename) < 0)
            return false;
        ret->kind = SIDEBAND_MAPPED;
        ret->tgid = m->tgid;
        return true;
    }
    case PERF_RECORD_FORK: {
        const struct record_fork *f = record;
        if (bytes < sizeof(*f) || f->tgid == f->parent_tgid)
            return false;
        ret->kind = SIDEBAND_FORKED;
        ret->tgid = f->tgid;
        ret->parent_tgid = f->parent_tgid;
        return true;
    }
    case PERF_RECORD_COMM: {
        const struct record_comm *c = record;
        if (bytes < sizeof(*c))
            return false;
        ret->kind = h->misc & PERF_RECORD_MISC_COMM_EXEC ? SIDEBAND_EXECUTED : SIDEBAND_RENAMED;
        ret->tgid = c->tgid;
        return true;
    }
    case PERF_RECORD_LOST:
        ret->kind = SIDEBAND_LOST;
        return true;
    }
    return false;
}

int sideband_add(struct sideband_list *list, const struct sideband *record)
{
    if (ARRAY_ROOM(list->records, list->capacity, list->count) < 0)
        return -ENOMEM;
    list->records[list->count] = *record;
    list->records[list->count++].order = list->order_next++;
    return 0;
}

static int compare(const void *a, const void *b)
{
    const struct sideband *one = a, *other = b;

    if (one->time_ns != other->time_ns)
        return one->time_ns < other->time_ns ? -1 : 1;
    return one->order < other->order ? -1 : 1;
}

size_t sideband_sort(struct sideband_list *list, uint64_t until_ns)
{
    size_t due = 0;

    if (list->count > 1)
        qsort(list->records, list->count, sizeof(*list->records), compare);
    while (due < list->count && list->records[due].time_ns <= until_ns)
        due++;
    return due;
}

void sideband_drop(struct sideband_list *list, size_t n)
{
    list->count -= n;
    if (list->count)
        memmove(list->records, list->records + n, list->count * sizeof(*list->records));
}

void sideband_clear(struct sideband_list *list)
{
    free(list->records);
    *list = (struct sideband_list){};
}
