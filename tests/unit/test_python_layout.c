/* SPDX-License-Identifier: Apache-2.0 */
/* Versions, described layouts, and reading an interpreter laid out by hand, sound and hostile. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "python_layout.h"

#define BASE 0x10000u

/* The memory of a process: one range from BASE on. */
static struct {
    uint8_t bytes[65536];
    unsigned reads;
} memory;

static int memory_read(void *userdata, uint64_t address, void *buffer, size_t bytes)
{
    memory.reads++;
    if (address < BASE || bytes > sizeof(memory.bytes) ||
        address - BASE > sizeof(memory.bytes) - bytes)
        return -EFAULT;
    memcpy(buffer, memory.bytes + (address - BASE), bytes);
    return 0;
}

static void put(uint64_t address, uint64_t value)
{
    memcpy(memory.bytes + (address - BASE), &value, sizeof(value));
}

/* A compact ASCII str of 3.11: length 16, state 32, characters 48. */
static void put_string(uint64_t address, const char *text)
{
    put(address + 16, strlen(text));
    put(address + 32, 1u << 2 | 1u << 5 | 1u << 6);
    memcpy(memory.bytes + (address - BASE) + 48, text, strlen(text));
}

#define RUNTIME (BASE + 0x100)
#define INTERPRETER (BASE + 0x400)
#define THREAD (BASE + 0x800)
#define CFRAME (BASE + 0xa00)
#define FRAME(n) (BASE + 0x1000 + 0x80 * (uint64_t)(n))
#define CODE(n) (BASE + 0x2000 + 0x100 * (uint64_t)(n))
#define STRING(n) (BASE + 0x4000 + 0x100 * (uint64_t)(n))
#define CODE_TYPE 0x5550

/* One thread with three frames, by the offsets of CPython 3.11 as its headers have them. */
static struct python_runtime build(void)
{
    struct python_runtime rt = {.reader = {memory_read, NULL},
                                .address = RUNTIME,
                                .code_type = CODE_TYPE,
                                .is_table_exact = true};
    static const char *const names[] = {"leaf", "NPUModelRunner.load_model", "<module>"};

    memset(&memory, 0, sizeof(memory));
    assert_true(python_layout_find(11, &rt.layout));
    put(RUNTIME + 40, INTERPRETER);
    put(INTERPRETER + 16, THREAD);
    put(THREAD + 16, INTERPRETER);
    put(THREAD + 152, 0x7f00);
    put(THREAD + 160, 4711);
    put(THREAD + 56, CFRAME);
    put(CFRAME + 8, FRAME(0));
    for (unsigned i = 0; i < 3; i++) {
        put(FRAME(i) + 48, i < 2 ? FRAME(i + 1) : 0);
        put(FRAME(i) + 32, CODE(i));
        put(CODE(i) + 8, CODE_TYPE);
        put(CODE(i) + 72, 10 + i);
        put(CODE(i) + 112, STRING(9));
        put(CODE(i) + 120, STRING(i));
        put(CODE(i) + 128, STRING(i));
        put_string(STRING(i), names[i]);
    }
    put_string(STRING(9), "/x/model_runner_v1.py");
    return rt;
}

static void versions_from_names_and_numbers(void **state)
{
    assert_int_equal(python_minor_from_path("/usr/lib/libpython3.11.so.1.0"), 11);
    assert_int_equal(python_minor_from_path("/opt/bin/python3.9"), 9);
    assert_int_equal(python_minor_from_path("python3.13t"), 13);
    assert_int_equal(python_minor_from_path("/usr/lib/libpython3.12-0a1b2c.so.1.0"), 12);
    assert_int_equal(python_minor_from_path("/usr/bin/python3"), 0);
    assert_int_equal(python_minor_from_path("/usr/lib/libpython3.so"), 0);
    assert_int_equal(python_minor_from_path("/usr/bin/python3.11x"), 0);
    assert_int_equal(python_minor_from_path("/python3.11/bin/x"), 0);
    assert_int_equal(python_minor_from_path("python3.999"), 0);
    assert_int_equal(python_minor_from_path(""), 0);
    assert_int_equal(python_minor_from_hex(0x030b07f0), 11);
    assert_int_equal(python_minor_from_hex(0x02070000), 0);
    assert_int_equal(python_minor_from_hex(0x030800f0), 0);
}

