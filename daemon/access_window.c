/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access_window.c - the life of a window; see access_window.h.
 *
 * Owns: the list of windows. Invariants: one window per process; a window that is in the list has
 * its tables; ended() is called exactly once, after the window has left the list.
 */
#include "access_internal.h"

#include <stdlib.h>
#include <string.h>

#include "links.h"
#include "log.h"
#include "scan.h"

#define LOOK_NS 250000000ull /* between two looks for new libraries */
#define IN_FLIGHT_US 1000    /* what a program that began within the window may still take */

int accesses_new(struct manager *manager, struct accesses **ret)
{
    struct accesses *a = calloc(1, sizeof(*a));

    if (!a)
        return -ENOMEM;
    a->m = manager;
    *ret = a;
    return 0;
}

static struct access_window *window_find(const struct accesses *a, uint32_t tgid)
{
    for (struct access_window *w = a->first; w; w = w->next)
        if (w->request.tgid == tgid)
            return w;
    return NULL;
}

static void detach(struct access_window *w)
{
    if (w->link_count)
        links_close_later(w->links, w->link_count);
    else
        free(w->links);
    w->links = NULL;
    w->link_count = 0;
}

/* Takes it out of the list and everything of it away. */
static void window_free(struct access_window *w)
{
    struct accesses *a = w->owner;

    for (struct access_window **p = &a->first; *p; p = &(*p)->next)
        if (*p == w) {
            *p = w->next;
            break;
        }
    a->count--;
    sd_event_source_disable_unref(w->timer);
    sd_event_source_disable_unref(w->look_timer);
    detach(w);
    access_blocks_close(w);
    inefficient_free(w->found);
    free(w);
}

struct accesses *accesses_free(struct accesses *a)
{
    if (!a)
        return NULL;
    while (a->first)
        window_free(a->first);
    free(a);
    return NULL;
}

void accesses_cancel(struct accesses *a, struct access_window *w)
{
    window_free(w);
}

/* The end of a window that has begun; early: the process is gone. */
static void window_end(struct access_window *w, bool is_early)
{
    struct manager *m = w->owner->m;
    struct target *t = targets_find(m->targets, w->request.tgid);
    uint64_t now = manager_boot_ns();

    is_early &= now < w->end_ns;
    if (is_early)
        w->end_ns = now;
    struct inefficient_window seen = {
        .tgid = w->request.tgid,
        .rank = t ? t->facts.rank : -1,
        .begin_ns = w->begin_ns,
        .end_ns = w->end_ns,
        .asked_ns = w->request.for_ns,
        .is_ended_early = is_early,
        .functions = w->functions,
    };
    struct inefficient *found;
    struct access_request request = w->request;

    access_blocks_end(w, &seen.seen);
    seen.hidden_bytes = w->hidden_bytes;
    seen.lost_events = ring_stats(m->ring)->kernel.lost - w->lost_before;
    log_info("process %u: window of accesses ends: %llu operations, %llu uses", w->request.tgid,
             (unsigned long long)seen.seen.operation, (unsigned long long)seen.seen.use_count);
    found = w->found;
    w->found = NULL;
    window_free(w);
    request.ended(request.userdata, found, &seen, NULL);
    inefficient_free(found);
}

static void window_fail(struct access_window *w, const struct error *error)
{
    struct access_request request = w->request;

    window_free(w);
    request.ended(request.userdata, NULL, NULL, error);
}

static int on_time(sd_event_source *source, uint64_t usec, void *userdata)
{
    window_end(userdata, false);
    return 0;
}

