/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots_internal.h - what the files of a scan share.
 *
 *   roots_walk.c   from one object to all tensors below it, with names
 *   roots_seed.c   where to begin: roots, frames, modules, the collector
 *   roots_scan.c   the order of a scan, its second look, its sums
 */
#ifndef NPUMEM_ROOTS_INTERNAL_H
#define NPUMEM_ROOTS_INTERNAL_H

#include "pyobj.h"
#include "pyobj_frame.h"
#include "roots_scan.h"

struct walk_item {
    uint64_t object;
    uint32_t node;
    uint8_t depth, role;
    uint16_t owner;
};

struct walk_queue {
    struct walk_item *items;
    size_t at, count, capacity;
};

struct walk {
    const struct scan_input *input;
    struct scan_result *result;
    struct pyobj py;
    uint64_t interpreter;
    struct map visited;           /* struct walk_seen: objects taken */
    struct map names;             /* struct walk_seen: strings by hash */
    struct walk_queue now, later; /* later: attributes that are not of the module tree */
    size_t node_capacity, tensor_capacity, string_capacity;
    uint8_t depth_max;
    int error;        /* -ENOMEM, or what ended reading */
    bool is_full;     /* a bound was reached */
    bool is_rootless; /* a framework is loaded and its root was not found */
    uint64_t
        torn; /* parts of roots and module trees that could not be read: they change just now */
};

struct walk_seen {
    uint64_t key;
    uint32_t key_b;
    uint32_t value;
};

/* Adds a node. Returns its number, SCAN_NONE at a bound. */
uint32_t walk_node(struct walk *w, uint32_t parent, enum scan_node_kind kind, const char *name,
                   uint32_t index);
/* Number of an owner's name in the result. */
uint16_t walk_owner(struct walk *w, const char *name);
bool walk_visited(struct walk *w, uint64_t object);
/* Follows everything below an object. depth_max: steps. */
void walk_from(struct walk *w, uint64_t object, uint32_t node, uint16_t owner, unsigned depth_max);
/* Whether an attribute is never followed. */
bool walk_pruned(const struct walk *w, const char *name);

void seed_roots(struct walk *w);
/* Whether modules of a framework of the table are loaded, so that there is a root somewhere. */
bool seed_expects_root(struct walk *w);
void seed_frames(struct walk *w);
void seed_tracked(struct walk *w);

#endif
