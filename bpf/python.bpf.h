/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * python.bpf.h - the Python frames of the current thread: which phase they mean, and which they
 * are.
 *
 * The whole chain is walked every time, from the current frame to the root. Nothing is assumed from
 * an earlier walk, because nothing in the process's memory proves that a frame seen earlier was not
 * left and entered again meanwhile (the same function at the same address has the same contents).
 * What makes that cheap: since 3.11 frames lie side by side in the thread's data stack, so that one
 * read of a page brings some twenty of them; and what a code object means is kept per thread.
 *
 * Everything read is hostile: every address is only ever an argument of bpf_probe_read_user(),
 * every walk is bounded, and what does not read or does not end gives a phase that says so.
 */
#ifndef NPUMEM_BPF_PYTHON_H
#define NPUMEM_BPF_PYTHON_H

#include "python_names.bpf.h"
#include "python_state.bpf.h"

#define NM_PY_THREADS_UNROLLED 64
#define NM_PY_THREADS 1024            /* steps through a process's thread states */
#define NM_PY_STEPS 512               /* frames and what lies between them */
#define NM_PY_STEPS_UNROLLED 96       /* the same where the verifier must follow each */
#define NM_PY_RETRY_NS 100000000ull   /* a thread without a state is looked for again after this */
#define NM_PY_RESEND_NS 1000000000ull /* frames still without a name are sent again after this */
#define NM_PY_SEND_WINDOW_NS 10000000ull
#define NM_PY_SEND_MAX 64 /* stacks that one thread sends within a window: at most 14 MB/s */

/* One thread state more, or the next interpreter. Returns 1 at the end, found or not. */
NM_INLINE long nm_py_hunt_next(struct nm_py_state *st)
{
    u64 thread = st->hunt_thread, interpreter = st->hunt_interpreter;
    u32 tid = 0;

    if (!thread) {
        if (!interpreter)
            return 1;
        st->hunt_thread = nm_py_pointer(interpreter + st->process.layout.interpreter_threads);
        st->hunt_interpreter = nm_py_pointer(interpreter + st->process.layout.interpreter_next);
        return 0;
    }
    bpf_probe_read_user(&tid, sizeof(tid),
                        (const void *)(thread + st->process.layout.thread_native_id));
    if (tid == st->tid) {
        st->thread_state = thread;
        st->check_offset = st->process.layout.thread_native_id;
        st->check_value = tid;
        return 1;
    }
    st->hunt_thread = nm_py_pointer(thread + st->process.layout.thread_next);
    return 0;
}

#ifdef NM_LEGACY
/* Not inlined: Linux 5.10 and 6.1 refuse a loop that goes back by falling through. */
static __noinline long nm_py_hunt_apart(struct nm_py_state *st)
{
    return nm_py_hunt_next(st);
}
#else
/*
 * Before 6.7 the verifier follows a callback of bpf_loop() through its first turn alone: what it
 * knows of a value then (that there is no thread yet) it takes for always so, and it removes what
 * later turns would do as dead code. So what goes from turn to turn is in the map, of which it
 * knows nothing.
 */
static long nm_py_hunt_step(u32 i, struct nm_py_state **st)
{
    return nm_py_hunt_next(*st);
}
#endif

/* By the kernel's thread id, which 3.11 and later keep; new threads are at the head of the list. */
static __noinline int nm_py_search(struct nm_py_state *st)
{
    st->hunt_interpreter = nm_py_pointer(st->process.interpreters);
    st->hunt_thread = 0;
#ifdef NM_LEGACY
    for (int i = 0; i < NM_PY_THREADS_UNROLLED; i++)
        if (nm_py_hunt_apart(st))
            break;
#else
    bpf_loop(NM_PY_THREADS, nm_py_hunt_step, &st, 0);
#endif
    return st->thread_state != 0;
}

