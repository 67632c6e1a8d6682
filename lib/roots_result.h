/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots_result.h - what a scan of a process found: blocks of the allocator, tensors with names, and
 * what is missing.
 *
 * It is made in a process of its own (daemon/scan.c), so it can be written as bytes and read back;
 * what is read back is checked, since a hostile image was looked at on the other side.
 */
#ifndef NPUMEM_ROOTS_RESULT_H
#define NPUMEM_ROOTS_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npualloc.h"
#include "torchobj.h"

#define SCAN_NONE UINT32_MAX
#define SCAN_PATH_MAX 1024
#define SCAN_OWNERS_MAX 64
#define SCAN_OWNER_BYTES 48
#define SCAN_TENSORS_MAX (1u << 19)
#define SCAN_NODES_MAX (1u << 20)
#define SCAN_STRINGS_MAX (16u << 20)

/* One step of a name. The parent comes before the child. */
enum scan_node_kind { SCAN_ROOT, SCAN_ATTRIBUTE, SCAN_KEY, SCAN_INDEX };
struct scan_node {
    uint32_t parent;                   /* SCAN_NONE: a root */
    uint32_t name;                     /* offset in strings; SCAN_INDEX: the number */
    uint8_t kind;                      /* enum scan_node_kind */
    uint8_t is_module, is_module_root; /* an nn.Module; ... that no other module holds */
    uint8_t zero;
};

enum scan_role { SCAN_OTHER, SCAN_PARAMETER, SCAN_BUFFER };
enum scan_place {
    SCAN_IN_LIVE = 0, /* in a block that is held */
    SCAN_IN_FREE = 1, /* in memory that the allocator thinks free: outputs of captured graphs */
    SCAN_IN_PENDING = 2,
    SCAN_IN_NO_BLOCK = 3,  /* elsewhere: other allocators, host memory */
    SCAN_PLACE_UNKNOWN = 4 /* there is no table of blocks */
};

struct scan_tensor {
    uint64_t object, storage, data, storage_bytes, used_bytes, offset;
    int64_t dims[TORCH_DIMS_KEPT];
    uint32_t node;
    uint32_t base;  /* the tensor that has this storage; SCAN_NONE: this one */
    uint32_t block; /* index in blocks, SCAN_NONE none */
    uint16_t owner; /* index in owners */
    uint8_t dim_count, dtype, role, place;
    int8_t device_type, device;
    uint8_t is_owner;
    uint8_t zero[5];
};

/* Everything that is not a list. Texts are NUL-terminated. */
struct scan_summary {
    uint32_t block_count, node_count, tensor_count, device_count, string_bytes, owner_count;
    uint32_t python_minor; /* 0: no CPython */
    uint32_t attempts;
    uint8_t has_blocks, is_blocks_complete, has_names, is_cut;
    uint8_t is_torn; /* no blocks: they changed while they were read, or did not fit */
    uint8_t zero[3];
    uint64_t objects, skipped, rejected,
        changed;                       /* objects visited; unreadable; tensors that did not
                                          verify; that were another thing at the end */
    uint64_t host_tensors, host_bytes; /* tensors in host memory, their storages */
    uint64_t read_bytes, duration_ns, cpu_ns;
    char torch[32];          /* versions of the tensor layout */
    char framework[32];      /* "" none was recognised */
    char root[160];          /* frame and path that led to it */
    char blocks_reason[240]; /* why there are no blocks, or why they are incomplete */
    char names_reason[240];  /* the same of names */
};

struct scan_result {
    struct scan_summary s;
    struct npualloc_device devices[NPUALLOC_DEVICES_MAX];
    char owners[SCAN_OWNERS_MAX][SCAN_OWNER_BYTES];
    struct npualloc_block *blocks; /* by device and address */
    uint32_t *block_tensors;       /* first tensor that names each block; SCAN_NONE none */
    struct scan_tensor *tensors;
    struct scan_node *nodes;
    char *strings;
};

struct scan_result *scan_result_free(struct scan_result *r);
DEFINE_CLEANUP(struct scan_result *, scan_result_free)

/* Writes it as bytes in one malloc'd buffer, which the caller frees. Errors: -ENOMEM. */
int scan_result_encode(const struct scan_result *r, void **ret_data, size_t *ret_bytes);
/* The way back. Errors: -EBADMSG; -ENOMEM. Owns: the caller frees. */
int scan_result_decode(const void *data, size_t bytes, struct scan_result **ret);

/* The name of a node, from the root ("model.layers.0.weight"); with is_state, from the outermost
 * module, as state_dict() says it. Cut to size - 1. Returns its length. */
size_t scan_path(const struct scan_result *r, uint32_t node, bool is_state, char *buffer,
                 size_t size);

/* The state_dict() name of the tensor in the live block that begins at an address. Returns whether
 * there is one. Cost: logarithmic. */
bool scan_block_name(const struct scan_result *r, int device, uint64_t address, char *buffer,
                     size_t size);

/* "full", "partial" or "none", and why less than full; NULL no reason. */
void scan_coverage(const struct scan_result *r, const char **ret_blocks,
                   const char **ret_blocks_why, const char **ret_names, const char **ret_names_why);

/* Joins tensors to blocks by address; fills block, place, block_tensors. */
int scan_join(struct scan_result *r);

#endif