static void every_version_of_the_table_is_there_and_no_other(void **state)
{
    struct python_layout l;
    for (unsigned minor = 0; minor < 30; minor++)
        assert_int_equal(python_layout_find(minor, &l), minor >= 9 && minor <= 13);
    assert_true(python_layout_find(10, &l));
    assert_int_equal(l.walk.thread_native_id, 0);
    assert_int_equal(l.walk.code_name, 112);
}

/* _Py_DebugOffsets as words; the places are those of the structure's definition. */
static size_t describe(uint64_t *words, uint64_t version, bool threads_main)
{
    size_t n = 0;
    memcpy(&words[n++], "xdebugpy", 8);
    words[n++] = version;
    words[n++] = 0; /* free_threaded */
    for (uint64_t v = 0; v < 2; v++)
        words[n++] = 7;                          /* runtime: size, finalizing */
    words[n++] = 632;                            /* interpreters_head */
    words[n++] = 7;                              /* interpreter: size */
    words[n++] = 7;                              /* id */
    words[n++] = 7264;                           /* next */
    words[n++] = 7344;                           /* threads_head */
    words[n++] = threads_main ? 99999999 : 7400; /* gc */
    for (int i = 0; i < (threads_main ? 11 : 8); i++)
        words[n++] = 99999999;           /* what is not used may be anything */
    words[n++] = 7;                      /* thread: size */
    words[n++] = 0;                      /* prev */
    words[n++] = 8;                      /* next */
    words[n++] = 16;                     /* interp */
    words[n++] = 72;                     /* current_frame */
    words[n++] = 152;                    /* thread_id */
    words[n++] = 160;                    /* native_thread_id */
    words[n++] = 7;                      /* datastack_chunk */
    words[n++] = 7;                      /* status */
    words[n++] = 88;                     /* frame: size */
    words[n++] = 8;                      /* previous */
    words[n++] = 0;                      /* executable */
    words[n++] = 56;                     /* instr_ptr */
    words[n++] = 72;                     /* localsplus */
    words[n++] = threads_main ? 74 : 70; /* owner */
    if (threads_main) {
        words[n++] = 64; /* stackpointer */
        words[n++] = 0;  /* tlbc_index */
    }
    words[n++] = 208; /* code: size */
    words[n++] = 112; /* filename */
    words[n++] = 120; /* name */
    words[n++] = 128; /* qualname */
    words[n++] = 136; /* linetable */
    words[n++] = 68;  /* firstlineno */
    return n * sizeof(*words);
}

static void an_interpreter_that_describes_itself(void **state)
{
    uint64_t words[80] = {0};
    struct python_layout said, table;
    size_t size = describe(words, 0x030d00f0, false);

    assert_int_equal(python_layout_from_runtime(words, size, &said), 0);
    assert_true(python_layout_find(13, &table));
    assert_memory_equal(&said.walk, &table.walk, sizeof(said.walk));
    assert_int_equal(said.code_qualified, table.code_qualified);
    assert_int_equal(said.code_line, table.code_line);
    assert_int_equal(said.runtime_interpreters, table.runtime_interpreters);
    assert_int_equal(python_layout_from_runtime(words, size - 8, &said), -EBADMSG);

    size = describe(words, 0x030e00f0, true);
    assert_true(size <= PYTHON_DEBUG_OFFSETS_BYTES);
    assert_int_equal(python_layout_from_runtime(words, size, &said), 0);
    assert_int_equal(said.minor, 14);
    assert_int_equal(said.walk.frame_owner, 74);
    assert_int_equal(said.walk.thread_frame, 72);
    assert_int_equal(said.code_qualified, 128);
}

static void descriptions_that_cannot_be_are_refused(void **state)
{
    uint64_t words[80] = {0};
    struct python_layout l;
    size_t size = describe(words, 0x030d00f0, false);

    words[2] = 1; /* free-threaded */
    assert_int_equal(python_layout_from_runtime(words, size, &l), -ENOTSUP);
    describe(words, 0x030f00f0, false);
    assert_int_equal(python_layout_from_runtime(words, size, &l), -ENOTSUP);
    describe(words, 0x030d00f0, false);
    words[5] = 1ull << 40;
    assert_int_equal(python_layout_from_runtime(words, size, &l), -EBADMSG);
    describe(words, 0x030d00f0, false);
    words[0] ^= 1;
    assert_int_equal(python_layout_from_runtime(words, size, &l), -ENODATA);
    assert_int_equal(python_layout_from_runtime(words, 8, &l), -ENODATA);
}

