/* SPDX-License-Identifier: Apache-2.0 */
/*
 * method_context.c - see method_context.h.
 *
 * Owns: how a view asks the manager for what is not in the ledger, and which words a wrong moment
 * gets. Must not: know any view.
 */
#include "method_context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "local_time.h"
#include "timespec.h"

int method_filter_read(struct api_call *call, struct method_filter *f)
{
    uint64_t values[METHOD_FILTER_MAX];
    int r;

    r = api_param_u64s(call, "tgid", UINT32_MAX, values, METHOD_FILTER_MAX, &f->tgid_count);
    if (r < 0)
        return r;
    for (size_t i = 0; i < f->tgid_count; i++)
        f->tgids[i] = values[i];
    r = api_param_u64s(call, "rank", INT32_MAX, values, METHOD_FILTER_MAX, &f->rank_count);
    if (r < 0)
        return r;
    for (size_t i = 0; i < f->rank_count; i++)
        f->ranks[i] = values[i];
    r = api_param_u64s(call, "device", UINT16_MAX, values, METHOD_FILTER_MAX, &f->device_count);
    if (r < 0)
        return r;
    for (size_t i = 0; i < f->device_count; i++)
        f->devices[i] = values[i];
    r = api_param_strs(call, "container", f->containers, METHOD_FILTER_MAX, &f->container_count);
    return r < 0 ? r : 0;
}

static void on_coverage(void *userdata, uint32_t tgid, struct view_coverage *ret)
{
    struct manager *m = userdata;
    struct target *t = targets_find(m->targets, tgid);

    if (!t)
        return;
    ret->text = target_level(t, &ret->reason);
    if (!ret->reason)
        ret->reason = python_reason(m->python, tgid);
    ret->late = t->late;
}

static size_t on_frames(void *userdata, uint32_t tgid, uint32_t stack, const char **ret, size_t max)
{
    struct manager *m = userdata;
    return python_stack(m->python, tgid, stack, ret, max);
}

static bool on_other_bytes(void *userdata, uint16_t device, uint64_t *ret_bytes)
{
    struct manager *m = userdata;
    return driver_usage_others(m->config.daemon_svm_dir, device, m->ledger, ret_bytes);
}

static const char *on_environment(void *userdata, uint32_t tgid, size_t *ret_bytes,
                                  const char **ret_source)
{
    struct manager *m = userdata;
    struct target *t = targets_find(m->targets, tgid);

    if (!t || !t->memory->environment.read)
        return NULL;
    *ret_bytes = t->memory->environment.bytes;
    *ret_source = t->memory->environment.live ? "live" : "exec";
    return t->memory->environment.text;
}

static int on_atb(void *userdata, uint32_t tgid, int (*fn)(void *, const struct view_atb *),
                  void *fn_userdata)
{
    struct manager *m = userdata;
    return atb_ops_each(probe_set_atb_fd(m->probes), &m->atb_names, tgid, fn, fn_userdata);
}

void method_context_init(struct manager *m, const struct method_filter *f, struct view_context *c)
{
    const struct ring_stats *s = ring_stats(m->ring);

    *c = (struct view_context){
        .wall_ns = manager_wall_ns(),
        .boot_ns = manager_boot_ns(),
        .host = m->host,
        .complete = s->kernel.lost == 0 && s->kernel.map_full == 0 && s->kernel.read_failed == 0,
        .lost_events = s->kernel.lost,
        .coverage_fn = on_coverage,
        .other_bytes_fn = on_other_bytes,
        .frames_fn = on_frames,
        .environment_fn = on_environment,
        .atb_fn = on_atb,
        .userdata = m,
    };
    if (!f)
        return;
    c->tgids = f->tgids;
    c->tgid_count = f->tgid_count;
    c->ranks = f->ranks;
    c->rank_count = f->rank_count;
    c->devices = f->devices;
    c->device_count = f->device_count;
    c->containers = f->containers;
    c->container_count = f->container_count;
}

void method_document_begin(struct json *j)
{
    json_object(j);
    json_key(j, "document");
}

int method_document_reply(struct api_call *call, struct json *j, int r)
{
    json_end(j);
    if (r == 0)
        r = api_reply_json(call, j);
    json_done(j);
    return r;
}

