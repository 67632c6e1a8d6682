/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leak_steps.h - blocks of earlier steps that are still alive, where marks divide the work in
 * steps.
 *
 * A block that was allocated in a step and is alive when the next one has ended has survived. The
 * first step is left out (it warms up), and a block that goes is a survivor no more. One step that
 * leaves something makes a cache; many that do, a leak.
 */
#ifndef NPUMEM_ANALYSIS_LEAK_STEPS_H
#define NPUMEM_ANALYSIS_LEAK_STEPS_H

#include "leaks.h"
#include "ledger.h"
#include "map.h"

#define LEAK_STEPS_MAX 64 /* the newest are looked at */
#define LEAK_STEPS_LEAST 3

/* Blocks of one owner and stack. */
struct leak_survivor {
    struct map_key key;
    struct leak_series of; /* whose they are; without samples */
    uint64_t blocks, bytes, first_ns;
    uint64_t step_bytes[LEAK_STEPS_MAX]; /* by step */
    /* set by leak_steps_end() */
    uint32_t steps, step_count; /* that left something, of so many */
    uint64_t bytes_per_step;    /* median over all steps */
    uint64_t step_ns;           /* mean length of one */
    bool is_leak;
};

struct leak_steps {
    struct map survivors;
    uint64_t marks[LEAK_STEPS_MAX + 3]; /* ledger's clock, in order */
    size_t mark_count;
};

/* marks: in order of time, in the ledger's clock; fewer than four make no step. */
void leak_steps_init(struct leak_steps *s, const uint64_t *marks, size_t count);
/* Adds the survivors of a process. Returns 0; -ENOMEM. Cost: linear in its live entries. */
int leak_steps_add(struct leak_steps *s, const struct ledger *l,
                   const struct ledger_process *process);
void leak_steps_end(struct leak_steps *s);
void leak_steps_done(struct leak_steps *s);

#endif
