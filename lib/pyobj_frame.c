/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyobj_frame.c - threads, frames and their locals, modules, the collector's lists.
 *
 * Must not: follow a chain without a bound.
 */
#include "pyobj_frame.h"

#include <errno.h>
#include <string.h>

#include "pyobj_internal.h"

#define NONE UINT16_MAX
#define INTERPRETER_WORDS 2048u /* of an interpreter that are searched for sys.modules */
#define GC_HEAD_BYTES 16u       /* before a tracked object */

struct local_layout {
    uint8_t minor;
    uint16_t locals, names, cells, plain, modules, gc;
};
static const struct local_layout local_layouts[] = {
#define PYOBJ_LAYOUT(...)
#define PYOBJ_FRAME(minor, locals, names, cells, plain, modules, gc)                               \
    {minor, locals, names, cells, plain, modules, gc},
#include "pyobj_layout.def"
#undef PYOBJ_LAYOUT
#undef PYOBJ_FRAME
};

static const struct local_layout *local_layout(const struct pyobj *p)
{
    for (size_t i = 0; i < ARRAY_SIZE(local_layouts); i++)
        if (local_layouts[i].minor == p->layout->minor)
            return &local_layouts[i];
    return NULL;
}

int pyobj_interpreter(struct pyobj *p, uint64_t runtime, uint64_t *ret)
{
    const struct python_layout *l = &p->threads;
    unsigned char said[PYTHON_DEBUG_OFFSETS_BYTES];

    /* 3.13 on: what it says of itself is better than the table */
    if (p->layout->minor >= 13 && image_read(p->image, runtime, said, sizeof(said)) == 0)
        (void)python_layout_from_runtime(said, sizeof(said), &p->threads);
    /* types before the head differ in size between machines: the head is the first pointer near its
     * place that leads to a thread */
    for (int step = 0; step <= 8; step++) {
        uint64_t at =
            runtime + l->runtime_interpreters + 8u * (unsigned)(step / 2) * (step & 1 ? 1 : -1);
        uint64_t interpreter, thread, back;
        if (image_u64(p->image, at, &interpreter) == 0 && image_pointer(interpreter) &&
            image_u64(p->image, interpreter + l->walk.interpreter_threads, &thread) == 0 &&
            image_pointer(thread) &&
            image_u64(p->image, thread + l->thread_interpreter, &back) == 0 &&
            back == interpreter) {
            *ret = interpreter;
            return 0;
        }
    }
    return -ENODATA;
}

/* The innermost frame of a thread; 0 none. */
static int thread_frame(struct pyobj *p, uint64_t thread, uint64_t *ret)
{
    const struct nm_py_layout *w = &p->threads.walk;
    int r = image_u64(p->image, thread + w->thread_frame, ret);

    if (r == 0 && (w->flags & NM_PY_CFRAME))
        r = image_pointer(*ret) ? image_u64(p->image, *ret + w->cframe_frame, ret) : -EBADMSG;
    return r;
}

static int thread_frames(struct pyobj *p, uint64_t thread, uint32_t number,
                         int (*fn)(void *, const struct pyobj_frame *), void *userdata)
{
    const struct nm_py_layout *w = &p->threads.walk;
    struct pyobj_frame f = {.thread = number};
    uint64_t at, name;
    int r = thread_frame(p, thread, &at);

    for (unsigned n = 0; r == 0 && image_pointer(at) && n < PYOBJ_FRAMES_MAX; n++) {
        const struct pyobj_type *type;
        f.address = at;
        if (image_u64(p->image, at + w->frame_code, &f.code) == 0 &&
            pyobj_type(p, f.code, &type) == 0 && strcmp(type->name, "code") == 0 &&
            image_u64(p->image, f.code + w->code_name, &name) == 0 &&
            pyobj_str(p, name, f.function, sizeof(f.function)) > 0) {
            r = fn(userdata, &f);
            f.depth++;
        }
        if (r == 0)
            r = image_u64(p->image, at + w->frame_previous, &at);
    }
    return r;
}

int pyobj_each_frame(struct pyobj *p, uint64_t interpreter,
                     int (*fn)(void *, const struct pyobj_frame *), void *userdata)
{
    const struct nm_py_layout *w = &p->threads.walk;
    uint64_t thread;
    int r = image_u64(p->image, interpreter + w->interpreter_threads, &thread);

    for (uint32_t n = 0; r == 0 && image_pointer(thread) && n < PYOBJ_THREADS_MAX; n++) {
        r = thread_frames(p, thread, n, fn, userdata);
        if (r == -EFAULT || r == -EBADMSG) {
            p->torn_threads++;
            r = 0; /* a frame that went meanwhile ends its thread only */
        }
        if (r == 0)
            r = image_u64(p->image, thread + w->thread_next, &thread);
    }
    return r == -EFAULT ? 0 : r;
}