static int take_thread(void *userdata, const struct python_thread *t)
{
    *(struct python_thread *)userdata = *t;
    return 0;
}

static void threads_frames_and_names_are_read(void **state)
{
    struct python_runtime rt = build();
    struct python_thread t = {0};
    struct python_code code;
    uint64_t codes[8];

    assert_int_equal(python_runtime_check(&rt), 1);
    assert_int_equal(python_each_thread(&rt, take_thread, &t), 0);
    assert_int_equal(t.native_id, 4711);
    assert_int_equal(t.frame, FRAME(0));
    assert_int_equal(python_frames(&rt, t.frame, codes, 8), 3);
    assert_int_equal(codes[2], CODE(2));
    assert_int_equal(python_frames(&rt, t.frame, codes, 2), 2);
    assert_int_equal(python_code_read(&rt, CODE(1), &code), 0);
    assert_string_equal(code.qualified, "NPUModelRunner.load_model");
    assert_string_equal(code.file, "/x/model_runner_v1.py");
    assert_int_equal(code.line, 11);
    assert_int_equal(code.name_pointer, STRING(1));
    /* a frame that the interpreter owns has no code of its own */
    memory.bytes[FRAME(1) - BASE + 69] = 3;
    assert_int_equal(python_frames(&rt, t.frame, codes, 8), 2);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct python_runtime rt = build();

    put(CODE(0) + 8, 0x1234);
    put(CODE(1) + 8, 0x1234);
    assert_int_equal(python_runtime_check(&rt), -EBADMSG);
    rt = build();
    put(THREAD + 16, 0xdead0);
    assert_int_equal(python_runtime_check(&rt), -EBADMSG);
    rt = build();
    put(CFRAME + 8, 0); /* no thread runs Python: nothing can be told */
    assert_int_equal(python_runtime_check(&rt), -EAGAIN);
    rt = build();
    put(RUNTIME + 40, 0);
    assert_int_equal(python_runtime_check(&rt), 0);
    /* another version's layout over this memory */
    for (unsigned minor = 9; minor <= 13; minor++) {
        rt = build();
        assert_true(python_layout_find(minor, &rt.layout));
        if (minor != 11)
            assert_true(python_runtime_check(&rt) <= 0);
    }
}

static void moved_fields_are_found_where_the_table_may_be_off(void **state)
{
    struct python_runtime rt = build();

    put(RUNTIME + 40, 0);
    put(RUNTIME + 56, INTERPRETER);
    assert_true(python_runtime_check(&rt) <= 0);
    rt.is_table_exact = false;
    assert_int_equal(python_runtime_check(&rt), 1);
    assert_int_equal(rt.layout.runtime_interpreters, 56);
}

static void rings_and_wild_pointers_end(void **state)
{
    struct python_runtime rt = build();
    uint64_t codes[PYTHON_FRAMES_MAX + 1];
    struct python_thread t;

    put(FRAME(2) + 48, FRAME(0));
    assert_true(python_frames(&rt, FRAME(0), codes, PYTHON_FRAMES_MAX + 1) <= PYTHON_FRAMES_MAX);
    put(THREAD + 8, THREAD);
    assert_int_equal(python_each_thread(&rt, take_thread, &t), -EBADMSG);
    rt = build();
    put(INTERPRETER, INTERPRETER);
    assert_int_equal(python_each_thread(&rt, take_thread, &t), -EBADMSG);
    rt = build();
    put(FRAME(0) + 48, 0xffffffffffffff00u);
    assert_int_equal(python_frames(&rt, FRAME(0), codes, 8), 1);
    memory.reads = 0;
    assert_int_equal(python_frames(&rt, 0x123457, codes, 8), 0);
    assert_int_equal(memory.reads, 0);
}

