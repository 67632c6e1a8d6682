/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* empty.bpf.c - programs that do nothing: the floor under every measurement of probes. */
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("uprobe") int empty_enter(void *ctx)
{
    return 0;
}

SEC("uretprobe") int empty_leave(void *ctx)
{
    return 0;
}
