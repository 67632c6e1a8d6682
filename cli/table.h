/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h - aligned columns of text.
 */
#ifndef NPUMEM_CLI_TABLE_H
#define NPUMEM_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "out.h"

struct table;

/* columns: their number. */
struct table *table_new(size_t columns);
struct table *table_free(struct table *t);
DEFINE_CLEANUP(struct table *, table_free)

/* Alignment, and whether the column may be shortened when the line is too wide. */
void table_column(struct table *t, size_t column, bool right, bool shrinks);
/* Starts a row; cells not set are empty. */
void table_row(struct table *t, enum out_style style);
/* Sets a cell of the newest row; text is copied and made safe for a terminal. */
void table_cell(struct table *t, size_t column, const char *text);
/* The same in a style of its own. */
void table_cell_styled(struct table *t, size_t column, const char *text, enum out_style style);
/* Prints all rows to stdout. Lines get no blanks at their end. Returns 0; -ENOMEM if a row or cell
 * could not be kept. */
int table_print(const struct table *t, const struct out *o);
/* Width of the widest line as it would be printed without a bound. */
size_t table_width(const struct table *t);
/* The same with every column that shrinks as narrow as it gets. */
size_t table_least_width(const struct table *t);

#endif
