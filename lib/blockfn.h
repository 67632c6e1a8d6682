/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blockfn.h - where torch_npu's hidden block report function is, from libtorch_npu.so's bytes
 * alone.
 *
 * torch_npu tells its profiler of every block that its caching and workspace allocators give or
 * take: one function, called whether the profiler runs or not, not exported and mostly stripped.
 * docs/BLOCK_FUNCTION.md explains how it is found, why that is unambiguous, and what was verified.
 *
 * Owns nothing, allocates nothing. The file is hostile: work is bounded by BLOCKFN_WORK_MAX.
 */
#ifndef NPUMEM_BLOCKFN_H
#define NPUMEM_BLOCKFN_H

#include "elf_image.h"

#define BLOCKFN_WORK_MAX (64u << 20) /* steps (about a byte of code each) before giving up */

/* How the function was found. */
enum blockfn_source {
    BLOCKFN_BY_CODE = 1,   /* relocation, call graph and unwind table */
    BLOCKFN_BY_SYMBOL = 2, /* name in .symtab */
};

/* Layout of the struct that its first argument points at. Source: npu_profiler.h in the wheels. */
enum blockfn_layout {
    BLOCKFN_LAYOUT_UNKNOWN = 0,
    BLOCKFN_LAYOUT_V24 = 1,       /* 2.3.1, 2.4.0: bytes type, index, data type, allocator type */
    BLOCKFN_LAYOUT_COMPONENT = 2, /* all others: component type at offset 2, the rest one on */
};

struct blockfn {
    uint64_t offset;       /* file offset of its first instruction */
    uint64_t vaddr;        /* the same as linked */
    uint64_t probe_offset; /* where to put the probe, see elf_probe_offset_hint() */
    enum blockfn_source source;
    enum blockfn_layout layout;
};

/*
 * Finds the function. Errors: -ENOENT not there or not found (reterr says which step failed);
 * -ENOTUNIQ more than one function fits; -EFBIG more work than BLOCKFN_WORK_MAX.
 * Cost: one pass over .dynsym and .rela.dyn, then some hundred KiB of code: about a millisecond.
 */
int blockfn_find(const struct elf_image *e, struct blockfn *ret, struct error *reterr);

/* Which struct the function with this code reads. Cost: linear in bytes. */
enum blockfn_layout blockfn_layout_read(uint16_t machine, const uint8_t *code, uint64_t bytes);

/* "code" or "symbol"; "component", "v24" or "unknown". */
const char *blockfn_source_name(enum blockfn_source source);
const char *blockfn_layout_name(enum blockfn_layout layout);

#endif
