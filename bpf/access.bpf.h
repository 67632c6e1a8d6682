/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * access.bpf.h - a window of accesses: which blocks of one process are used, and when.
 *
 * Owns: the blocks of the processes that have a window open, in maps that the daemon makes for the
 * window and drops at its end. The rules are in schema/access.h. Programs of NM_ACCESS rows find
 * the block of an address and note the use; block events bring and take the blocks, and send what
 * was noted before the block's own end.
 * Invariants: no window, no work but one load; every table is bounded, and what does not fit is
 * counted in the window.
 *
 * The functions that are not inline are verified once, not once per row.
 */
#ifndef NPUMEM_BPF_ACCESS_H
#define NPUMEM_BPF_ACCESS_H

#include "access.h"
#include "call.bpf.h"
#include "state.bpf.h"

volatile __u32 nm_access_open_count = 0; /* windows; set by the daemon */

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, NM_ACCESS_WINDOWS_MAX);
    __type(key, u32);
    __type(value, struct nm_access_window);
} access_windows SEC(".maps");

struct nm_access_block_map {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, NM_ACCESS_BLOCKS_MAX);
    __uint(key_size, sizeof(u64)); /* address */
    __uint(value_size, sizeof(struct nm_access_block));
};
struct nm_access_page_map {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, NM_ACCESS_PAGES_MAX);
    __uint(key_size, sizeof(u64));   /* NM_ACCESS_PAGE_KEY() */
    __uint(value_size, sizeof(u64)); /* address of the block */
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
    __uint(max_entries, NM_ACCESS_WINDOWS_MAX);
    __type(key, u32); /* tgid */
    __array(values, struct nm_access_block_map);
} access_blocks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
    __uint(max_entries, NM_ACCESS_WINDOWS_MAX);
    __type(key, u32); /* tgid */
    __array(values, struct nm_access_page_map);
} access_pages SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, NM_ACCESS_THREADS_MAX);
    __type(key, u32); /* tid */
    __type(value, struct nm_access_thread);
} access_threads SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, NM_ACCESS_STREAMS_MAX);
    __type(key, struct nm_access_stream_key);
    __type(value, struct nm_access_stream);
} access_streams SEC(".maps");

/* Nothing is noted any more. A window without an end so far is not over: it follows the blocks. */
NM_INLINE int nm_access_is_over(const struct nm_access_window *w, u64 now)
{
    return w->end_ns && now >= w->end_ns;
}

/* State of the current thread in this window, made at first use. */
NM_INLINE struct nm_access_thread *nm_access_thread_get(const struct nm_access_window *w, u32 tid)
{
    struct nm_access_thread *t = bpf_map_lookup_elem(&access_threads, &tid);

    if (t && t->serial == w->serial)
        return t;
    struct nm_access_thread fresh = {.serial = w->serial};
    bpf_map_update_elem(&access_threads, &tid, &fresh, BPF_ANY);
    return bpf_map_lookup_elem(&access_threads, &tid);
}

NM_INLINE struct nm_access_stream *nm_access_stream_get(const struct nm_access_window *w, u32 tgid,
                                                        u64 stream, u32 device)
{
    struct nm_access_stream_key key = {.stream = stream, .tgid = tgid, .device = device};
    struct nm_access_stream *s = bpf_map_lookup_elem(&access_streams, &key);

    if (s && s->serial == w->serial)
        return s;
    struct nm_access_stream fresh = {.serial = w->serial};
    bpf_map_update_elem(&access_streams, &key, &fresh, BPF_ANY);
    return bpf_map_lookup_elem(&access_streams, &key);
}