void method_document_answer(struct api_call *call, const char *what, struct json *j, int r)
{
    char message[128];

    snprintf(message, sizeof(message), "%s: %s", what, strerror(-r));
    if (r < 0) {
        api_error(call, "Failed", message, NULL);
        json_done(j);
    } else {
        method_document_reply(call, j, 0);
    }
}

int method_check_tgids(const struct ledger *l, struct api_call *call, const struct method_filter *f)
{
    char message[80];

    for (size_t i = 0; i < f->tgid_count; i++)
        if (!ledger_find_process(l, f->tgids[i])) {
            snprintf(message, sizeof(message), "process %u: not observed", f->tgids[i]);
            api_error(call, "NoSuchProcess", message, "npumem ps lists those that are");
            return 1;
        }
    return 0;
}

int method_begin(struct api_call *call, struct manager *m, const struct method_filter *f,
                 enum method_figures figures, struct view_context *c)
{
    int r = api_params_done(call);

    if (r < 0)
        return r;
    if (figures == METHOD_WITH_CARDS)
        manager_sync_cards(m);
    else
        manager_sync(m);
    if (f && method_check_tgids(m->ledger, call, f))
        return 0;
    method_context_init(m, f, c);
    return 1;
}

/* Wall time of an earlier moment. Returns as method_moment_find(). */
static int wall_time(struct api_call *call, struct manager *m, const char *name,
                     const struct timespec_value *v, uint64_t *ret)
{
    uint64_t now = manager_wall_ns();
    char message[160];

    *ret = (uint64_t)v->wall_ns;
    if (v->kind == TIMESPEC_MARK && store_mark_find(m->store, v->mark, ret) < 0) {
        snprintf(message, sizeof(message), "mark %.100s: there is none of that name", v->mark);
        return api_error(call, "NoSuchProcess", message, "npumem mark NAME sets one");
    }
    if (*ret <= now)
        return 1;
    snprintf(message, sizeof(message), "%s: in the future", name);
    return api_error(call, "BadParameter", message, "now, or a time before");
}

static int restore(struct api_call *call, struct manager *m, struct method_moment *ret)
{
    struct view_moment *v = &ret->view;
    int r = ledger_new(NULL, &ret->restored);

    if (r == 0)
        r = store_history(m->store, v->at_ns, ret->restored, &v->oldest_sample_ns,
                          &v->newest_sample_ns);
    if (r == -ENOENT)
        return api_error(call, "Failed", "earlier moments are not kept: there is no store",
                         "store.enabled=yes");
    if (r == 0)
        return api_error(call, "NoSuchProcess", "nothing is kept of that time",
                         "a later time; npumem status shows how far the store goes back");
    ret->ledger = ret->restored;
    return r < 0 ? r : 1;
}

int method_moment_find(struct api_call *call, struct manager *m, const char *name, const char *at,
                       struct method_moment *ret)
{
    struct timespec_value v = {.kind = TIMESPEC_PEAK};
    bool is_now = !at || strcmp(at, "now") == 0;
    char message[96];

    *ret = (struct method_moment){.ledger = m->ledger};
    if (!is_now && timespec_parse(at, (int64_t)manager_wall_ns(), local_seconds, &v) < 0) {
        snprintf(message, sizeof(message), "%s: not a moment", name);
        return api_error(call, "BadParameter", message,
                         "10 min ago, @1796024700, 2026-11-30T07:45:00Z, mark:NAME, peak");
    }
    if (v.kind == TIMESPEC_PEAK) {
        manager_sync_cards(m);
        ret->view.when = is_now ? LEDGER_NOW : LEDGER_AT_PEAK;
        return 1;
    }
    int r = wall_time(call, m, name, &v, &ret->view.at_ns);
    if (r <= 0)
        return r;
    if (v.kind == TIMESPEC_MARK)
        ret->view.mark = v.mark;
    r = restore(call, m, ret);
    if (r <= 0)
        method_moment_done(ret);
    return r;
}

void method_moment_done(struct method_moment *moment)
{
    moment->restored = ledger_free(moment->restored);
    moment->ledger = NULL;
}

void method_context_at(struct view_context *c, const struct method_moment *moment)
{
    c->moment = moment->view;
    if (!moment->restored)
        return;
    c->coverage_fn = NULL;
    c->other_bytes_fn = NULL;
    c->environment_fn = NULL;
    c->atb_fn = NULL;
}
