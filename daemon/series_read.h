/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series_read.h - the samples of a stretch of time, read in pieces between the other work of the
 * event loop.
 *
 * Six hours of sixteen ranks are 864,000 rows, which take half a second. A piece takes 10 ms: then
 * the ring is emptied and other clients are answered before the next one. Reads that are asked for
 * meanwhile wait their turn, so that the loop has the time of one and the store's log is not held
 * back by one that follows the other. This is not a thread: what is read is looked at by code that
 * knows no locks, and a client that goes away, or a daemon that stops, finds nothing running.
 */
#ifndef NPUMEM_DAEMON_SERIES_READ_H
#define NPUMEM_DAEMON_SERIES_READ_H

#include <systemd/sd-event.h>

#include "store_series.h"

/* The loop's time of one piece: a client that waits behind a read sees a pause of about that. */
#define SERIES_READ_PIECE_NS 10000000ull

struct series_reads;
struct series_read;

int series_reads_new(sd_event *event, struct series_reads **ret);
/* Reads that wait are forgotten without a word. */
struct series_reads *series_reads_free(struct series_reads *reads);
DEFINE_CLEANUP(struct series_reads *, series_reads_free)

struct series_query {
    struct store *store; /* borrowed */
    uint64_t since_wall_ns;
    /* as store_series_next() says */
    int (*point_fn)(void *userdata, struct store_series *series, const struct store_point *point);
    /* Once, from the loop, never before series_read_begin() returned: 0; -errno of point_fn or the
     * store. The read is gone then. */
    void (*ended_fn)(void *userdata, int r);
    void *userdata;
};

/* Returns 0; -ENOMEM. */
int series_read_begin(struct series_reads *reads, const struct series_query *query,
                      struct series_read **ret);
/* Nothing is called for it any more. Not from point_fn. */
void series_read_cancel(struct series_reads *reads, struct series_read *read);

#endif
