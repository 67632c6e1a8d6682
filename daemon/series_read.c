/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series_read.c - see series_read.h.
 *
 * Owns: the queue of reads. Invariants: the first one is the only one with an open connection; the
 * source is armed while there is a first one. It is a timer that has run out: a deferred source is
 * always what has waited longest, and nothing else would have its turn.
 */
#include "series_read.h"

#include <errno.h>
#include <stdlib.h>

#include "clock.h"

#define ROWS_PER_LOOK 256 /* at the clock: 0.1 ms */

struct series_read {
    struct series_query query;
    struct store_series *series; /* NULL: it has not begun */
    struct series_read *next;
};

struct series_reads {
    sd_event_source *source;
    struct series_read *first;
};

static void unlink_read(struct series_reads *all, struct series_read *read)
{
    for (struct series_read **at = &all->first; *at; at = &(*at)->next)
        if (*at == read) {
            *at = read->next;
            break;
        }
    store_series_close(read->series);
    free(read);
    sd_event_source_set_enabled(all->source, all->first ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

/* Returns as store_series_next(). */
static int piece_read(struct series_read *read)
{
    const struct series_query *q = &read->query;
    uint64_t end_ns = clock_ns(CLOCK_MONOTONIC) + SERIES_READ_PIECE_NS;
    int r = 1;

    if (!read->series)
        r = store_series_open(q->store, q->since_wall_ns, &read->series);
    if (r < 0)
        return r;
    do
        r = store_series_next(read->series, ROWS_PER_LOOK, q->point_fn, q->userdata);
    while (r > 0 && clock_ns(CLOCK_MONOTONIC) < end_ns);
    return r;
}

static int on_piece(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct series_reads *all = userdata;
    int r = piece_read(all->first);

    if (r > 0)
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    struct series_query q = all->first->query;
    unlink_read(all, all->first);
    q.ended_fn(q.userdata, r);
    return 0;
}

int series_reads_new(sd_event *event, struct series_reads **ret)
{
    _cleanup_(series_reads_freep) struct series_reads *all = calloc(1, sizeof(*all));
    int r;

    if (!all)
        return -ENOMEM;
    r = sd_event_add_time(event, &all->source, CLOCK_MONOTONIC, 0, 1, on_piece, all);
    if (r >= 0)
        r = sd_event_source_set_enabled(all->source, SD_EVENT_OFF);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(all);
    return 0;
}

struct series_reads *series_reads_free(struct series_reads *all)
{
    if (!all)
        return NULL;
    while (all->first)
        unlink_read(all, all->first);
    sd_event_source_disable_unref(all->source);
    free(all);
    return NULL;
}

int series_read_begin(struct series_reads *all, const struct series_query *query,
                      struct series_read **ret)
{
    struct series_read *read = calloc(1, sizeof(*read)), **last = &all->first;
    int r;

    if (!read)
        return -ENOMEM;
    r = sd_event_source_set_enabled(all->source, SD_EVENT_ONESHOT);
    if (r < 0) {
        free(read);
        return r;
    }
    read->query = *query;
    while (*last)
        last = &(*last)->next;
    *last = read;
    *ret = read;
    return 0;
}

void series_read_cancel(struct series_reads *all, struct series_read *read)
{
    unlink_read(all, read);
}