/* By the daemon's table; asks it where there is none. */
NM_INLINE int nm_py_ask(struct nm_py_state *st, u64 pid_tgid, u32 start_ticks)
{
    u32 tid = pid_tgid, tgid = pid_tgid >> 32;
    struct nm_py_thread *t = bpf_map_lookup_elem(&py_threads, &tid);
    struct nm_event *e;

    if (t && t->tgid == tgid) {
        st->thread_state = t->thread_state;
        st->check_offset = st->process.layout.thread_id;
        st->check_value = t->thread_id;
        return t->thread_state != 0;
    }
    e = nm_event_begin(NM_EVENT_THREAD, pid_tgid, start_ticks, 0, 0);
    if (e) {
        __builtin_memset(&e->call, 0, sizeof(e->call));
        bpf_ringbuf_submit(e, BPF_RB_FORCE_WAKEUP);
    }
    return 0;
}

/*
 * What the thread state holds at its frame pointer, ~0: it is not this thread's any more. One read
 * for both words where they are close, because a read costs more than what is read.
 */
NM_INLINE u64 nm_py_current_frame(struct nm_py_state *st)
{
    u32 check = st->check_offset, frame = st->process.layout.thread_frame;
    u32 begin = check < frame ? check : frame, span = check < frame ? frame - check : check - frame;
    u64 value, pointer;

    if (span <= NM_PY_SPAN) {
        st->window_bytes = 0;
        if (bpf_probe_read_user(st->window, span + 8, (const void *)(st->thread_state + begin)))
            return ~0ull;
        asm volatile("" : "+r"(span)); /* else the compiler drops the mask, */
        span &= NM_PY_SPAN * 2 - 1;    /* which is what the verifier believes */
        value = *(u64 *)(st->window + (check < frame ? 0 : span));
        pointer = *(u64 *)(st->window + (check < frame ? span : 0));
    } else {
        value = nm_py_pointer(st->thread_state + check);
        pointer = nm_py_pointer(st->thread_state + frame);
    }
    if (st->process.layout.thread_native_id)
        value = (u32)value;
    return value == st->check_value ? pointer : ~0ull;
}

/* The innermost frame of the thread, 0 if it runs no Python. */
NM_INLINE u64 nm_py_first_frame(struct nm_py_state *st, u64 pid_tgid, u32 start_ticks)
{
    u64 now, frame = st->thread_state ? nm_py_current_frame(st) : ~0ull;

    if (frame == ~0ull) {
        now = bpf_ktime_get_boot_ns();
        if (now < st->retry_ns)
            return 0;
        st->thread_state = 0;
        if (st->process.layout.thread_native_id ? nm_py_search(st)
                                                : nm_py_ask(st, pid_tgid, start_ticks))
            frame = nm_py_current_frame(st);
        if (frame == ~0ull) {
            st->thread_state = 0;
            st->retry_ns = now + NM_PY_RETRY_NS;
            return 0;
        }
    }
    if (frame && (st->process.layout.flags & NM_PY_CFRAME))
        frame = nm_py_pointer(frame + st->process.layout.cframe_frame);
    return frame;
}

/*
 * Fetches the bytes of a frame: with the page below its end if the frame's neighbour was in the
 * window (or it is the first), or alone. Returns where they are in st->window; negative: not
 * readable.
 */
static __noinline int nm_py_fetch(struct nm_py_state *st, u64 frame, u32 is_first)
{
    u64 at, begin;

    if ((st->process.layout.flags & NM_PY_STACKED) &&
        (is_first || st->window_at - frame <= NM_PY_PAGE)) {
        at = frame & (NM_PY_PAGE - 1);
        begin = frame - at;
        if (bpf_probe_read_user(st->window, at + NM_PY_HEAD, (const void *)begin) == 0) {
            st->window_at = begin;
            st->window_bytes = at + NM_PY_HEAD;
            return at;
        }
        st->window_bytes = 0;
    }
    if (bpf_probe_read_user(st->window + NM_PY_ALONE, NM_PY_HEAD, (const void *)frame))
        return -1;
    return NM_PY_ALONE;
}

/*
 * Takes a frame that may mean something. The outermost frame of the strongest tier is the class;
 * the innermost detail inside it, the detail.
 */
