/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the events of importance and their queue. Invariant: an event is in the queue until the
 * transaction that holds it is committed; at the queue's bound the oldest goes and is counted.
 */
#include "store_internal.h"

#include <string.h>

#define BATCH 512 /* events in one transaction */

static const char *const kind_names[] = {
    [STORE_EVENT_PROCESS] = "process",
    [STORE_EVENT_EXIT] = "exit",
    [STORE_EVENT_FAILED_CALL] = "failed_call",
    [STORE_EVENT_COMMUNICATOR] = "communicator",
    [STORE_EVENT_LOSS] = "loss",
    [STORE_EVENT_GAP] = "gap",
    [STORE_EVENT_MARK] = "mark",
};

static int event_write(struct store *s, const struct store_pending_event *e)
{
    sqlite3_stmt *stmt = s->statements[STORE_EVENT_INSERT];
    const struct nm_event *nm = &e->event;
    bool call = e->has_event && nm->kind != NM_EVENT_BLOCK;
    int64_t process_id = e->tgid ? store_process_lookup(s, e->tgid, e->start_ticks) : 0;
    int r;

    store_bind(
        s, STORE_EVENT_INSERT, 12,
        (const int64_t[]){(int64_t)e->wall_ns, (int64_t)e->boot_ns, 0, process_id, e->tgid,
                          e->has_event ? nm->tid : 0, call ? nm->call.api : 0,
                          e->has_event ? nm->result : 0, call ? (int64_t)nm->call.address : 0,
                          call ? (int64_t)nm->call.requested : 0,
                          call ? (int64_t)nm->call.handle : 0, call ? (int64_t)nm->call.flags : 0});
    sqlite3_bind_text(stmt, 3, kind_names[e->kind], -1, SQLITE_STATIC);
    if (!process_id)
        sqlite3_bind_null(stmt, 4);
    store_bind_text(s, STORE_EVENT_INSERT, 13, e->detail);
    r = store_run(s, STORE_EVENT_INSERT, NULL);
    s->stats.rows_written += r == 0;
    return r;
}

int store_events_flush(struct store *s)
{
    while (s->event_count) {
        size_t n = s->event_count < BATCH ? s->event_count : BATCH;
        int r = store_begin(s);

        if (r < 0)
            return r;
        for (size_t i = 0; r == 0 && i < n; i++)
            r = event_write(s, &s->events[(s->event_first + i) % LIMIT_STORE_PENDING_EVENTS]);
        r = store_end(s, r);
        if (r < 0)
            return r;
        s->event_first = (s->event_first + n) % LIMIT_STORE_PENDING_EVENTS;
        s->event_count -= n;
    }
    return 0;
}

/* Whether this second still has commits of single events. */
static bool budget_take(struct store *s)
{
    uint64_t boot_ns, wall_ns;

    store_clock(s, &boot_ns, &wall_ns);
    if (s->events_second != boot_ns / 1000000000) {
        s->events_second = boot_ns / 1000000000;
        s->events_this_second = 0;
    }
    return s->events_this_second++ < LIMIT_STORE_EVENTS_PER_SECOND;
}

int store_event(struct store *s, const struct store_event *event)
{
    struct store_pending_event *e;
    struct store_process *p;

    if (!s)
        return 0;
    if ((size_t)event->kind >= ARRAY_SIZE(kind_names))
        return -EINVAL;
    if (!s->events) {
        s->events = calloc(LIMIT_STORE_PENDING_EVENTS, sizeof(*s->events));
        if (!s->events) {
            s->stats.dropped_events++;
            return -ENOMEM;
        }
    }
    if (s->event_count == LIMIT_STORE_PENDING_EVENTS) {
        s->event_first = (s->event_first + 1) % LIMIT_STORE_PENDING_EVENTS;
        s->event_count--;
        s->stats.dropped_events++;
    }
    e = &s->events[(s->event_first + s->event_count++) % LIMIT_STORE_PENDING_EVENTS];
    p = store_find(s, event->tgid);
    *e = (struct store_pending_event){
        .kind = event->kind,
        .has_event = event->event != NULL,
        .tgid = event->tgid,
        .start_ticks = event->event && event->event->start_ticks ? event->event->start_ticks
                       : p                                       ? p->facts.start_ticks
                                                                 : 0,
        .boot_ns = event->time_ns,
        .wall_ns = store_wall_ns(s, event->time_ns),
    };
    if (event->event)
        e->event = *event->event;
    snprintf(e->detail, sizeof(e->detail), "%s", event->detail ? event->detail : "");
    if (!budget_take(s) && s->event_count < BATCH)
        return 0;
    return store_events_flush(s);
}
