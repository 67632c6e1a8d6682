/* SPDX-License-Identifier: Apache-2.0 */
/*
 * truth.h - what a rank knows about its own memory: the driver's bookkeeping, independent of the
 * simulated libraries and of any observer.
 *
 * A cell is (kind, module, device, phase); adding and removing are two or three relaxed atomics.
 * requested_bytes is what the scenario asked for, hal_bytes what the runtime asks the driver for
 * by the documented rules (aclrtMallocAlign32: next multiple of 32; aclrtMalloc: 32 more).
 */
#ifndef NPUSIM_TRUTH_H
#define NPUSIM_TRUTH_H

#include <stdint.h>
#include <stdio.h>

enum truth_kind {
    TRUTH_DEVICE,     /* aclrtMalloc* */
    TRUTH_HANDLE,     /* aclrtMallocPhysical on a device */
    TRUTH_HOST,       /* aclrtMallocHost* and host handles */
    TRUTH_REGISTERED, /* aclrtHostRegister* */
    TRUTH_RANGE,      /* reserved addresses: no memory */
    TRUTH_POOL,       /* aclrtMemPoolMallocAsync: inside a pool */
    TRUTH_IMPORTED,   /* imported or opened: another process's memory */
    TRUTH_TENSOR,     /* blocks of the stand-in caching allocator: inside its segments */
    TRUTH_TOUCHED,    /* ordinary host memory that is resident */
    TRUTH_KINDS,
};

enum { TRUTH_CELLS = 4096 };

struct truth_cell {
    _Atomic uint64_t
        key; /* 0: free; else 1 << 63 | phase << 32 | device << 16 | module << 8 | kind */
    _Atomic int64_t count, requested_bytes, hal_bytes;
};

struct truth {
    struct truth_cell cells[TRUTH_CELLS];
    _Atomic int64_t device_bytes, device_peak_bytes; /* hal_bytes of DEVICE and HANDLE */
    _Atomic uint64_t calls, failures;
};

/* Books an allocation; returns the cell's index, to be given to truth_remove. */
uint32_t truth_add(struct truth *truth, enum truth_kind kind, unsigned module, unsigned device,
                   unsigned phase, int64_t requested_bytes, int64_t hal_bytes);
void truth_remove(struct truth *truth, uint32_t cell, int64_t requested_bytes, int64_t hal_bytes);

const char *truth_kind_name(enum truth_kind kind);

/* Writes "kinds":[...],"device_bytes":N,... as members of a JSON object that is already open.
 * phase_name maps a phase number to its name. */
void truth_write(const struct truth *truth, FILE *f, const char (*phases)[64]);

/* Writes a JSON string with quotes; bytes below 0x20, " and \ are escaped. */
void json_text(FILE *f, const char *text);

#endif
