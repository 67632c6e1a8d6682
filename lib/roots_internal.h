/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots_internal.h - what the files of a scan share.
 *
 *   roots_walk.c   from one object to all tensors below it, with names
 *   roots_grow.c   what a walk has found so far, and what waits
 *   roots_path.c   from a frame or an object along a path of attributes
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

/* roots_grow.c: adds a node. Returns its number, SCAN_NONE at a bound. */
uint32_t walk_node(struct walk *w, uint32_t parent, enum scan_node_kind kind, const char *name,
                   uint32_t index);
/* Number of an owner's name in the result. */
uint16_t walk_owner(struct walk *w, const char *name);
bool walk_visited(struct walk *w, uint64_t object);
/* True when the object is new; notes it. */
bool walk_visit(struct walk *w, uint64_t object);
/* Notes a tensor that was reached from an item. */
void walk_tensor(struct walk *w, const struct walk_item *from, uint64_t object, uint32_t node,
                 uint8_t role);
void walk_queue_add(struct walk *w, struct walk_queue *q, const struct walk_item *item);
/* Name of an attribute, from its key. Returns its length; negative errno of reading. */
int walk_attribute_name(struct walk *w, uint64_t key, char *buffer, size_t size);

/* roots_walk.c: follows everything below an object. depth_max: steps. */
void walk_from(struct walk *w, uint64_t object, uint32_t node, uint16_t owner, unsigned depth_max);
/* Whether an attribute is never followed. */
bool walk_pruned(const struct walk *w, const char *name);

/* roots_path.c: follows "a.b.c" from an object. Errors: -ENOENT no such attribute; -EINVAL; those
 * of reading. */
int roots_follow(struct pyobj *p, uint64_t object, const char *path, uint64_t *ret);
/* The next name of such a path into PYOBJ_NAME_MAX bytes. Returns 1; 0 at the end; -EINVAL. */
int roots_path_next(const char **path, char *name);
/* Whether a frame's function is the one of a row. */
bool roots_function_is(const char *wanted, const char *found);
/* What a path that begins with a local of the frame leads to. Errors: -ENOENT; those of reading. */
int roots_frame_follow(struct pyobj *p, const struct pyobj_frame *frame, const char *path,
                       uint64_t *ret);
/* The dict of a loaded module. Errors: -ENOENT; those of reading. */
int roots_module(struct pyobj *p, uint64_t interpreter, const char *name, uint64_t *ret);

void seed_roots(struct walk *w);
/* Whether modules of a framework of the table are loaded, so that there is a root somewhere. */
bool seed_expects_root(struct walk *w);
void seed_frames(struct walk *w);
void seed_tracked(struct walk *w);

#endif
