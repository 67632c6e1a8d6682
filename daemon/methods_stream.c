/* SPDX-License-Identifier: Apache-2.0 */
/*
 * methods_stream.c - the event stream: calls that stay open until the client leaves.
 *
 * Owns: manager.streams. Invariant: the ring keeps events only while there is one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "method_context.h"
#include "methods.h"

#define STREAM_PENDING_MAX (8u << 20) /* a reader this far behind is skipped for a while */

struct stream {
    struct manager *manager;
    struct api_call *call;
    struct method_filter filter;
    struct stream *next;
};

static void stream_remove(struct manager *m, struct stream *s)
{
    for (struct stream **p = &m->streams; *p; p = &(*p)->next)
        if (*p == s) {
            *p = s->next;
            break;
        }
    free(s);
    if (!m->streams)
        ring_keep(m->ring, false);
}

static void on_stream_close(struct api_call *call, void *userdata)
{
    struct stream *s = userdata;
    stream_remove(s->manager, s);
}

int method_events(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    struct stream *s = calloc(1, sizeof(*s));
    int r = s ? method_filter_read(call, &s->filter) : -ENOMEM;

    if (r == 0)
        r = api_params_done(call);
    if (r < 0) {
        free(s);
        return r;
    }
    /* strings of the call live as long as the deferred call does */
    s->manager = m;
    s->call = call;
    s->next = m->streams;
    m->streams = s;
    ring_keep(m->ring, true);
    api_call_defer(call);
    api_call_on_close(call, on_stream_close, s);
    return 0;
}

static bool stream_wants(struct manager *m, const struct stream *s, const struct nm_event *e)
{
    const struct ledger_process *p = ledger_find_process(m->ledger, e->tgid);
    const struct method_filter *f = &s->filter;
    bool ok = f->tgid_count == 0;

    for (size_t i = 0; i < f->tgid_count; i++)
        ok |= f->tgids[i] == e->tgid;
    if (ok && f->rank_count) {
        ok = false;
        for (size_t i = 0; i < f->rank_count; i++)
            ok |= p && p->facts.rank == f->ranks[i];
    }
    if (ok && f->container_count) {
        ok = false;
        for (size_t i = 0; i < f->container_count; i++)
            ok |= p && (f->containers[i][0] ? strncmp(p->facts.container, f->containers[i],
                                                      strlen(f->containers[i])) == 0
                                            : !p->facts.container[0]); /* "": on the host */
    }
    return ok;
}

static void stream_send(struct manager *m, struct stream *s, const struct nm_event *e)
{
    struct view_context c;
    struct json j = {};

    if (!stream_wants(m, s, e) || api_call_pending(s->call) > STREAM_PENDING_MAX)
        return;
    method_context_init(m, NULL, &c);
    method_document_begin(&j);
    if (view_event(&c, e, &j) == 0) {
        json_end(&j);
        if (json_finish(&j) == 0)
            api_reply_more(s->call, j.data);
    }
    json_done(&j);
}

void streams_flush(struct manager *m)
{
    struct nm_event events[256];
    size_t n;

    while (m->streams && (n = ring_take(m->ring, events, ARRAY_SIZE(events))) > 0)
        for (size_t i = 0; i < n; i++)
            for (struct stream *s = m->streams, *next; s; s = next) {
                next = s->next; /* a reply may end the connection and with it the stream */
                stream_send(m, s, &events[i]);
            }
}
