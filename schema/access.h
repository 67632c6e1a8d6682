/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * access.h - what a window of accesses counts, and by which rules.
 *
 * A window is opened for one process and some seconds: the probes of the NM_ACCESS rows of
 * probes.def are attached to it alone, and the kernel programs keep one record per block. The rules
 * are here and not in bpf/, because the tests run the same code over sequences whose answer they
 * know; they are inline, use no kernel function and touch nothing but their arguments.
 *
 * Two clocks:
 *   operations  a number that every operation of the process draws when it begins, on whichever
 *               thread. Which operation a call belongs to is kept per thread, so that threads that
 *               run at the same time do not end each other's operations.
 *   work time   microseconds since the window began, without the pauses: stretches longer than
 *               NM_ACCESS_PAUSE_US in which the process allocated, freed and used nothing. Memory
 *               of a server that waits for a request is not idle memory. It ends with the newest
 *               sign of work.
 */
#ifndef NPUMEM_SCHEMA_ACCESS_H
#define NPUMEM_SCHEMA_ACCESS_H

#include <linux/types.h>

#define NM_ACCESS_PAUSE_US 1000000u
#define NM_ACCESS_RECENT 4         /* operations with a malloc (a free) that a stream remembers */
#define NM_ACCESS_PENDING_MAX 8192 /* torch_npu's task queue holds 4096 */
#define NM_ACCESS_WINDOWS_MAX 4
#define NM_ACCESS_BLOCKS_MAX 65536   /* blocks of a window at one time */
#define NM_ACCESS_PAGES_MAX 262144   /* pages of their sizes, see nm_access_level() */
#define NM_ACCESS_THREADS_MAX 4096   /* threads of all windows */
#define NM_ACCESS_STREAMS_MAX 1024   /* streams of all windows */
#define NM_ACCESS_ATB_TENSORS_MAX 64 /* of one list of a variant pack */

#ifdef __bpf__
#define NM_ACCESS_INLINE static __attribute__((always_inline)) inline
#else
#define NM_ACCESS_INLINE static inline
#endif

/* The column `action` of NM_ACCESS. */
enum nm_access_action {
    NM_ACCESS_TENSOR = 1, /* memory is handed to an operation: a, b */
    NM_ACCESS_ONCE,       /* an operation of its own uses memory: a, b */
    NM_ACCESS_COPY,   /* the same; a is the target, b the source, kind says which is a device's */
    NM_ACCESS_BEGIN,  /* an operation of this thread begins ... */
    NM_ACCESS_END,    /* ... has been handed over */
    NM_ACCESS_RUN,    /* an operation is launched; a is its workspace */
    NM_ACCESS_ATB,    /* an ATB operation runs; a is its variant pack, b its workspace */
    NM_ACCESS_GRAPH,  /* a captured graph or a whole model is launched: what it uses is unseen */
    NM_ACCESS_OPAQUE, /* the same of a call whose lists of addresses are not read */
};

enum nm_access_flags {
    NM_ACCESS_HELD = 1 << 0,    /* allocated before the window */
    NM_ACCESS_EARLY = 1 << 1,   /* something was freed between its allocation and its first use */
    NM_ACCESS_LATE = 1 << 2,    /* something was allocated between its last use and its free */
    NM_ACCESS_THREADS = 1 << 3, /* used from more than one thread */
    NM_ACCESS_FREED = 1 << 4,   /* 0: it was still held at the end of the window */
    NM_ACCESS_GONE = 1 << 5,    /* no block: one at this address was freed while a window opened */
};

#define NM_ACCESS_DEVICE_SHIFT 16
#define NM_ACCESS_DEVICE(flags) ((flags) >> NM_ACCESS_DEVICE_SHIFT) /* as torch counts it */

/* The life of one block within the window: payload of NM_EVENT_ACCESS. alloc_* of a block with
 * NM_ACCESS_HELD are the window's begin. */
struct nm_access {
    __u64 address;
    __u64 stream;
    __u32 alloc_us, first_us, last_us; /* work time; first_us and last_us only where count > 0 */
    __u32 gap_us;                      /* longest time between two uses */
    __u32 end_us;                      /* of its free, or of the window */
    __u32 alloc_op, first_op, last_op, gap_op, end_op; /* the same in operations */
    __u32 count;                                       /* uses, saturating */
    __u32 flags; /* enum nm_access_flags, NM_ACCESS_DEVICE() */
};

/* Inner map of access_blocks, by address. */
struct nm_access_block {
    struct nm_access life;
    __u64 bytes;
    __u32 tid; /* of the newest use; before the first one of the allocation */
    __u32 device;
};

