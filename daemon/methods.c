/* SPDX-License-Identifier: Apache-2.0 */
/*
 * methods.c - the methods of io.npumem.Control: parameters to a view, a view to a reply.
 *
 * Every answer begins with manager_sync(), so that it is of this moment.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "driver_usage.h"
#include "json_write.h"
#include "log.h"
#include "manager.h"
#include "probes.h"
#include "scan_feed.h"
#include "timespec.h"
#include "view.h"

#define FILTER_MAX 64
#define LS_LIMIT_DEFAULT 1000
#define STREAM_PENDING_MAX (8u << 20) /* a reader this far behind is skipped for a while */

/* Filter lists of one call, in the types that views take. */
struct filter {
    uint32_t tgids[FILTER_MAX];
    int32_t ranks[FILTER_MAX];
    uint16_t devices[FILTER_MAX];
    const char *containers[FILTER_MAX];
    size_t tgid_count, rank_count, device_count, container_count;
};

static int filter_read(struct api_call *call, struct filter *f)
{
    uint64_t values[FILTER_MAX];
    int r;

    r = api_param_u64s(call, "tgid", UINT32_MAX, values, FILTER_MAX, &f->tgid_count);
    if (r < 0)
        return r;
    for (size_t i = 0; i < f->tgid_count; i++)
        f->tgids[i] = values[i];
    r = api_param_u64s(call, "rank", INT32_MAX, values, FILTER_MAX, &f->rank_count);
    if (r < 0)
        return r;
    for (size_t i = 0; i < f->rank_count; i++)
        f->ranks[i] = values[i];
    r = api_param_u64s(call, "device", UINT16_MAX, values, FILTER_MAX, &f->device_count);
    if (r < 0)
        return r;
    for (size_t i = 0; i < f->device_count; i++)
        f->devices[i] = values[i];
    r = api_param_strs(call, "container", f->containers, FILTER_MAX, &f->container_count);
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

static void context_init(struct manager *m, const struct filter *f, struct view_context *c)
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

/* {"document": ...}: the object is left open for the view. */
static void document_begin(struct json *j)
{
    json_object(j);
    json_key(j, "document");
}

static int document_reply(struct api_call *call, struct json *j, int r)
{
    json_end(j);
    if (r == 0)
        r = api_reply_json(call, j);
    json_done(j);
    return r;
}

/* A filter that names processes must find one: an empty answer to a wrong pid would read as "holds
 * nothing". */
static int check_tgids(const struct ledger *l, struct api_call *call, const struct filter *f)
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

typedef int (*view_fn)(const struct ledger *, const struct view_context *, struct json *);

static int view_now(struct api_call *call, struct manager *m, const struct filter *f, view_fn view,
                    enum ledger_when when)
{
    struct view_context c;
    struct json j = {};

    manager_sync_cards(m);
    if (check_tgids(m->ledger, call, f))
        return 0;
    context_init(m, f, &c);
    c.moment.when = when;
    document_begin(&j);
    return document_reply(call, &j, view(m->ledger, &c, &j));
}

/* What the samples of the store say of an earlier moment. */
static int view_then(struct api_call *call, struct manager *m, const struct filter *f, view_fn view,
                     uint64_t wall_ns, const char *mark)
{
    _cleanup_(ledger_freep) struct ledger *then = NULL;
    struct view_context c;
    struct json j = {};
    int r = ledger_new(NULL, &then);

    if (r < 0)
        return r;
    context_init(m, f, &c);
    c.moment = (struct view_moment){.at_ns = wall_ns, .mark = mark};
    c.coverage_fn = NULL; /* these are of now */
    c.other_bytes_fn = NULL;
    c.environment_fn = NULL;
    c.atb_fn = NULL;
    r = store_history(m->store, wall_ns, then, &c.moment.oldest_sample_ns,
                      &c.moment.newest_sample_ns);
    if (r == -ENOENT)
        return api_error(call, "Failed", "earlier moments are not kept: there is no store",
                         "store.enabled=yes");
    if (r < 0)
        return r;
    if (r == 0)
        return api_error(call, "NoSuchProcess", "nothing is kept of that time",
                         "a later time; npumem status shows how far the store goes back");
    if (check_tgids(then, call, f))
        return 0;
    document_begin(&j);
    return document_reply(call, &j, view(then, &c, &j));
}

/* Seconds since 1970 of a local time. */
static int64_t local_seconds(const struct calendar_time *t)
{
    struct tm tm = {
        .tm_year = t->year - 1900,
        .tm_mon = t->month - 1,
        .tm_mday = t->day,
        .tm_hour = t->hour,
        .tm_min = t->minute,
        .tm_sec = t->second,
        .tm_isdst = -1,
    };
    return mktime(&tm);
}

static int view_at(struct api_call *call, struct manager *m, const struct filter *f, view_fn view,
                   const char *at)
{
    struct timespec_value v;
    uint64_t now = manager_wall_ns(), wall_ns;
    char message[160];

    if (timespec_parse(at, (int64_t)now, local_seconds, &v) < 0)
        return api_error(call, "BadParameter", "at: not a moment",
                         "10 min ago, @1796024700, 2026-11-30T07:45:00Z, mark:NAME, peak");
    if (v.kind == TIMESPEC_PEAK)
        return view_now(call, m, f, view, LEDGER_AT_PEAK);
    wall_ns = (uint64_t)v.wall_ns;
    if (v.kind == TIMESPEC_MARK && store_mark_find(m->store, v.mark, &wall_ns) < 0) {
        snprintf(message, sizeof(message), "mark %.100s: there is none of that name", v.mark);
        return api_error(call, "NoSuchProcess", message, "npumem mark NAME sets one");
    }
    if (wall_ns > now)
        return api_error(call, "BadParameter", "at: in the future", "now, or a time before");
    return view_then(call, m, f, view, wall_ns, v.kind == TIMESPEC_MARK ? v.mark : NULL);
}

static int view_reply(struct api_call *call, struct manager *m, view_fn view)
{
    struct filter f = {};
    const char *at = NULL;
    int r = filter_read(call, &f);

    if (r == 0)
        r = api_param_str(call, "at", &at);
    if (r >= 0)
        r = api_params_done(call);
    if (r < 0)
        return r;
    if (!at || strcmp(at, "now") == 0)
        return view_now(call, m, &f, view, LEDGER_NOW);
    r = view_at(call, m, &f, view, at);
    return r < 0 ? r : 0;
}

static int method_ps(struct api_call *call, void *userdata)
{
    return view_reply(call, userdata, view_ps);
}

static int method_breakdown(struct api_call *call, void *userdata)
{
    return view_reply(call, userdata, view_breakdown);
}

static int levels_parse(struct api_call *call, const char *const *names, size_t n,
                        enum ledger_level *ret)
{
    for (size_t i = 0; i < n; i++) {
        int level = 0;
        while (level < LEVEL_COUNT && strcmp(level_name(level), names[i]) != 0)
            level++;
        if (level == LEVEL_COUNT) {
            api_error(call, "BadParameter", "level: no such level",
                      "physical, host, allocated, pending, reserved_va or pool_sub");
            return -EINVAL;
        }
        ret[i] = level;
    }
    return 0;
}

/* Wall times of a query in the ledger's clock. */
static int ls_times(struct api_call *call, struct view_ls_query *q)
{
    uint64_t since = 0, until = 0, boot = manager_boot_ns(), wall = manager_wall_ns();
    int r = api_param_u64(call, "since_ns", INT64_MAX, &since);

    if (r >= 0)
        r = api_param_u64(call, "until_ns", INT64_MAX, &until);
    if (r < 0)
        return r;
    if (since && wall - boot < since)
        q->since_ns = since - (wall - boot);
    if (until)
        q->until_ns = until > wall - boot ? until - (wall - boot) : 1;
    return 0;
}

static int method_ls(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    const char *owners[FILTER_MAX], *level_names[LEVEL_COUNT];
    enum ledger_level levels[LEVEL_COUNT];
    uint64_t streams[FILTER_MAX];
    struct view_ls_query q = {.owners = owners, .levels = levels, .streams = streams};
    uint64_t limit = LS_LIMIT_DEFAULT;
    struct filter f = {};
    struct view_context c;
    struct json j = {};
    int r = filter_read(call, &f);

    if (r == 0)
        r = api_param_strs(call, "owner", owners, FILTER_MAX, &q.owner_count);
    if (r >= 0)
        r = api_param_strs(call, "level", level_names, LEVEL_COUNT, &q.level_count);
    if (r >= 0)
        r = api_param_u64(call, "min_bytes", UINT64_MAX, &q.min_size_bytes);
    if (r >= 0)
        r = api_param_u64(call, "limit", UINT32_MAX, &limit);
    if (r >= 0)
        r = api_param_u64s(call, "stream", UINT64_MAX, streams, FILTER_MAX, &q.stream_count);
    if (r >= 0)
        r = ls_times(call, &q);
    if (r >= 0)
        r = api_params_done(call);
    if (r < 0)
        return r;
    if (levels_parse(call, level_names, q.level_count, levels) < 0)
        return 0;
    q.limit = limit;
    manager_sync(m);
    if (check_tgids(m->ledger, call, &f))
        return 0;
    context_init(m, &f, &c);
    document_begin(&j);
    r = view_ls(m->ledger, &c, &q, &j);
    return document_reply(call, &j, r);
}

static uint64_t rss_bytes(void)
{
    unsigned long total, resident;
    _cleanup_fclose_ FILE *f = fopen("/proc/self/statm", "re");

    if (!f || fscanf(f, "%lu %lu", &total, &resident) != 2)
        return UINT64_MAX;
    return resident * sysconf(_SC_PAGESIZE);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* Rows of every probed function; the caller frees *ret. */
static size_t status_probes(struct manager *m, struct view_probe **ret)
{
    const struct attach_file *f;
    struct view_probe *rows;
    size_t n = 0, count = 0;

    for (f = attach_first(m->attach); f; f = f->next)
        count += f->state == ATTACH_LIVE ? 2 * f->point_count : 1;
    rows = calloc(count ? count : 1, sizeof(*rows));
    for (f = attach_first(m->attach); rows && f; f = f->next) {
        const char *state = f->state == ATTACH_FAILED  ? "failed"
                            : f->state == ATTACH_EMPTY ? "missing"
                            : f->alias_of              ? "alias"
                                                       : "attached";
        if (f->state != ATTACH_LIVE) {
            rows[n++] = (struct view_probe){f->path, "", "", state, UINT64_MAX, UINT64_MAX};
            continue;
        }
        for (size_t i = 0; i < f->point_count; i++) {
            const struct probe_row *row = probe_row(f->points[i].row);
            rows[n++] =
                (struct view_probe){f->path, row->symbol, "entry", state, UINT64_MAX, UINT64_MAX};
            if (!row->is_entry_only)
                rows[n++] = (struct view_probe){f->path, row->symbol, "return",
                                                state,   UINT64_MAX,  UINT64_MAX};
        }
    }
    *ret = rows;
    return n;
}

static size_t status_targets(struct manager *m, struct view_target **ret)
{
    struct view_target *rows = calloc(targets_count(m->targets) + 1, sizeof(*rows));
    size_t n = 0;

    for (struct target *t = targets_first(m->targets); rows && t; t = t->next) {
        const char *reason, *level = target_level(t, &reason);
        if (!reason)
            reason = python_reason(m->python, t->tgid);
        rows[n++] = (struct view_target){
            .tgid = t->tgid,
            .state = t->excluded ? "detached" : "attached",
            .level = level,
            .coverage = t->late ? "late" : "full",
            .reason = reason,
            .overhead_ratio = -1,
        };
    }
    *ret = rows;
    return n;
}

static int method_status(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    const struct store_stats *store = m->store ? store_stats(m->store) : NULL;
    struct view_probe *probes;
    struct view_target *targets;
    struct view_context c;
    struct json j = {};
    int r = api_params_done(call);

    if (r < 0)
        return r;
    manager_sync(m);
    context_init(m, NULL, &c);
    struct view_status_input in = {
        .version = NPUMEM_VERSION,
        .kernel = m->kernel,
        .uptime_ns = c.boot_ns - m->start_ns,
        .rss_bytes = rss_bytes(),
        .cpu_ns = cpu_ns(),
        .counters = &ring_stats(m->ring)->kernel,
        .store_bytes = store ? store->bytes : UINT64_MAX,
        .store_oldest_ns = store && store->oldest_ns ? store->oldest_ns : UINT64_MAX,
    };
    in.probe_count = status_probes(m, &probes);
    in.target_count = status_targets(m, &targets);
    in.probes = probes;
    in.targets = targets;
    document_begin(&j);
    r = probes && targets ? view_status(m->ledger, &c, &in, &j) : -ENOMEM;
    free(probes);
    free(targets);
    return document_reply(call, &j, r);
}

static int method_version(struct api_call *call, void *userdata)
{
    struct json j = {};
    int r = api_params_done(call);

    if (r < 0)
        return r;
    json_object(&j);
    json_kstr(&j, "version", NPUMEM_VERSION);
    json_ku64(&j, "event_abi", NM_EVENT_ABI);
    json_ku64(&j, "schema_version", VIEW_SCHEMA_VERSION);
    json_end(&j);
    r = api_reply_json(call, &j);
    json_done(&j);
    return r;
}

/* --- marks --- */

#define MARK_BYTES_MAX 64

static bool mark_valid(const char *name)
{
    size_t bytes = strlen(name);

    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
            return false;
    return bytes > 0 && bytes <= MARK_BYTES_MAX;
}

/* A mark is a moment with a name: a sample is taken at it, so that what was then can be shown. */
static int method_mark(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    const char *name = NULL;
    struct view_context c;
    struct json j = {};
    int r = api_param_str(call, "name", &name);

    if (r >= 0)
        r = api_params_done(call);
    if (r < 0)
        return r;
    if (!name || !mark_valid(name))
        return api_error(call, "BadParameter", "name: 1 to 64 printable bytes", "before_wake_up");
    if (!m->store)
        return api_error(call, "Failed", "marks are kept in the store, and there is none",
                         "store.enabled=yes");
    manager_sync(m);
    store_sample(m->store, m->ledger, manager_boot_ns());
    struct store_event mark = {
        .kind = STORE_EVENT_MARK, .time_ns = manager_boot_ns(), .detail = name};
    store_event(m->store, &mark);
    context_init(m, NULL, &c);
    document_begin(&j);
    json_object(&j);
    view_header(&c, &j);
    json_kstr(&j, "mark", name);
    json_ku64(&j, "mark_time_ns", c.wall_ns - (c.boot_ns - mark.time_ns));
    json_end(&j);
    return document_reply(call, &j, 0);
}

/* --- attach and detach --- */

static int tgid_param(struct api_call *call, uint32_t *ret)
{
    uint64_t tgid = 0;
    int r = api_param_u64(call, "tgid", INT32_MAX, &tgid);

    if (r == 0) {
        api_error(call, "BadParameter", "tgid: missing", "give the process to act on");
        return -EINVAL;
    }
    if (r > 0)
        r = api_params_done(call);
    *ret = tgid;
    return r;
}

static int reply_target(struct api_call *call, struct manager *m, struct target *t)
{
    const char *reason, *level = target_level(t, &reason);
    struct view_context c;
    struct json j = {};

    context_init(m, NULL, &c);
    document_begin(&j);
    json_object(&j);
    view_header(&c, &j);
    json_ku64(&j, "tgid", t->tgid);
    json_kstr(&j, "state", t->excluded ? "detached" : "attached");
    json_kstr(&j, "level", level);
    json_kstr(&j, "reason", reason);
    json_end(&j);
    return document_reply(call, &j, 0);
}

static int method_attach(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    struct error error = {};
    struct target *t;
    uint32_t tgid;
    int r = tgid_param(call, &tgid);

    if (r < 0)
        return r;
    r = targets_scan(m->targets, tgid, SCAN_BY_HAND, &error);
    if (r < 0) {
        api_error(call, r == -ESRCH ? "NoSuchProcess" : "Failed", error.what, error.fix);
        return 0;
    }
    t = targets_find(m->targets, tgid);
    if (t->excluded) {
        probe_set_exclude(m->probes, tgid, false);
        t->excluded = false;
        t->late = true; /* what happened meanwhile was not seen */
    }
    return reply_target(call, m, t);
}

static int method_detach(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    struct target *t;
    uint32_t tgid;
    char message[80];
    int r = tgid_param(call, &tgid);

    if (r < 0)
        return r;
    t = targets_find(m->targets, tgid);
    if (!t) {
        snprintf(message, sizeof(message), "process %u: not observed", tgid);
        api_error(call, "NoSuchProcess", message, "npumem ps lists those that are");
        return 0;
    }
    r = probe_set_exclude(m->probes, tgid, true);
    if (r < 0) {
        api_error(call, "Failed", "too many processes are detached by hand", NULL);
        return 0;
    }
    t->excluded = true;
    ring_sync(m->ring);
    return reply_target(call, m, t);
}

/* --- the event stream --- */

struct stream {
    struct manager *manager;
    struct api_call *call;
    struct filter filter;
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

static int method_events(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    struct stream *s = calloc(1, sizeof(*s));
    int r = s ? filter_read(call, &s->filter) : -ENOMEM;

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
    const struct filter *f = &s->filter;
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
    context_init(m, NULL, &c);
    document_begin(&j);
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

const struct api_method manager_methods[] = {
    {"Version", method_version, 0},
    {"Status", method_status, 0},
    {"Ps", method_ps, 0},
    {"Breakdown", method_breakdown, 0},
    {"Ls", method_ls, 0},
    {"Mark", method_mark, 0},
    {"Events", method_events, API_MORE},
    {"OomList", oom_method_list, 0},
    {"OomShow", oom_method_show, 0},
    {"Scan", method_scan, 0},
    {"Attach", method_attach, API_ROOT},
    {"Detach", method_detach, API_ROOT},
};
const size_t manager_method_count = ARRAY_SIZE(manager_methods);
