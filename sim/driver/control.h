/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control.h - how the processes of a scenario meet: files in one directory, the same for the C and
 * the Python driver and for whoever steps a scenario.
 *
 *   b.NAME.N/            a file per participant of the Nth use of barrier NAME
 *   key.NAME             bytes handed from one rank to another (exported handles, HCCL root info)
 *   flag.NAME            `hold flag=NAME` goes on once it exists
 *   reached.RANK.NAME    a checkpoint was reached; content: its truth (one JSON line)
 *   go.NAME, go.RANK.NAME, go.all   in stepping mode, let a checkpoint go on
 *   end.TGID             how a process means to end: "exit N" or "signal N"
 *   dead.RANK            a rank has ended
 * The second and later times of a checkpoint are called NAME.2, NAME.3, ...
 */
#ifndef NPUSIM_CONTROL_H
#define NPUSIM_CONTROL_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

enum { CONTROL_WAIT_SECONDS = 120, CONTROL_KEY_MAX = 8192 };

struct control {
    char directory[3072];
    bool stepping;
    const volatile sig_atomic_t *stop; /* set by SIGTERM: waits end */
};

/* Creates a file with content by rename, so that a reader never sees half of it.
 * Returns 0 or a negative errno. */
int control_put(const struct control *control, const char *name, const void *data, size_t size);

/* Waits until a file exists. Returns 1, 0 when stopped, -ETIMEDOUT (seconds 0: no limit). */
int control_await(const struct control *control, const char *name, unsigned seconds);

/* Waits for key NAME and reads it. Returns its size or a negative errno. */
int control_get_key(const struct control *control, const char *name, void *data, size_t size);

/* Enters barrier NAME for the Nth time as `self` and waits for `needed` participants.
 * Returns 0, -ETIMEDOUT, -EPIPE when a rank that is still missing has ended. */
int control_barrier(const struct control *control, const char *name, unsigned nth, const char *self,
                    unsigned needed);

bool control_exists(const struct control *control, const char *name);

/* Makes a text safe as a part of a file name ('/' and the like become '_'). */
void control_name(char *text);

#endif
