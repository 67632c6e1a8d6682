/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_attach.h - shared by attach and detach.
 */
#ifndef NPUMEM_CLI_VERB_ATTACH_H
#define NPUMEM_CLI_VERB_ATTACH_H

#include "cli.h"

/* Calls method(tgid) for every operand; `done` begins the line of each success. Returns the exit
 * code of the first that failed. */
int call_for_processes(const struct args *args, const char *method, const char *done);

#endif
