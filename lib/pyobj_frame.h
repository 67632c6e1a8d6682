/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyobj_frame.h - from an interpreter to the frames of its threads, its modules and its collector.
 *
 * Where threads and frames are is schema/python_offsets.def, as for the kernel programs; what hangs
 * on a frame is schema/pyobj_layout.def.
 */
#ifndef NPUMEM_PYOBJ_FRAME_H
#define NPUMEM_PYOBJ_FRAME_H

#include "pyobj.h"

#define PYOBJ_THREADS_MAX 4096u
#define PYOBJ_FRAMES_MAX 512u /* of one thread, the innermost */
#define PYOBJ_LOCALS_MAX 512u

/* One frame. `function` is its qualified name, before 3.11 the plain one. */
struct pyobj_frame {
    uint64_t address, code;
    uint32_t thread, depth; /* 0: innermost */
    char function[PYOBJ_NAME_MAX];
};

/* Threads of an interpreter are chained from `interpreter`. fn returns non-zero to end, which is
 * returned. Frames of which something does not fit end their thread.
 * Errors: those that ended reading. */
int pyobj_each_frame(struct pyobj *p, uint64_t interpreter,
                     int (*fn)(void *, const struct pyobj_frame *), void *userdata);

/* Locals of a frame that have a value; a cell is opened. */
int pyobj_each_local(struct pyobj *p, const struct pyobj_frame *frame,
                     int (*fn)(void *, const char *name, uint64_t value), void *userdata);

/* First interpreter of the runtime, from the address of _PyRuntime. Errors: -ENODATA nothing that
 * could be one. */
int pyobj_interpreter(struct pyobj *p, uint64_t runtime, uint64_t *ret);

/* The dict sys.modules. Errors: -ENOENT not where it should be, and not near. */
int pyobj_modules(struct pyobj *p, uint64_t interpreter, uint64_t *ret);

/* Objects that the collector tracks, oldest generation first; fn as above. Returns how many. */
int64_t pyobj_each_tracked(struct pyobj *p, uint64_t interpreter, uint64_t maximum,
                           int (*fn)(void *, uint64_t object), void *userdata);

#endif
