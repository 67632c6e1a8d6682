/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * trace.h - a recorded block and segment trace of one process and device, in a file or a buffer.
 *
 * A header, then records of fixed size in order of time, to the end. Little endian. A reader takes
 * header_bytes and record_bytes from the file, so that both may grow; a record that is cut off at
 * the end is left out, and the trace is then incomplete.
 */
#ifndef NPUMEM_SCHEMA_TRACE_H
#define NPUMEM_SCHEMA_TRACE_H

#include <linux/types.h>

#define NM_TRACE_MAGIC 0x31435254554d504eull /* the bytes "NPMUTRC1" */
#define NM_TRACE_VERSION 1

enum nm_trace_kind {
    NM_TRACE_BLOCK_MALLOC = 1, /* size_bytes: of the block; requested_bytes: 0 not known */
    NM_TRACE_BLOCK_FREE = 2,   /* its user let go */
    NM_TRACE_BLOCK_DONE = 3,   /* it may be used again */
    NM_TRACE_SEGMENT_ALLOC = 4,
    NM_TRACE_SEGMENT_FREE = 5,
    NM_TRACE_FAILED = 6,      /* the driver refused size_bytes */
    NM_TRACE_EMPTY_CACHE = 7, /* where it is known to have been called */
    NM_TRACE_LOST = 8,        /* size_bytes events are missing here */
};

enum nm_trace_flags {
    NM_TRACE_LATE = 1 << 0,     /* recording began while the process already held memory */
    NM_TRACE_NO_SMALL = 1 << 1, /* blocks below a threshold are not in it */
};

struct nm_trace_header {
    __u64 magic;
    __u32 version, header_bytes, record_bytes, flags;
    __u64 begin_wall_ns, begin_boot_ns;
    __u64 card_bytes;      /* total of the card; 0 not known */
    __u64 available_bytes; /* of it, what this process could get; 0 not known */
    __u32 tgid;
    __s32 rank;
    __u32 device, reserved;
    char conf[256]; /* PYTORCH_NPU_ALLOC_CONF of the recorded process, NUL-ended */
};

struct nm_trace_record {
    __u64 time_ns; /* CLOCK_BOOTTIME */
    __u64 address;
    __u64 size_bytes;
    __u64 requested_bytes;
    __u64 stream;
    __u32 tid;
    __u8 kind;
    __u8 component; /* nm_block_component, for blocks */
    __u16 reserved;
};

#ifndef __bpf__
_Static_assert(sizeof(struct nm_trace_header) == 328, "nm_trace_header");
_Static_assert(sizeof(struct nm_trace_record) == 48, "nm_trace_record");
#endif
#endif
