/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series_call.c - see series_call.h.
 *
 * Owns: one record per call, from its deferral to its answer or the end of its connection.
 */
#include "series_call.h"

#include <errno.h>
#include <stdlib.h>

struct series_call {
    struct series_reads *reads;
    struct series_read *read;
    struct series_query query; /* as the method asked */
    void (*free_fn)(void *userdata);
};

static void call_free(struct series_call *c)
{
    c->free_fn(c->query.userdata);
    free(c);
}

static int on_point(void *userdata, struct store_series *series, const struct store_point *point)
{
    struct series_call *c = userdata;

    return c->query.point_fn(c->query.userdata, series, point);
}

static void on_ended(void *userdata, int r)
{
    struct series_call *c = userdata;

    c->query.ended_fn(c->query.userdata, r);
    call_free(c);
}

static void on_close(struct api_call *call, void *userdata)
{
    struct series_call *c = userdata;

    series_read_cancel(c->reads, c->read);
    call_free(c);
}

int series_call_begin(struct series_reads *reads, struct api_call *call,
                      const struct series_query *query, void (*free_fn)(void *userdata))
{
    struct series_call *c = calloc(1, sizeof(*c));
    struct series_query own = *query;
    int r;

    if (!c)
        return -ENOMEM;
    *c = (struct series_call){.reads = reads, .query = *query, .free_fn = free_fn};
    own.point_fn = on_point;
    own.ended_fn = on_ended;
    own.userdata = c;
    r = series_read_begin(reads, &own, &c->read);
    if (r < 0) {
        free(c);
        return r;
    }
    api_call_defer(call);
    api_call_on_close(call, on_close, c);
    return 0;
}