/* The block that an address is in: at its first byte, or within. */
NM_INLINE struct nm_access_block *nm_access_find(u32 tgid, u64 address)
{
    void *blocks = bpf_map_lookup_elem(&access_blocks, &tgid);
    void *pages = bpf_map_lookup_elem(&access_pages, &tgid);
    struct nm_access_block *b;

    if (!blocks || !pages)
        return NULL;
    b = bpf_map_lookup_elem(blocks, &address);
    if (b)
        return b;
    for (int i = 0; i < 2 * NM_ACCESS_LEVELS; i++) {
        int level = i >> 1;
        u64 key = NM_ACCESS_PAGE_KEY(address >> NM_ACCESS_SHIFT(level), level, !(i & 1));
        u64 *at = bpf_map_lookup_elem(pages, &key), start;
        if (!at)
            continue;
        start = *at;
        b = bpf_map_lookup_elem(blocks, &start);
        if (b && address >= start && address - start < b->bytes)
            return b;
    }
    return NULL;
}

/* The current thread's operation op uses the memory at an address. */
__attribute__((noinline)) int nm_access_touch(u64 address, u32 op, u32 us, u32 is_sure)
{
    u64 pid_tgid = bpf_get_current_pid_tgid();
    u32 tgid = pid_tgid >> 32;
    struct nm_access_window *w = bpf_map_lookup_elem(&access_windows, &tgid);
    struct nm_access_block *b;
    struct nm_access_thread *t;

    if (!w || !address)
        return 0;
    b = nm_access_find(tgid, address);
    if (!b) {
        if (is_sure)
            __sync_fetch_and_add(&w->unknown_count, 1);
        return 0;
    }
    t = nm_access_thread_get(w, (u32)pid_tgid);
    if (!t)
        return 0;
    nm_access_use(b, t, nm_access_stream_get(w, tgid, b->life.stream, b->device), op, us,
                  (u32)pid_tgid);
    __sync_fetch_and_add(&w->use_count, 1);
    return 0;
}

/*
 * atb::VariantPack: two lists of tensors; the number of a list @8, its tensors @16 or, where there
 * are more than fit, behind the pointer @6776; a tensor's memory @80 of 104 bytes. Source:
 * docs/ABI.md, "ATB".
 */
NM_INLINE int nm_access_pack(struct nm_access_window *w, u64 pack, u32 op, u32 us)
{
    for (int list = 0; list < 2; list++) {
        u64 at = pack + 6784ull * list, head[2] = {}, heap = 0, address;
        if (bpf_probe_read_user(head, sizeof(head), (const void *)at) ||
            bpf_probe_read_user(&heap, sizeof(heap), (const void *)(at + 6776)))
            return -1;
        if (head[1] > NM_ACCESS_ATB_TENSORS_MAX)
            return -1;
        for (u32 i = 0; i < NM_ACCESS_ATB_TENSORS_MAX; i++) {
            if (i >= head[1])
                break;
            if (bpf_probe_read_user(&address, sizeof(address),
                                    (const void *)((heap ? heap : at + 16) + 104ull * i + 80)))
                return -1;
            nm_access_touch(address, op, us, 1);
        }
    }
    return 0;
}

#define NM_ACCESS_ARGS 16 /* a power of two; the last one is 0 */

/* All arguments that a row may name; those on the stack only where it does. */
NM_INLINE void nm_access_args(struct pt_regs *ctx, u32 a, u32 kind, u64 args[NM_ACCESS_ARGS])
{
    args[0] = nm_arg(ctx, 0);
    args[1] = nm_arg(ctx, 1);
    args[2] = nm_arg(ctx, 2);
    args[3] = nm_arg(ctx, 3);
    args[4] = nm_arg(ctx, 4);
    if (kind == ARG(6))
        args[6] = nm_arg(ctx, 6);
    if (a == ARG(8))
        args[8] = nm_arg(ctx, 8);
}
#define NM_ACCESS_ARG(args, source)                                                                \
    ((args)[(source) ? (source) & (NM_ACCESS_ARGS - 1) : NM_ACCESS_ARGS - 1])

