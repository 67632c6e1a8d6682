/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python.h - the Python interpreters of the observed processes: where they are, what their code
 * objects are called, and which frames a stack id stands for.
 *
 * Owns: one record per process that runs CPython, the maps of bpf/python.bpf.h, and names: a
 * stack's names are kept from the moment that its frames arrive, so that a process that has died is
 * still told. Must not: write to an observed process; know the ledger.
 */
#ifndef NPUMEM_DAEMON_PYTHON_H
#define NPUMEM_DAEMON_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "err.h"
#include "event.h"
#include "phases.h"
#include "probe_set.h"
#include "python_layout.h"

#define PYTHON_STACKS_MAX 8192u /* stacks whose names are kept, per process */
#define PYTHON_NAMES_MAX 65536u /* names kept, per process */
#define PYTHON_DEAD_MAX 64u     /* ended processes whose stacks are kept */

struct python;

/* phases: borrowed, must outlive it. Errors: -ENOMEM. Owns: caller frees. */
int python_new(struct probe_set *set, const struct phase_table *phases, struct python **ret);
struct python *python_free(struct python *p);
DEFINE_CLEANUP(struct python *, python_free)

/* Reads DIR/phases.d/NAME.conf, sorted by name, into a table. A file with an error is left out and
 * logged; that there is none is no error. */
void python_phases_read(struct phase_table *t, const char *config_dir);

/*
 * Looks for an interpreter among a process's mappings and tells the kernel programs about it.
 * Called before the probes of a library go live, and again whenever it maps something. Cost: some
 * ms the first time that an interpreter's file is seen, then some 20 reads per thread.
 */
void python_look(struct python *p, uint32_t tgid, const char *maps, size_t bytes);
/* The process has ended or runs another program: its addresses mean nothing any more, its stacks
 * stay. */
void python_forget(struct python *p, uint32_t tgid);
/* Once a second: interpreters that were not up yet, thread tables, code objects that were replaced.
 */
void python_maintain(struct python *p);

/* An NM_EVENT_STACK, NM_EVENT_CODE or NM_EVENT_THREAD from the ring, of `size` bytes. */
void python_event(struct python *p, const struct nm_event *event, size_t size);
/* The phase of an event whose frames had no names when the kernel looked (NM_PHASE_UNNAMED). */
uint32_t python_phase(struct python *p, uint32_t tgid, uint32_t stack, uint32_t phase);

/* Whether a small block is in the kernel's sum of the phase that it was allocated in. Cost: a look
 * into a kernel map. */
bool python_has_summed(struct python *p, uint32_t tgid, uint32_t start_ticks, uint16_t device,
                       uint64_t address);

/* Counters of the process's garbage collector, read from its memory now. false: there is none, or
 * it is kept in a way that is not known. */
bool python_collector(struct python *p, uint32_t tgid, struct python_collector *ret);

/* Names of a stack's frames, the innermost first, at most max; borrowed until the process's record
 * goes. Returns their number, 0 unknown. */
size_t python_stack(struct python *p, uint32_t tgid, uint32_t stack, const char **ret, size_t max);

/* Why there are no phases of a process, NULL: there are, or it runs no Python. Borrowed. */
const char *python_reason(struct python *p, uint32_t tgid);

#endif
