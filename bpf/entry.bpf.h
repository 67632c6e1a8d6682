/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * entry.bpf.h - hand-written programs for NM_ENTRY rows: C++ functions, probed at entry only.
 */
#ifndef NPUMEM_BPF_ENTRY_H
#define NPUMEM_BPF_ENTRY_H

#include "access.bpf.h"
#include "state.bpf.h"
#include "python.bpf.h"

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096); /* processes x devices x 2 components */
    __type(key, struct nm_pool_key);
    __type(value, struct nm_pool_totals);
} pools SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384); /* processes x streams */
    __type(key, struct nm_small_key);
    __type(value, struct nm_small_totals);
} small SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 8192); /* live operation objects; the oldest go */
    __type(key, struct nm_atb_key);
    __type(value, struct nm_atb_totals);
} atb_ops SEC(".maps");

/* torch_npu struct MemoryUsage. Source: torch_npu npu_profiler.h v2.1 to master (56 bytes); 2.3.1
 * and 2.4.0 have no component_type and everything from data_type one byte earlier. */
struct nm_memory_usage {
    u8 device_type, device, component, action, allocator, pad[3];
    u64 address;
    __s64 size, total_allocated, total_reserved, total_active;
    u64 stream;
};

/* The pool of a report with its totals brought up to date; NULL: the map is full. */
NM_INLINE struct nm_pool_totals *nm_pool_update(u64 pid_tgid, const struct nm_memory_usage *m,
                                                u64 now)
{
    struct nm_pool_key key = {
        .tgid = pid_tgid >> 32, .device = m->device, .component = m->component};
    struct nm_pool_totals *p = bpf_map_lookup_elem(&pools, &key);

    if (!p) {
        struct nm_pool_totals fresh = {
            .first_allocated_bytes = m->total_allocated,
            .first_reserved_bytes = m->total_reserved,
            .first_active_bytes = m->total_active,
            .start_ticks = nm_start_ticks(),
        };
        /* as it was just before this event */
        if (m->action != NM_BLOCK_BLOCK_FREE)
            fresh.first_allocated_bytes -= m->size;
        if (m->action != NM_BLOCK_FREE)
            fresh.first_active_bytes -= m->size;
        bpf_map_update_elem(&pools, &key, &fresh, BPF_NOEXIST);
        p = bpf_map_lookup_elem(&pools, &key);
        if (!p) {
            NM_COUNT(map_full);
            return NULL;
        }
    }
    /* The allocator holds its lock while it reports, so there is one writer; seq is for readers. */
    *(volatile u64 *)&p->seq += 1;
    p->time_ns = now;
    p->total_allocated_bytes = m->total_allocated;
    p->total_reserved_bytes = m->total_reserved;
    p->total_active_bytes = m->total_active;
    p->event_count++;
    *(volatile u64 *)&p->seq += 1;
    return p;
}

/*
 * What is kept of a block below the threshold from its allocation to its free: its phase, or that
 * it is sent one by one, because some of its frames have no name yet and the daemon will know
 * better.
 */
NM_INLINE u32 nm_small_phase(u64 pid_tgid, const struct nm_memory_usage *m, u32 start_ticks,
                             u64 look)
{
    struct nm_py_block_key key = {
        .address = m->address, .tgid = pid_tgid >> 32, .life = start_ticks << 6 | m->device};
    u32 *kept, phase = look;

    if ((!nm_py_enabled && !nm_detailed_used) || m->component != NM_BLOCK_CACHING)
        return 0;
    if (m->action == NM_BLOCK_MALLOC) {
        if (nm_is_detailed(pid_tgid >> 32) || nm_in_scope(pid_tgid))
            phase = NM_PY_FOLLOWED;
        else if (phase & NM_PHASE_UNNAMED)
            phase = look >> 32 ? NM_PY_FOLLOWED : phase & ~NM_PHASE_UNNAMED;
        if (phase != NM_PY_FOLLOWED && !NM_PHASE_CLASS(phase))
            return 0;
        if (bpf_map_update_elem(&py_blocks, &key, &phase, BPF_ANY))
            return 0;
        return phase;
    }
    kept = bpf_map_lookup_elem(&py_blocks, &key);
    if (!kept)
        return 0;
    phase = *kept;
    if (phase == NM_PY_FOLLOWED) { /* an ordinary free says BLOCK_FREE first, a delayed one last */
        *kept = phase | NM_PY_HALF;
        return phase;
    }
    if (phase & NM_PY_FOLLOWED || m->action == NM_BLOCK_FREE)
        bpf_map_delete_elem(&py_blocks, &key);
    return phase & NM_PY_FOLLOWED ? NM_PY_FOLLOWED : m->action == NM_BLOCK_FREE ? phase : 0;
}

