/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * call.bpf.h - entry and return of a probed C function: from nested calls to one event.
 *
 * The parameters come from probes.def: as constants in the program of one row, or from the row
 * table in the program that serves all rows (probe.bpf.c). docs/ARCHITECTURE.md "one event for one
 * fact" has the rules.
 */
#ifndef NPUMEM_BPF_CALL_H
#define NPUMEM_BPF_CALL_H

#include "state.bpf.h"
#include "python.bpf.h"

/* Sources of a value in probes.def. */
#define NONE 0
#define ARG(n) (0x100 | (n))
#define OUT(n) (0x200 | (n))
#define PROP_ACL(n) (0x300 | (n))
#define PROP_HAL(n) (0x400 | (n))
#define RANK(r, w) (0x500 | (r) | ((w) << 4))
#define CONFIG(n) (0x600 | (n))
#define NM_SRC_KIND(s) ((s)&0x700)
#define NM_SRC_ARG(s) ((s)&0x7)
#define NM_SRC_WORLD(s) (((s) >> 4) & 0x7)

/* aclrtPhysicalMemProp: handleType@0 allocationType@4 memAttr@8 location.id@12 location.type@16.
 * Source: CANN acl_rt.h (8.1 to master). */
struct nm_acl_prop {
    u32 handle_type, allocation_type, mem_attr, device, location_type;
};
/* drv_mem_prop: side devid module_id pg_type mem_type. Source: CANN ascend_hal_base.h. */
struct nm_hal_prop {
    u32 side, device, module, page, mem;
};

/* Packs a property struct of the process into one word, see NM_PROP_* in event.h. */
NM_INLINE u64 nm_prop_read(int source, u64 pointer)
{
    if (NM_SRC_KIND(source) == 0x400) {
        struct nm_hal_prop p = {};
        if (bpf_probe_read_user(&p, sizeof(p), (const void *)pointer))
            return ~0ull;
        /* side: 0 host, 1 device. Source: CANN ascend_hal_base.h MEM_HOST_SIDE, MEM_DEV_SIDE */
        return (p.device & 0x3ff) | ((u64)(p.side == 0) << 10) | ((u64)(p.page & 3) << 12) |
               ((u64)(p.mem & 7) << 14) | ((u64)(p.module & 0xff) << 56);
    }
    struct nm_acl_prop p = {};
    if (bpf_probe_read_user(&p, sizeof(p), (const void *)pointer))
        return ~0ull;
    return (p.device & 0x3ff) | ((u64)(p.location_type == 0) << 10) | (33ull << 56);
}

NM_INLINE u64 nm_source_enter(const u64 *args, int source)
{
    switch (NM_SRC_KIND(source)) {
    case 0x100:
    case 0x200:
        return args[NM_SRC_ARG(source)];
    case 0x300:
    case 0x400:
        return nm_prop_read(source, args[NM_SRC_ARG(source)]);
    case 0x500: {
        u64 world = NM_SRC_WORLD(source) == 7 ? 0 : (u32)args[NM_SRC_WORLD(source)];
        return (u32)args[NM_SRC_ARG(source)] | (world << 32);
    }
    }
    return 0;
}

/* At return: the value itself, or what the out-parameter points to now. */
NM_INLINE int nm_source_leave(int source, u64 stored, u64 *value)
{
    *value = stored;
    if (NM_SRC_KIND(source) != 0x200)
        return 0;
    *value = 0;
    return stored ? bpf_probe_read_user(value, sizeof(*value), (const void *)stored) : 0;
}

/* What the word at begin_ns says: a free-like call orders itself against reuse of its address by
 * the time it began; an allocation names the Python frames that it is made in. One that failed may
 * be the last thing that its process does. */
NM_INLINE u64 nm_call_word(struct nm_thread *t, u32 kind, u64 begin_ns, u64 pid_tgid, __s32 result)
{
    return NM_KIND_HAS_PHASE(kind) ? nm_py_look(pid_tgid, &t->no_python, t->start_ticks,
                                                result ? NM_PY_NAMES : NM_PY_STACK)
                                   : begin_ns;
}

/* HcclCommConfig: hcclBufferSize u32 @24 (~0: not set), hcclCommName @32. Source: CANN hccl_types.h
 * (8.1 to master). From here to its return the thread allocates for the communicator. */
NM_INLINE void nm_comm_begin(u64 pid_tgid, u32 start_ticks, u64 config)
{
    u32 buffer_mib = 0;

    if (config &&
        (bpf_probe_read_user(&buffer_mib, sizeof(buffer_mib), (const void *)(config + 24)) ||
         buffer_mib == ~0u))
        buffer_mib = 0;
    nm_scope_emit(pid_tgid, start_ticks, NM_EVENT_SCOPE_BEGIN, NM_SCOPE_COMM, buffer_mib, 0,
                  config ? config + 32 : 0);
}

