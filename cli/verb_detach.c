/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verb_detach.c - npumem detach PID...
 */
#include "verb_attach.h"

int verb_detach(const struct args *args)
{
    return call_for_processes(args, "Detach", "detached from");
}
