/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acl.h - the simulated node's libraries as function pointers, opened by path at run time.
 *
 * A rank opens them itself (never linked), so that each process maps them anew and a scenario can
 * choose the layout. Signatures: sim/cann/sim_abi.h.
 */
#ifndef NPUSIM_ACL_H
#define NPUSIM_ACL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim_abi.h"

struct acl {
#define ACL(name) __typeof__(name) *name;
#include "acl_api.def"
#undef ACL
    void *handles[8];
    size_t handle_count;
};

struct torch_stats {
    int64_t allocated_bytes, reserved_bytes, active_bytes; /* caching allocator */
    int64_t workspace_bytes;                               /* reserved by the workspace allocator */
};

/* The stand-in libtorch_npu.so (sim/driver/torch); every function returns an ACL code. */
struct torch {
    int (*malloc)(size_t size, void *stream, int device, int external, void **ret_block);
    int (*free)(void *block);
    void *(*pointer)(const void *block);
    size_t (*size)(const void *block);
    int (*record_stream)(void *block, void *stream);
    int (*stream_done)(int device, void *stream);
    int (*empty_cache)(int device);
    int (*workspace)(size_t size, void *stream, int device);
    void (*stats)(int device, struct torch_stats *ret);
};

/* Opens the libraries of one layout: directory holds libascendcl.so or libacl_rt.so and libhccl.so.
 * Returns 0, -ENOENT / -ELIBACC with a message. They stay open until the process ends. */
int acl_open(const char *directory, bool hccl, bool atb, bool nnop, struct acl *ret, char *message,
             size_t size);

/* Opens libtorch_npu.so of a directory after acl_open. Returns 0 or -ELIBACC with a message. */
int torch_open(const char *directory, struct torch *ret, char *message, size_t size);

/* Looks a symbol up in all opened libraries; NULL when none defines it. */
void *acl_symbol(const struct acl *acl, const char *name);

#endif
