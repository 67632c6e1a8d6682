/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * probe.bpf.c - entry and return programs for the rows of schema/probes.def.
 *
 * Kernels with uprobe_multi links (6.6) get one entry and one return program for all C functions:
 * the link's cookie is the row. That makes two links per library instead of two per function;
 * closing a link waits for a grace period of about 50 ms, so it is what lets the daemon stop in
 * time. Older kernels get one pair of programs per row (enter_<id>, leave_<id>), which need no
 * cookie; in the legacy build leave_<id> only says which row it is and goes on in leave_any.
 * What the programs do is in call.bpf.h (C functions), entry.bpf.h (C++ functions, entry
 * only) and access.bpf.h (windows of accesses, entry only).
 */
#include "state.bpf.h"
#include "call.bpf.h"
#include "entry.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum nm_row {
    NM_ROW_NONE,
#define NM_CALL(id, ...) NM_ROW_##id,
#define NM_ENTRY(id, ...) NM_ROW_##id,
#define NM_ACCESS(id, ...) NM_ROW_##id,
#include "probes.def"
#undef NM_CALL
#undef NM_ENTRY
    NM_ROW_COUNT
};

/* The rows as data, for the programs that serve all of them. */
struct nm_row_desc {
    u8 level, kind;
    u16 address, size, flags, handle, call_flags;
};
static const struct nm_row_desc nm_rows[NM_ROW_COUNT] = {
#define NM_CALL(id, symbol, level, kind, address, size, flags, handle, call_flags)                 \
    [NM_ROW_##id] = {NM_LEVEL_##level, NM_EVENT_##kind, address, size, flags, handle, call_flags},
#define NM_ENTRY(id, symbol, program)
#include "probes.def"
#undef NM_CALL
#undef NM_ENTRY
};

/* The end of a call of the row, which is not 0 and in bounds. */
NM_INLINE int nm_leave_of(struct pt_regs *ctx, u32 row)
{
    const struct nm_row_desc *d = &nm_rows[row];

    return nm_call_leave(ctx, row, d->level & 3, d->kind, d->address, d->size, d->flags, d->handle,
                         d->call_flags);
}

#ifdef NM_LEGACY
/*
 * The verifier looks at each program by itself, and where loops must be unrolled the walk of Python
 * frames takes it 0.1 s. In each of the return programs that made 9 s at every start.
 */
struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 1); /* leave_any, put there by the daemon */
    __type(key, u32);
    __type(value, u32);
} leave_next SEC(".maps");

SEC("uretprobe") int leave_any(struct pt_regs *ctx)
{
    struct nm_thread *t = nm_thread_get(bpf_get_current_pid_tgid(), 0);
    u64 row = t ? t->leaving : 0;

    if (!row)
        return 0;
    asm volatile("" : "+r"(row)); /* else one test of row - 1, which bounds another register */
    return row < NM_ROW_COUNT ? nm_leave_of(ctx, row) : 0;
}

NM_INLINE int nm_row_leave(struct pt_regs *ctx, u32 row, u32 level)
{
    struct nm_thread *t = nm_thread_get(bpf_get_current_pid_tgid(), 0);

    if (!t || !nm_is_call_end(ctx, &t->frame[level], row))
        return 0;
    t->leaving = row;
    bpf_tail_call(ctx, &leave_next, 0); /* does not come back, unless nothing is there */
    NM_COUNT(attempted);
    NM_COUNT(lost);
    return 0;
}
#define NM_ROW_LEAVE(row, level, ...) nm_row_leave(ctx, row, level)
#else
#define NM_ROW_LEAVE(...) nm_call_leave(ctx, __VA_ARGS__)

struct nm_access_desc {
    u16 action, a, b, kind;
};
static const struct nm_access_desc nm_access_rows[NM_ROW_COUNT] = {
#define NM_CALL(...)
#define NM_ENTRY(...)
#define NM_ACCESS(id, symbol, action, a, b, kind) [NM_ROW_##id] = {NM_ACCESS_##action, a, b, kind},
#include "probes.def"
#undef NM_CALL
#undef NM_ENTRY
};

SEC("uprobe") int access_all(struct pt_regs *ctx)
{
    u64 row = bpf_get_attach_cookie(ctx);

    if (row >= NM_ROW_COUNT)
        return 0;
    const struct nm_access_desc *d = &nm_access_rows[row];
    return nm_access_run(ctx, d->action, d->a, d->b, d->kind);
}

SEC("uprobe") int enter_all(struct pt_regs *ctx)
{
    u64 row = bpf_get_attach_cookie(ctx);

    if (row >= NM_ROW_COUNT)
        return 0;
    const struct nm_row_desc *d = &nm_rows[row];
    return nm_call_enter(ctx, row, d->level & 3, d->kind, d->address, d->size, d->flags, d->handle,
                         d->call_flags);
}

SEC("uretprobe") int leave_all(struct pt_regs *ctx)
{
    u64 row = bpf_get_attach_cookie(ctx);

    return row < NM_ROW_COUNT ? nm_leave_of(ctx, row) : 0;
}
#endif

#define NM_CALL(id, symbol, level, kind, address, size, flags, handle, call_flags)                 \
    SEC("uprobe") int enter_##id(struct pt_regs *ctx)                                              \
    {                                                                                              \
        return nm_call_enter(ctx, NM_ROW_##id, NM_LEVEL_##level, NM_EVENT_##kind, address, size,   \
                             flags, handle, call_flags);                                           \
    }                                                                                              \
    SEC("uretprobe") int leave_##id(struct pt_regs *ctx)                                           \
    {                                                                                              \
        return NM_ROW_LEAVE(NM_ROW_##id, NM_LEVEL_##level, NM_EVENT_##kind, address, size, flags,  \
                            handle, call_flags);                                                   \
    }
#define NM_ENTRY(id, symbol, program)                                                              \
    SEC("uprobe") int enter_##id(struct pt_regs *ctx)                                              \
    {                                                                                              \
        return nm_entry_##program(ctx);                                                            \
    }
#define NM_ACCESS(id, symbol, action, a, b, kind)                                                  \
    SEC("uprobe") int access_##id(struct pt_regs *ctx)                                             \
    {                                                                                              \
        return nm_access_run(ctx, NM_ACCESS_##action, a, b, kind);                                 \
    }
#include "probes.def"