NM_INLINE int nm_access_copy(struct nm_access_window *w, struct nm_access_thread *t, u32 us, u64 to,
                             u64 from, u32 kind)
{
    int ends;

    /* aclrtMemcpyKind: 0 both on the host, 1 to the device, 2 from it, 3 both on it; of the others
     * the addresses tell */
    if (!kind)
        return 0;
    u32 op = nm_access_op_once(w, t, &ends);
    if (kind != 2)
        nm_access_touch(to, op, us, kind == 1 || kind == 3);
    if (kind != 1)
        nm_access_touch(from, op, us, kind == 2 || kind == 3);
    if (ends)
        nm_access_close(w, t);
    return 0;
}

/* An operation that is whole in this call. */
NM_INLINE int nm_access_whole(struct nm_access_window *w, struct nm_access_thread *t, u32 us,
                              u32 action, u64 a, u64 b)
{
    int ends;
    u32 op =
        action == NM_ACCESS_RUN ? nm_access_op_run(w, t, &ends) : nm_access_op_once(w, t, &ends);

    if (action == NM_ACCESS_ATB) {
        if (nm_access_pack(w, a, op, us) < 0)
            __sync_fetch_and_add(&w->failed_count, 1);
        nm_access_touch(b, op, us, 0);
    } else {
        nm_access_touch(a, op, us, action == NM_ACCESS_ONCE);
        nm_access_touch(b, op, us, action == NM_ACCESS_ONCE);
    }
    if (ends)
        nm_access_close(w, t);
    return 0;
}

NM_INLINE int nm_access_run(struct pt_regs *ctx, u32 action, u32 a, u32 b, u32 kind)
{
    u64 pid_tgid = bpf_get_current_pid_tgid(), now = bpf_ktime_get_boot_ns();
    u32 tgid = pid_tgid >> 32, us;
    struct nm_access_window *w = bpf_map_lookup_elem(&access_windows, &tgid);
    u64 args[NM_ACCESS_ARGS] = {};
    struct nm_access_thread *t;

    if (!w || !w->end_ns || nm_access_is_over(w, now))
        return 0;
    t = nm_access_thread_get(w, (u32)pid_tgid);
    if (!t)
        return 0;
    nm_access_args(ctx, a, kind, args);
    us = nm_access_work(w, now);
    switch (action) {
    case NM_ACCESS_TENSOR: {
        u64 address = NM_ACCESS_ARG(args, a);
        if (address) /* an argument that is left out has no memory */
            nm_access_touch(address, nm_access_op_tensor(w, t), us, 1);
        return 0;
    }
    case NM_ACCESS_BEGIN:
        nm_access_op_begin(w, t);
        return 0;
    case NM_ACCESS_END:
        nm_access_op_end(w, t);
        return 0;
    case NM_ACCESS_COPY:
        return nm_access_copy(w, t, us, NM_ACCESS_ARG(args, a), NM_ACCESS_ARG(args, b),
                              NM_ACCESS_ARG(args, kind));
    case NM_ACCESS_GRAPH:
        __sync_fetch_and_add(&w->graph_count, 1);
        break;
    case NM_ACCESS_OPAQUE:
        __sync_fetch_and_add(&w->opaque_count, 1);
        break;
    }
    return nm_access_whole(w, t, us, action, NM_ACCESS_ARG(args, a), NM_ACCESS_ARG(args, b));
}

/* --- the blocks --- */

NM_INLINE int nm_access_insert(u32 tgid, struct nm_access_window *w,
                               const struct nm_access_block *block)
{
    u64 address = block->life.address, bytes = block->bytes;
    void *blocks = bpf_map_lookup_elem(&access_blocks, &tgid);
    void *pages = bpf_map_lookup_elem(&access_pages, &tgid);
    int level = nm_access_level(bytes), failed;

    if (!blocks || !pages)
        return 0;
    failed = bpf_map_update_elem(blocks, &address, block, BPF_ANY) != 0;
    for (u32 i = 0; i < NM_ACCESS_PAGES_PER_BLOCK; i++) {
        u64 key = nm_access_page_key(address, bytes, level, i);
        if (!key)
            break;
        failed |= bpf_map_update_elem(pages, &key, &address, BPF_ANY) != 0;
    }
    if (failed)
        __sync_fetch_and_add(&w->full_count, 1);
    return 0;
}