static __noinline int nm_py_take(struct nm_py_state *st, u64 code, struct nm_py_cached *c, u32 at)
{
    struct nm_py_found *w = &st->found;
    u32 verdict, tier;

    if (!c)
        return 0;
    if (c->code != code || c->generation != st->generation) {
        struct nm_py_code_key key = {.code = code, .tgid = st->pid_tgid >> 32};
        struct nm_py_code *known = bpf_map_lookup_elem(&py_codes, &key);
        if (!known) {
            w->unnamed++;
            w->unnamed_outside++;
            if (at < NM_STACK_FRAMES) /* it may be gone when the daemon looks */
                st->frames[at].name = nm_py_pointer(code + st->process.layout.code_name);
            return 0;
        }
        c->code = code;
        c->name = known->name;
        c->verdict = known->verdict;
        c->generation = st->generation;
    }
    verdict = c->verdict;
    tier = NM_PY_VERDICT_TIER(verdict);
    if (!w->inner.id && NM_PHASE_DETAIL(verdict)) {
        w->inner.id = NM_PHASE_DETAIL(verdict);
        w->inner.code = code;
        w->inner.name = c->name;
        w->inner.at = at;
    }
    if (tier && tier <= w->tier) {
        w->phase.id = NM_PHASE_CLASS(verdict);
        w->phase.code = code;
        w->phase.name = c->name;
        w->phase.at = at;
        w->detail = w->inner;
        w->tier = tier;
        w->unnamed_outside = 0;
    }
    return 0;
}

/* A code object is believed only while it has the name that it was told by. */
NM_INLINE int nm_py_is_believed(struct nm_py_state *st, const struct nm_py_marked *m)
{
    u64 name, at;

    if (!m->id)
        return 1;
    name = nm_py_pointer(m->code + st->process.layout.code_name);
    if (name == m->name)
        return 1;
    at = m->at;
    asm volatile("" : "+r"(at)); /* in one register: Linux 6.1 believes no test of a copy */
    if (at < NM_STACK_FRAMES)    /* it is another stack, though the addresses are the same */
        st->frames[at].name = name;
    return 0;
}

/* Sends the frames of a stack once, and behind what names them always. Returns its id, 0 if they
 * were not sent. */
static __noinline u32 nm_py_send(struct nm_py_state *st, u64 hash, u32 count, u32 is_unnamed)
{
    struct nm_py_stack_key key = {.tgid = st->pid_tgid >> 32, .stack = hash};
    struct nm_py_stack_value *seen, fresh = {.hash = hash};
    struct nm_cpu_counters *c;
    u64 now, bytes;

    if (!key.stack)
        key.stack = 1;
    seen = bpf_map_lookup_elem(&py_stacks, &key);
    if (seen && seen->hash != hash) { /* another stack has the number */
        key.stack = (hash >> 32) | 1;
        seen = bpf_map_lookup_elem(&py_stacks, &key);
    }
    now = bpf_ktime_get_boot_ns();
    if (seen && seen->hash == hash && !st->found.sent &&
        (!is_unnamed || now - seen->sent_ns < NM_PY_RESEND_NS))
        return key.stack;
    if (now - st->send_window_ns > NM_PY_SEND_WINDOW_NS) {
        st->send_window_ns = now;
        st->send_count = 0;
    }
    if (!st->found.sent && (st->send_count++ >= NM_PY_SEND_MAX ||
                            bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > nm_py_backlog_bytes))
        return 0;
    c = nm_counters();
    if (!c)
        return 0;
    st->event.seq = nm_next(&c->attempted);
    st->event.time_ns = now;
    st->event.cpu = bpf_get_smp_processor_id();
    st->event.stack.hash = hash;
    st->event.stack.stack = key.stack;
    st->event.stack.count = count;
    bytes = sizeof(st->event) + count * sizeof(st->frames[0]);
    asm volatile("" : "+r"(bytes)); /* as above: the test is of what is sent */
    if (bytes > sizeof(st->event) + sizeof(st->frames))
        return 0;
    /* nothing is named until the daemon has looked */
    if (bpf_ringbuf_output(&ring, &st->event, bytes, is_unnamed ? BPF_RB_FORCE_WAKEUP : 0)) {
        __sync_fetch_and_add(&c->lost, 1);
        return 0;
    }
    fresh.sent_ns = now;
    bpf_map_update_elem(&py_stacks, &key, &fresh, BPF_ANY);
    return key.stack;
}

