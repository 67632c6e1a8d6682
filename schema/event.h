/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * event.h - the one record that crosses from the kernel programs to user space.
 *
 * bpf/ writes it, daemon/ reads it from the ring buffer, lib/ decodes it, traces store it.
 * It contains fixed-width fields only, has no padding holes, and is 96 bytes long so that
 * 16 MiB of ring hold more than 160,000 of them. Any change raises NM_EVENT_ABI.
 *
 * Identity: a process is (tgid, start_ticks). start_ticks is field 22 of /proc/PID/stat (clock
 * ticks of 10 ms since boot, modulo 2^32), 0 where the kernel has no BTF to find it with.
 * Clock: CLOCK_BOOTTIME in ns, everywhere.
 */
#ifndef NPUMEM_SCHEMA_EVENT_H
#define NPUMEM_SCHEMA_EVENT_H

#include <linux/types.h>

#include "access.h"

#define NM_EVENT_ABI 4

/* What happened. One event is one fact; see docs/ARCHITECTURE.md "one event for one fact". */
enum nm_event_kind {
    NM_EVENT_NONE = 0,
    NM_EVENT_ALLOC = 1,       /* memory given: address, requested, physical_bytes, flags */
    NM_EVENT_FREE = 2,        /* memory returned: address */
    NM_EVENT_RESERVE = 3,     /* VMM address range reserved (no memory behind it) */
    NM_EVENT_RELEASE = 4,     /* VMM address range released */
    NM_EVENT_CREATE = 5,      /* VMM physical memory created: handle, physical_bytes */
    NM_EVENT_HANDLE_FREE = 6, /* one reference on a VMM handle dropped */
    NM_EVENT_MAP = 7,         /* handle mapped at address */
    NM_EVENT_UNMAP = 8,       /* mapping at address removed; not a free */
    NM_EVENT_RETAIN = 9,      /* one more reference on a handle */
    NM_EVENT_IMPORT = 10,     /* another process's memory got a handle here: no allocation */
    NM_EVENT_HOST_REGISTER = 11,
    NM_EVENT_HOST_UNREGISTER = 12,
    NM_EVENT_IPC_OPEN = 13, /* another process's memory mapped here: no allocation */
    NM_EVENT_IPC_CLOSE = 14,
    NM_EVENT_POOL_CREATE = 15, /* stream-ordered memory pool: handle */
    NM_EVENT_POOL_DESTROY = 16,
    NM_EVENT_POOL_TRIM = 17,
    NM_EVENT_DEVICE_SET = 18, /* flags = device as the user counts it */
    NM_EVENT_DEVICE_RESET = 19,
    NM_EVENT_CONTEXT_CREATE = 20,
    NM_EVENT_CONTEXT_DESTROY = 21,
    NM_EVENT_STREAM_CREATE = 22,
    NM_EVENT_STREAM_DESTROY = 23,
    NM_EVENT_COMM_INIT =
        24, /* HCCL: handle, flags = rank | world_size << 32, requested = buffer MiB */
    NM_EVENT_COMM_DESTROY = 25,
    NM_EVENT_ATB_CONTEXT_CREATE = 26,
    NM_EVENT_ATB_CONTEXT_DESTROY = 27,
    NM_EVENT_BLOCK = 28, /* torch_npu allocator block; payload is .block */
    NM_EVENT_STACK = 29, /* Python frames of a stack id; payload is .stack, then its code objects */
    NM_EVENT_THREAD = 30, /* a Python process's thread that the kernel cannot place; no payload */
    NM_EVENT_SCOPE_BEGIN = 31, /* what this thread allocates from here on is named; .scope */
    NM_EVENT_SCOPE_END = 32,   /* the innermost scope of .scope.type of this thread ends */
    NM_EVENT_NAME = 33,        /* memory that is there already is named; .scope with address */
    NM_EVENT_PROCESS_GROUP =
        34, /* torch_npu's ProcessGroupHCCL: handle, flags = rank | world_size << 32 */
    NM_EVENT_MEM_INFO =
        35, /* the driver told free and total memory: address = free, handle = total, in bytes */
    NM_EVENT_ACCESS = 36, /* a block's life within a window of accesses, before its free; .access */
    NM_EVENT_CODE = 37, /* what names a code object in whose frames a call failed; payload is .code,
                           then struct nm_code_memory */
    NM_EVENT_KIND_COUNT
};