static void strings_of_every_kind(void **state)
{
    struct python_runtime rt = build();
    uint64_t at = STRING(20);
    char text[PYTHON_NAME_MAX];
    static const uint16_t two[] = {0x47, 0xf6, 0x4e2d, 0xd800, 0x0a};

    put(at + 16, 5); /* two bytes a character, not ASCII: characters at 72 */
    put(at + 32, 2u << 2 | 1u << 5);
    memcpy(memory.bytes + (at - BASE) + 72, two, sizeof(two));
    assert_int_equal(python_string_read(&rt, at, false, text, sizeof(text)), 8);
    assert_string_equal(text, "G\xc3\xb6\xe4\xb8\xad??");
    /* cut at a character */
    assert_int_equal(python_string_read(&rt, at, false, text, 3), 1);
    assert_string_equal(text, "G");
    put_string(at, "/a/long/path/file.py");
    assert_int_equal(python_string_read(&rt, at, true, text, 8), 7);
    assert_string_equal(text, "file.py");
    put(at + 32, 1u << 2 | 1u << 6); /* not compact */
    assert_int_equal(python_string_read(&rt, at, false, text, sizeof(text)), -EBADMSG);
    put(at + 32, 3u << 2 | 1u << 5);
    assert_int_equal(python_string_read(&rt, at, false, text, sizeof(text)), -EBADMSG);
    put_string(at, "x");
    put(at + 16, UINT64_MAX);
    assert_int_equal(python_string_read(&rt, at, false, text, sizeof(text)), -EBADMSG);
    assert_int_equal(python_string_read(&rt, 0, false, text, sizeof(text)), -EFAULT);
    assert_string_equal(text, "");
}

/* What the kernel programs keep of a code object of 3.11: file at 112, name at 120, qualified 128.
 */
static void keep_string(uint64_t address, size_t text_bytes, struct nm_code_string *s)
{
    s->address = address;
    s->text_at = address + 48;
    s->text_bytes = (uint32_t)text_bytes;
    memcpy(s->head, memory.bytes + (address - BASE), sizeof(s->head));
    memcpy(s->text, memory.bytes + (address - BASE) + 48, text_bytes);
}

static struct nm_code_memory keep(void)
{
    struct nm_code_memory m = {};

    memcpy(m.object, memory.bytes + (CODE(1) - BASE), sizeof(m.object));
    keep_string(STRING(9), strlen("/x/model_runner_v1.py"), &m.file);
    keep_string(STRING(1), strlen("NPUModelRunner.load_model"), &m.plain);
    m.qualified = m.plain;
    return m;
}

static void code_that_was_kept_reads_as_it_did(void **state)
{
    struct python_runtime rt = build();
    struct nm_code_memory m = keep();
    struct python_code then, now;

    assert_int_equal(python_code_read(&rt, CODE(1), &now), 0);
    memory.reads = 0;
    assert_int_equal(python_code_decode(&rt, CODE(1), &m, &then), 0);
    assert_memory_equal(&then, &now, sizeof(now));
    assert_int_equal(memory.reads, 0);
}

static void code_that_was_kept_in_part_is_refused(void **state)
{
    struct python_runtime rt = build();
    struct nm_code_memory m = keep();
    struct python_code code;

    m.file.text_bytes--; /* a character short */
    assert_int_equal(python_code_decode(&rt, CODE(1), &m, &code), -EFAULT);
    m.file.text_bytes = 0;
    assert_int_equal(python_code_decode(&rt, CODE(1), &m, &code), -EFAULT);
    m = keep();
    m.object[8] ^= 1;
    assert_int_equal(python_code_decode(&rt, CODE(1), &m, &code), -EBADMSG);
    /* lengths and addresses that lead out of the record */
    m = keep();
    m.file.text_bytes = UINT32_MAX;
    m.file.text_at = UINT64_MAX - 100;
    m.plain.address = UINT64_MAX;
    assert_int_equal(python_code_decode(&rt, CODE(1), &m, &code), -EFAULT);
    m = keep();
    put(STRING(9) + 16, 500);
    keep_string(STRING(9), sizeof(m.file.text), &m.file);
    m.file.text_at += 500 - (PYTHON_NAME_MAX - 1);
    m.file.text_bytes = UINT32_MAX;
    assert_int_equal(python_code_decode(&rt, CODE(1), &m, &code), 0);
    memset(&m, 0xff, sizeof(m));
    assert_int_equal(python_code_decode(&rt, CODE(1), &m, &code), -EBADMSG);
}

