/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_layout.c - versions and offsets; see python_layout.h. The reading is in python_read.c and
 * python_walk.c.
 */
#include "python_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE 0
#define FRAME_BYTES_MAX 88 /* what the kernel programs read of a frame, less a word */
#define STRUCT_BYTES_MAX 65536u
#define INTERPRETER_BYTES_MAX (4u << 20)

#define NM_PYTHON(minor_, head, interp_next, threads, next, interp, id, native, frame, cframe,     \
                  prev, code, owner, line, file, name, qualified, ascii, compact, gc)              \
    {.minor = minor_,                                                                              \
     .runtime_interpreters = head,                                                                 \
     .thread_interpreter = interp,                                                                 \
     .code_line = line,                                                                            \
     .code_qualified = qualified,                                                                  \
     .walk = {                                                                                     \
         .interpreter_next = interp_next,                                                          \
         .interpreter_threads = threads,                                                           \
         .interpreter_gc = gc,                                                                     \
         .thread_next = next,                                                                      \
         .thread_id = id,                                                                          \
         .thread_native_id = native,                                                               \
         .thread_frame = frame,                                                                    \
         .cframe_frame = cframe,                                                                   \
         .code_name = (qualified) ? (qualified) : (name),                                          \
         .code_plain = name,                                                                       \
         .code_file = file,                                                                        \
         .string_ascii = ascii,                                                                    \
         .string_compact = compact,                                                                \
         .frame_previous = prev,                                                                   \
         .frame_code = code,                                                                       \
         .frame_owner = owner,                                                                     \
         .flags = ((minor_) >= 11 ? NM_PY_STACKED : 0) |                                           \
                  ((minor_) == 11 || (minor_) == 12 ? NM_PY_CFRAME : 0),                           \
     }},
static const struct python_layout layouts[] = {
#include "python_offsets.def"
};
#undef NM_PYTHON

bool python_layout_find(unsigned minor, struct python_layout *ret)
{
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        if (layouts[i].minor == minor) {
            *ret = layouts[i];
            return true;
        }
    return false;
}

unsigned python_minor_from_hex(uint64_t hex)
{
    unsigned minor = (hex >> 16) & 0xff;
    return hex >> 24 == 3 && minor >= PYTHON_MINOR_MIN && minor <= 99 ? minor : 0;
}

unsigned python_minor_from_path(const char *path)
{
    const char *base = strrchr(path, '/');
    char *end;
    unsigned long minor;

    base = base ? base + 1 : path;
    if (strncmp(base, "lib", 3) == 0)
        base += 3;
    if (strncmp(base, "python3.", 8) != 0 || base[8] < '1' || base[8] > '9')
        return 0;
    minor = strtoul(base + 8, &end, 10);
    /* python3.11, python3.11d, libpython3.11.so.1.0, libpython3.11-abc.so */
    if (minor > 99 || (*end && !strchr(".-dt", *end)))
        return 0;
    return (unsigned)minor;
}

/* Words of _Py_DebugOffsets. */
struct words {
    const uint8_t *bytes;
    size_t size, at;
    bool bad;
};

static uint64_t word_next(struct words *w)
{
    uint64_t value = 0;

    if (w->at + sizeof(value) > w->size)
        w->bad = true;
    else
        memcpy(&value, w->bytes + w->at, sizeof(value));
    w->at += sizeof(value);
    return value;
}

static uint32_t offset_next(struct words *w, uint64_t limit)
{
    uint64_t value = word_next(w);

    if (value > limit)
        w->bad = true;
    return (uint32_t)value;
}

static void words_skip(struct words *w, unsigned count)
{
    w->at += count * sizeof(uint64_t);
}

static void offsets_read(struct words *w, struct python_layout *l)
{
    struct nm_py_layout *walk = &l->walk;

    words_skip(w, 2); /* runtime: size, finalizing */
    l->runtime_interpreters = offset_next(w, STRUCT_BYTES_MAX);
    words_skip(w, 2); /* interpreter: size, id */
    walk->interpreter_next = offset_next(w, INTERPRETER_BYTES_MAX);
    walk->interpreter_threads = offset_next(w, INTERPRETER_BYTES_MAX);
    /* 3.13: nine more words, the first of them the collector; 3.14 has threads_main before them,
     * two generations after, and a collector of another form */
    if (l->minor == 13)
        walk->interpreter_gc = offset_next(w, INTERPRETER_BYTES_MAX);
    words_skip(w, l->minor == 13 ? 8 : 12);
    words_skip(w, 2); /* thread: size, prev */
    walk->thread_next = (uint16_t)offset_next(w, STRUCT_BYTES_MAX - 1);
    l->thread_interpreter = (uint16_t)offset_next(w, STRUCT_BYTES_MAX - 1);
    walk->thread_frame = (uint16_t)offset_next(w, STRUCT_BYTES_MAX - 1);
    walk->thread_id = (uint16_t)offset_next(w, STRUCT_BYTES_MAX - 1);
    walk->thread_native_id = (uint16_t)offset_next(w, STRUCT_BYTES_MAX - 1);
    words_skip(w, 3); /* datastack_chunk, status; frame: size */
    walk->frame_previous = (uint8_t)offset_next(w, FRAME_BYTES_MAX);
    walk->frame_code = (uint8_t)offset_next(w, FRAME_BYTES_MAX);
    words_skip(w, 2); /* instr_ptr, localsplus */
    walk->frame_owner = (uint8_t)offset_next(w, FRAME_BYTES_MAX);
    /* 3.14: stackpointer, tlbc_index; code: size */
    words_skip(w, l->minor == 13 ? 1 : 3);
    walk->code_file = (uint16_t)offset_next(w, STRUCT_BYTES_MAX - 1);
    walk->code_plain = (uint16_t)offset_next(w, STRUCT_BYTES_MAX - 1);
    l->code_qualified = (uint16_t)offset_next(w, STRUCT_BYTES_MAX - 1);
    words_skip(w, 1); /* linetable */
    l->code_line = (uint16_t)offset_next(w, STRUCT_BYTES_MAX - 1);
    walk->code_name = l->code_qualified;
}

int python_layout_from_runtime(const void *bytes, size_t size, struct python_layout *ret)
{
    struct words w = {.bytes = bytes, .size = size, .at = 8};
    struct python_layout l = {.walk = {.string_ascii = 40, .string_compact = 56}};

    if (size < 24 || memcmp(bytes, "xdebugpy", 8) != 0)
        return -ENODATA;
    l.minor = python_minor_from_hex(word_next(&w));
    l.walk.flags = NM_PY_STACKED;
    /* the description itself changes between minor versions; a free-threaded build has other
     * objects */
    if (l.minor < 13 || l.minor > PYTHON_MINOR_MAX || word_next(&w) != 0)
        return -ENOTSUP;
    offsets_read(&w, &l);
    if (w.bad || !l.walk.thread_native_id || !l.code_qualified || !l.walk.frame_owner)
        return -EBADMSG;
    *ret = l;
    return 0;
}
