/* SPDX-License-Identifier: Apache-2.0 */
/*
 * discovery.c - perf side-band records of all CPUs; see discovery.h.
 */
#include "discovery.h"

#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "procmaps.h"
#include "sideband.h"

#define BUFFER_BYTES (256u << 10) /* per CPU; no record of 500 process starts lost (measured) */
#define ROUNDS_MAX 8              /* of reading all buffers until nothing has come meanwhile */
#define RECORD_MAX (sizeof(struct perf_event_header) + 128 + MAPS_PATH_MAX)

struct cpu_buffer {
    int fd;
    struct perf_event_mmap_page *page;
    sd_event_source *source;
};

struct discovery {
    const struct discovery_handler *handler;
    void *userdata;
    size_t page_bytes, data_bytes;
    int cpu_count;
    struct cpu_buffer *cpus;
    struct sideband_list list;
    bool no_memory;
    uint8_t record[RECORD_MAX];
};

static void handle_record(struct discovery *d, const struct sideband *record)
{
    switch (record->kind) {
    case SIDEBAND_MAPPED:
        d->handler->mapped(d->userdata, record->tgid);
        break;
    case SIDEBAND_FORKED:
        d->handler->forked(d->userdata, record->tgid, record->parent_tgid);
        break;
    case SIDEBAND_EXECUTED:
        d->handler->executed(d->userdata, record->tgid, record->time_ns);
        d->handler->renamed(d->userdata, record->tgid);
        break;
    case SIDEBAND_RENAMED:
        d->handler->renamed(d->userdata, record->tgid);
        break;
    case SIDEBAND_LOST:
        d->handler->lost(d->userdata);
        break;
    }
}

static void gather_record(struct discovery *d, const void *record, size_t bytes)
{
    struct sideband decoded;

    if (sideband_decode(record, bytes, &decoded) && sideband_add(&d->list, &decoded) < 0)
        d->no_memory = true;
}

static void gather_cpu(struct discovery *d, struct cpu_buffer *cpu)
{
    uint8_t *data = (uint8_t *)cpu->page + d->page_bytes;
    uint64_t head =
        atomic_load_explicit((_Atomic uint64_t *)&cpu->page->data_head, memory_order_acquire);
    uint64_t tail = cpu->page->data_tail;

    while (tail < head) {
        size_t at = tail % d->data_bytes;
        const struct perf_event_header *h = (const void *)(data + at);
        size_t size = h->size; /* 8-byte aligned, so a header never wraps */

        if (size < sizeof(*h) || size > head - tail) {
            tail = head; /* not a record: skip all */
            break;
        }
        if (at + size > d->data_bytes) {
            size_t first = d->data_bytes - at, kept = size < RECORD_MAX ? size : RECORD_MAX;
            memcpy(d->record, h, first < kept ? first : kept);
            if (kept > first)
                memcpy(d->record + first, data, kept - first);
            gather_record(d, d->record, kept);
        } else {
            gather_record(d, h, size);
        }
        tail += size;
    }
    atomic_store_explicit((_Atomic uint64_t *)&cpu->page->data_tail, tail, memory_order_release);
}

void discovery_drain(struct discovery *d)
{
    if (!d)
        return;
    /* the last round takes all: a host that never stops making processes must not hold us here */
    for (int round = 1; round == 1 || (round <= ROUNDS_MAX && d->list.count); round++) {
        uint64_t until_ns = round < ROUNDS_MAX ? clock_ns(CLOCK_BOOTTIME) : UINT64_MAX;
        for (int i = 0; i < d->cpu_count; i++)
            if (d->cpus[i].page)
                gather_cpu(d, &d->cpus[i]);
        size_t due = sideband_sort(&d->list, until_ns);
        for (size_t i = 0; i < due; i++)
            handle_record(d, &d->list.records[i]);
        sideband_drop(&d->list, due);
    }
    if (d->no_memory) {
        d->no_memory = false;
        d->handler->lost(d->userdata);
    }
}

static int on_readable(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
    discovery_drain(userdata);
    return 0;
}

static int cpu_open(struct discovery *d, sd_event *event, int cpu)
{
    struct perf_event_attr attr = {
        .size = sizeof(attr),
        .type = PERF_TYPE_SOFTWARE,
        .config = PERF_COUNT_SW_DUMMY,
        .mmap = 1,
        .mmap2 = 1,
        .comm = 1,
        .task = 1,
        .watermark = 1,
        .wakeup_watermark = 1,
        .exclude_kernel = 1,
        .sample_type = PERF_SAMPLE_TIME,
        .sample_id_all = 1,
        .use_clockid = 1,
        .clockid = CLOCK_BOOTTIME,
    };
    struct cpu_buffer *c = &d->cpus[cpu];
    int r;

    c->fd = syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
    if (c->fd < 0)
        return errno == ENODEV ? 0 : -errno; /* an offline CPU runs nothing */
    c->page =
        mmap(NULL, d->page_bytes + d->data_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (c->page == MAP_FAILED) {
        c->page = NULL;
        return -errno;
    }
    r = sd_event_add_io(event, &c->source, c->fd, EPOLLIN, on_readable, d);
    return r < 0 ? r : 0;
}

int discovery_new(sd_event *event, const struct discovery_handler *handler, void *userdata,
                  struct discovery **ret, struct error *reterr)
{
    _cleanup_(discovery_freep) struct discovery *d = calloc(1, sizeof(*d));
    int r;

    if (!d)
        return -ENOMEM;
    d->handler = handler;
    d->userdata = userdata;
    d->page_bytes = sysconf(_SC_PAGESIZE);
    d->data_bytes = BUFFER_BYTES > d->page_bytes ? BUFFER_BYTES : d->page_bytes;
    d->cpu_count = sysconf(_SC_NPROCESSORS_CONF);
    d->cpus = calloc(d->cpu_count, sizeof(*d->cpus));
    if (!d->cpus)
        return -ENOMEM;
    for (int i = 0; i < d->cpu_count; i++)
        d->cpus[i].fd = -1;
    for (int i = 0; i < d->cpu_count; i++) {
        r = cpu_open(d, event, i);
        if (r < 0) {
            error_set(reterr, r, "cannot watch for new processes: %s", strerror(-r));
            return error_fix(reterr, r, "run as root, or with CAP_PERFMON");
        }
    }
    *ret = TAKE_PTR(d);
    return 0;
}

struct discovery *discovery_free(struct discovery *d)
{
    if (!d)
        return NULL;
    for (int i = 0; d->cpus && i < d->cpu_count; i++) {
        sd_event_source_disable_unref(d->cpus[i].source);
        if (d->cpus[i].page)
            munmap(d->cpus[i].page, d->page_bytes + d->data_bytes);
        if (d->cpus[i].fd >= 0)
            close(d->cpus[i].fd);
    }
    sideband_clear(&d->list);
    free(d->cpus);
    free(d);
    return NULL;
}
