/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_feed.c - see scan_feed.h.
 *
 * Owns: the list of waiting calls (manager.scan_waits).
 */
#include "scan_feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "json_write.h"
#include "ledger_seen.h"
#include "manager.h"
#include "methods.h"
#include "python.h"
#include "scan.h"
#include "view_scan.h"

#define SCAN_LIMIT_DEFAULT 1000

struct scan_wait {
    struct manager *manager;
    struct api_call *call;
    struct view_scan_query query;
    bool is_after_next; /* the next to end has begun before this was asked */
    struct scan_wait *next;
};

static bool is_cut(const struct scan_result *r)
{
    return r->s.is_cut || !r->s.has_names;
}

/* Whether a block is put in by itself: a large one, and one with a name that is not in the kernel's
 * sum of a phase already. A reading that was cut takes no entry away that an earlier one made. */
static bool is_single(const struct ledger *l, const struct scan_feed *f,
                      const struct scan_result *r, uint32_t number)
{
    const struct npualloc_block *b = &r->blocks[number];

    if (b->state != NPUALLOC_LIVE)
        return false;
    if (b->bytes >= f->threshold_bytes)
        return true;
    if (is_cut(r) && ledger_seen_has(l, f->tgid, b->address, b->device))
        return true;
    return r->block_tensors[number] != SCAN_NONE &&
           !(f->python &&
             python_has_summed(f->python, f->tgid, f->start_ticks, b->device, b->address));
}

static void pools_feed(struct ledger *l, const struct scan_feed *f, const struct scan_result *r,
                       const bool *single, uint64_t now_ns)
{
    for (uint32_t i = 0; i < r->s.device_count; i++) {
        const struct npualloc_device *d = &r->devices[i];
        struct ledger_seen_totals totals = {
            .allocated_bytes = d->has_stats ? d->allocated_bytes : d->live_bytes,
            .active_bytes = d->has_stats ? d->active_bytes : d->live_bytes + d->pending_bytes,
            .reserved_bytes =
                d->has_stats ? d->reserved_bytes : d->live_bytes + d->pending_bytes + d->free_bytes,
        };
        for (uint32_t b = 0; b < r->s.block_count; b++)
            if (r->blocks[b].device == d->device && r->blocks[b].state == NPUALLOC_LIVE &&
                !single[b])
                totals.small_bytes += r->blocks[b].bytes;
        ledger_seen_pool(l, f->tgid, d->device, &totals, now_ns);
    }
}

int64_t scan_feed(struct ledger *l, const struct scan_feed *f, const struct scan_result *r,
                  uint64_t now_ns)
{
    _cleanup_free_ bool *single = NULL;
    int64_t count = 0;

    if (!r->s.has_blocks)
        return 0;
    single = calloc((size_t)r->s.block_count + 1, sizeof(*single));
    if (!single)
        return -ENOMEM;
    for (uint32_t i = 0; i < r->s.block_count; i++)
        single[i] = is_single(l, f, r, i);
    pools_feed(l, f, r, single, now_ns);
    for (uint32_t i = 0; i < r->s.block_count; i++) {
        const struct npualloc_block *b = &r->blocks[i];
        uint32_t tensor = r->block_tensors[i];
        if (!single[i])
            continue;
        struct ledger_seen_block seen = {
            .address = b->address,
            .bytes = b->bytes,
            .requested_bytes = b->requested_bytes,
            .stream = b->stream,
            .device = b->device,
            .is_cut = is_cut(r),
            .owner = tensor == SCAN_NONE ? NULL : r->owners[r->tensors[tensor].owner],
        };
        count += ledger_seen_block(l, f->tgid, &seen) == 0;
    }
    ledger_seen_end(l, f->tgid, now_ns);
    return count;
}

static int on_pool(void *userdata, const struct ledger_pool *pool)
{
    uint64_t *stale = userdata;
    /* below 0: more of them went than came since attach, so they were among those that were read */
    int64_t small = pool->small_bytes, excess;

    if (pool->component != NM_BLOCK_CACHING)
        return 0;
    excess = pool->known_block_bytes + (small > 0 ? small : 0) - pool->allocated_bytes;
    if (excess > 0)
        *stale += (uint64_t)excess;
    return 0;
}

uint64_t scan_stale_bytes(const struct ledger *l, uint32_t tgid)
{
    uint64_t stale = 0;
    ledger_each_pool(l, tgid, on_pool, &stale);
    return stale;
}

