/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.c - see ring.h.
 */
#include "ring.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "access_window.h"
#include "log.h"
#include "python.h"
#include "recorder.h"

#define CPUS_MAX 4096

struct readings {
    void *rows;
    size_t count, capacity;
};

struct ring {
    struct probe_set *set;
    struct ledger *ledger;
    struct python *python;
    struct recorder *recorder;
    struct accesses *accesses;
    struct ring_buffer *buffer;
    sd_event_source *io, *timer;
    uint64_t poll_ns;
    struct ring_stats stats;
    uint32_t next_seq[CPUS_MAX];
    void (*watch_fn)(void *userdata, const struct nm_event *event);
    void *watch_userdata;
    bool keep;
    struct nm_event *queue;
    size_t queue_head, queue_count;
    struct readings pools, small;
};

/* The word of an event that has a phase with frames that had no name yet; NULL: none. */
static uint32_t *unnamed_phase(struct nm_event *e, uint32_t *ret_stack)
{
    uint32_t *phase = NULL;

    if (e->kind == NM_EVENT_BLOCK && e->block.action == NM_BLOCK_MALLOC) {
        phase = &e->block.phase;
        *ret_stack = e->block.stack;
    } else if (NM_KIND_HAS_PHASE(e->kind)) {
        phase = &e->call.phase;
        *ret_stack = e->call.stack;
    }
    return phase && (*phase & NM_PHASE_UNNAMED) ? phase : NULL;
}

static void event_apply(struct ring *r, const struct nm_event *e)
{
    struct nm_event named = *e;
    uint32_t stack, *phase = unnamed_phase(&named, &stack);

    if (phase && r->python)
        *phase = python_phase(r->python, named.tgid, stack, *phase);
    ledger_apply(r->ledger, &named);
    recorder_event(r->recorder, &named);
    if (r->watch_fn)
        r->watch_fn(r->watch_userdata, &named);
    if (!r->keep)
        return;
    if (r->queue_count == RING_QUEUE_EVENTS)
        r->stats.queue_dropped++;
    else
        r->queue[(r->queue_head + r->queue_count++) % RING_QUEUE_EVENTS] = named;
}

/* Ring memory is read-only here. */
static int on_event(void *userdata, void *data, size_t size)
{
    struct ring *r = userdata;
    const struct nm_event *e = data;

    r->stats.received++;
    if (size < sizeof(*e)) {
        struct nm_event bad = {};
        ledger_apply(r->ledger, &bad); /* counted as malformed */
        return 0;
    }
    if (e->cpu < CPUS_MAX) {
        /* modulo 2^32; a smaller number than expected is a racing draw of the legacy build */
        int32_t gap = (int32_t)(e->seq - r->next_seq[e->cpu]);
        if (gap > 0) {
            r->stats.sequence_gaps += gap;
            recorder_lost(r->recorder, (uint64_t)gap);
        }
        if (gap >= 0)
            r->next_seq[e->cpu] = e->seq + 1;
    }
    if (e->kind == NM_EVENT_STACK || e->kind == NM_EVENT_THREAD || e->kind == NM_EVENT_CODE) {
        ledger_apply(r->ledger, e); /* counts it in the sequence */
        if (r->python)
            python_event(r->python, e, size);
        recorder_event(r->recorder, e);
        return 0;
    }
    if (e->kind == NM_EVENT_ACCESS) {
        ledger_apply(r->ledger, e);
        accesses_event(r->accesses, e);
        return 0;
    }
    event_apply(r, e);
    return 0;
}

void ring_watch(struct ring *r, void (*fn)(void *userdata, const struct nm_event *event),
                void *userdata)
{
    r->watch_fn = fn;
    r->watch_userdata = userdata;
}

int ring_drain(struct ring *r)
{
    return ring_buffer__consume(r->buffer);
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
    ring_drain(userdata);
    return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct ring *r = userdata;

    ring_drain(r);
    sd_event_source_set_time_relative(source, r->poll_ns / 1000);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

int ring_new(sd_event *event, struct probe_set *set, struct ledger *ledger, uint64_t poll_ns,
             struct ring **ret, struct error *reterr)
{
    _cleanup_(ring_freep) struct ring *r = calloc(1, sizeof(*r));
    int k;

    if (!r || !(r->queue = calloc(RING_QUEUE_EVENTS, sizeof(*r->queue))))
        return -ENOMEM;
    r->set = set;
    r->ledger = ledger;
    r->poll_ns = poll_ns;
    r->buffer = ring_buffer__new(probe_set_ring_fd(set), on_event, r, NULL);
    if (!r->buffer)
        return error_set(reterr, errno, "cannot map the ring buffer: %s", strerror(errno));
    k = sd_event_add_io(event, &r->io, ring_buffer__epoll_fd(r->buffer), EPOLLIN, on_io, r);
    if (k >= 0)
        k = sd_event_add_time_relative(event, &r->timer, CLOCK_MONOTONIC, poll_ns / 1000,
                                       poll_ns / 16000, on_timer, r);
    if (k < 0)
        return error_set(reterr, k, "cannot watch the ring buffer: %s", strerror(-k));
    *ret = TAKE_PTR(r);
    return 0;
}

void ring_set_python(struct ring *r, struct python *python)
{
    r->python = python;
}

void ring_set_recorder(struct ring *r, struct recorder *recorder)
{
    r->recorder = recorder;
}

void ring_set_accesses(struct ring *r, struct accesses *accesses)
{
    r->accesses = accesses;
}

struct ring *ring_free(struct ring *r)
{
    if (!r)
        return NULL;
    sd_event_source_disable_unref(r->io);
    sd_event_source_disable_unref(r->timer);
    ring_buffer__free(r->buffer);
    free(r->queue);
    free(r->pools.rows);
    free(r->small.rows);
    free(r);
    return NULL;
}

/* A total that is being written has an odd seq; it is stable again within microseconds. */
static int pool_read(int fd, const struct nm_pool_key *key, struct nm_pool_totals *ret)
{
    for (int i = 0; i < 100; i++) {
        struct nm_pool_totals again;
        if (bpf_map_lookup_elem(fd, key, ret) < 0 || bpf_map_lookup_elem(fd, key, &again) < 0)
            return -errno;
        if (!(ret->seq & 1) && ret->seq == again.seq)
            return 0;
    }
    return -EAGAIN;
}

/* Rows of the kernel's sums, read and not yet applied. */
struct pool_reading {
    struct nm_pool_key key;
    struct nm_pool_totals totals;
};
struct small_reading {
    struct nm_small_key key;
    struct nm_small_totals totals;
};

/* Room for one row more; NULL without memory: the row waits for the next time. */
static void *reading_add(struct readings *list, size_t row_bytes)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        void *rows = reallocarray(list->rows, capacity, row_bytes);
        if (!rows)
            return NULL;
        list->rows = rows;
        list->capacity = capacity;
    }
    return (uint8_t *)list->rows + list->count++ * row_bytes;
}

