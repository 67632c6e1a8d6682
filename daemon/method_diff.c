/* SPDX-License-Identifier: Apache-2.0 */
/*
 * method_diff.c - Diff: two moments, or two ranks at one moment.
 *
 * A side is "now", a moment as `at` takes it, "mark:NAME", or "rank:N" or "pid:N". For two ranks
 * their tensors are compared as well, from the scans that are kept; the document says of which
 * process one is missing, so that the client can ask for it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "diff.h"
#include "diff_parameters.h"
#include "method_context.h"
#include "methods.h"
#include "view_rows.h"

#define LIMIT_DEFAULT 100
#define SINCE_ROWS 20

struct sides {
    struct method_filter filter;
    const char *text[2];
    int64_t rank[2]; /* or process; -1: a moment */
    bool is_tgid[2];
    uint64_t limit;
    bool with_equal;
};

/* "rank:3", "pid:1234". Returns the number, -1: it is something else, -EINVAL: no number. */
static int64_t rank_parse(const char *text, bool *ret_is_tgid)
{
    const char *number = text ? strchr(text, ':') : NULL;
    char *end;

    *ret_is_tgid = text && strncmp(text, "pid:", 4) == 0;
    if (!number || (!*ret_is_tgid && strncmp(text, "rank:", 5) != 0))
        return -1;
    errno = 0;
    long long rank = strtoll(++number, &end, 10);
    return errno || end == number || *end || rank < 0 || rank > INT32_MAX ? -EINVAL : rank;
}

static int sides_read(struct api_call *call, struct sides *s)
{
    static const char *const names[] = {"from", "to"};
    int r = method_filter_read(call, &s->filter);

    s->limit = LIMIT_DEFAULT;
    for (int i = 0; r >= 0 && i < 2; i++)
        r = api_param_str(call, names[i], &s->text[i]);
    if (r >= 0)
        r = api_param_u64(call, "limit", UINT32_MAX, &s->limit);
    if (r >= 0)
        r = api_param_bool(call, "equal", &s->with_equal);
    if (r >= 0)
        r = api_params_done(call);
    if (r < 0)
        return r;
    for (int i = 0; i < 2; i++)
        s->rank[i] = rank_parse(s->text[i], &s->is_tgid[i]);
    if (s->rank[0] != -EINVAL && s->rank[1] != -EINVAL && (s->rank[0] >= 0) == (s->rank[1] >= 0))
        return 1;
    return api_error(call, "BadParameter", "from, to: two moments or two ranks",
                     "from -1h to now, or from rank:0 to rank:1 (or pid:1234)");
}

/* facts NULL: all processes. */
static void side_write(const struct view_context *c, const struct process_facts *facts,
                       const char *key, struct json *j)
{
    json_kobject(j, key);
    if (facts) {
        json_kindex(j, "rank", facts->rank);
        json_ku64(j, "tgid", facts->tgid);
        json_kstr(j, "comm", facts->comm);
    }
    view_moment_write(c, j);
    json_end(j);
}

/* --- two moments --- */

/* What grew, by the call paths that the live blocks have. */
static int write_since(struct manager *m, struct sides *s, uint64_t wall_ns, struct json *j)
{
    _cleanup_(diff_freep) struct diff *d = NULL;
    struct diff_query q = {.limit = SINCE_ROWS, .with_frames = true};
    struct view_context c;
    int r = diff_new(&d);

    method_context_init(m, &s->filter, &c);
    uint64_t ago_ns = c.wall_ns > wall_ns ? c.wall_ns - wall_ns : 0;
    if (r == 0)
        r = diff_add_since(d, m->ledger, &c, c.boot_ns > ago_ns ? c.boot_ns - ago_ns : 0);
    return r < 0 ? r : diff_write_rows(d, &q, "allocated_since", j);
}

static int write_moments(struct manager *m, struct sides *s, const struct method_moment *at,
                         struct json *j)
{
    _cleanup_(diff_freep) struct diff *d = NULL;
    struct diff_query q = {.limit = (uint32_t)s->limit, .with_equal = s->with_equal};
    struct view_context c[2];
    int r = diff_new(&d);

    for (int i = 0; r >= 0 && i < 2; i++) {
        method_context_init(m, &s->filter, &c[i]);
        method_context_at(&c[i], &at[i]);
        r = diff_add_ledger(d, (enum diff_side)i, at[i].ledger, &c[i]);
    }
    if (r < 0)
        return r;
    json_object(j);
    view_header(&c[1], j);
    json_kstr(j, "compared", "moments");
    side_write(&c[0], NULL, "from", j);
    side_write(&c[1], NULL, "to", j);
    r = diff_write(d, &q, j);
    if (r == 0 && at[0].restored && !at[1].restored)
        r = write_since(m, s, at[0].view.at_ns, j);
    json_end(j);
    return r;
}