NM_INLINE int nm_call_enter(struct pt_regs *ctx, u32 row, u32 level, u32 kind, int address,
                            int size, int flags, int handle, u32 call_flags)
{
    u64 pid_tgid = bpf_get_current_pid_tgid(), sp = PT_REGS_SP(ctx);
    u64 args[8] = {nm_arg(ctx, 0), nm_arg(ctx, 1), nm_arg(ctx, 2), nm_arg(ctx, 3), nm_arg(ctx, 4)};
    struct nm_thread *t;
    struct nm_frame *f;
    int is_again;

    if (nm_is_excluded(pid_tgid >> 32))
        return 0;
    if (handle == OUT(6))
        args[6] = nm_arg(ctx, 6);
    if (address == CONFIG(5))
        args[5] = nm_arg(ctx, 5);
    t = nm_thread_get(pid_tgid, 1);
    if (!t) {
        NM_COUNT(map_full);
        return 0;
    }
    f = &t->frame[level];
    is_again = f->row && sp == f->sp;
    if (f->row) {
        if (sp < f->sp || (sp == f->sp && f->row != row))
            return 0; /* inside the recorded call: the outermost wins */
        if (sp > f->sp)
            NM_COUNT(stale_calls); /* the recorded call never returned */
    }
    if (level == NM_LEVEL_HAL && t->frame[NM_LEVEL_ACL].row && sp > t->frame[NM_LEVEL_ACL].sp) {
        t->frame[NM_LEVEL_ACL].row = 0;
        NM_COUNT(stale_calls);
    }
    f->sp = sp;
    f->address = nm_source_enter(args, address);
    f->size = nm_source_enter(args, size);
    f->flags = nm_source_enter(args, flags);
    f->handle = nm_source_enter(args, handle);
    f->kind = kind;
    f->begin_ns = NM_KIND_IS_FREE(kind) ? bpf_ktime_get_boot_ns() : 0;
    /* A read of the stack is a tenth of a free's cost: a free has its caller at its return. At a
     * second entry at one stack pointer the return address is already the kernel's trampoline. */
    if (NM_KIND_IS_FREE(kind))
        f->caller = 0;
    else if (!is_again && (level != NM_LEVEL_HAL || !t->frame[NM_LEVEL_ACL].row))
        f->caller = nm_caller(ctx);
    if (level == NM_LEVEL_ACL) {
        t->done.row = 0;
        t->done.failed_count = 0;
        t->acl_call_flags = call_flags;
    }
    f->row = row;
    if (level == NM_LEVEL_COMM && kind == NM_EVENT_COMM_INIT)
        nm_comm_begin(pid_tgid, t->start_ticks,
                      NM_SRC_KIND(address) == 0x600 ? args[NM_SRC_ARG(address)] : 0);
    return 0;
}

/* An event of the HAL level alone. */
NM_INLINE void nm_emit_hal(struct nm_thread *t, u64 pid_tgid, u32 kind, const struct nm_done *d,
                           u64 begin_ns, u64 caller, __s32 result)
{
    /* before the event: the frames come first in the ring */
    u64 word = nm_call_word(t, kind, begin_ns, pid_tgid, result);
    struct nm_event *e = nm_event_begin(kind, pid_tgid, t->start_ticks, result, begin_ns);

    if (!e)
        return;
    e->call.address = d->address;
    e->call.requested = d->size;
    e->call.physical_bytes = d->size;
    e->call.flags = d->flags;
    e->call.handle = d->handle;
    e->call.caller = caller;
    e->call.begin_ns = word;
    e->call.api = 0;
    e->call.hal = d->row;
    e->call.call_flags = d->call_flags | NM_CALL_HAL_SEEN;
    e->call.policy = 0xff;
    e->call.failed_count = 0;
    nm_event_submit(e);
}

NM_INLINE int nm_hal_leave(struct pt_regs *ctx, struct nm_thread *t, struct nm_frame *f,
                           u64 pid_tgid, u32 row, u32 kind, int address, int size, int flags,
                           int handle, u32 call_flags)
{
    __s32 result = (__s32)PT_REGS_RC(ctx);
    struct nm_frame *acl = &t->frame[NM_LEVEL_ACL];
    struct nm_done d = {.row = row, .size = f->size, .flags = f->flags, .call_flags = call_flags};
    int prop = NM_SRC_KIND(flags) == 0x400 && f->flags != ~0ull;

    if (prop)
        d.call_flags |= NM_CALL_PHYS_PROP;
    if (NM_SRC_KIND(flags) == 0x400 && !prop)
        d.flags = 0;
    if (result == 0) {
        if (nm_source_leave(address, f->address, &d.address) ||
            nm_source_leave(handle, f->handle, &d.handle)) {
            NM_COUNT(read_failed);
            return 0;
        }
    } else { /* an out-parameter says nothing after a failure */
        d.address = NM_SRC_KIND(address) == 0x100 ? f->address : 0;
        d.handle = NM_SRC_KIND(handle) == 0x100 ? f->handle : 0;
    }
    if (!acl->row || acl->kind != kind || (t->acl_call_flags & NM_CALL_POOL)) {
        nm_emit_hal(t, pid_tgid, kind, &d, f->begin_ns, acl->row ? acl->caller : f->caller, result);
        return 0;
    }
    /* merged into the event of the ACL call above, at its return */
    d.failed_count = t->done.failed_count;
    if (result != 0) {
        if (d.failed_count < 255)
            d.failed_count++;
        if (t->done.row && t->done.ok) {
            t->done.failed_count = d.failed_count;
            return 0;
        }
    } else {
        if (t->done.row && t->done.ok) /* a second success is a fact of its own */
            nm_emit_hal(t, pid_tgid, kind, &t->done, f->begin_ns, acl->caller, 0);
        d.ok = 1;
    }
    t->done = d;
    return 0;
}

