/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * python_state.bpf.h - maps of Python processes and code objects, and what is kept of a thread.
 *
 * Written by the daemon: py_processes, py_threads, py_codes (schema/python_abi.h). By the programs:
 * the state of each thread that allocates, which is theirs alone.
 */
#ifndef NPUMEM_BPF_PYTHON_STATE_H
#define NPUMEM_BPF_PYTHON_STATE_H

#include "state.bpf.h"
#include "python_abi.h"

#define NM_PY_CACHE 128 /* code objects kept per thread; a power of two */
#define NM_PY_HEAD 96   /* bytes of a frame that hold previous, code and owner */
#define NM_PY_PAGE 4096 /* smallest page: a read that stays within one cannot fail half way */
#define NM_PY_WINDOW                                                                               \
    (NM_PY_PAGE + 512) /* the page and a frame that ends above it; then one alone */
#define NM_PY_ALONE (NM_PY_PAGE + 256)
#define NM_PY_SPAN                                                                                 \
    512 /* frame pointer and thread id of a thread state lie closer (3.9 to 3.14)                  \
         */

/* Set by the daemon before load: 0 where the kernel refuses the walk. */
const volatile __u32 nm_py_enabled = 1;
/* Stacks are not sent while more than this waits in the ring: events come first. */
const volatile __u64 nm_py_backlog_bytes = 8 * 1024 * 1024;
/* Changed by the daemon while running. */
volatile __u32 nm_py_generation =
    0; /* raised when something told to the programs is no longer true */
volatile __u64 nm_py_stack_threshold_bytes = 1
                                             << 20; /* blocks from this size on name their stack */

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, u32);
    __type(value, struct nm_py_process);
} py_processes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, u32);
    __type(value, struct nm_py_thread);
} py_threads SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 65536);
    __type(key, struct nm_py_code_key);
    __type(value, struct nm_py_code);
} py_codes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 32768);
    __type(key, struct nm_py_stack_key);
    __type(value, struct nm_py_stack_value);
} py_stacks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries,
           262144); /* live small blocks; a forgotten one leaves the sum without phase */
    __type(key, struct nm_py_block_key);
    __type(value, u32);
} py_blocks SEC(".maps");

struct nm_py_cached {
    u64 code;
    u64 name;
    u32 generation;
    u32 verdict;
};

/* A frame whose code object means something. */
struct nm_py_marked {
    u64 code, name;
    u32 id; /* of the class or detail, 0 none */
    u32 at; /* in frames */
};

/* What a walk has found so far. It is kept in the map, where the verifier forgets its values: else
 * it would follow every combination of them through every step of the loop. */
struct nm_py_found {
    struct nm_py_marked phase, detail;
    struct nm_py_marked inner; /* the innermost detail so far */
    u32 count;
    u32 tier;
    u32 unnamed;         /* frames without a verdict */
    u32 unnamed_outside; /* of them outside the class */
    u32 sent;            /* code objects whose memory was sent along: python_names.bpf.h */
    u32 zero;
};

/* What is kept of a thread. The window is scratch: a thread is in one program at a time. */
struct nm_py_state {
    u64 pid_tgid; /* 0: new */
    u32 generation;
    u32 tid; /* as its interpreter counts */
    struct nm_py_process process;
    u64 thread_state; /* 0: not found */
    u64 check_value;  /* what the thread state must hold at check_offset */
    u64 retry_ns;
    u64 send_window_ns;
    u64 names_window_ns;
    u32 names_count;
    u32 check_offset;
    u32 send_count;
    u32 want; /* enum nm_py_want; here, the verifier does not follow each value through the walk */
    u64 hunt_interpreter, hunt_thread; /* next to look at where thread_state is looked for */
    u64 window_at;                     /* address that window holds the bytes of */
    u64 window_bytes;
    struct nm_py_found found;
    struct nm_py_cached cache[NM_PY_CACHE];
    struct nm_event event; /* an NM_EVENT_STACK under construction, and its frames */
    struct nm_stack_frame frames[NM_STACK_FRAMES + 1];
    u8 window[NM_PY_WINDOW + 256];
};

#ifdef NM_LEGACY
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1024);
    __type(key, u32);
    __type(value, struct nm_py_state);
} py_states SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct nm_py_state);
} py_state_zero SEC(".maps");
#else
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct nm_py_state);
} py_states SEC(".maps");
#endif

/* The thread's state if its process runs Python, made at first use. no_python (may be NULL) keeps
 * the generation at which it did not, which would else take two searches at each call. */
NM_INLINE struct nm_py_state *nm_py_state_get(u64 pid_tgid, u32 *no_python)
{
    u32 tgid = pid_tgid >> 32, none = nm_py_generation + 1;
    struct nm_py_state *st;

    if (no_python && *no_python == none)
        return NULL;
#ifdef NM_LEGACY
    u32 tid = pid_tgid, zero = 0;

    st = bpf_map_lookup_elem(&py_states, &tid);
    if (st && st->pid_tgid == pid_tgid)
        return st;
    if (!bpf_map_lookup_elem(&py_processes, &tgid)) {
        if (no_python)
            *no_python = none;
        return NULL;
    }
    struct nm_py_state *empty = bpf_map_lookup_elem(&py_state_zero, &zero);
    if (!empty)
        return NULL;
    bpf_map_update_elem(&py_states, &tid, empty, BPF_ANY);
    st = bpf_map_lookup_elem(&py_states, &tid);
#else
    st = bpf_task_storage_get(&py_states, bpf_get_current_task_btf(), 0, 0);
    if (st)
        return st;
    if (!bpf_map_lookup_elem(&py_processes, &tgid)) {
        if (no_python)
            *no_python = none;
        return NULL;
    }
    st = bpf_task_storage_get(&py_states, bpf_get_current_task_btf(), 0,
                              BPF_LOCAL_STORAGE_GET_F_CREATE);
#endif
    if (st) {
        st->pid_tgid = pid_tgid;
        st->generation = nm_py_generation - 1;
    }
    return st;
}

NM_INLINE u64 nm_py_pointer(u64 address)
{
    u64 value = 0;

    if (bpf_probe_read_user(&value, sizeof(value), (const void *)address))
        return 0;
    return value;
}

/* Takes anew what the daemon says of the process. */
NM_INLINE void nm_py_state_refresh(struct nm_py_state *st, u64 pid_tgid, u32 generation)
{
    u32 tgid = pid_tgid >> 32;
    struct nm_py_process *p = bpf_map_lookup_elem(&py_processes, &tgid);
    struct bpf_pidns_info ns = {};

    st->generation = generation;
    st->thread_state = 0;
    st->retry_ns = 0;
    st->process.interpreters = 0;
    if (!p)
        return;
    st->tid = pid_tgid;
    if (p->ns_ino) {
        if (bpf_get_ns_current_pid_tgid(p->ns_dev, p->ns_ino, &ns, sizeof(ns)))
            return;
        st->tid = ns.pid;
    }
    st->process = *p;
}

#endif
