/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rt_stream.c - streams and events. Owns their objects; every stream is always done, so waits
 * return at once and an event carries nothing but the time of its last record; with NPUSIM_EVENT_MS
 * it is done that much later.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "rt.h"
#include "table.h"

enum { STREAMS_EXHAUSTED = 207005, STREAMS_DEFAULT = 1984 };

struct rt_event {
    uint32_t id;
    uint64_t recorded_us;
};

static pthread_mutex_t stream_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_table streams; /* handle -> aux: id */
static uint32_t stream_next;
static uint32_t event_next;
static char default_stream;

static uint32_t stream_limit(void)
{
    const char *text = getenv("NPUSIM_STREAMS");

    return text ? (uint32_t)strtoul(text, NULL, 10) : STREAMS_DEFAULT;
}

int rt_stream_create(void **stream)
{
    struct sim_entry entry = {0};
    void *made;
    int r = rt_need_context();

    if (r)
        return r;
    made = malloc(64);
    if (!made)
        return SIM_RT_DRV_INTERNAL;
    pthread_mutex_lock(&stream_lock);
    entry.key = (uint64_t)(uintptr_t)made;
    entry.aux = ++stream_next;
    if (streams.count >= stream_limit())
        r = STREAMS_EXHAUSTED;
    else if (table_put(&streams, &entry) < 0)
        r = SIM_RT_DRV_INTERNAL;
    pthread_mutex_unlock(&stream_lock);
    if (r)
        free(made);
    else
        *stream = made;
    return r;
}

int rt_stream_destroy(void *stream)
{
    struct sim_entry *entry;

    pthread_mutex_lock(&stream_lock);
    entry = table_find(&streams, (uint64_t)(uintptr_t)stream);
    if (entry)
        table_remove(&streams, entry);
    pthread_mutex_unlock(&stream_lock);
    if (!entry)
        return SIM_RT_STREAM_CONTEXT;
    free(stream);
    return 0;
}

int rt_stream_id(void *stream, int32_t *id)
{
    const struct sim_entry *entry;
    int r = rt_need_context();

    if (r)
        return r;
    if (!stream || stream == &default_stream) {
        *id = 0;
        return 0;
    }
    pthread_mutex_lock(&stream_lock);
    entry = table_find(&streams, (uint64_t)(uintptr_t)stream);
    if (entry)
        *id = (int32_t)entry->aux;
    pthread_mutex_unlock(&stream_lock);
    return entry ? 0 : SIM_RT_STREAM_CONTEXT;
}

int rt_stream_check(void *stream)
{
    int32_t id;

    return rt_stream_id(stream, &id);
}

int rt_streams_available(uint32_t *count)
{
    pthread_mutex_lock(&stream_lock);
    *count = stream_limit() - (uint32_t)streams.count;
    pthread_mutex_unlock(&stream_lock);
    return 0;
}

int rt_default_stream(void **stream)
{
    *stream = &default_stream;
    return rt_need_context();
}

static uint64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000;
}

int rt_event_create(void **event)
{
    struct rt_event *made = calloc(1, sizeof(*made));

    if (!made)
        return SIM_RT_DRV_INTERNAL;
    made->id = __atomic_add_fetch(&event_next, 1, __ATOMIC_RELAXED);
    *event = made;
    return 0;
}

int rt_event_destroy(void *event)
{
    free(event);
    return 0;
}

int rt_event_record(void *event, void *stream)
{
    struct rt_event *own = event;
    int r = rt_stream_check(stream);

    if (!r)
        own->recorded_us = now_us();
    return r;
}

/* Microseconds until the event is done. */
static uint64_t event_left_us(const struct rt_event *event)
{
    const char *text = getenv("NPUSIM_EVENT_MS");
    uint64_t busy_us = text ? strtoull(text, NULL, 10) * 1000 : 0, now = now_us();

    if (!busy_us || !event->recorded_us || now - event->recorded_us >= busy_us)
        return 0;
    return event->recorded_us + busy_us - now;
}

int rt_event_query(void *event, int *status)
{
    *status = event_left_us(event) == 0;
    return 0;
}

int rt_event_synchronize(void *event)
{
    uint64_t left;

    while ((left = event_left_us(event)))
        usleep((useconds_t)(left < 100000 ? left : 100000));
    return 0;
}

int rt_event_elapsed(float *ms, void *start, void *end)
{
    const struct rt_event *from = start;
    const struct rt_event *to = end;

    *ms = (float)((double)to->recorded_us - (double)from->recorded_us) / 1000.0f;
    return 0;
}

int rt_event_timestamp(uint64_t *timestamp_us, void *event)
{
    *timestamp_us = ((struct rt_event *)event)->recorded_us;
    return 0;
}

int rt_event_id(void *event, uint32_t *id)
{
    *id = ((struct rt_event *)event)->id;
    return 0;
}

void rt_stream_after_fork(void)
{
    pthread_mutex_init(&stream_lock, NULL);
    table_clear(&streams);
}