/* --- the method --- */

static void wait_remove(struct scan_wait *w)
{
    for (struct scan_wait **at = &w->manager->scan_waits; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    free(w);
}

static void on_close(struct api_call *call, void *userdata)
{
    wait_remove(userdata);
}

static void answer(struct manager *m, struct api_call *call, const struct scan_result *result,
                   const struct view_scan_query *query)
{
    const struct ring_stats *s = ring_stats(m->ring);
    const struct target *t = targets_find(m->targets, query->tgid);
    struct view_scan_query q = *query;
    struct view_context c = {
        .wall_ns = manager_wall_ns(),
        .boot_ns = manager_boot_ns(),
        .host = m->host,
        .complete = result->s.has_blocks && result->s.is_blocks_complete && result->s.has_names &&
                    !result->s.is_cut,
        .lost_events = s->kernel.lost,
    };
    struct json j = {0};
    int r;

    json_object(&j);
    json_key(&j, "document");
    q.ledger = m->ledger;
    q.is_late = t && t->late;
    r = view_scan(result, &c, &q, &j);
    json_end(&j);
    if (r == 0)
        api_reply_json(call, &j);
    else
        api_error(call, "Failed", "out of memory", NULL);
    json_done(&j);
}

void scan_waiters_answer(struct manager *m, uint32_t tgid, const struct scan_result *result,
                         const struct error *error)
{
    struct scan_wait *w = m->scan_waits, *next;

    for (; w; w = next) {
        struct api_call *call = w->call;
        struct view_scan_query query = w->query;
        next = w->next;
        if (query.tgid != tgid)
            continue;
        if (w->is_after_next) {
            w->is_after_next = false;
            continue;
        }
        api_call_on_close(call, NULL, NULL);
        wait_remove(w);
        if (result)
            answer(m, call, result, &query);
        else
            api_error(call, "Failed", error->what, error->fix);
    }
}

static int query_read(struct api_call *call, struct view_scan_query *q, bool *ret_thorough,
                      bool *ret_kept)
{
    uint64_t tgid = 0, limit = SCAN_LIMIT_DEFAULT;
    int r = api_param_u64(call, "tgid", INT32_MAX, &tgid);

    if (r == 0) {
        api_error(call, "BadParameter", "tgid: missing", "give the process to scan");
        return -EINVAL;
    }
    if (r > 0)
        r = api_param_u64(call, "limit", UINT32_MAX, &limit);
    if (r >= 0)
        r = api_param_u64(call, "min_bytes", UINT64_MAX, &q->min_size_bytes);
    if (r >= 0)
        r = api_param_bool(call, "blocks", &q->with_blocks);
    if (r >= 0)
        r = api_param_bool(call, "thorough", ret_thorough);
    if (r >= 0)
        r = api_param_bool(call, "kept", ret_kept);
    if (r >= 0)
        r = api_params_done(call);
    q->tgid = (uint32_t)tgid;
    q->limit = (uint32_t)limit;
    return r;
}

int method_scan(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    struct view_scan_query query = {0};
    bool is_thorough = false, is_kept = false;
    const struct scan_result *result;
    struct target *t;
    char message[80];
    int r = query_read(call, &query, &is_thorough, &is_kept);

    if (r < 0)
        return r;
    t = targets_find(m->targets, query.tgid);
    if (!t) {
        snprintf(message, sizeof(message), "process %u: not observed", query.tgid);
        return api_error(call, "NoSuchProcess", message, "npumem ps lists those that are");
    }
    result = is_kept ? scans_result(m->scans, query.tgid, NULL) : NULL;
    if (result) {
        answer(m, call, result, &query);
        return 0;
    }
    struct scan_wait *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    *w = (struct scan_wait){.manager = m,
                            .call = call,
                            .query = query,
                            .is_after_next = scans_is_running(m->scans, query.tgid),
                            .next = m->scan_waits};
    m->scan_waits = w;
    /* before the request: it may end at once */
    api_call_defer(call);
    api_call_on_close(call, on_close, w);
    r = scans_request_anew(m->scans, query.tgid, t->facts.start_ticks, is_thorough);
    if (r < 0) {
        api_call_on_close(call, NULL, NULL);
        wait_remove(w);
        return api_error(call, "Busy", "too many scans wait", "ask again in a minute");
    }
    return 0;
}