NM_INLINE int nm_api_leave(struct pt_regs *ctx, struct nm_thread *t, struct nm_frame *f,
                           u64 pid_tgid, u32 row, u32 level, u32 kind, int address, int size,
                           int flags, int handle, u32 call_flags)
{
    __s32 result = (__s32)PT_REGS_RC(ctx);
    u64 out_address = 0, out_handle = 0, word;
    struct nm_done *d = &t->done;
    struct nm_event *e;
    int hal = level == NM_LEVEL_ACL && d->row;

    if (result == 0) {
        if (nm_source_leave(address, f->address, &out_address) ||
            nm_source_leave(handle, f->handle, &out_handle)) {
            NM_COUNT(read_failed);
            return 0;
        }
    } else {
        out_address = NM_SRC_KIND(address) == 0x100 ? f->address : 0;
        out_handle = NM_SRC_KIND(handle) == 0x100 ? f->handle : 0;
    }
    if (NM_SRC_KIND(address) == 0x600)
        out_address = 0;
    word = nm_call_word(t, kind, f->begin_ns, pid_tgid, result);
    e = nm_event_begin(kind, pid_tgid, t->start_ticks, result, f->begin_ns);
    if (!e)
        return 0;
    e->call.requested = f->size;
    e->call.caller = f->caller;
    e->call.begin_ns = word;
    e->call.api = row;
    e->call.policy = kind == NM_EVENT_ALLOC && NM_SRC_KIND(flags) == 0x100 ? f->flags & 0xff : 0xff;
    if (hal) {
        /* the innermost physical result */
        e->call.address = d->ok && d->address ? d->address : out_address;
        e->call.handle = d->ok && d->handle ? d->handle : out_handle;
        e->call.physical_bytes = d->size;
        e->call.flags = d->flags;
        e->call.hal = d->row;
        e->call.call_flags = call_flags | d->call_flags | NM_CALL_API_SEEN | NM_CALL_HAL_SEEN |
                             (d->failed_count ? NM_CALL_RETRIED : 0);
        e->call.failed_count = d->failed_count;
    } else {
        int prop = NM_SRC_KIND(flags) == 0x300 && f->flags != ~0ull;
        e->call.address = out_address;
        e->call.handle = out_handle;
        e->call.physical_bytes = 0;
        e->call.flags = NM_SRC_KIND(flags) == 0x300 && !prop ? 0 : f->flags;
        e->call.hal = 0;
        e->call.call_flags = call_flags | NM_CALL_API_SEEN | (prop ? NM_CALL_PHYS_PROP : 0);
        e->call.failed_count = 0;
    }
    nm_event_submit(e);
    return 0;
}

/* Whether this return ends the call of that row that the frame is of. */
NM_INLINE int nm_is_call_end(struct pt_regs *ctx, const struct nm_frame *f, u32 row)
{
    return f->row == row && nm_is_own_return(f->sp, PT_REGS_SP(ctx));
}

NM_INLINE int nm_call_leave(struct pt_regs *ctx, u32 row, u32 level, u32 kind, int address,
                            int size, int flags, int handle, u32 call_flags)
{
    u64 pid_tgid = bpf_get_current_pid_tgid();
    struct nm_thread *t = nm_thread_get(pid_tgid, 0);
    struct nm_frame *f;

    if (!t)
        return 0;
    f = &t->frame[level];
    if (!nm_is_call_end(ctx, f, row))
        return 0;
    f->row = 0;
    if (NM_KIND_IS_FREE(kind))
        f->caller = PT_REGS_IP(ctx); /* where it returns to */
    if (level == NM_LEVEL_HAL)
        return nm_hal_leave(ctx, t, f, pid_tgid, row, kind, address, size, flags, handle,
                            call_flags);
    return nm_api_leave(ctx, t, f, pid_tgid, row, level, kind, address, size, flags, handle,
                        call_flags);
}

#endif