/* Bits of nm_call.call_flags. */
enum nm_call_flags {
    NM_CALL_HOST = 1 << 0,      /* host memory (pinned), not device memory */
    NM_CALL_POOL = 1 << 1,      /* sub-allocation of a stream-ordered pool: no memory of its own */
    NM_CALL_HAL_SEEN = 1 << 2,  /* the HAL call below the API was seen: physical fields are true */
    NM_CALL_API_SEEN = 1 << 3,  /* the API call above was seen: requested and caller are true */
    NM_CALL_RETRIED = 1 << 4,   /* at least one HAL call failed inside (huge pages first) */
    NM_CALL_MBUF = 1 << 5,      /* queue buffer (mbuf) */
    NM_CALL_PHYS_PROP = 1 << 6, /* flags is a packed VMM property, see nm_prop_pack() */
};

/*
 * Payload of everything but NM_EVENT_BLOCK.
 * requested is the size the outermost API was asked for; physical_bytes what the innermost
 * layer (HAL) was asked for, which is what the driver accounts; 0 where that layer was not seen.
 */
struct nm_call {
    __u64 address;
    __u64 requested;
    __u64 physical_bytes;
    __u64 flags;  /* halMemAlloc flag word, or packed property, or policy where no HAL was seen */
    __u64 handle; /* VMM handle, stream, context, communicator, pool */
    __u64 caller; /* return address of the outermost call: names the calling library */
    union {
        __u64 begin_ns; /* NM_KIND_IS_FREE: entry of the outermost call, which orders a free against
                           a reuse of its address */
        struct {        /* NM_KIND_HAS_PHASE */
            __u32 phase; /* as in nm_block */
            __u32 stack; /* as in nm_block */
        };
    };
    __u16 api; /* probes.def row of the outermost call, 0 none */
    __u16 hal; /* probes.def row of the HAL call, 0 none */
    __u16 call_flags;
    __u8 policy;       /* low byte of aclrtMemMallocPolicy (1 = HUGE_ONLY), 0xff unknown */
    __u8 failed_count; /* failing HAL calls inside, saturating */
};

/* data_type of torch_npu's struct MemoryUsage. */
enum nm_block_action { NM_BLOCK_MALLOC = 0, NM_BLOCK_FREE = 1, NM_BLOCK_BLOCK_FREE = 2 };
/* component_type of torch_npu's struct MemoryUsage. */
enum nm_block_component { NM_BLOCK_CACHING = 0, NM_BLOCK_WORKSPACE = 1 };

/* Payload of NM_EVENT_BLOCK; totals are those of (process, device, component) after the action. */
struct nm_block {
    __u64 address;
    __s64 size_bytes; /* rounded block size; negative on FREE and BLOCK_FREE */
    __s64 total_allocated_bytes;
    __s64 total_reserved_bytes;
    __s64 total_active_bytes;
    __u64 stream; /* aclrtStream handle */
    __u8 device;  /* as torch counts it, after ASCEND_RT_VISIBLE_DEVICES */
    __u8 component;
    __u8 action;
    __u8 allocator; /* 0 inner, 1 external (graph engine, ATB) */
    __u32 phase; /* of the Python frames, see NM_PHASE_CLASS(); 0 none or not known; MALLOC. FREE:
                    NM_PHASE_COLLECTED or 0 */
    __u32 stack; /* stack id that an NM_EVENT_STACK of the process explains, 0 none; MALLOC only */
    __u32 zero;
};

/* Payload of NM_EVENT_STACK; `count` struct nm_stack_frame follow the event, the innermost first.
 */
struct nm_stack {
    __u64 hash;  /* of the frames */
    __u32 stack; /* id: unique among the live stacks of the process */
    __u32 count; /* at most NM_STACK_FRAMES */
    __u32 flags; /* enum nm_stack_flags */
    __u32 zero;
    __u64 reserved[5];
};
#define NM_STACK_FRAMES 127
struct nm_stack_frame {
    __u64 code; /* address of the code object */
    __u64 name; /* what it had as its name then, 0 where that was told before: another one later
                   means that it is another code object */
};
enum nm_stack_flags {
    NM_STACK_CUT = 1 << 0, /* deeper than NM_STACK_FRAMES, or a frame could not be read */
};

