/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * state.bpf.h - maps, per-thread call frames, and the way of an event into the ring.
 *
 * Invariants: an event is written only into reserved ring memory; attempted = submitted + lost per
 * CPU; a frame with row 0 is empty; nothing is ever written to the observed process.
 */
#ifndef NPUMEM_BPF_STATE_H
#define NPUMEM_BPF_STATE_H

#include "compat.bpf.h"
#include "event.h"

enum nm_level { NM_LEVEL_ACL, NM_LEVEL_HAL, NM_LEVEL_SCOPE, NM_LEVEL_COMM, NM_LEVEL_COUNT };

/* Set by the daemon before load. */
const volatile __u32 nm_group_leader_offset = 0;   /* in struct task_struct; 0: no BTF */
const volatile __u32 nm_start_boottime_offset = 0; /* in struct task_struct; 0: no BTF */
const volatile __u32 nm_ns_per_tick = 10000000;    /* USER_HZ is 100 on every Linux */
/* Wake the consumer only at this backlog (16 MiB ring: 256 KiB). Source: measured,
 * docs/BENCHMARK.md: waking per event costs three times the event on an idle consumer CPU. */
const volatile __u32 nm_wakeup_bytes = 256 * 1024;

/* Changed by the daemon while running. */
volatile __u64 nm_block_threshold_bytes = 1 << 20; /* 0: every block is an event */
volatile __u32 nm_block_enabled = 1;
volatile __u32 nm_excluded_count = 0;
volatile __u32 nm_detailed_count = 0;
volatile __u32 nm_detailed_used = 0; /* since the start: some small blocks are followed */

/* Set by the programs: some thread has named what it allocates (nm_in_scope). */
volatile __u32 nm_scopes_used = 0;

struct nm_frame {
    u64 sp;
    u64 begin_ns;
    u64 caller;
    u64 address; /* value for ARG, pointer for OUT */
    u64 size;
    u64 flags;
    u64 handle; /* value for ARG, pointer for OUT */
    u32 row;    /* 0: empty */
    u32 kind;
};

/* The last HAL call inside the current ACL call. */
struct nm_done {
    u64 address;
    u64 size;
    u64 flags;
    u64 handle;
    u32 row; /* 0: none */
    u16 call_flags;
    u8 failed_count;
    u8 ok;
};

struct nm_thread {
    struct nm_frame frame[NM_LEVEL_COUNT];
    struct nm_done done;
    u64 pid_tgid; /* legacy: whose state this is */
    u32 leaving;  /* legacy: row of the return that leave_any handles */
    u32 zero;
    u32 start_ticks;
    u32 acl_call_flags;
    u32 scopes;    /* tags and captures that are open */
    u32 no_python; /* nm_py_generation + 1 at which its process was found to run no Python */
};

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 16 * 1024 * 1024);
} ring SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct nm_cpu_counters);
} counters SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, u32);
    __type(value, u32);
} excluded SEC(".maps");

/* Processes of which every caching block is an event, whatever its size: tgid -> users. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 256);
    __type(key, u32);
    __type(value, u32);
} detailed SEC(".maps");

#ifdef NM_LEGACY
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, u32);
    __type(value, struct nm_thread);
} threads SEC(".maps");

/* A zero value to insert: struct nm_thread does not fit on the stack beside the rest. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct nm_thread);
} thread_zero SEC(".maps");
#else
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct nm_thread);
} threads SEC(".maps");
#endif

NM_INLINE struct nm_cpu_counters *nm_counters(void)
{
    u32 zero = 0;
    return bpf_map_lookup_elem(&counters, &zero);
}

#define NM_COUNT(field)                                                                            \
    do {                                                                                           \
        struct nm_cpu_counters *c_ = nm_counters();                                                \
        if (c_)                                                                                    \
            __sync_fetch_and_add(&c_->field, 1);                                                   \
    } while (0)

/* Start of the current process in clock ticks, as /proc/PID/stat shows it; 0 unknown. */
NM_INLINE u32 nm_start_ticks(void)
{
    u64 task, leader = 0, start = 0;

    if (!nm_start_boottime_offset)
        return 0;
    task = bpf_get_current_task();
    if (bpf_probe_read_kernel(&leader, sizeof(leader), (void *)(task + nm_group_leader_offset)) ||
        bpf_probe_read_kernel(&start, sizeof(start), (void *)(leader + nm_start_boottime_offset)))
        return 0;
    return start / nm_ns_per_tick;
}

