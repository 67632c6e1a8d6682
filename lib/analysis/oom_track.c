/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom_track.c - see oom_track.h.
 *
 * Invariant: at most one slot of a thread is not closed.
 * An expandable segment makes all its handles before it maps one: a mapping is the success, a
 * handle that was made is not (the next one may fail).
 */
#include "oom_track.h"

#include <string.h>

static uint64_t size_of(const struct nm_event *e)
{
    return e->call.requested ? e->call.requested : e->call.physical_bytes;
}

static int find(const struct oom_track *t, const struct nm_event *e)
{
    for (int i = 0; i < OOM_TRACK_SLOTS; i++)
        if (t->slots[i].state && !t->slots[i].is_closed && t->slots[i].tgid == e->tgid &&
            t->slots[i].tid == e->tid)
            return i;
    return -1;
}

static void close_slot(struct oom_track_slot *s)
{
    if (s->state == OOM_TRACK_FIRST)
        s->state = OOM_TRACK_REAL; /* nobody tried again */
    s->is_closed = true;
}

static bool is_over(const struct oom_track_slot *s, uint64_t now_ns)
{
    uint64_t wait = s->state == OOM_TRACK_FIRST ? OOM_TRACK_RETRY_NS : OOM_TRACK_BURST_NS;
    return now_ns > s->last_ns && now_ns - s->last_ns >= wait;
}

int oom_track_failure(struct oom_track *t, const struct nm_event *e, bool *ret_new, int *ret_closed)
{
    int at = find(t, e);

    *ret_new = false;
    *ret_closed = -1;
    if (at >= 0) {
        struct oom_track_slot *s = &t->slots[at];
        if (s->kind == e->kind && s->requested_bytes == size_of(e) && !is_over(s, e->time_ns)) {
            s->failures++;
            s->state = OOM_TRACK_REAL;
            if (e->time_ns > s->last_ns)
                s->last_ns = e->time_ns;
            return at;
        }
        close_slot(s);
        *ret_closed = at;
    }
    for (at = 0; at < OOM_TRACK_SLOTS && t->slots[at].state; at++)
        ;
    if (at == OOM_TRACK_SLOTS) {
        t->dropped++;
        return -1;
    }
    t->slots[at] = (struct oom_track_slot){
        .state = OOM_TRACK_FIRST,
        .kind = e->kind,
        .is_driver = !e->call.api,
        .tgid = e->tgid,
        .tid = e->tid,
        .failures = 1,
        .requested_bytes = size_of(e),
        .first_ns = e->time_ns,
        .last_ns = e->time_ns,
    };
    *ret_new = true;
    return at;
}

int oom_track_success(struct oom_track *t, const struct nm_event *e)
{
    int at;

    if (e->result != 0 || (e->kind != NM_EVENT_ALLOC && e->kind != NM_EVENT_MAP) ||
        (at = find(t, e)) < 0)
        return -1;
    struct oom_track_slot *s = &t->slots[at];
    if ((s->kind == NM_EVENT_CREATE) != (e->kind == NM_EVENT_MAP))
        return -1;
    if (s->state == OOM_TRACK_FIRST &&
        (s->kind == NM_EVENT_CREATE || size_of(e) == s->requested_bytes))
        s->state = OOM_TRACK_RECOVERED;
    close_slot(s);
    return at;
}

int oom_track_due(struct oom_track *t, uint64_t now_ns)
{
    for (int i = 0; i < OOM_TRACK_SLOTS; i++)
        if (t->slots[i].state && !t->slots[i].is_closed && is_over(&t->slots[i], now_ns)) {
            close_slot(&t->slots[i]);
            return i;
        }
    return -1;
}

int oom_track_exit(struct oom_track *t, uint32_t tgid)
{
    for (int i = 0; i < OOM_TRACK_SLOTS; i++)
        if (t->slots[i].state && !t->slots[i].is_closed && (!tgid || t->slots[i].tgid == tgid)) {
            close_slot(&t->slots[i]);
            return i;
        }
    return -1;
}

bool oom_track_waits(const struct oom_track *t)
{
    for (int i = 0; i < OOM_TRACK_SLOTS; i++)
        if (t->slots[i].state && !t->slots[i].is_closed)
            return true;
    return false;
}

void oom_track_release(struct oom_track *t, int slot)
{
    memset(&t->slots[slot], 0, sizeof(t->slots[slot]));
}