/* --- two ranks --- */

struct rank_find {
    const struct view_context *c;
    int64_t rank;
    bool is_tgid;
    const struct process_facts *found;
    unsigned count;
};

static int on_process(void *userdata, const struct ledger_process *p)
{
    struct rank_find *f = userdata;

    int64_t number = f->is_tgid ? (int64_t)p->facts.tgid : p->facts.rank;

    if (!p->alive || number != f->rank || !view_filter_process(f->c, &p->facts))
        return 0;
    f->found = &p->facts;
    f->count++;
    return 0;
}

/* The one process of a rank. Returns 1; 0 after the error reply. */
static int rank_find(struct api_call *call, struct manager *m, struct sides *s, int side,
                     const struct process_facts **ret)
{
    struct rank_find f = {.rank = s->rank[side], .is_tgid = s->is_tgid[side]};
    struct view_context c;
    char message[80];

    method_context_init(m, &s->filter, &c);
    f.c = &c;
    ledger_each_process(m->ledger, on_process, &f);
    *ret = f.found;
    if (f.count == 1)
        return 1;
    snprintf(message, sizeof(message), "%s %d: %s", f.is_tgid ? "process" : "rank", (int)f.rank,
             f.count     ? "several processes have it"
             : f.is_tgid ? "not observed"
                         : "no observed process has it");
    return api_error(call, f.count ? "BadParameter" : "NoSuchProcess", message,
                     f.count
                         ? "--from pid:PID --to pid:PID, or --container, or --pid PID,PID beside it"
                         : "npumem ps");
}

static int write_parameters(struct manager *m, const struct process_facts *const *facts,
                            uint32_t limit, struct json *j)
{
    const struct scan_result *scans[2];
    uint64_t when;

    for (int i = 0; i < 2; i++)
        scans[i] = m->scans ? scans_result(m->scans, facts[i]->tgid, &when) : NULL;
    json_karray(j, "unread");
    for (int i = 0; i < 2; i++)
        if (!scans[i] || !scans[i]->s.has_names)
            json_u64(j, facts[i]->tgid);
    json_end(j);
    if (scans[0] && scans[1] && scans[0]->s.has_names && scans[1]->s.has_names)
        return diff_parameters_write(scans[0], scans[1], limit, j);
    json_key(j, "parameters");
    json_null(j);
    return 0;
}

static int write_ranks(struct manager *m, struct sides *s, const struct process_facts *const *facts,
                       struct json *j)
{
    _cleanup_(diff_freep) struct diff *d = NULL;
    struct diff_query q = {.limit = (uint32_t)s->limit, .with_equal = s->with_equal};
    struct view_context c;
    int r = diff_new(&d);

    if (r == 0)
        diff_pair(d);
    method_context_init(m, &s->filter, &c);
    for (int i = 0; r >= 0 && i < 2; i++) {
        struct view_context one = c;
        one.tgids = &facts[i]->tgid;
        one.tgid_count = 1;
        r = diff_add_ledger(d, (enum diff_side)i, m->ledger, &one);
    }
    if (r < 0)
        return r;
    json_object(j);
    view_header(&c, j);
    json_kstr(j, "compared", "ranks");
    side_write(&c, facts[0], "from", j);
    side_write(&c, facts[1], "to", j);
    r = diff_write(d, &q, j);
    if (r == 0)
        r = write_parameters(m, facts, (uint32_t)s->limit, j);
    json_end(j);
    return r;
}

static int reply_ranks(struct api_call *call, struct manager *m, struct sides *s)
{
    const struct process_facts *facts[2];
    struct json j = {};

    manager_sync(m);
    if (rank_find(call, m, s, 0, &facts[0]) != 1 || rank_find(call, m, s, 1, &facts[1]) != 1)
        return 0;
    method_document_begin(&j);
    return method_document_reply(call, &j, write_ranks(m, s, facts, &j));
}

int method_diff(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    struct method_moment at[2] = {};
    struct sides s = {};
    struct json j = {};
    int r = sides_read(call, &s);

    if (r <= 0)
        return r;
    if (s.rank[0] >= 0)
        return reply_ranks(call, m, &s);
    if (!s.text[0])
        return api_error(call, "BadParameter", "from: missing", "from -1h, or mark:NAME");
    r = method_moment_find(call, m, "from", s.text[0], &at[0]);
    if (r == 1)
        r = method_moment_find(call, m, "to", s.text[1], &at[1]);
    if (r == 1) {
        method_document_begin(&j);
        r = method_document_reply(call, &j, write_moments(m, &s, at, &j));
    }
    method_moment_done(&at[0]);
    method_moment_done(&at[1]);
    return r;
}