/* One frame more. Returns the frame that called it, 0 at the root; ~0 where the chain cannot be
 * followed. */
NM_INLINE u64 nm_py_step(struct nm_py_state *st, u64 frame, u32 is_first)
{
    struct nm_py_cached *c;
    u64 code, previous, at = frame - st->window_at;
    const u8 *bytes;
    u32 offset;

    if (at > NM_PY_PAGE || at + NM_PY_HEAD > st->window_bytes)
        at = nm_py_fetch(st, frame, is_first);
    if (at > NM_PY_WINDOW - NM_PY_HEAD)
        return ~0ull;
    bytes = st->window + at;
    offset = st->process.layout.frame_previous & 0x7f;
    previous = *(const u64 *)(bytes + offset);
    offset = st->process.layout.frame_owner & 0x7f;
    if (offset && bytes[offset] >= NM_PY_OWNER_NO_CODE)
        return previous;
    offset = st->process.layout.frame_code & 0x7f;
    code = *(const u64 *)(bytes + offset) & ~7ull; /* 3.14 tags references in the low bits */
    offset = st->found.count;
    if (offset >= NM_STACK_FRAMES)
        return ~0ull;
    st->frames[offset].code = code;
    st->frames[offset].name = 0;
    st->found.count = offset + 1;
    c = &st->cache[((code >> 5) ^ (code >> 12)) & (NM_PY_CACHE - 1)];
    if (c->code != code || c->generation != st->generation || (c->verdict & 0xffff))
        nm_py_take(st, code, c, offset);
    return previous;
}

#ifdef NM_LEGACY
/* Not inlined where the verifier must follow each step. */
static __noinline u64 nm_py_step_apart(struct nm_py_state *st, u64 frame, u32 is_first)
{
    return nm_py_step(st, frame, is_first);
}
#else
struct nm_py_chain {
    struct nm_py_state *st;
    u64 frame; /* the verifier knows nothing of it from the start */
};

static long nm_py_loop(u32 i, struct nm_py_chain *chain)
{
    chain->frame = nm_py_step(chain->st, chain->frame, i == 0);
    return !chain->frame || chain->frame == ~0ull;
}
#endif

NM_INLINE void nm_py_hash_frame(struct nm_py_state *st, u32 i)
{
    u64 hash = (st->event.stack.hash ^ st->frames[i].code) * 0x9e3779b97f4a7c15ull;

    hash = (hash ^ hash >> 29 ^ st->frames[i].name) * 0x9e3779b97f4a7c15ull;
    st->event.stack.hash = hash ^ hash >> 31;
}

#ifndef NM_LEGACY
static long nm_py_hash_step(u32 i, struct nm_py_state **st)
{
    if (i >= NM_STACK_FRAMES)
        return 1;
    nm_py_hash_frame(*st, i);
    return 0;
}
#endif

NM_INLINE u64 nm_py_hash(struct nm_py_state *st)
{
    u32 count = st->found.count;

    st->event.stack.hash = 0;
#ifdef NM_LEGACY
    for (u32 i = 0; i < NM_PY_STEPS_UNROLLED && i < count; i++)
        nm_py_hash_frame(st, i);
#else
    bpf_loop(count, nm_py_hash_step, &st, 0);
#endif
    return st->event.stack.hash;
}

/* What a walk is for, besides the phase. */
enum nm_py_want {
    NM_PY_PHASE,
    NM_PY_STACK, /* the stack's id */
    NM_PY_NAMES, /* and what names its frames, if the daemon does not know it */
};

