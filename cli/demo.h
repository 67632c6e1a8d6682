/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demo.h - where the simulated server is, and which processes are its.
 */
#ifndef NPUMEM_CLI_DEMO_H
#define NPUMEM_CLI_DEMO_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

struct demo_paths {
    char program[PATH_MAX];
    char scenario[PATH_MAX];
};

/* Finds npusim-run and the scenario: $NPUMEM_SIM_DIR, beside this program in a build tree, or where
 * they are installed. scenario: a name, or a path (with '/' or ending in ".sim").
 * Returns 0 or -ENOENT. */
int demo_find(const char *scenario, struct demo_paths *ret, struct error *reterr);

/* Whether tgid is `ancestor` or comes from it, by the parents in /proc. */
bool demo_is_descendant(int64_t tgid, pid_t ancestor);

#endif
