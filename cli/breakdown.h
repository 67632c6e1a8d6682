/* SPDX-License-Identifier: Apache-2.0 */
/*
 * breakdown.h - the rendering of a breakdown, for the verbs breakdown and demo.
 */
#ifndef NPUMEM_CLI_BREAKDOWN_H
#define NPUMEM_CLI_BREAKDOWN_H

#include "ask.h"

/* An ask_render_fn. */
int breakdown_render(const struct args *args, const struct out *o, struct json_object *document);

/* Its parts: the table (an exit code), one line per card, what is unknown or inferred and why. */
int breakdown_ranks(const struct args *args, const struct out *o, struct json_object *document);
void breakdown_devices(const struct args *args, const struct out *o, struct json_object *document);
/* The sign behind an owner's figure: "~" inferred, "^" found by reading, else a blank. */
const char *breakdown_mark(struct json_object *owner);
void breakdown_notes(const struct args *args, const struct out *o, struct json_object *document);

/* Whether --fields fits the format and the columns. Returns 0 or -EINVAL. */
int breakdown_check_fields(const struct args *args, struct error *reterr);

#endif