NM_INLINE int nm_is_excluded(u32 tgid)
{
    return nm_excluded_count && bpf_map_lookup_elem(&excluded, &tgid);
}

NM_INLINE int nm_is_detailed(u32 tgid)
{
    return nm_detailed_count && bpf_map_lookup_elem(&detailed, &tgid);
}

/* State of the current thread, made at first use; NULL where a map is full. */
NM_INLINE struct nm_thread *nm_thread_get(u64 pid_tgid, int create)
{
    struct nm_thread *t;
#ifdef NM_LEGACY
    u32 tid = pid_tgid, zero = 0;

    t = bpf_map_lookup_elem(&threads, &tid);
    if (t && t->pid_tgid == pid_tgid)
        return t;
    if (!create)
        return NULL;
    struct nm_thread *empty = bpf_map_lookup_elem(&thread_zero, &zero);
    if (!empty)
        return NULL;
    bpf_map_update_elem(&threads, &tid, empty, BPF_ANY);
    t = bpf_map_lookup_elem(&threads, &tid);
#else
    t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0,
                             create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
#endif
    if (t && create && !t->pid_tgid) {
        t->pid_tgid = pid_tgid;
        t->start_ticks = nm_start_ticks();
    }
    return t;
}

/* Room for a record that begins with an event, the event's head filled in, or NULL with the loss
 * counted. bytes is a constant. time_ns 0: now. */
NM_INLINE void *nm_record_begin(u64 bytes, u8 kind, u64 pid_tgid, u32 start_ticks, u32 result,
                                u64 time_ns)
{
    struct nm_cpu_counters *c = nm_counters();
    struct nm_event *e;
    u32 seq;

    if (!c)
        return NULL;
    seq = nm_next(&c->attempted);
    e = bpf_ringbuf_reserve(&ring, bytes, 0);
    if (!e) {
        __sync_fetch_and_add(&c->lost, 1);
        return NULL;
    }
    e->time_ns = time_ns ? time_ns : bpf_ktime_get_boot_ns();
    e->seq = seq;
    e->cpu = bpf_get_smp_processor_id();
    e->kind = kind;
    e->abi = NM_EVENT_ABI;
    e->tgid = pid_tgid >> 32;
    e->tid = pid_tgid;
    e->start_ticks = start_ticks;
    e->result = result;
    return e;
}

NM_INLINE struct nm_event *nm_event_begin(u8 kind, u64 pid_tgid, u32 start_ticks, u32 result,
                                          u64 time_ns)
{
    return nm_record_begin(sizeof(struct nm_event), kind, pid_tgid, start_ticks, result, time_ns);
}

/* Looks at the backlog at every 16th event of a CPU only: the look costs as much as the copy, and a
 * forced wakeup per event would slow the target down just when the consumer is behind. */
NM_INLINE void nm_event_submit(struct nm_event *e)
{
    u64 flags = BPF_RB_NO_WAKEUP;

    if ((e->seq & 15) == 0 && bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) >= nm_wakeup_bytes)
        flags = BPF_RB_FORCE_WAKEUP;
    bpf_ringbuf_submit(e, flags);
}

/* Whether this thread is inside a tag or a capture: then its small blocks are sent one by one. */
NM_INLINE int nm_in_scope(u64 pid_tgid)
{
    struct nm_thread *t = nm_scopes_used ? nm_thread_get(pid_tgid, 0) : NULL;
    return t && t->scopes;
}

/* A scope event; name 0: none. The name is read as far as it goes: what cannot be read is empty. */
NM_INLINE int nm_scope_emit(u64 pid_tgid, u32 start_ticks, u32 kind, u32 type, u32 value,
                            u64 address, u64 name)
{
    struct nm_event *e = nm_event_begin(kind, pid_tgid, start_ticks, 0, 0);

    if (!e)
        return 0;
    __builtin_memset(&e->scope, 0, sizeof(e->scope));
    e->scope.type = type;
    e->scope.value = value;
    e->scope.address = address;
    if (name &&
        bpf_probe_read_user_str(e->scope.name, sizeof(e->scope.name), (const void *)name) < 0)
        e->scope.name[0] = 0;
    nm_event_submit(e);
    return 0;
}

#endif
