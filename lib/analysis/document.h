/* SPDX-License-Identifier: Apache-2.0 */
/*
 * document.h - a whole document as text, for analyses of a file: what its head says (complete,
 * lost_events) is known only when everything was read.
 */
#ifndef NPUMEM_ANALYSIS_DOCUMENT_H
#define NPUMEM_ANALYSIS_DOCUMENT_H

#include "json_write.h"
#include "view.h"

/* The header of c and the members of a finished object as one object. NULL: out of memory. The
 * caller frees it. */
char *document_text(const struct view_context *c, const struct json *members);

#endif
