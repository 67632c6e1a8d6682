/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * python_names.bpf.h - what names the code objects of a call that failed, sent along with it.
 *
 * Else the daemon reads names from the process's memory when it gets the stack, which is gone if
 * the process ends of the failure at once. Only failing calls come here, so that what it costs does
 * not matter; how much is sent does, and is bounded by thread and by what waits in the ring.
 *
 * Nothing is understood here but a str's length and width: the daemon decodes the memory as it
 * would the process's own, with the same checks (lib/python_read.c).
 */
#ifndef NPUMEM_BPF_PYTHON_NAMES_H
#define NPUMEM_BPF_PYTHON_NAMES_H

#include "python_state.bpf.h"

#define NM_PY_NAMES_WINDOW_NS 100000000ull
#define NM_PY_NAMES_MAX 8 /* failing calls of a thread within a window: at most 16 MB/s */
#define NM_PY_NAMES_UNROLLED                                                                       \
    32 /* frames, the innermost; all of them where the kernel has loops                            \
        */

struct nm_py_code_record {
    struct nm_event event;
    struct nm_code_memory memory;
};

/* A str, of its characters the first or the last that fit into a name. Unreadable memory is zeroed
 * by the read. */
NM_INLINE void nm_py_string(struct nm_py_state *st, struct nm_code_string *s, u64 address,
                            int from_end)
{
    u64 length, count, skip, bytes; /* 64 bits: Linux 6.1 believes no test of a product's half */
    u32 state, width;

    s->address = address;
    s->text_at = 0;
    s->text_bytes = 0;
    s->zero = 0;
    if (bpf_probe_read_user(s->head, sizeof(s->head), (const void *)address))
        return;
    length = *(const u64 *)(s->head + NM_PY_STR_LENGTH);
    state = *(const u32 *)(s->head + NM_PY_STR_STATE);
    width = NM_PY_STR_WIDTH(state);
    if (length > NM_PY_STR_MAX)
        return;
    count = length < NM_PY_NAME_MAX - 1 ? length : NM_PY_NAME_MAX - 1;
    skip = from_end ? (length - count) * width : 0;
    bytes = count * width;
    asm volatile("" : "+r"(bytes)); /* else the compiler tests something else, and the verifier */
    if (bytes > sizeof(s->text))    /* believes what was tested */
        return;
    address += NM_PY_STR_IS_ASCII(state) ? st->process.layout.string_ascii
                                         : st->process.layout.string_compact;
    if (bpf_probe_read_user(s->text, bytes, (const void *)(address + skip)))
        return;
    s->text_at = address + skip;
    s->text_bytes = bytes;
}

/*
 * Sends what names a frame of the thread's walk, if the daemon has not named it as what it is now.
 * Returns whether that was the last frame. Global, so that the verifier looks at it once, and not
 * wherever a walk is.
 */
__noinline int nm_py_name_send(u32 frame)
{
    struct nm_py_state *st = nm_py_state_get(bpf_get_current_pid_tgid(), NULL);
    struct nm_py_code_key key = {};
    struct nm_py_code_record *r;
    struct nm_py_code *known;
    u64 name;

    if (!st || frame >= NM_STACK_FRAMES || frame >= st->found.count)
        return 1;
    key.tgid = st->pid_tgid >> 32;
    key.code = st->frames[frame].code;
    name = nm_py_pointer(key.code + st->process.layout.code_name);
    known = bpf_map_lookup_elem(&py_codes, &key);
    if (known && known->name == name)
        return 0;
    st->frames[frame].name = name;
    st->found.unnamed++;
    if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) > nm_py_backlog_bytes)
        return 1;
    r = nm_record_begin(sizeof(*r), NM_EVENT_CODE, st->pid_tgid, st->event.start_ticks, 0, 0);
    if (!r)
        return 1;
    __builtin_memset(&r->event.code, 0, sizeof(r->event.code));
    r->event.code.code = key.code;
    bpf_probe_read_user(r->memory.object, sizeof(r->memory.object), (const void *)key.code);
    nm_py_string(st, &r->memory.plain, nm_py_pointer(key.code + st->process.layout.code_plain), 0);
    nm_py_string(st, &r->memory.file, nm_py_pointer(key.code + st->process.layout.code_file), 1);
    nm_py_string(st, &r->memory.qualified, name, 0);
    bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
    st->found.sent++;
    return 0;
}

#ifndef NM_LEGACY
static long nm_py_name_step(u32 frame, void *none)
{
    return nm_py_name_send(frame) != 0; /* the verifier must see that */
}
#endif

/* Sends what names the frames of the walk; found.sent says how many. */
NM_INLINE void nm_py_names(struct nm_py_state *st)
{
    u64 now = bpf_ktime_get_boot_ns();

    if (now - st->names_window_ns > NM_PY_NAMES_WINDOW_NS) {
        st->names_window_ns = now;
        st->names_count = 0;
    }
    if (st->names_count >= NM_PY_NAMES_MAX)
        return;
#ifdef NM_LEGACY
    for (u32 i = 0; i < NM_PY_NAMES_UNROLLED; i++)
        if (nm_py_name_send(i))
            break;
#else
    bpf_loop(NM_STACK_FRAMES, nm_py_name_step, NULL, 0);
#endif
    if (st->found.sent)
        st->names_count++;
}

#endif