/*
 * Payload of NM_EVENT_CODE, which comes before the NM_EVENT_STACK with the code object; struct
 * nm_code_memory follows the event. It is memory of the process as it was: a process that ends of
 * the failure may be gone when somebody looks.
 */
struct nm_code {
    __u64 code; /* address of the code object */
    __u64 reserved[7];
};
#define NM_CODE_BYTES 144      /* of the code object */
#define NM_CODE_STR_BYTES 40   /* of a str, up to its state */
#define NM_CODE_TEXT_BYTES 384 /* of its characters: NM_PY_NAME_MAX of two bytes */
struct nm_code_string {
    __u64 address;    /* of the str; 0: there is none */
    __u64 text_at;    /* address of text[0] */
    __u32 text_bytes; /* 0: not readable, or too wide */
    __u32 zero;
    __u8 head[NM_CODE_STR_BYTES];
    __u8 text[NM_CODE_TEXT_BYTES];
};
struct nm_code_memory {
    __u8 object[NM_CODE_BYTES];
    struct nm_code_string plain, file, qualified;
};

/* Payload of NM_EVENT_SCOPE_BEGIN, _END and NM_EVENT_NAME. */
enum nm_scope_type {
    NM_SCOPE_COMM = 1,  /* a communicator is being made; ended by its NM_EVENT_COMM_INIT */
    NM_SCOPE_TAG = 2,   /* the process says it itself: include/npumem/tag.h */
    NM_SCOPE_GRAPH = 3, /* graph capture */
};
struct nm_scope {
    __u32 type;
    __u32 value;   /* COMM: buffer in MiB, 0 not said. TAG, NAME: length of the name */
    __u64 address; /* NAME */
    char name[48]; /* cut; COMM: empty where none was given */
};

/* A phase in one word: numbers of the phase table (schema/phases.def, then the user's own). */
#define NM_PHASE_CLASS(p) ((p)&0xff)           /* 0 none */
#define NM_PHASE_DETAIL(p) (((p) >> 8) & 0xff) /* 0 none */
#define NM_PHASE_INFERRED (1 << 16) /* a frame that could be a phase outside it was not told */
/* In the phase of a FREE: Python's garbage collector ran, so that a cycle held the block until
 * then. */
#define NM_PHASE_COLLECTED (1 << 18)
#define NM_PHASE_GENERATION(p) (((p) >> 19) & 3) /* with it: of which generation */
#define NM_PHASE_UNNAMED (1 << 17) /* frames without a name yet: the stack tells more */

/* Kinds by what their word at begin_ns means. */
#define NM_KIND_IS_FREE(k)                                                                         \
    ((k) == NM_EVENT_FREE || (k) == NM_EVENT_HANDLE_FREE || (k) == NM_EVENT_UNMAP ||               \
     (k) == NM_EVENT_RELEASE || (k) == NM_EVENT_HOST_UNREGISTER || (k) == NM_EVENT_IPC_CLOSE)
#define NM_KIND_HAS_PHASE(k)                                                                       \
    ((k) == NM_EVENT_ALLOC || (k) == NM_EVENT_CREATE || (k) == NM_EVENT_RESERVE ||                 \
     (k) == NM_EVENT_MEM_INFO)

struct nm_event {
    __u64 time_ns; /* at return; at entry for frees (begin_ns) and entry-only probes */
    __u32 seq;     /* per CPU, without gaps unless events were lost */
    __u16 cpu;
    __u8 kind;
    __u8 abi;
    __u32 tgid;
    __u32 tid;
    __u32 start_ticks;
    __s32 result; /* return value of the outermost call; 0 success */
    union {
        struct nm_call call;
        struct nm_block block;
        struct nm_stack stack;
        struct nm_code code;
        struct nm_scope scope;
        struct nm_access access;
    };
};

/*
 * Counters of the allocator per (process, device, component), kept in the kernel at every block
 * event whatever the detail, and read by the daemon when somebody asks. seq is odd while written.
 */