static void read_pools(struct ring *r)
{
    int fd = probe_set_pools_fd(r->set);
    struct nm_pool_key key, next;
    struct nm_pool_totals totals;
    int k = bpf_map_get_next_key(fd, NULL, &next);

    r->pools.count = 0;
    for (; k == 0; k = bpf_map_get_next_key(fd, &key, &next)) {
        struct pool_reading *row;
        key = next;
        if (pool_read(fd, &key, &totals) == 0 && (row = reading_add(&r->pools, sizeof(*row))))
            *row = (struct pool_reading){key, totals};
    }
}

static void read_small(struct ring *r)
{
    int fd = probe_set_small_fd(r->set);
    struct nm_small_key key, next;
    struct nm_small_totals totals;
    int k = bpf_map_get_next_key(fd, NULL, &next);

    r->small.count = 0;
    for (; k == 0; k = bpf_map_get_next_key(fd, &key, &next)) {
        struct small_reading *row;
        key = next;
        if (bpf_map_lookup_elem(fd, &key, &totals) == 0 &&
            (row = reading_add(&r->small, sizeof(*row))))
            *row = (struct small_reading){key, totals};
    }
}

/*
 * Sums are read before totals and totals before events: what a later one does not contain yet
 * cannot look as if it had been there before attach. They are applied after the events: those are
 * older than the totals, and a peak among them must not be noted with totals of a later moment.
 */
void ring_sync(struct ring *r)
{
    read_small(r);
    read_pools(r);
    ring_drain(r);
    for (size_t i = 0; i < r->small.count; i++) {
        const struct small_reading *row = (struct small_reading *)r->small.rows + i;
        ledger_small_totals(r->ledger, &row->key, &row->totals);
    }
    for (size_t i = 0; i < r->pools.count; i++) {
        const struct pool_reading *row = (struct pool_reading *)r->pools.rows + i;
        ledger_pool_totals(r->ledger, &row->key, &row->totals);
    }
    if (probe_set_counters(r->set, &r->stats.kernel) == 0)
        ledger_set_lost(r->ledger, r->stats.kernel.lost);
}

static void forget_keys(int fd, size_t key_bytes, size_t tgid_offset, uint32_t tgid)
{
    uint8_t key[32], next[32];
    int k = bpf_map_get_next_key(fd, NULL, next);

    while (k == 0) {
        uint32_t owner;
        memcpy(key, next, key_bytes);
        memcpy(&owner, key + tgid_offset, sizeof(owner));
        k = bpf_map_get_next_key(fd, key, next);
        if (owner == tgid)
            bpf_map_delete_elem(fd, key);
    }
}

void ring_forget(struct ring *r, uint32_t tgid)
{
    forget_keys(probe_set_pools_fd(r->set), sizeof(struct nm_pool_key),
                offsetof(struct nm_pool_key, tgid), tgid);
    forget_keys(probe_set_small_fd(r->set), sizeof(struct nm_small_key),
                offsetof(struct nm_small_key, tgid), tgid);
    forget_keys(probe_set_atb_fd(r->set), sizeof(struct nm_atb_key),
                offsetof(struct nm_atb_key, tgid), tgid);
}

const struct ring_stats *ring_stats(const struct ring *r)
{
    return &r->stats;
}

void ring_keep(struct ring *r, bool on)
{
    r->keep = on;
    if (!on)
        r->queue_count = 0;
}

size_t ring_take(struct ring *r, struct nm_event *ret, size_t max)
{
    size_t n = r->queue_count < max ? r->queue_count : max;

    for (size_t i = 0; i < n; i++)
        ret[i] = r->queue[(r->queue_head + i) % RING_QUEUE_EVENTS];
    r->queue_head = (r->queue_head + n) % RING_QUEUE_EVENTS;
    r->queue_count -= n;
    return n;
}
