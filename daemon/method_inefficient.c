/* SPDX-License-Identifier: Apache-2.0 */
/*
 * method_inefficient.c - Inefficient: opens a window of accesses and answers at its end.
 *
 * Owns: one struct wait per call that waits. Invariant: a wait ends with its window's answer or
 * with its connection, whichever comes first.
 */
#include <stdlib.h>

#include "access_window.h"
#include "inefficient.h"
#include "method_context.h"
#include "methods.h"

#define FOR_NS_DEFAULT (10 * 1000000000ull)
#define LIMIT_DEFAULT 1000

struct wait {
    struct manager *manager;
    struct api_call *call;
    struct access_window *window;
    uint32_t limit;
};

static const char *on_owner(void *userdata, uint32_t owner)
{
    struct manager *m = userdata;
    return owner == OWNER_UNKNOWN ? NULL : ledger_owner_name(m->ledger, owner);
}

static size_t on_frames(void *userdata, uint32_t tgid, uint32_t stack, const char **ret, size_t max)
{
    struct manager *m = userdata;
    return python_stack(m->python, tgid, stack, ret, max);
}

/* The scan that entered the blocks of before the window is still the newest, or there was none. */
static bool on_name(void *userdata, const struct inefficient_window *w,
                    const struct inefficient_block *block, char *ret, size_t size)
{
    struct manager *m = userdata;
    const struct scan_result *scan = m->scans ? scans_result(m->scans, w->tgid, NULL) : NULL;
    return scan && scan_block_name(scan, block->device, block->life.address, ret, size);
}

static uint64_t on_wall(void *userdata, uint64_t boot_ns)
{
    return manager_wall_ns() - (manager_boot_ns() - boot_ns);
}

/* What was not seen of the memory itself; uses that are hidden are told apart. */
static bool is_complete(const struct inefficient_window *w)
{
    return !w->lost_events && !w->hidden_bytes && !w->seen.full_count && !w->seen.failed_count &&
           !w->is_ended_early;
}

static void answer(struct wait *wait, struct inefficient *found,
                   const struct inefficient_window *window)
{
    struct manager *m = wait->manager;
    struct inefficient_text text = {
        .owner_fn = on_owner,
        .frames_fn = on_frames,
        .name_fn = on_name,
        .wall_fn = on_wall,
        .userdata = m,
    };
    struct view_context c;
    struct json j = {};
    int r;

    method_context_init(m, NULL, &c);
    c.complete = is_complete(window);
    c.lost_events = window->lost_events;
    method_document_begin(&j);
    json_object(&j);
    view_header(&c, &j);
    r = inefficient_write(found, window, &text, wait->limit, &j);
    json_end(&j);
    r = method_document_reply(wait->call, &j, r);
    if (r < 0)
        api_error(wait->call, "Failed", "out of memory", NULL);
}

static void on_ended(void *userdata, struct inefficient *found,
                     const struct inefficient_window *window, const struct error *error)
{
    struct wait *wait = userdata;

    api_call_on_close(wait->call, NULL, NULL);
    if (found)
        answer(wait, found, window);
    else
        api_error_detail(wait->call, "Failed", error);
    free(wait);
}

static void on_close(struct api_call *call, void *userdata)
{
    struct wait *wait = userdata;

    accesses_cancel(wait->manager->accesses, wait->window);
    free(wait);
}

static int query_read(struct api_call *call, struct access_request *q, uint32_t *ret_limit)
{
    uint64_t tgid = 0, operations = INEFFICIENT_OPERATIONS_DEFAULT, limit = LIMIT_DEFAULT;
    int r = api_param_u64(call, "tgid", INT32_MAX, &tgid);

    q->for_ns = FOR_NS_DEFAULT;
    q->bounds.idle_ns = INEFFICIENT_IDLE_NS_DEFAULT;
    if (r == 0) {
        api_error(call, "BadParameter", "tgid: missing", "give the process to look at");
        return -EINVAL;
    }
    if (r > 0)
        r = api_param_u64(call, "for_ns", INT64_MAX, &q->for_ns);
    if (r >= 0)
        r = api_param_u64(call, "idle_ns", INT64_MAX, &q->bounds.idle_ns);
    if (r >= 0)
        r = api_param_u64(call, "operations", UINT32_MAX, &operations);
    if (r >= 0)
        r = api_param_u64(call, "min_bytes", INT64_MAX, &q->bounds.min_size_bytes);
    if (r >= 0)
        r = api_param_u64(call, "limit", UINT32_MAX, &limit);
    if (r >= 0)
        r = api_params_done(call);
    if (r >= 0 && (q->for_ns < ACCESS_WINDOW_NS_MIN || q->for_ns > ACCESS_WINDOW_NS_MAX)) {
        api_error(call, "BadParameter", "for_ns: a window is of 0.1 s to 10 min", "10000000000");
        return -EINVAL;
    }
    q->tgid = (uint32_t)tgid;
    q->bounds.operations = (uint32_t)operations;
    *ret_limit = (uint32_t)limit;
    return r;
}

int method_inefficient(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    struct access_request request = {.ended = on_ended};
    struct error error = {};
    uint32_t limit;
    int r = query_read(call, &request, &limit);

    if (r < 0)
        return r;
    struct wait *wait = calloc(1, sizeof(*wait));
    if (!wait)
        return -ENOMEM;
    *wait = (struct wait){.manager = m, .call = call, .limit = limit};
    request.userdata = wait;
    manager_sync(m);
    /* before the window: it may end at once */
    api_call_defer(call);
    api_call_on_close(call, on_close, wait);
    r = accesses_open(m->accesses, &request, &wait->window, &error);
    if (r == 0)
        return 0;
    api_call_on_close(call, NULL, NULL);
    free(wait);
    return api_error_detail(call,
                            r == -ESRCH   ? "NoSuchProcess"
                            : r == -EBUSY ? "Busy"
                                          : "Failed",
                            &error);
}
