/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * trace.h - a recorded block and segment trace of one process, in a file or a buffer.
 *
 * A header, then records of fixed size in the order in which they were seen, to the end. Little
 * endian. A reader takes header_bytes and record_bytes from the file, so that both may grow; a
 * record that is cut off at the end is left out, and the trace is then incomplete.
 *
 * A late recording (NM_TRACE_LATE) begins with what the process held then: its segments and blocks
 * in the order in which they were allocated, all at begin_boot_ns.
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
    NM_TRACE_NAME = 9,        /* struct nm_trace_name; before the first record that names it */
    /* The segment whose handle is `address` lies at the address `stream` from now on; 0: nowhere */
    NM_TRACE_SEGMENT_MAP = 10,
    NM_TRACE_MARK = 11, /* a user's mark; owner: its name */
    NM_TRACE_KIND_COUNT
};

/* nm_trace_record.component of a segment */
enum nm_trace_segment {
    NM_TRACE_SEGMENT_ADDRESS = 0, /* its address is where it lies */
    NM_TRACE_SEGMENT_HANDLE = 1,  /* it is a handle: NM_TRACE_SEGMENT_MAP says where it lies */
};

enum nm_trace_flags {
    NM_TRACE_LATE = 1 << 0,     /* recording began while the process already held memory */
    NM_TRACE_NO_SMALL = 1 << 1, /* blocks below a threshold are not in it, or were not at first */
    NM_TRACE_OPEN = 1 << 2,     /* being written; or its writer ended without an end */
    NM_TRACE_FULL = 1 << 3,     /* it reached its bound, or the disk was full */
};

struct nm_trace_header {
    __u64 magic;
    __u32 version, header_bytes, record_bytes, flags;
    __u64 begin_wall_ns, begin_boot_ns;
    __u64 card_bytes;      /* total of the card; 0 not known */
    __u64 available_bytes; /* of it, what this process could get; 0 not known */
    __u32 tgid;
    __s32 rank;         /* -1 not known */
    __u32 device;       /* driver's number */
    __u32 torch_device; /* 1 + the same as torch counts it; 0: not known */
    char conf[256];     /* PYTORCH_NPU_ALLOC_CONF of the recorded process, NUL-ended */
    char comm[16];      /* NUL-ended */
    __u64 end_boot_ns;  /* 0: see NM_TRACE_OPEN */
    __u64 lost_events;  /* of the whole recording */
};

struct nm_trace_record {
    __u64 time_ns; /* CLOCK_BOOTTIME; a recorder raises one that is before the last to it */
    __u64 address; /* of a segment that is a VMM handle: the handle */
    __u64 size_bytes;
    __u64 requested_bytes;
    __u64 stream;
    __u32 tid;
    __u8 kind;
    __u8 component; /* blocks: nm_block_component; segments: nm_trace_segment */
    __u16 device;   /* blocks: as torch counts it; segments: driver's number */
    __u32 owner;    /* id of a name, 0 none; of what is allocated */
    __u32 stack;    /* id of a name: Python frames, the innermost first, ';' between them; 0 none */
};

/* A name that is longer than one record goes on in the next. */
struct nm_trace_name {
    __u32 id;    /* from 1 on, each once */
    __u16 bytes; /* of the name that are still to come, those here included */
    __u16 zero;
    char text[36];
    __u8 kind; /* where nm_trace_record has it */
    __u8 zero2[3];
    __u32 zero3[2];
};
#define NM_TRACE_NAME_BYTES_MAX 4096

#ifndef __bpf__
#include <stddef.h>
_Static_assert(sizeof(struct nm_trace_header) == 360, "nm_trace_header");
_Static_assert(sizeof(struct nm_trace_record) == 56, "nm_trace_record");
_Static_assert(sizeof(struct nm_trace_name) == sizeof(struct nm_trace_record), "nm_trace_name");
_Static_assert(offsetof(struct nm_trace_name, kind) == offsetof(struct nm_trace_record, kind),
               "nm_trace_name.kind");
#endif
#endif