/* Map access_windows, by tgid. */
struct nm_access_window {
    __u64 begin_ns;   /* CLOCK_BOOTTIME */
    __u64 end_ns;     /* from then on nothing is noted; 0: blocks are followed, not counted yet */
    __u64 clock;      /* microseconds since the begin: newest sign of work << 32 | sum of pauses */
    __u64 operation;  /* newest number drawn; 0 none */
    __u64 pending;    /* operations handed over that another thread will launch */
    __u64 open_count; /* threads with an operation open that has used memory */
    __u64 direct_count; /* launches on another thread of operations that were not handed over yet */
    __u64 use_count;    /* uses of known blocks */
    __u64 unknown_count; /* device addresses in no known block */
    __u64 graph_count, opaque_count;
    __u64 full_count;   /* blocks that had no room */
    __u64 failed_count; /* reads of the process's memory that failed */
    __u32 serial;       /* tells the state of an earlier window from this one's */
    __u32 zero;
};

/* Map access_threads, by tid. */
struct nm_access_thread {
    __u32 serial;
    __u32 op;        /* of the operation that is open; 0 none */
    __u32 malloc_op; /* number that its blocks came with, where that is another one; 0 */
    __u32 direct;    /* direct_count when it was opened */
    __u8 has_use, is_marked, zero[2];
};

/* Map access_streams. */
struct nm_access_stream_key {
    __u64 stream;
    __u32 tgid;
    __u32 device;
};
struct nm_access_stream {
    __u32 serial;
    __u32 zero;
    __u32 malloc_op[NM_ACCESS_RECENT], free_op[NM_ACCESS_RECENT]; /* the highest first; 0 none */
};

/* The clock's word at `now`. A thread that looked at the time before another one did, and comes
 * here after it, is at the other one's time: work time never runs backwards. */
NM_ACCESS_INLINE __u64 nm_access_clock(__u64 clock, __u64 begin_ns, __u64 now_ns)
{
    __u32 last = clock >> 32, pause = (__u32)clock;
    __u32 now = now_ns > begin_ns ? (now_ns - begin_ns) / 1000 : 0;

    if (now <= last)
        return clock;
    if (now - last > NM_ACCESS_PAUSE_US)
        pause += now - last;
    return (__u64)now << 32 | pause;
}

/* Work time at a word of the clock. */
NM_ACCESS_INLINE __u32 nm_access_us(__u64 clock)
{
    return (__u32)(clock >> 32) - (__u32)clock;
}

/* The process does something, which ends a pause. Returns the work time. One word holds both parts
 * of the clock, so that nobody sees a pause that is half over. */
NM_ACCESS_INLINE __u32 nm_access_work(struct nm_access_window *w, __u64 now_ns)
{
    __u64 old = *(volatile __u64 *)&w->clock;
    __u64 clock = nm_access_clock(old, w->begin_ns, now_ns);

#if defined(__bpf__) && defined(NM_LEGACY)
    if (clock != old)
        *(volatile __u64 *)&w->clock = clock;
#else
    if (clock != old)
        __sync_val_compare_and_swap(&w->clock, old, clock);
#endif
    return nm_access_us(clock);
}

NM_ACCESS_INLINE __u32 nm_access_draw(struct nm_access_window *w)
{
#if defined(__bpf__) && defined(NM_LEGACY)
    __u64 value = *(volatile __u64 *)&w->operation + 1;
    __sync_fetch_and_add(&w->operation, 1);
    return value;
#else
    return __sync_fetch_and_add(&w->operation, 1) + 1;
#endif
}

/* --- which operation a call belongs to --- */

/*
 * Blocks that a thread allocates before an operation begins (its results) belong to that operation,
 * as long as the thread frees nothing in between. Where other threads have begun operations
 * meanwhile, it draws a new number and remembers that of its blocks.
 */
NM_ACCESS_INLINE void nm_access_join(struct nm_access_window *w, struct nm_access_thread *t)
{
    if (t->has_use || t->is_marked || (__u32)w->operation == t->op)
        return;
    t->malloc_op = t->op;
    t->op = nm_access_draw(w);
}

NM_ACCESS_INLINE void nm_access_open(struct nm_access_window *w, struct nm_access_thread *t)
{
    t->op = nm_access_draw(w);
    t->malloc_op = 0;
    t->direct = w->direct_count;
    t->has_use = 0;
    t->is_marked = 0;
}

