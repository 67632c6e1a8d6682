/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots.h - the table that says where a server's tensors hang and whose they are.
 */
#ifndef NPUMEM_ROOTS_H
#define NPUMEM_ROOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "err.h"

#define ROOTS_ROWS_MAX 1024u
#define ROOTS_WORD_MAX 200u

enum roots_kind {
    ROOTS_FRAME,
    ROOTS_TYPE,
    ROOTS_PATH,
    ROOTS_GLOBALS,
    ROOTS_POOL_FRAME,
    ROOTS_POOL_TYPE,
    ROOTS_POOL,
    ROOTS_PRUNE
};

/* One row. Which words it has: schema/roots.def. */
struct roots_row {
    enum roots_kind kind;
    const char *framework; /* "" in a PRUNE row */
    const char *subject;   /* frame, type, attribute or module */
    const char *object;    /* path or owner; "" none */
};

struct roots_table;

/* The built-in rows. Errors: -ENOMEM. Owns: the caller frees. */
int roots_table_new(struct roots_table **ret);
struct roots_table *roots_table_free(struct roots_table *t);
DEFINE_CLEANUP(struct roots_table *, roots_table_free)

/*
 * Adds the rows of a file: one a line, "frame FRAMEWORK NAME PATH", "type FRAMEWORK NAME [PATH]",
 * "path FRAMEWORK ATTRIBUTE OWNER", "globals FRAMEWORK MODULE OWNER", "pool-frame FRAMEWORK NAME
 * PATH", "pool-type FRAMEWORK NAME [PATH]", "pool FRAMEWORK WHAT PATH", "prune ATTRIBUTE"; blank
 * lines and lines that begin with '#' are skipped. They are tried before the built-in ones. Errors:
 * -EINVAL and which line of `name`; -E2BIG too many rows; -ENOMEM. Rows before a bad line stay.
 */
int roots_table_add(struct roots_table *t, const char *name, const char *text, size_t bytes,
                    struct error *reterr);

/* Rows in the order in which they are tried. Borrowed from the table. */
size_t roots_count(const struct roots_table *t);
const struct roots_row *roots_row(const struct roots_table *t, size_t i);

/* Whether a name is `pattern`, or begins with it where that ends in '*'. */
bool roots_match(const char *pattern, const char *name);

#endif
