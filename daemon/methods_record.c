/* SPDX-License-Identifier: Apache-2.0 */
/*
 * methods_record.c - RecordStart, RecordStop, RecordList.
 *
 * A stop answers when everything is on disk; what it waits for is counted in a struct stop_wait
 * that lives as long as a recording or the call knows it.
 */
#include <errno.h>
#include <stdlib.h>

#include "method_context.h"
#include "methods.h"
#include "recorder.h"

static void begin(struct manager *m, struct json *j)
{
    struct view_context c;

    method_context_init(m, NULL, &c);
    method_document_begin(j);
    json_object(j);
    view_header(&c, j);
    json_karray(j, "recordings");
}

static int finish(struct api_call *call, struct json *j, int r)
{
    json_end(j);
    json_end(j);
    return method_document_reply(call, j, r < 0 ? r : 0);
}

static int refuse(struct api_call *call, int r, const struct error *error)
{
    const char *name = r == -ESRCH ? "NoSuchProcess" : r == -EALREADY ? "BadParameter" : "Failed";
    return api_error_detail(call, name, error);
}

int method_record_start(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    struct error error = {};
    struct recording *rec;
    struct json j = {};
    uint64_t tgid = 0, for_ns = 0;
    int r = api_param_u64(call, "tgid", INT32_MAX, &tgid);

    if (r >= 0)
        r = api_param_u64(call, "for_ns", INT64_MAX, &for_ns);
    if (r >= 0)
        r = api_params_done(call);
    if (r < 0)
        return r;
    if (!tgid)
        return api_error(call, "BadParameter", "tgid: missing", "give the process to record");
    manager_sync_cards(m);
    r = recorder_start(m->recorder, (uint32_t)tgid, for_ns, &rec, &error);
    if (r < 0)
        return refuse(call, r, &error);
    begin(m, &j);
    recording_write(rec, &j);
    return finish(call, &j, 0);
}

struct stop_wait {
    struct manager *manager;
    struct api_call *call; /* NULL: its connection is gone */
    unsigned open;
    struct json answer; /* rows of those that have ended */
};

/* One of them less; the last one answers. */
static void wait_less(struct stop_wait *w)
{
    if (--w->open)
        return;
    if (w->call) {
        api_call_on_close(w->call, NULL, NULL);
        finish(w->call, &w->answer, 0);
    }
    json_done(&w->answer);
    free(w);
}

static void on_recording_ended(void *userdata, struct recording *rec)
{
    struct stop_wait *w = userdata;

    recording_write(rec, &w->answer);
    wait_less(w);
}

static void on_call_closed(struct api_call *call, void *userdata)
{
    struct stop_wait *w = userdata;
    w->call = NULL;
}

int method_record_stop(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    struct stop_wait *w;
    uint64_t tgid = 0;
    int r = api_param_u64(call, "tgid", INT32_MAX, &tgid);

    if (r >= 0)
        r = api_params_done(call);
    if (r < 0)
        return r;
    manager_sync(m);
    w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    *w = (struct stop_wait){.manager = m, .call = call, .open = 1};
    begin(m, &w->answer);
    for (struct recording *rec = recorder_first(m->recorder); rec; rec = recorder_next(rec)) {
        if (tgid && recording_tgid(rec) != tgid)
            continue;
        if (!recording_on_end(rec, on_recording_ended, w))
            continue; /* another stop waits for it */
        w->open++;
        recorder_stop(m->recorder, rec);
    }
    if (w->open == 1) {
        json_done(&w->answer);
        free(w);
        return api_error(call, "NoSuchProcess", "nothing is being recorded", "npumem record ls");
    }
    api_call_defer(call);
    api_call_on_close(call, on_call_closed, w);
    wait_less(w);
    return 0;
}

int method_record_list(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    struct json j = {};
    int r = api_params_done(call);

    if (r < 0)
        return r;
    ring_drain(m->ring);
    begin(m, &j);
    for (struct recording *rec = recorder_first(m->recorder); rec; rec = recorder_next(rec))
        recording_write(rec, &j);
    return finish(call, &j, recorder_write_finished(m->recorder, &j));
}
