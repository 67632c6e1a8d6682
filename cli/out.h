/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out.h - where the answer goes: terminal or file, width, colour, pager.
 */
#ifndef NPUMEM_CLI_OUT_H
#define NPUMEM_CLI_OUT_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli.h"

#define OUT_UNLIMITED 0

struct out {
    bool terminal;
    bool color;
    unsigned width; /* columns, OUT_UNLIMITED when not a terminal and COLUMNS is not set */
    int pager_pid;  /* 0 none */
};

enum out_style { STYLE_PLAIN, STYLE_BOLD, STYLE_DIM, STYLE_GOOD, STYLE_BAD };

/* Looks at stdout and the environment; does not start the pager. */
void out_init(struct out *o, const struct args *args);
/* Starts $PAGER (default less -FRX) on a terminal unless --no-pager; output follows to its stdin.
 */
void out_pager(struct out *o, const struct args *args);
/* Flushes and waits for the pager. Returns exit_code, or EXIT_RUNTIME with a message if stdout took
 * no more (a full disk); a reader that went away is no failure. */
int out_finish(struct out *o, int exit_code);

/* Escape sequences around a styled text; "" without colour. */
const char *out_on(const struct out *o, enum out_style style);
const char *out_off(const struct out *o, enum out_style style);

/* Columns that text takes on a terminal. */
size_t out_columns(const char *text);
/* Copies text, every control character (escape sequences among them) as '?', malformed UTF-8 too:
 * names come from processes, and a terminal must not obey them. Returns ret. */
char *out_clean(char *ret, size_t size, const char *text);

/* A JSON value: indented for json, one line for jsonl. */
void out_json(struct json_object *value, bool one_line);
/* One CSV cell, quoted where RFC 4180 wants it, without a separator. */
void out_csv_cell(const char *text);

#endif
