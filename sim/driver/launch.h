/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - options of npusim-run, and how its processes come to life.
 */
#ifndef NPUSIM_LAUNCH_H
#define NPUSIM_LAUNCH_H

#include "run.h"

enum { DEFINES_MAX = 64 };

struct options {
    const char *scenario, *layout, *libraries, *torch, *truth, *control;
    const char *in_process; /* rank to run without exec, NULL: all ranks as processes */
    char *defines[DEFINES_MAX];
    size_t define_count;
    bool stepping, stay, dump, check, quiet;
    int rank_index;  /* >= 0: this process is that rank */
    char self[3072]; /* path of this program */
    char libraries_buffer[3200], torch_buffer[3200];
};

/* Fills libraries and torch from layout and the program's own place. Returns 0 or -ENOENT. */
int options_locate(struct options *options, char *message, size_t size);

/* Expands a text of a rank (title, parent, ...) with that rank's variables; "" for NULL. */
int rank_text(const struct scenario *s, const struct rank *rank, const char *text, char *out,
              size_t size);

/* Forks and execs a rank. Returns its tgid or a negative errno. */
int rank_spawn(const struct options *options, const struct scenario *s, uint32_t index);

/* Starts the ranks whose parent has this name ("" for those without). Returns 0 or -errno. */
int ranks_spawn(const struct options *options, const struct scenario *s, const char *parent);

/* Becomes a rank: title, comm, libraries, statements. Returns the exit code. */
int rank_main(const struct options *options, const struct scenario *s, uint32_t index);

/* Removes a directory with everything in it; what cannot be removed stays. */
void tree_remove(const char *path);

/* Starts all ranks and waits for every process of the scenario. Returns the exit code. */
int supervise(struct options *options, const struct scenario *s);

#endif