/* Names of one tuple and the values that lie in the same order behind `values`. */
static int locals_of(struct pyobj *p, uint64_t names, uint64_t values, uint64_t maximum,
                     int (*fn)(void *, const char *, uint64_t), void *userdata)
{
    uint64_t items, count, key, value;
    const struct pyobj_type *type;
    int r = pyobj_type(p, names, &type);

    if (r == 0 && type->kind != PYOBJ_TUPLE)
        r = -EBADMSG;
    if (r == 0)
        r = pyobj_items(p, names, type, &items, &count);
    for (uint64_t i = 0; r == 0 && i < count && i < maximum; i++) {
        char name[PYOBJ_NAME_MAX];
        if (image_u64(p->image, items + 8 * i, &key) < 0 ||
            image_u64(p->image, values + 8 * i, &value) < 0 || !image_pointer(value) ||
            pyobj_str(p, key, name, sizeof(name)) <= 0 || pyobj_type(p, value, &type) < 0)
            continue;
        if (type->kind == PYOBJ_CELL && pyobj_cell(p, value, &value) < 0)
            continue;
        r = fn(userdata, name, value);
    }
    return r;
}

int pyobj_each_local(struct pyobj *p, const struct pyobj_frame *frame,
                     int (*fn)(void *, const char *name, uint64_t value), void *userdata)
{
    const struct local_layout *l = local_layout(p);
    uint64_t names;
    uint32_t plain;
    int r;

    if (!l)
        return -ENOTSUP;
    r = image_u64(p->image, frame->code + l->names, &names);
    if (r == 0)
        r = image_u32(p->image, frame->code + l->plain, &plain);
    if (r < 0)
        return r;
    if (plain > PYOBJ_LOCALS_MAX)
        return -EBADMSG;
    r = locals_of(p, names, frame->address + l->locals, plain, fn, userdata);
    if (r == 0 && l->cells != NONE) {
        r = image_u64(p->image, frame->code + l->cells, &names);
        if (r == 0)
            r = locals_of(p, names, frame->address + l->locals + 8ull * plain, PYOBJ_LOCALS_MAX, fn,
                          userdata);
    }
    return r;
}

static bool is_modules(struct pyobj *p, uint64_t dict)
{
    const struct pyobj_type *type;
    uint64_t module;

    return image_pointer(dict) && pyobj_type(p, dict, &type) == 0 && type->kind == PYOBJ_DICT &&
           pyobj_dict_get(p, dict, "builtins", &module) == 0 && pyobj_type(p, module, &type) == 0 &&
           type->kind == PYOBJ_MODULE && pyobj_dict_get(p, dict, "__main__", &module) == 0;
}

int pyobj_modules(struct pyobj *p, uint64_t interpreter, uint64_t *ret)
{
    const struct local_layout *l = local_layout(p);
    uint64_t dict;

    if (l && image_u64(p->image, interpreter + l->modules, &dict) == 0 && is_modules(p, dict)) {
        *ret = dict;
        return 0;
    }
    for (unsigned word = 0; word < INTERPRETER_WORDS; word++) {
        int r = image_u64(p->image, interpreter + 8 * word, &dict);
        if (r < 0)
            return r == -EFAULT ? -ENOENT : r;
        if (is_modules(p, dict)) {
            *ret = dict;
            return 0;
        }
    }
    return -ENOENT;
}

int64_t pyobj_each_tracked(struct pyobj *p, uint64_t interpreter, uint64_t maximum,
                           int (*fn)(void *, uint64_t object), void *userdata)
{
    static const uint16_t heads[] = {104, 24 + 2 * 24, 24 + 24, 24}; /* frozen, then old to young */
    const struct local_layout *l = local_layout(p);
    uint64_t count = 0;

    if (!l)
        return -ENOTSUP;
    for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
        uint64_t head = interpreter + l->gc + heads[i], at, back;
        /* an empty list points to itself; any other one back from its first member */
        if (image_u64(p->image, head, &at) < 0 || !image_pointer(at) ||
            image_u64(p->image, at + 8, &back) < 0 || (back & ~(uint64_t)7) != head)
            continue;
        while (at != head && count < maximum) {
            int r = fn(userdata, at + GC_HEAD_BYTES);
            if (r == 0)
                r = image_u64(p->image, at, &at);
            at &= ~(uint64_t)7;
            if (r == -EFAULT || !image_pointer(at))
                break;
            if (r)
                return r;
            count++;
        }
    }
    return (int64_t)count;
}