NM_INLINE void nm_access_remove(u32 tgid, u64 address, u64 bytes)
{
    void *blocks = bpf_map_lookup_elem(&access_blocks, &tgid);
    void *pages = bpf_map_lookup_elem(&access_pages, &tgid);
    int level = nm_access_level(bytes);

    if (!blocks || !pages)
        return;
    for (u32 i = 0; i < NM_ACCESS_PAGES_PER_BLOCK; i++) {
        u64 key = nm_access_page_key(address, bytes, level, i), *at;
        if (!key)
            break;
        at = bpf_map_lookup_elem(pages, &key);
        if (at && *at == address)
            bpf_map_delete_elem(pages, &key);
    }
    bpf_map_delete_elem(blocks, &address);
}

/* A block was allocated. */
__attribute__((noinline)) int nm_access_alloc(u64 address, u64 bytes, u64 stream, u32 device)
{
    u64 pid_tgid = bpf_get_current_pid_tgid(), now = bpf_ktime_get_boot_ns();
    u32 tgid = pid_tgid >> 32;
    struct nm_access_window *w = bpf_map_lookup_elem(&access_windows, &tgid);
    struct nm_access_block block = {.bytes = bytes, .tid = (u32)pid_tgid, .device = device};
    struct nm_access_thread *t;
    struct nm_access_stream *s;

    if (!w || nm_access_is_over(w, now))
        return 0;
    block.life.address = address;
    block.life.stream = stream;
    block.life.flags = device << NM_ACCESS_DEVICE_SHIFT;
    if (w->end_ns) {
        t = nm_access_thread_get(w, (u32)pid_tgid);
        if (!t)
            return 0;
        block.life.alloc_us = nm_access_work(w, now);
        block.life.alloc_op = nm_access_op_malloc(w, t);
        s = nm_access_stream_get(w, tgid, stream, device);
        if (s)
            nm_access_remember(s->malloc_op, block.life.alloc_op);
    } else {
        block.life.flags |= NM_ACCESS_HELD;
    }
    return nm_access_insert(tgid, w, &block);
}

/*
 * A block was freed: what was noted of it is sent, before the event of its free. While the daemon
 * enters the blocks that were there before, it must not enter one that is gone: a mark stays.
 */
__attribute__((noinline)) int nm_access_free(u64 address, u32 start_ticks)
{
    u64 pid_tgid = bpf_get_current_pid_tgid(), now = bpf_ktime_get_boot_ns();
    u32 tgid = pid_tgid >> 32, op;
    struct nm_access_window *w = bpf_map_lookup_elem(&access_windows, &tgid);
    void *blocks = bpf_map_lookup_elem(&access_blocks, &tgid);
    struct nm_access_block *b;
    struct nm_access_thread *t;
    struct nm_access_stream *s;
    struct nm_event *e;

    if (!w || !blocks || nm_access_is_over(w, now))
        return 0;
    if (!w->end_ns) {
        struct nm_access_block gone = {.life.flags = NM_ACCESS_GONE};
        bpf_map_update_elem(blocks, &address, &gone, BPF_ANY);
        return 0;
    }
    b = bpf_map_lookup_elem(blocks, &address);
    if (!b)
        return 0;
    t = nm_access_thread_get(w, (u32)pid_tgid);
    if (t && !(b->life.flags & NM_ACCESS_GONE)) {
        op = nm_access_op_free(w, t);
        s = nm_access_stream_get(w, tgid, b->life.stream, b->device);
        b->life.flags |= NM_ACCESS_FREED;
        e = nm_event_begin(NM_EVENT_ACCESS, pid_tgid, start_ticks, 0, now);
        if (e) {
            e->access = b->life;
            nm_access_finish(&e->access, b->tid, s, op, nm_access_work(w, now), (u32)pid_tgid);
            nm_event_submit(e);
        }
        if (s)
            nm_access_remember(s->free_op, op);
    }
    nm_access_remove(tgid, address, b->bytes);
    return 0;
}

#endif
