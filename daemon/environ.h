/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environ.h - the environment of another process, as getenv() would answer there now.
 *
 * /proc/PID/environ is what was given at exec: setproctitle overwrites it, and what the process or
 * its framework set later is not in it. The live one is found through the variable `environ` of the
 * C library (or of the executable, which takes it over by a copy relocation), read from
 * /proc/PID/mem. Only the variables of schema/tunings.def are copied. All of it is hostile:
 * every read is bounded, and at a bound what was found so far is the answer.
 */
#ifndef NPUMEM_DAEMON_ENVIRON_H
#define NPUMEM_DAEMON_ENVIRON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENVIRON_TEXT_MAX 4096 /* of the variables that are copied */

/* Where a process keeps it; fixed for the life of a program image. Zeroed: not looked for yet. */
struct environ_place {
    uint64_t address; /* of the variable `environ`; 0 not found */
    bool looked;
    bool is_costly; /* too large to be read again at each look */
};

struct environ_text {
    char text[ENVIRON_TEXT_MAX]; /* NAME=value, each ended by NUL */
    size_t bytes;
    bool read; /* false: neither could be read */
    bool live; /* false: as given at exec */
};

/* Reads it: live, else from /proc/TGID/environ where that is intact. Returns 0; -ENODATA neither
 * can be read; other negative errno. Cost: the first time some ms (two ELF files), then about 0.1
 * ms. */
int environ_read(uint32_t tgid, struct environ_place *place, struct environ_text *ret);

#endif
