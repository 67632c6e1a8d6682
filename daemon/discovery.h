/* SPDX-License-Identifier: Apache-2.0 */
/*
 * discovery.h - learning that a process maps a library, without polling.
 *
 * Owns: one perf event per CPU (software dummy with mmap2, comm and task records) and its buffer.
 * Opened before /proc is scanned, so that no process is missed between the two.
 * Source: measured latency from mmap to record 11 to 130 us; the records name the file relative to
 * the task's own root, so only the last part of a name is used here.
 */
#ifndef NPUMEM_DAEMON_DISCOVERY_H
#define NPUMEM_DAEMON_DISCOVERY_H

#include <stdint.h>
#include <systemd/sd-event.h>

#include "cleanup.h"
#include "err.h"

struct discovery;

/* Called in the order in which things happened, whatever CPU told them (sideband.h). */
struct discovery_handler {
    /* The process has mapped a file that libraries.def names. */
    void (*mapped)(void *userdata, uint32_t tgid);
    /* A new process, a copy of parent, whose mappings it has. */
    void (*forked)(void *userdata, uint32_t tgid, uint32_t parent);
    /* Its comm changed: a title was set. */
    void (*renamed)(void *userdata, uint32_t tgid);
    /* It runs another program since time_ns (CLOCK_BOOTTIME): its mappings and what it held are
     * gone. Who looked at the process meanwhile, after its fork say, has seen the new program. */
    void (*executed)(void *userdata, uint32_t tgid, uint64_t time_ns);
    /* Records were lost: scan /proc again. */
    void (*lost)(void *userdata);
};

/* Errors: -EACCES, -EPERM: needs CAP_PERFMON. */
int discovery_new(sd_event *event, const struct discovery_handler *handler, void *userdata,
                  struct discovery **ret, struct error *reterr);
/* Handles what is in the buffers now. NULL: nothing. Handlers must not call it. Cost: one read of
 * shared memory per CPU, and that of the handlers. */
void discovery_drain(struct discovery *d);
struct discovery *discovery_free(struct discovery *d);
DEFINE_CLEANUP(struct discovery *, discovery_free)

#endif
