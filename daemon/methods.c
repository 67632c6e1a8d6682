/* SPDX-License-Identifier: Apache-2.0 */
/*
 * methods.c - the methods of io.npumem.Control: parameters to a view, a view to a reply.
 *
 * Every answer begins with method_begin() or method_moment_find(), so that it is of its moment.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <unistd.h>

#include "clock.h"
#include "method_context.h"
#include "methods.h"
#include "probes.h"

#define LS_LIMIT_DEFAULT 1000

typedef int (*view_fn)(const struct ledger *, const struct view_context *, struct json *);

static int view_reply(struct api_call *call, struct manager *m, view_fn view)
{
    struct method_moment moment;
    struct method_filter f = {};
    struct view_context c;
    const char *at = NULL;
    struct json j = {};
    int r = method_filter_read(call, &f);

    if (r == 0)
        r = api_param_str(call, "at", &at);
    if (r >= 0)
        r = api_params_done(call);
    if (r >= 0)
        r = method_moment_find(call, m, "at", at, &moment);
    if (r <= 0)
        return r;
    if (method_check_tgids(moment.ledger, call, &f)) {
        r = 0;
    } else {
        method_context_init(m, &f, &c);
        method_context_at(&c, &moment);
        method_document_begin(&j);
        r = method_document_reply(call, &j, view(moment.ledger, &c, &j));
    }
    method_moment_done(&moment);
    return r;
}

int method_ps(struct api_call *call, void *userdata)
{
    return view_reply(call, userdata, view_ps);
}

int method_breakdown(struct api_call *call, void *userdata)
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

int method_ls(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    const char *owners[METHOD_FILTER_MAX], *level_names[LEVEL_COUNT];
    enum ledger_level levels[LEVEL_COUNT];
    uint64_t streams[METHOD_FILTER_MAX];
    struct view_ls_query q = {.owners = owners, .levels = levels, .streams = streams};
    uint64_t limit = LS_LIMIT_DEFAULT;
    struct method_filter f = {};
    struct view_context c;
    struct json j = {};
    int r = method_filter_read(call, &f);

    if (r == 0)
        r = api_param_strs(call, "owner", owners, METHOD_FILTER_MAX, &q.owner_count);
    if (r >= 0)
        r = api_param_strs(call, "level", level_names, LEVEL_COUNT, &q.level_count);
    if (r >= 0)
        r = api_param_u64(call, "min_bytes", UINT64_MAX, &q.min_size_bytes);
    if (r >= 0)
        r = api_param_u64(call, "limit", UINT32_MAX, &limit);
    if (r >= 0)
        r = api_param_u64s(call, "stream", UINT64_MAX, streams, METHOD_FILTER_MAX, &q.stream_count);
    if (r >= 0)
        r = ls_times(call, &q);
    if (r >= 0)
        r = levels_parse(call, level_names, q.level_count, levels);
    if (r >= 0)
        r = method_begin(call, m, &f, METHOD_LEDGER, &c);
    if (r <= 0)
        return r;
    q.limit = limit;
    method_document_begin(&j);
    r = view_ls(m->ledger, &c, &q, &j);
    return method_document_reply(call, &j, r);
}

static uint64_t rss_bytes(void)
{
    unsigned long total, resident;
    _cleanup_fclose_ FILE *f = fopen("/proc/self/statm", "re");

    if (!f || fscanf(f, "%lu %lu", &total, &resident) != 2)
        return UINT64_MAX;
    return resident * sysconf(_SC_PAGESIZE);
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
        struct view_target *row = &rows[n++];
        *row = (struct view_target){
            .tgid = t->tgid,
            .state = t->excluded ? "detached" : "attached",
            .level = level,
            .coverage = t->late ? "late" : "full",
            .reason = reason,
            .overhead_ratio = -1,
        };
        const struct scan_result *r = m->scans ? scans_result(m->scans, t->tgid, NULL) : NULL;
        if (r)
            scan_coverage(r, &row->blocks_read, &row->blocks_reason, &row->names_read,
                          &row->names_reason);
    }
    *ret = rows;
    return n;
}

int method_status(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    const struct store_stats *store = m->store ? store_stats(m->store) : NULL;
    struct view_probe *probes;
    struct view_target *targets;
    struct view_context c;
    struct json j = {};
    int r = method_begin(call, m, NULL, METHOD_LEDGER, &c);

    if (r <= 0)
        return r;
    struct view_status_input in = {
        .version = NPUMEM_VERSION,
        .kernel = m->kernel,
        .uptime_ns = c.boot_ns - m->start_ns,
        .rss_bytes = rss_bytes(),
        .cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID),
        .counters = &ring_stats(m->ring)->kernel,
        .store_bytes = store ? store->bytes : UINT64_MAX,
        .store_oldest_ns = store && store->oldest_ns ? store->oldest_ns : UINT64_MAX,
    };
    in.probe_count = status_probes(m, &probes);
    in.target_count = status_targets(m, &targets);
    in.probes = probes;
    in.targets = targets;
    method_document_begin(&j);
    r = probes && targets ? view_status(m->ledger, &c, &in, &j) : -ENOMEM;
    free(probes);
    free(targets);
    return method_document_reply(call, &j, r);
}

int method_version(struct api_call *call, void *userdata)
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

    method_context_init(m, NULL, &c);
    method_document_begin(&j);
    json_object(&j);
    view_header(&c, &j);
    json_ku64(&j, "tgid", t->tgid);
    json_kstr(&j, "state", t->excluded ? "detached" : "attached");
    json_kstr(&j, "level", level);
    json_kstr(&j, "reason", reason);
    json_end(&j);
    return method_document_reply(call, &j, 0);
}

int method_attach(struct api_call *call, void *userdata)
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

int method_detach(struct api_call *call, void *userdata)
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
    accesses_exit(m->accesses, tgid);
    t->excluded = true;
    ring_sync(m->ring);
    return reply_target(call, m, t);
}

const struct api_method manager_methods[] = {
#define METHOD(name, handler, flags) {#name, handler, flags},
#include "methods.def"
#undef METHOD
};
const size_t manager_method_count = ARRAY_SIZE(manager_methods);
