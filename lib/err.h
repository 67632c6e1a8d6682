/* SPDX-License-Identifier: Apache-2.0 */
/*
 * err.h - what went wrong, for a person, beside the negative errno that the program acts on.
 *
 * Functions return 0 or more on success and a negative errno on failure; where a person needs more,
 * the last parameter is `struct error *reterr`, which may be NULL.
 */
#ifndef NPUMEM_ERR_H
#define NPUMEM_ERR_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

struct error {
    char what[240]; /* one line: WHAT: WHY */
    char fix[160];  /* what to do about it; may be empty */
};

/* Writes a message into reterr (NULL is fine) and returns -code, so that it can be returned. */
__attribute__((format(printf, 3, 4))) static inline int error_set(struct error *reterr, int code,
                                                                  const char *format, ...)
{
    if (reterr) {
        va_list ap;
        va_start(ap, format);
        vsnprintf(reterr->what, sizeof(reterr->what), format, ap);
        va_end(ap);
        reterr->fix[0] = '\0';
    }
    return code > 0 ? -code : code;
}

/* Adds the way out to a message that was set. Returns code unchanged. */
__attribute__((format(printf, 3, 4))) static inline int error_fix(struct error *reterr, int code,
                                                                  const char *format, ...)
{
    if (reterr) {
        va_list ap;
        va_start(ap, format);
        vsnprintf(reterr->fix, sizeof(reterr->fix), format, ap);
        va_end(ap);
    }
    return code;
}

#endif
