/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_moment.c - moments of a recorded trace as people say them; see trace_replay.h.
 */
#include <errno.h>
#include <string.h>

#include "trace_replay.h"

/* The newest mark of a name. Returns 0; -ENOENT; -ENOMEM. */
static int find_mark(struct trace_replay *r, const char *name, uint64_t *ret)
{
    struct trace_names names = {0};
    struct nm_trace_record e;
    int k = -ENOENT;

    trace_rewind(r->trace);
    while (trace_next(r->trace, &e) > 0) {
        if (e.kind == NM_TRACE_NAME && trace_names_add(&names, &e) == -ENOMEM) {
            k = -ENOMEM;
            break;
        }
        const char *text = e.kind == NM_TRACE_MARK ? trace_name(&names, e.owner) : NULL;
        if (!text || strcmp(text, name) != 0)
            continue;
        *ret = e.time_ns;
        k = 0;
    }
    trace_names_done(&names);
    return k;
}

/* The time at which a device had most segments. */
static int on_device(void *userdata, const struct ledger_device_use *use)
{
    struct ledger_device_use *most = userdata;

    if (use->peak_bytes > most->peak_bytes)
        *most = *use;
    return 0;
}

static int find_peak(struct trace_replay *r, uint64_t *ret)
{
    struct ledger_device_use most = {.peak_ns = r->begin_ns};
    struct trace_replay whole;
    int k = trace_replay_new(r->trace, &whole);

    if (k == 0)
        k = trace_replay_run(&whole, whole.end_ns, NULL);
    if (k == 0)
        k = ledger_each_device(whole.ledger, whole.state.tgid, on_device, &most);
    *ret = most.peak_ns;
    trace_replay_done(&whole);
    return k;
}

int trace_replay_moment(struct trace_replay *r, const char *text, timespec_local_fn local_fn,
                        uint64_t *ret, struct error *reterr)
{
    uint64_t first = trace_replay_wall_ns(r, r->begin_ns),
             last = trace_replay_wall_ns(r, r->end_ns);
    struct timespec_value v;
    int k;

    if (timespec_parse(text, (int64_t)last, local_fn, &v) < 0)
        return error_set(reterr, EINVAL, "%.80s: not a moment", text);
    if (v.kind == TIMESPEC_PEAK)
        return find_peak(r, ret);
    if (v.kind == TIMESPEC_MARK) {
        k = find_mark(r, v.mark, ret);
        return k == -ENOENT ? error_set(reterr, ENOENT,
                                        "%.80s: there is no such mark in the recording", text)
                            : k;
    }
    if ((uint64_t)v.wall_ns < first || (uint64_t)v.wall_ns > last) {
        error_set(reterr, EINVAL, "%.80s: the recording is of @%llu.%09llu to @%llu.%09llu", text,
                  (unsigned long long)first / 1000000000, (unsigned long long)first % 1000000000,
                  (unsigned long long)last / 1000000000, (unsigned long long)last % 1000000000);
        return error_fix(reterr, -EINVAL, "a moment in it; -10s is 10 s before its end");
    }
    *ret = trace_replay_time_ns(r, (uint64_t)v.wall_ns);
    return 0;
}

int trace_replay_period(struct trace_replay *r, const struct recording_query *q,
                        uint64_t *ret_since, uint64_t *ret_until, struct error *reterr)
{
    int k = 0;

    *ret_since = r->begin_ns;
    *ret_until = r->end_ns;
    if (q->since)
        k = trace_replay_moment(r, q->since, q->local_fn, ret_since, reterr);
    if (k == 0 && q->until)
        k = trace_replay_moment(r, q->until, q->local_fn, ret_until, reterr);
    if (k == 0 && *ret_since > *ret_until)
        return error_set(reterr, EINVAL, "--since %.60s: it is not before --until", q->since);
    return k;
}
