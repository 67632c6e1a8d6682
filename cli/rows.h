/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows.h - an array of a document as table, CSV or JSON lines, from a list of columns.
 */
#ifndef NPUMEM_CLI_ROWS_H
#define NPUMEM_CLI_ROWS_H

#include <json-c/json.h>

#include "cli.h"
#include "out.h"

enum column_kind {
    COLUMN_TEXT,     /* left */
    COLUMN_LONG,     /* left, shortened when the line is too wide, left out when that does not do */
    COLUMN_NUMBER,   /* right */
    COLUMN_BYTES,    /* right, with its unit */
    COLUMN_DELTA,    /* the same of a difference: with its sign */
    COLUMN_TIME,     /* wall clock in ns */
    COLUMN_DURATION, /* ns */
    COLUMN_RATIO,    /* 0.01 as 1.00 % */
    COLUMN_BOOL,     /* yes, no */
};

struct column {
    const char *header; /* for tables */
    const char *field;  /* in JSON and CSV */
    enum column_kind kind;
    bool shown; /* in a table without --fields */
};

/* Text of a field for a table; "?" for null or absent. Returns text. */
char *rows_format(char *text, size_t size, struct json_object *row, const struct column *column,
                  enum units_scale units);

/* Checks --fields against the columns. Returns 0 or -EINVAL with the nearest name. */
int rows_check_fields(const struct args *args, const struct column *columns, size_t count,
                      struct error *reterr);

/* Prints `array` (may be NULL) as args say: table, csv or jsonl. Under a table stand the reasons of
 * what is unknown. Returns an exit code. */
int rows_print(const struct args *args, const struct out *o, struct json_object *array,
               const struct column *columns, size_t count);

#endif
