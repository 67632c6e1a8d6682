/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_walk.c - interpreters, thread states and frames of another process; see python_layout.h.
 *
 * The process runs meanwhile: a chain may change under the walk. What does not fit once is tried
 * again by python_runtime_check(); what a walk returns is a snapshot that may be torn, never more
 * than bounded.
 */
#include "python_layout.h"

#include <errno.h>
#include <string.h>

#define CHECK_TRIES 5
#define CHECK_FRAMES 3    /* of each thread */
#define MOVE_WORDS_MAX 24 /* pthread types differ by less between architectures */

static int pointer_read(const struct python_runtime *rt, uint64_t address, uint64_t *ret)
{
    if (!address || address >= IMAGE_ADDRESS_MAX || address % 8)
        return -EFAULT;
    return rt->reader.read(rt->reader.userdata, address, ret, sizeof(*ret));
}

static int thread_read(const struct python_runtime *rt, uint64_t address, uint64_t interpreter,
                       struct python_thread *ret, uint64_t *ret_next)
{
    const struct nm_py_layout *w = &rt->layout.walk;
    uint64_t back, native = 0, frame;

    *ret = (struct python_thread){.address = address};
    if (pointer_read(rt, address + rt->layout.thread_interpreter, &back) < 0 ||
        pointer_read(rt, address + w->thread_next, ret_next) < 0 ||
        pointer_read(rt, address + w->thread_id, &ret->thread_id) < 0 ||
        pointer_read(rt, address + w->thread_frame, &frame) < 0 ||
        (w->thread_native_id && pointer_read(rt, address + w->thread_native_id, &native) < 0))
        return -EBADMSG;
    if (back != interpreter)
        return -EBADMSG;
    if ((w->flags & NM_PY_CFRAME) && frame && pointer_read(rt, frame + w->cframe_frame, &frame) < 0)
        return -EBADMSG;
    ret->native_id = (uint32_t)native;
    ret->frame = frame;
    return 0;
}

int python_each_thread(const struct python_runtime *rt,
                       int (*fn)(void *, const struct python_thread *), void *userdata)
{
    uint64_t interpreter, thread;
    unsigned threads = 0;
    int r = pointer_read(rt, rt->address + rt->layout.runtime_interpreters, &interpreter);

    for (unsigned i = 0; r == 0 && interpreter; i++) {
        uint64_t next;
        if (i == PYTHON_INTERPRETERS_MAX ||
            pointer_read(rt, interpreter + rt->layout.walk.interpreter_threads, &thread) < 0 ||
            pointer_read(rt, interpreter + rt->layout.walk.interpreter_next, &next) < 0)
            return -EBADMSG;
        while (thread) {
            struct python_thread t;
            if (++threads > PYTHON_THREADS_MAX ||
                thread_read(rt, thread, interpreter, &t, &thread) < 0)
                return -EBADMSG;
            r = fn(userdata, &t);
            if (r)
                return r;
        }
        interpreter = next;
    }
    return r;
}

int python_frames(const struct python_runtime *rt, uint64_t frame, uint64_t *ret_codes, size_t max)
{
    const struct nm_py_layout *w = &rt->layout.walk;
    size_t count = 0;

    for (unsigned i = 0; i < PYTHON_FRAMES_MAX && frame && count < max; i++) {
        uint8_t bytes[96];
        uint64_t code;
        if (frame % 8 || frame >= IMAGE_ADDRESS_MAX ||
            rt->reader.read(rt->reader.userdata, frame, bytes, sizeof(bytes)) < 0)
            break;
        memcpy(&frame, bytes + w->frame_previous, sizeof(frame));
        memcpy(&code, bytes + w->frame_code, sizeof(code));
        if (w->frame_owner && bytes[w->frame_owner] >= NM_PY_OWNER_NO_CODE)
            continue;
        ret_codes[count++] = code & ~(uint64_t)7;
    }
    return (int)count;
}

struct check {
    const struct python_runtime *rt;
    unsigned threads, frames, wrong;
};

static int check_thread(void *userdata, const struct python_thread *t)
{
    struct check *c = userdata;
    uint64_t codes[CHECK_FRAMES];
    struct python_code code;
    int n = python_frames(c->rt, t->frame, codes, CHECK_FRAMES);

    c->threads++;
    for (int i = 0; i < n; i++) {
        c->frames++;
        if (python_code_read(c->rt, codes[i], &code) < 0)
            c->wrong++;
    }
    return 0;
}

/* The number of thread states if most of what was looked at fits; a moving stack may tear a few. */
static int check_once(const struct python_runtime *rt)
{
    struct check c = {.rt = rt};
    int r = python_each_thread(rt, check_thread, &c);

    if (r < 0)
        return r;
    if (c.wrong * 4 > c.frames)
        return -EBADMSG;
    return c.threads && !c.frames ? -EAGAIN : (int)c.threads;
}

static int check_some(const struct python_runtime *rt)
{
    int r = -EBADMSG;

    for (int i = 0; i < CHECK_TRIES && r < 0; i++)
        r = check_once(rt);
    return r;
}

int python_runtime_check(struct python_runtime *rt)
{
    struct python_layout table = rt->layout;
    int r = check_some(rt), up = r;

    /* The table was measured on x86_64. */
    if (rt->is_table_exact)
        return r;
    for (int head = -MOVE_WORDS_MAX; r <= 0 && head <= MOVE_WORDS_MAX; head++)
        for (int threads = -MOVE_WORDS_MAX; r <= 0 && threads <= MOVE_WORDS_MAX; threads++) {
            int64_t head_at = (int64_t)table.runtime_interpreters + 8 * head;
            int64_t threads_at = (int64_t)table.walk.interpreter_threads + 8 * threads;
            if (head_at < 0 || threads_at < 0)
                continue;
            rt->layout.runtime_interpreters = (uint32_t)head_at;
            rt->layout.walk.interpreter_threads = (uint32_t)threads_at;
            r = check_once(rt);
        }
    if (r > 0)
        return r;
    rt->layout = table;
    return up;
}