/* Libraries are loaded at the first operator that needs them. */
static int on_look(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct access_window *w = userdata;

    access_files_attach(w);
    sd_event_source_set_time_relative(source, LOOK_NS / 1000);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* --- opening --- */

static void window_begin(struct access_window *w, const struct scan_result *scan)
{
    struct manager *m = w->owner->m;
    uint32_t tgid = w->request.tgid;
    struct error error = {0};
    int r;

    ring_sync(m->ring);
    r = access_blocks_hold(w, scan);
    if (r >= 0)
        r = access_files_attach(w);
    if (r >= 0)
        r = access_blocks_begin(w);
    if (r >= 0)
        r = sd_event_add_time(m->event, &w->timer, CLOCK_BOOTTIME, w->end_ns / 1000 + IN_FLIGHT_US,
                              1, on_time, w);
    if (r >= 0)
        r = sd_event_add_time_relative(m->event, &w->look_timer, CLOCK_MONOTONIC, LOOK_NS / 1000, 0,
                                       on_look, w);
    if (r < 0) {
        error_set(&error, r, "process %u: the window cannot be opened: %s", tgid, strerror(-r));
        window_fail(w, &error);
        return;
    }
    w->is_counting = true;
    w->lost_before = ring_stats(m->ring)->kernel.lost;
    log_info("process %u: window of accesses: %u functions, %u blocks held before", tgid,
             w->functions, w->held.count);
}

/* What was there before, small blocks and blocks from before attach too. */
static void scan_ask(struct access_window *w)
{
    struct manager *m = w->owner->m;
    const struct target *t = targets_find(m->targets, w->request.tgid);

    if (t && scans_request(m->scans, t->tgid, t->facts.start_ticks, false) == 0) {
        scans_prefer(m->scans, w->request.tgid);
        return; /* goes on in accesses_scanned() */
    }
    log_notice("process %u: too many scans wait: small blocks from before are not known",
               w->request.tgid);
    window_begin(w, NULL);
}

static int check_target(struct accesses *a, uint32_t tgid, struct error *reterr)
{
    const struct target *t = targets_find(a->m->targets, tgid);
    const char *reason;

    if (!t) {
        error_set(reterr, ESRCH, "process %u: not observed", tgid);
        return error_fix(reterr, -ESRCH, "npumem ps lists those that are");
    }
    if (a->m->config.probes_block_detail == CONFIG_BLOCK_DETAIL_OFF) {
        error_set(reterr, ENODATA, "process %u: blocks are not looked at", tgid);
        return error_fix(reterr, -ENODATA, "probes.block_detail=large");
    }
    if (t->excluded || strcmp(target_level(t, &reason), "blocks") != 0) {
        error_set(reterr, ENODATA, "process %u: its blocks are not seen: %s", tgid,
                  t->excluded ? "it is detached"
                  : reason    ? reason
                              : "it has no allocator of torch_npu yet");
        return error_fix(reterr, -ENODATA, "npumem status shows what is seen of it");
    }
    if (window_find(a, tgid)) {
        error_set(reterr, EBUSY, "process %u: a window is open", tgid);
        return error_fix(reterr, -EBUSY, "ask again when it has ended");
    }
    if (a->count >= NM_ACCESS_WINDOWS_MAX) {
        error_set(reterr, EBUSY, "%u windows are open", a->count);
        return error_fix(reterr, -EBUSY, "ask again when one has ended");
    }
    return 0;
}

int accesses_open(struct accesses *a, const struct access_request *request,
                  struct access_window **ret, struct error *reterr)
{
    int r = check_target(a, request->tgid, reterr);
    struct access_window *w;

    if (r < 0)
        return r;
    w = calloc(1, sizeof(*w));
    if (!w || inefficient_new(&request->bounds, &w->found) < 0) {
        free(w);
        return error_set(reterr, ENOMEM, "out of memory");
    }
    w->owner = a;
    w->request = *request;
    w->serial = ++a->serial;
    w->blocks_fd = w->pages_fd = -1;
    w->next = a->first;
    a->first = w;
    a->count++;
    r = access_blocks_open(w);
    if (r < 0) {
        window_free(w);
        return error_set(reterr, r, "process %u: the kernel's tables of a window: %s",
                         request->tgid, strerror(-r));
    }
    *ret = w;
    scan_ask(w);
    return 0;
}

void accesses_scan_began(struct accesses *a, uint32_t tgid)
{
    struct access_window *w = a ? window_find(a, tgid) : NULL;

    if (w)
        w->is_scanned = true;
}

void accesses_scanned(struct accesses *a, uint32_t tgid, const struct scan_result *result)
{
    struct access_window *w = a ? window_find(a, tgid) : NULL;

    if (!w || w->is_counting)
        return;
    if (w->is_scanned)
        window_begin(w, result);
    else
        scan_ask(w); /* that one had begun before the window: what it read may be gone */
}

/* --- what happens meanwhile --- */

void accesses_exit(struct accesses *a, uint32_t tgid)
{
    struct access_window *w = a ? window_find(a, tgid) : NULL;
    struct error error = {0};

    if (!w)
        return;
    if (w->is_counting) {
        window_end(w, true);
        return;
    }
    error_set(&error, ESRCH, "process %u: ended before its window began", tgid);
    window_fail(w, &error);
}

void accesses_event(struct accesses *a, const struct nm_event *event)
{
    struct access_window *w = a ? window_find(a, event->tgid) : NULL;

    if (w && w->is_counting)
        access_blocks_life(w, &event->access);
}