NM_INLINE void nm_small_add(u64 pid_tgid, const struct nm_memory_usage *m, u64 bytes, u32 phase)
{
    struct nm_small_key key = {.stream = m->stream,
                               .tgid = pid_tgid >> 32,
                               .device = m->device,
                               .component = m->component,
                               .phase = phase};
    struct nm_small_totals *s = bpf_map_lookup_elem(&small, &key);

    if (!s) {
        struct nm_small_totals fresh = {};
        bpf_map_update_elem(&small, &key, &fresh, BPF_NOEXIST);
        s = bpf_map_lookup_elem(&small, &key);
        if (!s) {
            NM_COUNT(map_full);
            return;
        }
    }
    if (m->action == NM_BLOCK_MALLOC) {
        __sync_fetch_and_add(&s->malloc_count, 1);
        __sync_fetch_and_add(&s->malloc_bytes, bytes);
    } else if (m->action == NM_BLOCK_FREE) {
        __sync_fetch_and_add(&s->free_count, 1);
        __sync_fetch_and_add(&s->free_bytes, bytes);
    } else {
        __sync_fetch_and_add(&s->block_free_count, 1);
        __sync_fetch_and_add(&s->block_free_bytes, bytes);
    }
}

NM_INLINE int nm_block_report(struct nm_memory_usage *m)
{
    u64 pid_tgid = bpf_get_current_pid_tgid();
    u64 bytes = m->size < 0 ? -m->size : m->size, now = bpf_ktime_get_boot_ns();
    u32 start_ticks, *no_python;
    struct nm_pool_totals *pool;
    u64 look = 0; /* phase, and the stack's id above it */
    struct nm_event *e;

    if (m->action > NM_BLOCK_BLOCK_FREE || m->component > NM_BLOCK_WORKSPACE) {
        NM_COUNT(read_failed);
        return 0;
    }
    pool = nm_pool_update(pid_tgid, m, now);
    no_python = pool ? &pool->no_python : NULL;
    start_ticks = pool ? pool->start_ticks : nm_start_ticks();
    if (nm_access_open_count && m->component == NM_BLOCK_CACHING) {
        if (m->action == NM_BLOCK_MALLOC)
            nm_access_alloc(m->address, bytes, m->stream, m->device);
        else
            nm_access_free(m->address, start_ticks);
    }
    if (m->action == NM_BLOCK_MALLOC && m->component == NM_BLOCK_CACHING)
        look = nm_py_look(pid_tgid, no_python, start_ticks,
                          bytes >= nm_py_stack_threshold_bytes ? NM_PY_STACK : NM_PY_PHASE);
    if (bytes < nm_block_threshold_bytes) {
        u32 phase = nm_small_phase(pid_tgid, m, start_ticks, look);
        if (phase != NM_PY_FOLLOWED) {
            nm_small_add(pid_tgid, m, bytes, phase);
            return 0;
        }
    }
    if (m->action == NM_BLOCK_FREE && m->component == NM_BLOCK_CACHING)
        look = nm_py_collected(pid_tgid, no_python);
    e = nm_event_begin(NM_EVENT_BLOCK, pid_tgid, start_ticks, 0, now);
    if (!e)
        return 0;
    e->block.address = m->address;
    e->block.size_bytes = m->size;
    e->block.total_allocated_bytes = m->total_allocated;
    e->block.total_reserved_bytes = m->total_reserved;
    e->block.total_active_bytes = m->total_active;
    e->block.stream = m->stream;
    e->block.device = m->device;
    e->block.component = m->component;
    e->block.action = m->action;
    e->block.allocator = m->allocator;
    e->block.phase = look;
    e->block.stack = look >> 32;
    e->block.zero = 0;
    nm_event_submit(e);
    return 0;
}

NM_INLINE int nm_entry_usage(struct pt_regs *ctx, int is_v24)
{
    struct nm_memory_usage m;

    if (!nm_block_enabled || nm_is_excluded(bpf_get_current_pid_tgid() >> 32))
        return 0;
    if (bpf_probe_read_user(&m, sizeof(m), (const void *)PT_REGS_PARM1(ctx))) {
        NM_COUNT(read_failed);
        return 0;
    }
    if (is_v24) {
        m.allocator = m.action;
        m.action = m.component;
        m.component = NM_BLOCK_CACHING;
    }
    return nm_block_report(&m);
}
#define nm_entry_block(ctx) nm_entry_usage(ctx, 0)
#define nm_entry_block_v24(ctx) nm_entry_usage(ctx, 1)

NM_INLINE struct nm_atb_totals *nm_atb_get(struct pt_regs *ctx)
{
    struct nm_atb_key key = {.operation = PT_REGS_PARM1(ctx)};
    u32 tgid = bpf_get_current_pid_tgid() >> 32;
    struct nm_atb_totals *a;

    if (nm_is_excluded(tgid))
        return NULL;
    key.tgid = tgid;
    a = bpf_map_lookup_elem(&atb_ops, &key);
    if (!a) {
        struct nm_atb_totals fresh = {};
        bpf_probe_read_user(&fresh.table, sizeof(fresh.table), (const void *)key.operation);
        bpf_map_update_elem(&atb_ops, &key, &fresh, BPF_NOEXIST);
        a = bpf_map_lookup_elem(&atb_ops, &key);
    }
    return a;
}

/* OperationBase::Setup(this, VariantPack const &, uint64_t &workspaceSize, Context *): the size is
 * written later, so it is taken from Execute. */
