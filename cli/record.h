/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - a recording made on the way, for verbs that work on one.
 */
#ifndef NPUMEM_CLI_RECORD_H
#define NPUMEM_CLI_RECORD_H

#include "cli.h"

/* Records the one --pid for --for and waits for it; path: the file. Returns an exit code, with the
 * error said. */
int record_for(const struct args *args, char *path, size_t size);

#endif
