/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cleanup.h - ownership by scope, after systemd's practice.
 *
 * `_cleanup_(fn)` runs fn(&variable) at the end of the scope. TAKE_PTR/TAKE_FD hand ownership over.
 * Destructors: x_free(x) takes NULL and returns NULL.
 */
#ifndef NPUMEM_CLEANUP_H
#define NPUMEM_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))

#define TAKE_PTR(p)                                                                                \
    ({                                                                                             \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })
#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int taken_ = (fd);                                                                         \
        (fd) = -1;                                                                                 \
        taken_;                                                                                    \
    })

/* Defines fn_p(type **), the cleanup form of type *fn(type *). */
#define DEFINE_CLEANUP(type, fn)                                                                   \
    static inline void fn##p(type *p)                                                              \
    {                                                                                              \
        if (*p)                                                                                    \
            *p = fn(*p);                                                                           \
    }

static inline void freep(void *p)
{
    free(*(void **)p);
}

static inline void closep(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void fclosep(FILE **f)
{
    if (*f)
        fclose(*f);
}

#define _cleanup_free_ _cleanup_(freep)
#define _cleanup_close_ _cleanup_(closep)
#define _cleanup_fclose_ _cleanup_(fclosep)

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif
