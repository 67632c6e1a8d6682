/* SPDX-License-Identifier: Apache-2.0 */
/* target_internal.h - the table that target.c and target_facts.c share. */
#ifndef NPUMEM_DAEMON_TARGET_INTERNAL_H
#define NPUMEM_DAEMON_TARGET_INTERNAL_H

#include "map.h"
#include "target.h"

/* The ring asks for a target with every caller to be named, discovery with every fork of the host.
 */
struct tgid_slot {
    struct map_key key;
    struct target *target;
};

struct targets {
    sd_event *event;
    struct attach *attach;
    const struct targets_handler *handler;
    void *userdata;
    struct target *first;
    struct map by_tgid; /* struct tgid_slot */
    uint64_t refreshed_ns;
};

#endif
