/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom_text.h - a pasted message to a whole document, for callers that have another JSON library.
 */
#ifndef NPUMEM_ANALYSIS_OOM_TEXT_H
#define NPUMEM_ANALYSIS_OOM_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

#ifndef ANALYSIS_TEXT_BYTES
#define ANALYSIS_TEXT_BYTES 256
#endif

/* The document of `oom explain`: what `oom show` has, as far as the message says. NULL with the
 * error set: there is no message in it. The caller frees it. */
char *oom_text(const char *text, size_t bytes, const char *host, uint64_t wall_ns,
               struct error *reterr);

#endif
