/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * compat.bpf.h - what differs between architectures and kernels.
 *
 * The programs need struct pt_regs and nothing else of the kernel's types, so no vmlinux.h: a host
 * without BTF and a cross build can compile them. NM_LEGACY builds for kernels 5.8-5.16, which lack
 * task storage for these programs (5.11), atomic fetch-and-add (5.12) or bpf_loop() (5.17).
 */
#ifndef NPUMEM_BPF_COMPAT_H
#define NPUMEM_BPF_COMPAT_H

#include <linux/types.h>
#include <linux/bpf.h>
#if defined(__TARGET_ARCH_arm64)
/* as in the kernel's uapi asm/ptrace.h, which an x86 build host does not have */
struct user_pt_regs {
    __u64 regs[31];
    __u64 sp;
    __u64 pc;
    __u64 pstate;
};
struct pt_regs;
#else
#include <linux/ptrace.h>
#endif
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

typedef __u64 u64;
typedef __u32 u32;
typedef __u16 u16;
typedef __u8 u8;

#define NM_INLINE static __always_inline

/* Argument n (0-based) of a C call at its first instruction. n is a compile-time constant. */
NM_INLINE u64 nm_arg(struct pt_regs *ctx, int n)
{
    u64 value = 0;
    switch (n) {
    case 0:
        return PT_REGS_PARM1(ctx);
    case 1:
        return PT_REGS_PARM2(ctx);
    case 2:
        return PT_REGS_PARM3(ctx);
    case 3:
        return PT_REGS_PARM4(ctx);
    case 4:
        return PT_REGS_PARM5(ctx);
#if defined(__TARGET_ARCH_arm64)
    case 5:
        return ((const struct user_pt_regs *)ctx)->regs[5];
    case 6:
        return ((const struct user_pt_regs *)ctx)->regs[6];
    case 8: /* AAPCS64: the ninth argument is where the stack pointer points */
        bpf_probe_read_user(&value, sizeof(value), (const void *)PT_REGS_SP(ctx));
        return value;
#else
    case 5:
        return ctx->r9;
    case 6: /* SysV: the seventh argument is above the return address, then the others */
    case 8:
        bpf_probe_read_user(&value, sizeof(value),
                            (const void *)(PT_REGS_SP(ctx) + 8 * (u64)(n - 5)));
        return value;
#endif
    }
    return value;
}

/* Return address at the first instruction of a function. */
NM_INLINE u64 nm_caller(struct pt_regs *ctx)
{
#if defined(__TARGET_ARCH_arm64)
    return ((const struct user_pt_regs *)ctx)->regs[30];
#else
    u64 caller = 0;
    bpf_probe_read_user(&caller, sizeof(caller), (const void *)PT_REGS_SP(ctx));
    return caller;
#endif
}

/*
 * Whether a return at stack pointer ret_sp ends the call that was entered at entry_sp, and not one
 * nested in it. x86: `ret` pops the return address, so the own return is at entry_sp + 8 and that
 * of a nested call at most at entry_sp. arm64: the own return is at entry_sp, a nested call's
 * below.
 */
NM_INLINE int nm_is_own_return(u64 entry_sp, u64 ret_sp)
{
#if defined(__TARGET_ARCH_arm64)
    return ret_sp >= entry_sp;
#else
    return ret_sp > entry_sp;
#endif
}

/* Adds one and returns the value before. Without the atomic form two tasks on one CPU may draw
 * the same number; the counters that account for loss are exact in both builds. */
NM_INLINE u64 nm_next(u64 *counter)
{
#ifdef NM_LEGACY
    u64 value = *(volatile u64 *)counter;
    __sync_fetch_and_add(counter, 1);
    return value;
#else
    return __sync_fetch_and_add(counter, 1);
#endif
}

#endif