NM_ACCESS_INLINE void nm_access_close(struct nm_access_window *w, struct nm_access_thread *t)
{
    if (t->has_use)
        __sync_fetch_and_add(&w->open_count, -1);
    t->op = 0;
    t->malloc_op = 0;
    t->has_use = 0;
    t->is_marked = 0;
}

/* The operation is for another thread to launch, unless it has done so. */
NM_ACCESS_INLINE void nm_access_hand_over(struct nm_access_window *w, struct nm_access_thread *t)
{
    int is_launched = !t->is_marked && (__u32)w->direct_count != t->direct;

    nm_access_close(w, t);
    if (!is_launched && w->pending < NM_ACCESS_PENDING_MAX)
        __sync_fetch_and_add(&w->pending, 1);
}

/*
 * Where nothing marks the end of an operation, the thread's next allocation or free is it, or its
 * next tensor once the operation was launched on another thread.
 */
NM_ACCESS_INLINE void nm_access_end_unmarked(struct nm_access_window *w, struct nm_access_thread *t)
{
    if (t->op && t->has_use && !t->is_marked)
        nm_access_hand_over(w, t);
}

/* Blocks that wait for their operation since before another one began belong to none that comes. */
NM_ACCESS_INLINE __u32 nm_access_op_malloc(struct nm_access_window *w, struct nm_access_thread *t)
{
    nm_access_end_unmarked(w, t);
    if (!t->op || (!t->is_marked && (__u32)w->operation != t->op))
        nm_access_open(w, t);
    return t->op;
}

NM_ACCESS_INLINE __u32 nm_access_op_free(struct nm_access_window *w, struct nm_access_thread *t)
{
    nm_access_end_unmarked(w, t);
    if (t->op && !t->is_marked)
        nm_access_close(w, t);
    return t->op ? t->op : nm_access_draw(w);
}

NM_ACCESS_INLINE void nm_access_op_begin(struct nm_access_window *w, struct nm_access_thread *t)
{
    if (t->op && t->has_use)
        nm_access_hand_over(w, t);
    if (!t->op)
        nm_access_open(w, t);
    nm_access_join(w, t);
    t->is_marked = 1;
}

NM_ACCESS_INLINE void nm_access_op_end(struct nm_access_window *w, struct nm_access_thread *t)
{
    if (t->op && t->has_use)
        nm_access_hand_over(w, t);
    else
        t->is_marked = 0;
}

NM_ACCESS_INLINE __u32 nm_access_op_tensor(struct nm_access_window *w, struct nm_access_thread *t)
{
    if (t->op && (__u32)w->direct_count != t->direct)
        nm_access_end_unmarked(w, t);
    if (!t->op)
        nm_access_open(w, t);
    nm_access_join(w, t);
    if (!t->has_use)
        __sync_fetch_and_add(&w->open_count, 1);
    t->has_use = 1;
    return t->op;
}

/* *ret_ends: to be closed once its memory is noted. */
NM_ACCESS_INLINE __u32 nm_access_op_once(struct nm_access_window *w, struct nm_access_thread *t,
                                         int *ret_ends)
{
    *ret_ends = !t->op || (!t->has_use && !t->is_marked);
    if (!t->op)
        nm_access_open(w, t);
    nm_access_join(w, t);
    return t->op;
}

/* A launch on the thread that made the operation ends it. On another thread (torch_npu's task
 * queue) it is the launch of one that was made elsewhere, and no operation of its own. */
NM_ACCESS_INLINE __u32 nm_access_op_run(struct nm_access_window *w, struct nm_access_thread *t,
                                        int *ret_ends)
{
    *ret_ends = 1;
    if (t->op && (t->has_use || t->is_marked))
        return t->op;
    if (!w->pending && !w->open_count)
        return nm_access_op_once(w, t, ret_ends);
    if (w->pending)
        __sync_fetch_and_add(&w->pending, -1);
    else
        __sync_fetch_and_add(&w->direct_count, 1);
    *ret_ends = 0;
    return w->operation;
}

/* --- what a stream remembers --- */

NM_ACCESS_INLINE void nm_access_remember(__u32 recent[NM_ACCESS_RECENT], __u32 op)
{
    __u32 carry = op;

    for (int i = 0; i < NM_ACCESS_RECENT; i++) {
        __u32 held = recent[i];
        if (held == carry)
            return;
        if (carry > held) {
            recent[i] = carry;
            carry = held;
        }
    }
}

