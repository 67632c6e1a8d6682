/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_layout.h - how a version of CPython lies in memory, and reading its threads, frames and
 * names.
 *
 * Pure, over a read callback. Whatever is read is hostile: every text and chain is bounded, every
 * object is checked for what it claims to be, and nothing is believed without
 * python_runtime_check(). Sources: schema/python_offsets.def; CPython pycore_debug_offsets.h
 * for 3.13 and 3.14.
 */
#ifndef NPUMEM_PYTHON_LAYOUT_H
#define NPUMEM_PYTHON_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "event.h"
#include "image_read.h"
#include "python_abi.h"

#define PYTHON_MINOR_MIN 9
#define PYTHON_MINOR_MAX 14
#define PYTHON_DEBUG_OFFSETS_BYTES 400 /* of _Py_DebugOffsets up to the code object's (3.14) */
#define PYTHON_NAME_MAX NM_PY_NAME_MAX /* of UTF-8 */
#define PYTHON_THREADS_MAX 4096
#define PYTHON_INTERPRETERS_MAX 64
#define PYTHON_FRAMES_MAX 4096
#define PYTHON_GENERATIONS 3

struct python_layout {
    unsigned minor;
    uint32_t runtime_interpreters; /* interpreters.head in _PyRuntime */
    uint16_t thread_interpreter;
    uint16_t code_line, code_qualified; /* code_qualified 0: none */
    struct nm_py_layout walk;
};

/* The layout of 3.MINOR from the table. false: not there (3.14 and later say it themselves). */
bool python_layout_find(unsigned minor, struct python_layout *ret);

/*
 * The layout that the first bytes of _PyRuntime describe (3.13 and later).
 * Errors: -ENODATA no such description; -ENOTSUP a version or build (free-threaded) that is not
 * known; -EBADMSG offsets that cannot be.
 */
int python_layout_from_runtime(const void *bytes, size_t size, struct python_layout *ret);

/* Minor version from a file name: "libpython3.11.so.1.0", "python3.12"; 0: it names none. */
unsigned python_minor_from_path(const char *path);
/* Minor version from Py_Version (PY_VERSION_HEX); 0: not a released or coming 3.x. */
unsigned python_minor_from_hex(uint64_t hex);

/* One interpreter as it was found in a process. */
struct python_runtime {
    struct memory_reader reader;
    struct python_layout layout;
    uint64_t address;    /* of _PyRuntime */
    uint64_t code_type;  /* address of PyCode_Type, 0 unknown */
    bool is_table_exact; /* offsets after pthread types are as they are here, too */
};

/* A thread state. */
struct python_thread {
    uint64_t address;
    uint64_t thread_id; /* pthread_t */
    uint32_t native_id; /* as the process's own pid namespace counts; 0 before 3.11 */
    uint64_t frame;     /* innermost, 0 none */
};

/* Calls fn for each thread state of each interpreter until it returns non-zero. Errors: -EBADMSG
 * the chain is no such; errors of the reader. */
int python_each_thread(const struct python_runtime *rt,
                       int (*fn)(void *, const struct python_thread *), void *userdata);

/*
 * Whether the layout fits the live process: every thread state must point back to its
 * interpreter, and the innermost code objects of those that run Python must be code objects with
 * names. Unless is_table_exact, offsets that may differ between architectures are moved a few words
 * and kept if they fit. Returns the number of thread states; 0 there is none yet; -EAGAIN no thread
 * runs Python now, so that nothing can be told; -EBADMSG it does not fit.
 */
int python_runtime_check(struct python_runtime *rt);

/* Counters of the garbage collectors of all interpreters of a process, since its start. */
struct python_collector {
    unsigned interpreters;
    bool is_enabled; /* in any of them */
    bool is_frozen;  /* gc.freeze() has put objects aside, in any of them */
    uint32_t threshold[PYTHON_GENERATIONS];
    uint64_t collections[PYTHON_GENERATIONS], collected[PYTHON_GENERATIONS],
        uncollectable[PYTHON_GENERATIONS];
};
/* Errors: -ENOTSUP the version keeps them in another way (3.14); -EBADMSG what is there is no
 * collector's state. */
int python_collector_read(const struct python_runtime *rt, struct python_collector *ret);

/* Up to max code objects of a chain, the innermost first. Returns their number. */
int python_frames(const struct python_runtime *rt, uint64_t frame, uint64_t *ret_codes, size_t max);

struct python_code {
    uint64_t name_pointer; /* what the kernel programs compare */
    bool has_qualified;
    uint32_t line;
    char name[PYTHON_NAME_MAX], qualified[PYTHON_NAME_MAX], file[PYTHON_NAME_MAX];
};
/* Reads what a code object is called; file keeps its end where it is too long. Errors: -EBADMSG not
 * a code object; errors of the reader. */
int python_code_read(const struct python_runtime *rt, uint64_t code, struct python_code *ret);

/* The same from what the kernel programs kept of it (NM_EVENT_CODE): of the process's memory only
 * rt->layout and rt->code_type are used. Errors: -EFAULT, also: not all of it was kept. */
int python_code_decode(const struct python_runtime *rt, uint64_t code,
                       const struct nm_code_memory *memory, struct python_code *ret);

/* A str as UTF-8, cut to size - 1 bytes at a character; from_end keeps the end. Control characters
 * become
 * '?'. Returns its length; -EBADMSG not a str. */
int python_string_read(const struct python_runtime *rt, uint64_t address, bool from_end, char *ret,
                       size_t size);

#endif
