/* SPDX-License-Identifier: Apache-2.0 */
/* child.c - see child.h. */
#include "child.h"

#include <signal.h>
#include <spawn.h>
#include <unistd.h>

pid_t child_spawn(const char *const argv[], int output)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t pid = -1;

    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    if (posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, (char *const *)argv, environ) !=
        0)
        pid = -1;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}
