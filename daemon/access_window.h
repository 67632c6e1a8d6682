/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access_window.h - windows in which the uses of one process's memory are seen.
 *
 * Owns: the probes, tables and findings of each window. A window opens in steps: first its blocks
 * are followed, then a scan tells which were there before, then the probes of NM_ACCESS rows are
 * attached to this process alone and its time begins. At its end they are detached beside the loop.
 * A process that ends takes its window with it; what was seen until then is the answer.
 */
#ifndef NPUMEM_DAEMON_ACCESS_WINDOW_H
#define NPUMEM_DAEMON_ACCESS_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "cleanup.h"
#include "err.h"
#include "event.h"
#include "inefficient.h"
#include "roots_result.h"

struct manager;
struct accesses;
struct access_window;

#define ACCESS_WINDOW_NS_MIN 100000000ull
#define ACCESS_WINDOW_NS_MAX (10 * 60 * 1000000000ull)

/* manager is borrowed. Owns: accesses_free(). */
int accesses_new(struct manager *manager, struct accesses **ret);
/* Ends every window without an answer. */
struct accesses *accesses_free(struct accesses *a);
DEFINE_CLEANUP(struct accesses *, accesses_free)

struct access_request {
    uint32_t tgid;
    uint64_t for_ns; /* within the bounds above */
    struct inefficient_bounds bounds;
    /* Called once, with the findings (the callee must not keep them), unless cancelled. found NULL:
     * the window could not be opened, and error says why. */
    void (*ended)(void *userdata, struct inefficient *found,
                  const struct inefficient_window *window, const struct error *error);
    void *userdata;
};

/* Opens a window. Returns 0 (ended() is called later); errors with reterr: -ESRCH not observed;
 * -ENODATA its blocks are not seen; -EBUSY it has a window, or there are too many. */
int accesses_open(struct accesses *a, const struct access_request *request,
                  struct access_window **ret, struct error *reterr);
/* Nobody waits for it any more: it goes without an answer. */
void accesses_cancel(struct accesses *a, struct access_window *w);
/* The process ends, runs another program, or is detached by hand. Still in the ledger. */
void accesses_exit(struct accesses *a, uint32_t tgid);
/* A scan of the process begins. */
void accesses_scan_began(struct accesses *a, uint32_t tgid);
/* ... has ended; result NULL: without one. */
void accesses_scanned(struct accesses *a, uint32_t tgid, const struct scan_result *result);
/* From the ring: an NM_EVENT_ACCESS. */
void accesses_event(struct accesses *a, const struct nm_event *event);

#endif
