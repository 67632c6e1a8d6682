/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.h - starts this program again for what may hang or crash: a driver call, a scan.
 */
#ifndef NPUMEM_DAEMON_CHILD_H
#define NPUMEM_DAEMON_CHILD_H

#include <sys/types.h>

/* Runs /proc/self/exe with argv (NULL-ended; argv[0] is what it calls itself), its standard output
 * being the descriptor output and no signal blocked. Every other descriptor that is not O_CLOEXEC
 * is inherited. Returns the child; -1: it was not started. */
pid_t child_spawn(const char *const argv[], int output);

#endif