#define COLLECTOR (INTERPRETER + 648) /* of 3.11 */

/* As 3.11 keeps it: enabled 12, generations 24, generation0 96, stats 128, collecting 200. */
static struct python_runtime build_collector(void)
{
    struct python_runtime rt = build();

    memset(memory.bytes + (COLLECTOR - BASE), 0, 240);
    put(COLLECTOR + 8, (uint64_t)1 << 32); /* trash_delete_nesting, enabled */
    put(COLLECTOR + 96, COLLECTOR + 24);
    put(COLLECTOR + 104, COLLECTOR + 104); /* nothing is frozen */
    for (uint64_t i = 0; i < 3; i++) {
        put(COLLECTOR + 24 + i * 24 + 16, (i ? 10 : 700) | i << 32); /* threshold, count */
        put(COLLECTOR + 128 + i * 24, 100 >> i);
        put(COLLECTOR + 128 + i * 24 + 8, 5000 + i);
        put(COLLECTOR + 128 + i * 24 + 16, i);
    }
    return rt;
}

static void counters_of_the_collector(void **state)
{
    struct python_runtime rt = build_collector();
    struct python_collector c;

    assert_int_equal(python_collector_read(&rt, &c), 0);
    assert_int_equal(c.interpreters, 1);
    assert_true(c.is_enabled);
    assert_false(c.is_frozen);
    put(COLLECTOR + 104, COLLECTOR + 4096);
    assert_int_equal(python_collector_read(&rt, &c), 0);
    assert_true(c.is_frozen);
    assert_int_equal(c.threshold[0], 700);
    assert_int_equal(c.threshold[2], 10);
    assert_int_equal(c.collections[0], 100);
    assert_int_equal(c.collections[2], 25);
    assert_int_equal(c.collected[1], 5001);
    assert_int_equal(c.uncollectable[2], 2);
}

static void what_is_no_collector_is_refused(void **state)
{
    struct python_runtime rt = build_collector();
    struct python_collector c;

    put(COLLECTOR + 96, COLLECTOR + 32); /* not its own first generation */
    assert_int_equal(python_collector_read(&rt, &c), -EBADMSG);
    rt = build_collector();
    put(COLLECTOR + 8, (uint64_t)7 << 32); /* neither enabled nor not */
    assert_int_equal(python_collector_read(&rt, &c), -EBADMSG);
    rt = build_collector();
    put(COLLECTOR + 200, 2);
    assert_int_equal(python_collector_read(&rt, &c), -EBADMSG);
    rt = build_collector();
    put(COLLECTOR + 128, UINT64_MAX);
    assert_int_equal(python_collector_read(&rt, &c), -EBADMSG);
    rt = build_collector();
    put(INTERPRETER, INTERPRETER); /* interpreters in a ring */
    assert_int_equal(python_collector_read(&rt, &c), -EBADMSG);
    rt = build_collector();
    put(RUNTIME + 40, 0);
    assert_int_equal(python_collector_read(&rt, &c), -EBADMSG);
    rt = build_collector();
    rt.layout.walk.interpreter_gc = 0;
    assert_int_equal(python_collector_read(&rt, &c), -ENOTSUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_of_the_collector),
        cmocka_unit_test(what_is_no_collector_is_refused),
        cmocka_unit_test(versions_from_names_and_numbers),
        cmocka_unit_test(every_version_of_the_table_is_there_and_no_other),
        cmocka_unit_test(an_interpreter_that_describes_itself),
        cmocka_unit_test(descriptions_that_cannot_be_are_refused),
        cmocka_unit_test(threads_frames_and_names_are_read),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(moved_fields_are_found_where_the_table_may_be_off),
        cmocka_unit_test(rings_and_wild_pointers_end),
        cmocka_unit_test(strings_of_every_kind),
        cmocka_unit_test(code_that_was_kept_reads_as_it_did),
        cmocka_unit_test(code_that_was_kept_in_part_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
