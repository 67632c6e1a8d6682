/* SPDX-License-Identifier: Apache-2.0 */
/*
 * phases.h - Python functions to phases, phases to owners: schema/phases.def and a user's own rows.
 *
 * Owns: the table. Pure. A code object's name gives a verdict (class, detail, tier); the verdicts
 * of a stack's frames give its phase, by the same rule that the kernel programs use.
 */
#ifndef NPUMEM_PHASES_H
#define NPUMEM_PHASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "err.h"
#include "event.h"
#include "python_abi.h"

#define PHASE_CLASSES_MAX 63u
#define PHASE_DETAILS_MAX 63u
#define PHASE_ROWS_MAX 1024u
#define PHASE_OWNER_MAX 64 /* an owner's name, NUL included */

struct phase_table;

/* The rows of schema/phases.def. Errors: -ENOMEM. Owns: caller frees. */
int phase_table_new(struct phase_table **ret);
struct phase_table *phase_table_free(struct phase_table *t);
DEFINE_CLEANUP(struct phase_table *, phase_table_free)

/*
 * Adds the rows of a text (docs/PHASES.md has its form), which then are looked at before the ones
 * there. origin: for messages. On error nothing of the text is added. Errors: -EINVAL, with line
 * and reason in reterr; -ENOSPC too many rows; -ENOMEM.
 */
int phase_table_parse(struct phase_table *t, const char *text, size_t bytes, const char *origin,
                      struct error *reterr);

/* What is known of a code object; any pointer may be NULL. */
struct phase_code {
    const char *qualified; /* NULL: the interpreter keeps none */
    const char *name, *file;
};
/* The verdict of a code object, always with NM_PY_VERDICT_KNOWN. Cost: linear in the rows. */
uint32_t phase_verdict(const struct phase_table *t, const struct phase_code *code);

/* Owner of a phase (only its class and detail count), "" for class 0 or one that is not in the
 * table. */
void phase_owner(const struct phase_table *t, uint32_t phase, char ret[PHASE_OWNER_MAX]);
/* Whether the class is the one with this word ("wake_up"). */
bool phase_class_is(const struct phase_table *t, uint32_t phase, const char *word);

/* The frames of a stack, the innermost first. */
struct phase_walk {
    uint8_t class_id, detail, tier, inner_detail;
    uint32_t unnamed, unnamed_outside;
};
/* verdict 0: the frame's name is not known. */
void phase_walk_frame(struct phase_walk *w, uint32_t verdict);
/* The phase; is_cut: the root was not reached. */
uint32_t phase_walk_end(const struct phase_walk *w, bool is_cut);

#endif