NM_INLINE int nm_entry_atb_setup(struct pt_regs *ctx)
{
    struct nm_atb_totals *a = nm_atb_get(ctx);

    if (a)
        __sync_fetch_and_add(&a->setup_count, 1);
    return 0;
}

/* OperationBase::Execute(this, VariantPack const &, uint8_t *workspace, uint64_t size, Context *)
 */
NM_INLINE int nm_entry_atb_execute(struct pt_regs *ctx)
{
    struct nm_atb_totals *a = nm_atb_get(ctx);
    u64 bytes = PT_REGS_PARM4(ctx);

    if (!a)
        return 0;
    __sync_fetch_and_add(&a->execute_count, 1);
    a->workspace_address = PT_REGS_PARM3(ctx);
    a->workspace_bytes = bytes;
    if (bytes > a->workspace_max_bytes)
        a->workspace_max_bytes = bytes;
    return 0;
}

NM_INLINE int nm_entry_atb_context(struct pt_regs *ctx, u32 kind, u32 row, u64 handle)
{
    u64 pid_tgid = bpf_get_current_pid_tgid();
    struct nm_event *e;

    if (nm_is_excluded(pid_tgid >> 32))
        return 0;
    e = nm_event_begin(kind, pid_tgid, nm_start_ticks(), 0, 0);
    if (!e)
        return 0;
    __builtin_memset(&e->call, 0, sizeof(e->call));
    e->call.handle = handle;
    e->call.caller = nm_caller(ctx);
    e->call.api = row;
    e->call.call_flags = NM_CALL_API_SEEN;
    e->call.policy = 0xff;
    nm_event_submit(e);
    return 0;
}

/* --- what a thread allocates from here on --- */

NM_INLINE int nm_entry_scope(u32 kind, u32 type, u32 value, u64 address, u64 name)
{
    u64 pid_tgid = bpf_get_current_pid_tgid();
    struct nm_thread *t;

    if (nm_is_excluded(pid_tgid >> 32))
        return 0;
    nm_scopes_used = 1;
    t = nm_thread_get(pid_tgid, 1);
    if (!t) {
        NM_COUNT(map_full);
        return 0;
    }
    if (kind == NM_EVENT_SCOPE_BEGIN)
        t->scopes++;
    else if (kind == NM_EVENT_SCOPE_END && t->scopes)
        t->scopes--;
    return nm_scope_emit(pid_tgid, t->start_ticks, kind, type, value, address, name);
}

#define nm_entry_graph_begin(ctx) nm_entry_scope(NM_EVENT_SCOPE_BEGIN, NM_SCOPE_GRAPH, 0, 0, 0)
#define nm_entry_graph_end(ctx) nm_entry_scope(NM_EVENT_SCOPE_END, NM_SCOPE_GRAPH, 0, 0, 0)
/* npumem_tag_push(const char *owner, size_t length) */
#define nm_entry_tag_push(ctx)                                                                     \
    nm_entry_scope(NM_EVENT_SCOPE_BEGIN, NM_SCOPE_TAG, PT_REGS_PARM2(ctx), 0, PT_REGS_PARM1(ctx))
/* npumem_tag_pop(void) */
#define nm_entry_tag_pop(ctx) nm_entry_scope(NM_EVENT_SCOPE_END, NM_SCOPE_TAG, 0, 0, 0)
/* npumem_tag_memory(const void *address, const char *owner, size_t length) */
#define nm_entry_tag_memory(ctx)                                                                   \
    nm_entry_scope(NM_EVENT_NAME, NM_SCOPE_TAG, PT_REGS_PARM3(ctx), PT_REGS_PARM1(ctx),            \
                   PT_REGS_PARM2(ctx))

/* ProcessGroupHCCL(this, store, int rank, int size, options) */
NM_INLINE int nm_process_group(struct pt_regs *ctx, u32 row)
{
    u64 pid_tgid = bpf_get_current_pid_tgid();
    struct nm_event *e;

    if (nm_is_excluded(pid_tgid >> 32))
        return 0;
    e = nm_event_begin(NM_EVENT_PROCESS_GROUP, pid_tgid, nm_start_ticks(), 0, 0);
    if (!e)
        return 0;
    __builtin_memset(&e->call, 0, sizeof(e->call));
    e->call.handle = PT_REGS_PARM1(ctx);
    e->call.flags = (u32)PT_REGS_PARM3(ctx) | (u64)(u32)PT_REGS_PARM4(ctx) << 32;
    e->call.api = row;
    e->call.policy = 0xff;
    nm_event_submit(e);
    return 0;
}
#define nm_entry_process_group(ctx) nm_process_group(ctx, NM_ROW_PROCESS_GROUP)

#define nm_entry_atb_context_create(ctx)                                                           \
    nm_entry_atb_context(ctx, NM_EVENT_ATB_CONTEXT_CREATE, NM_ROW_ATB_CONTEXT, 0)
#define nm_entry_atb_context_destroy(ctx)                                                          \
    nm_entry_atb_context(ctx, NM_EVENT_ATB_CONTEXT_DESTROY, NM_ROW_ATB_CONTEXT_DESTROY,            \
                         PT_REGS_PARM1(ctx))

#endif