struct nm_pool_key {
    __u32 tgid;
    __u8 device;
    __u8 component;
    __u16 zero;
};
struct nm_pool_totals {
    __u64 seq;
    __u64 time_ns;
    __s64 total_allocated_bytes;
    __s64 total_reserved_bytes;
    __s64 total_active_bytes;
    __u64 event_count;
    __s64 first_allocated_bytes; /* totals just before the first event seen: the late-attach base */
    __s64 first_reserved_bytes;
    __s64 first_active_bytes;
    __u32 start_ticks;
    __u32 no_python; /* the programs' own: the process was found to run no Python */
};

/* Blocks below the size threshold, summed in the kernel (detail "large"). A block is freed from the
 * sum that it was allocated in; phase is without NM_PHASE_UNNAMED. */
struct nm_small_key {
    __u64 stream;
    __u32 tgid;
    __u8 device;
    __u8 component;
    __u16 zero;
    __u32 phase;
    __u32 zero2;
};
struct nm_small_totals {
    __u64 malloc_count, free_count, block_free_count;
    __u64 malloc_bytes, free_bytes, block_free_bytes;
};

/* ATB operations, summed in the kernel per (process, operation object). */
struct nm_atb_key {
    __u64 operation;
    __u32 tgid;
    __u32 zero;
};
struct nm_atb_totals {
    __u64 setup_count, execute_count;
    __u64 workspace_address, workspace_bytes, workspace_max_bytes;
    __u64 table; /* of virtual functions: names the operation's class; 0 unreadable */
};

/* Per-CPU accounting: attempted = submitted + lost, exactly. */
struct nm_cpu_counters {
    __u64 attempted;
    __u64 lost;        /* ring buffer full */
    __u64 read_failed; /* a user-memory read failed; the event was dropped */
    __u64 stale_calls; /* entries whose return never came (longjmp, attach in the middle) */
    __u64 map_full;    /* a kernel map had no room for a new key */
};

/* nm_call.flags of NM_EVENT_CREATE: drv_mem_prop in one word, with NM_CALL_PHYS_PROP. */
#define NM_PROP_DEVICE(f) ((__u32)((f)&0x3ff))
#define NM_PROP_HOST(f) (((f) >> 10) & 1)
#define NM_PROP_PAGE(f) (((f) >> 12) & 3) /* 0 4 KiB, 1 2 MiB, 2 1 GiB */
#define NM_PROP_MEM(f) (((f) >> 14) & 7)  /* 0 HBM, 1 DDR, 2 P2P HBM, 3 P2P DDR, 4 TS DDR */
#define NM_PROP_MODULE(f) ((__u32)((f) >> 56))

/* halMemAlloc flag word; Source: CANN ascend_hal_define.h, bit positions. */
#define NM_HAL_DEVICE(f) ((__u32)((f)&0x3ff))
#define NM_HAL_VIRT(f)                                                                             \
    (((f) >> 10) & 0xf) /* 0 SVM 1 DEV 2 HOST 3 DVPP 4 HOST_AGENT 5 RESERVE 6 HOST_UVA 7 UVM */
#define NM_HAL_HBM(f) (((f) >> 14) & 7) /* 0 DDR, 1 HBM */
#define NM_HAL_HUGE(f) (((f) >> 17) & 1)
#define NM_HAL_MODULE(f) ((__u32)((f) >> 56))

#ifndef __bpf__
#include <stddef.h>
_Static_assert(sizeof(struct nm_call) == 64, "nm_call");
_Static_assert(sizeof(struct nm_block) == 64, "nm_block");
_Static_assert(sizeof(struct nm_stack) == 64, "nm_stack");
_Static_assert(sizeof(struct nm_code) == 64, "nm_code");
_Static_assert(sizeof(struct nm_code_memory) == 1488, "nm_code_memory");
_Static_assert(sizeof(struct nm_scope) == 64, "nm_scope");
_Static_assert(sizeof(struct nm_event) == 96, "nm_event");
_Static_assert(offsetof(struct nm_event, call) == 32, "payload");
_Static_assert(sizeof(struct nm_pool_key) == 8, "nm_pool_key");
_Static_assert(sizeof(struct nm_small_key) == 24, "nm_small_key");
#endif
#endif