/* Walks the chain from `frame`. Returns phase | stack << 32. */
static __noinline u64 nm_py_walk(struct nm_py_state *st, u64 frame)
{
    struct nm_py_found *w = &st->found;
    u32 phase, stack = 0;

    __builtin_memset(w, 0, sizeof(*w));
    w->tier = 15;
    st->window_bytes = 0;
    st->window_at = 0;
#ifdef NM_LEGACY
    for (int i = 0; i < NM_PY_STEPS_UNROLLED; i++) {
        frame = nm_py_step_apart(st, frame, i == 0);
        if (!frame || frame == ~0ull)
            break;
    }
#else
    struct nm_py_chain chain = {.st = st, .frame = frame};
    bpf_loop(NM_PY_STEPS, nm_py_loop, &chain, 0);
    frame = chain.frame;
#endif
    if (!w->count)
        return 0;
    if (!(nm_py_is_believed(st, &w->phase) & nm_py_is_believed(st, &w->detail))) {
        w->phase.id = w->detail.id = 0;
        w->unnamed = 1;
    }
    if (st->want == NM_PY_NAMES)
        nm_py_names(st);
    st->event.stack.flags = frame ? NM_STACK_CUT : 0;
    phase = w->phase.id | w->detail.id << 8;
    if (w->phase.id && (frame || w->unnamed_outside))
        phase |= NM_PHASE_INFERRED;
    if (w->unnamed)
        phase |= NM_PHASE_UNNAMED;
    if (w->unnamed || st->want)
        stack = nm_py_send(st, nm_py_hash(st), w->count, w->unnamed);
    return phase | (u64)stack << 32;
}

#ifdef NM_LEGACY
/* Global, so that the verifier follows the unrolled steps once in a program, and not wherever it
 * has a walk. Before 5.12 such a function has no pointers for arguments. */
__noinline u64 nm_py_walk_once(u64 frame)
{
    struct nm_py_state *st = nm_py_state_get(bpf_get_current_pid_tgid(), NULL);
    return st ? nm_py_walk(st, frame) : 0;
}
#define NM_PY_WALK(st, frame) nm_py_walk_once(frame)
#else
#define NM_PY_WALK(st, frame) nm_py_walk(st, frame)
#endif

/* The phase of the current thread, and unless want is NM_PY_PHASE the id of its stack in the upper
 * half. */
NM_INLINE u64 nm_py_look(u64 pid_tgid, u32 *no_python, u32 start_ticks, u32 want)
{
    struct nm_py_state *st;
    u32 generation;
    u64 frame;

    if (!nm_py_enabled)
        return 0;
    st = nm_py_state_get(pid_tgid, no_python);
    if (!st)
        return 0;
    generation = nm_py_generation;
    if (st->generation != generation) {
        nm_py_state_refresh(st, pid_tgid, generation);
        __builtin_memset(&st->event, 0, sizeof(st->event));
        st->event.kind = NM_EVENT_STACK;
        st->event.abi = NM_EVENT_ABI;
        st->event.tgid = pid_tgid >> 32;
        st->event.tid = pid_tgid;
        st->event.start_ticks = start_ticks;
    }
    if (!st->process.interpreters)
        return 0;
    st->want = want;
    frame = nm_py_first_frame(st, pid_tgid, start_ticks);
    return frame ? NM_PY_WALK(st, frame) : 0;
}

/*
 * Whether a garbage collection of the thread's interpreter runs, as the phase of a free. A
 * collection sets the counts of its generation and the younger ones to 0 and adds one to the next
 * older: that tells which it is. Costs two reads when none runs.
 */
NM_INLINE u64 nm_py_collected(u64 pid_tgid, u32 *no_python)
{
    struct nm_py_state *st;
    u32 collecting = 0, count1 = 1, count2 = 1, generation;
    u64 at;

    if (!nm_py_enabled)
        return 0;
    st = nm_py_state_get(pid_tgid, no_python);
    if (!st || st->generation != nm_py_generation || !st->process.layout.interpreter_gc)
        return 0;
    at = nm_py_pointer(st->process.interpreters);
    if (!at)
        return 0;
    at += st->process.layout.interpreter_gc;
    if (bpf_probe_read_user(&collecting, sizeof(collecting),
                            (const void *)(at + NM_PY_GC_COLLECTING)) ||
        !collecting)
        return 0;
    bpf_probe_read_user(&count1, sizeof(count1), (const void *)(at + NM_PY_GC_COUNT1));
    bpf_probe_read_user(&count2, sizeof(count2), (const void *)(at + NM_PY_GC_COUNT2));
    generation = count1 ? 0 : count2 ? 1 : 2;
    return NM_PHASE_COLLECTED | generation << 19;
}

#endif