/* Whether one lies strictly between two operations. */
NM_ACCESS_INLINE int nm_access_between(const __u32 recent[NM_ACCESS_RECENT], __u32 low, __u32 high)
{
    int found = 0;

    for (int i = 0; i < NM_ACCESS_RECENT; i++)
        found |= recent[i] > low && recent[i] < high;
    return found;
}

/* --- a block --- */

/*
 * The order of operations tells something only on one thread: what a thread does for another one
 * (torch_npu's task queue), it does later. So a block is early or late by operations only where its
 * allocation and first use, or its last use and free, are of one thread; between threads time
 * tells.
 */

NM_ACCESS_INLINE void nm_access_use(struct nm_access_block *b, const struct nm_access_thread *t,
                                    const struct nm_access_stream *s, __u32 op, __u32 us, __u32 tid)
{
    struct nm_access *a = &b->life;
    int is_own = !(a->flags & NM_ACCESS_HELD) &&
                 (op == a->alloc_op || (t->malloc_op && t->malloc_op == a->alloc_op));

    /* of the block that was at this address before, by a thread that came late */
    if (us < a->alloc_us)
        return;
    if (!a->count && !is_own && !(a->flags & NM_ACCESS_HELD) && s && b->tid == tid &&
        nm_access_between(s->free_op, a->alloc_op, op))
        a->flags |= NM_ACCESS_EARLY;
    if (!a->count) {
        a->first_us = us;
        a->first_op = op;
    } else {
        if (b->tid != tid)
            a->flags |= NM_ACCESS_THREADS;
        if (us > a->last_us && us - a->last_us > a->gap_us)
            a->gap_us = us - a->last_us;
        if (op > a->last_op && op - a->last_op > a->gap_op)
            a->gap_op = op - a->last_op;
    }
    if (!a->count || us > a->last_us)
        a->last_us = us;
    if (!a->count || op > a->last_op)
        a->last_op = op;
    if (a->count != ~0u)
        a->count++;
    b->tid = tid;
}

/* Its free by thread tid, or the end of the window (0); user_tid: of its newest use. *a is a copy:
 * another thread may be noting a use of the block still. */
NM_ACCESS_INLINE void nm_access_finish(struct nm_access *a, __u32 user_tid,
                                       const struct nm_access_stream *s, __u32 op, __u32 us,
                                       __u32 tid)
{
    /* another thread may have used it since this one looked at the time */
    if (a->last_us < a->first_us)
        a->last_us = a->first_us;
    /* operations of two threads overlap: one that began before the block came may free it */
    a->end_op = op > a->alloc_op ? op : a->alloc_op;
    a->end_us = us > a->last_us ? us : a->last_us;
    if (a->count && s && user_tid == tid && op != a->last_op &&
        nm_access_between(s->malloc_op, a->last_op, op))
        a->flags |= NM_ACCESS_LATE;
}

/* --- which block an address is in --- */

/*
 * Blocks are entered under the pages that they cover, of a page size that fits theirs: at most 17
 * pages each, and at most two blocks of that size reach into one page - one that covers its first
 * byte (slot 0) and one that begins behind it (slot 1).
 */
#define NM_ACCESS_LEVELS 7
#define NM_ACCESS_PAGES_PER_BLOCK 17
#define NM_ACCESS_SHIFT(level) (9 + 4 * (level))
#define NM_ACCESS_PAGE_KEY(page, level, slot) ((__u64)(page) << 4 | (level) << 1 | (slot))

/* Page size of a block, as a level. */
NM_ACCESS_INLINE int nm_access_level(__u64 bytes)
{
    int level = 0;

    for (int i = 1; i < NM_ACCESS_LEVELS; i++)
        if (bytes >> NM_ACCESS_SHIFT(i))
            level = i;
    return level;
}

/* Key of page number i of a block; 0: it has no such page. */
NM_ACCESS_INLINE __u64 nm_access_page_key(__u64 address, __u64 bytes, int level, __u32 i)
{
    int shift = NM_ACCESS_SHIFT(level);
    __u64 page = (address >> shift) + i, last = (address + (bytes ? bytes - 1 : 0)) >> shift;

    if (page > last)
        return 0;
    return NM_ACCESS_PAGE_KEY(page, level, !i && (address & ((1ull << shift) - 1)));
}

#ifndef __bpf__
_Static_assert(sizeof(struct nm_access) == 64, "nm_access");
_Static_assert(sizeof(struct nm_access_block) == 80, "nm_access_block");
_Static_assert(sizeof(struct nm_access_window) == 112, "nm_access_window");
_Static_assert(sizeof(struct nm_access_stream) == 40, "nm_access_stream");
#endif
#endif
