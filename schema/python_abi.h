/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * python_abi.h - what the daemon tells the kernel programs about CPython processes.
 *
 * The daemon finds the interpreter in a process, says where its thread states are and how its
 * frames are laid out (schema/python_offsets.def), and what code objects mean (schema/phases.def).
 * The programs do the walk. Addresses are of the observed process and are only ever read.
 */
#ifndef NPUMEM_SCHEMA_PYTHON_ABI_H
#define NPUMEM_SCHEMA_PYTHON_ABI_H

#include <linux/types.h>

/* Offsets that the walk needs; 0 in a field marked "0: none" means that the version has no such. */
struct nm_py_layout {
    __u32 interpreter_next;
    __u32 interpreter_threads;
    __u16 thread_next;
    __u16 thread_id;        /* pthread_t */
    __u16 thread_native_id; /* 0: none (before 3.11) */
    __u16 thread_frame;     /* current frame, or with NM_PY_CFRAME the C frame that has it */
    __u16 cframe_frame;
    __u16 code_name;  /* qualified name, or the name where there is none (before 3.11) */
    __u16 code_plain; /* the name */
    __u16 code_file;
    __u16 string_ascii, string_compact; /* first character of a str that is ASCII, and of others */
    __u8 frame_previous;
    __u8 frame_code;
    __u8 frame_owner;     /* 0: none */
    __u8 flags;           /* enum nm_py_layout_flags */
    __u32 interpreter_gc; /* the collector's state; 0: none that is known */
};
/* A compact str: its length, and a word with the bytes of a character, whether it is compact, and
 * whether it is ASCII. Source: CPython unicodeobject.h, 3.9 to 3.14. */
#define NM_PY_STR_LENGTH 16
#define NM_PY_STR_STATE 32
#define NM_PY_STR_WIDTH(state) (((state) >> 2) & 7)
#define NM_PY_STR_IS_COMPACT(state) (((state) >> 5) & 1)
#define NM_PY_STR_IS_ASCII(state) (((state) >> 6) & 1)
#define NM_PY_STR_MAX (1u << 20) /* characters; longer is no name */
#define NM_PY_NAME_MAX 192       /* bytes kept of a name or file, NUL included */
/* Within the collector's state. Source: CPython pycore_gc.h, struct _gc_runtime_state, 3.9 to 3.13:
 * the counts of the generations 1 and 2, and whether a collection runs. */
#define NM_PY_GC_COUNT1 68
#define NM_PY_GC_COUNT2 92
#define NM_PY_GC_COLLECTING 200
enum nm_py_layout_flags {
    NM_PY_CFRAME = 1 << 0, /* 3.11, 3.12 */
    NM_PY_STACKED =
        1 << 1, /* frames lie side by side in the thread's data stack (3.11 and later) */
};
/* Frames of this owner or above have no code of their own. Source: CPython pycore_frame.h
 * FRAME_OWNED_BY_CSTACK (3.11 to 3.13), FRAME_OWNED_BY_INTERPRETER (3.14). */
#define NM_PY_OWNER_NO_CODE 3

/* Map py_processes, by tgid. */
struct nm_py_process {
    __u64 interpreters;   /* address of _PyRuntime.interpreters.head */
    __u64 ns_dev, ns_ino; /* pid namespace that its thread ids are of; 0: the host's */
    struct nm_py_layout layout;
    __u32 zero;
};

/* Map py_threads, by tid: thread states of versions that do not keep the kernel's thread id. */
struct nm_py_thread {
    __u64 thread_state;
    __u64 thread_id; /* pthread_t, compared at each use */
    __u32 tgid;
    __u32 zero;
};

/* Map py_codes: what a code object means. */
struct nm_py_code_key {
    __u64 code;
    __u32 tgid;
    __u32 zero;
};
struct nm_py_code {
    __u64 name; /* the pointer at layout.code_name: another one means that the code was replaced */
    __u32 verdict; /* NM_PY_VERDICT_KNOWN | NM_PY_TIER << 16 | detail << 8 | class */
    __u32 zero;
};
#define NM_PY_VERDICT_KNOWN (1u << 31)
#define NM_PY_VERDICT_TIER(v) (((v) >> 16) & 0xf) /* 1 outranks 2 and so on; 0 no class */

/* Map py_stacks: stacks whose frames were sent. */
struct nm_py_stack_key {
    __u32 tgid;
    __u32 stack;
};
struct nm_py_stack_value {
    __u64 hash;
    __u64 sent_ns;
};

/* Map py_blocks: phase of live blocks below the threshold, so that their frees leave the sum that
 * they came into; or NM_PY_FOLLOWED: the block was sent one by one, and its frees are, too. */
#define NM_PY_FOLLOWED (1u << 31)
#define NM_PY_HALF (1u << 30) /* with it: one of FREE and BLOCK_FREE was seen, in either order */
struct nm_py_block_key {
    __u64 address;
    __u32 tgid;
    __u32 life; /* start_ticks << 6 | device: a later process with the pid has another */
};

#ifndef __bpf__
_Static_assert(sizeof(struct nm_py_layout) == 36, "nm_py_layout");
_Static_assert(sizeof(struct nm_py_process) == 64, "nm_py_process");
#endif
#endif
