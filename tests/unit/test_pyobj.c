/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyobj: objects made of bytes, as each known version of CPython lays them out.
 *
 * The offsets stand here a second time, as numbers from offsetof() against the headers of each
 * version, not from the tables of the code under test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pyobj_frame.h"

#define HEAP 0x10000000ull
#define HEAP_BYTES 0x20000u

/* How one version differs from the others. */
struct version {
    unsigned minor;
    unsigned ascii, compact; /* where characters begin */
    unsigned cached_keys, frame_locals, code_names, code_plain, modules, gc;
    unsigned head, threads, thread_frame, previous, code, code_name;
};
static const struct version versions[] = {
    {9, 48, 72, 864, 360, 72, 28, 856, 616, 32, 8, 24, 24, 32, 112},
    {10, 48, 72, 872, 352, 72, 28, 856, 616, 32, 8, 24, 24, 32, 112},
    {11, 48, 72, 872, 72, 96, 76, 888, 648, 40, 16, 56, 48, 32, 128},
    {12, 40, 56, 880, 72, 96, 72, 944, 112, 40, 72, 56, 8, 0, 128},
    {13, 40, 56, 880, 72, 96, 72, 7656, 7400, 632, 7344, 72, 8, 0, 128},
};

struct world {
    const struct version *v;
    unsigned char bytes[HEAP_BYTES];
    uint64_t used;
    struct image *image;
    struct pyobj py;
    uint64_t type, str, dict, list, tuple, number, cell, module, method, code, plain;
};
static struct world w;

static int on_read(void *userdata, uint64_t address, void *buffer, size_t bytes)
{
    if (address < HEAP || address - HEAP + bytes > HEAP_BYTES)
        return -EFAULT;
    memcpy(buffer, w.bytes + (address - HEAP), bytes);
    return 0;
}

static uint64_t space(uint64_t bytes)
{
    uint64_t at = (w.used + 15) & ~15ull;
    w.used = at + bytes;
    assert_true(w.used <= HEAP_BYTES);
    return HEAP + at;
}

static void put(uint64_t address, const void *data, size_t bytes)
{
    memcpy(w.bytes + (address - HEAP), data, bytes);
    if (w.image)
        image_forget(w.image);
}

static void put64(uint64_t address, uint64_t value)
{
    put(address, &value, 8);
}

static void put32(uint64_t address, uint32_t value)
{
    put(address, &value, 4);
}

static void put8(uint64_t address, uint8_t value)
{
    put(address, &value, 1);
}

/* 32 bytes before it for what lies before instances. */
static uint64_t object(uint64_t type, uint64_t bytes)
{
    uint64_t o = space(32 + bytes) + 32;
    put64(o, 1);
    put64(o + 8, type);
    return o;
}

static uint64_t make_type(const char *name, uint64_t flags)
{
    uint64_t t = object(w.type, 1024), text = space(strlen(name) + 1);
    put(text, name, strlen(name) + 1);
    put64(t + 24, text);
    put64(t + 32, 48); /* basicsize */
    put64(t + 168, flags | 1ull << 12);
    if (w.tuple) { /* its mro is itself */
        uint64_t mro = object(w.tuple, 32);
        put64(mro + 16, 1);
        put64(mro + 24, t);
        put64(t + 344, mro);
    }
    return t;
}

static uint64_t make_str(const char *text)
{
    uint64_t s = object(w.str, 128);
    put64(s + 16, strlen(text));
    put32(s + 32, 1 << 2 | 1 << 5 | 1 << 6 | 1 << 7);
    put(s + w.v->ascii, text, strlen(text) + 1);
    return s;
}

static uint64_t make_sequence(bool is_list, unsigned count, const uint64_t *items)
{
    uint64_t o = object(is_list ? w.list : w.tuple, 24 + 8 * count);
    uint64_t at = is_list ? space(8 * count + 8) : o + 24;
    put64(o + 16, count);
    if (is_list)
        put64(o + 24, at);
    for (unsigned i = 0; i < count; i++)
        put64(at + 8 * i, items[i]);
    return o;
}

/* A table of 8 places; has_hash: keys that are not all str (3.11 on: kind 0). values NULL: they are
 * in an array of their own. */
static uint64_t make_keys(unsigned count, const uint64_t *keys, const uint64_t *values,
                          bool has_hash)
{
    bool is_old = w.v->minor < 11;
    unsigned head = is_old ? 40 : 32, entry = is_old || has_hash ? 24 : 16;
    uint64_t k = space(head + 8 + 8 * 24);

    put64(k, 1);
    if (is_old) {
        put64(k + 8, 8);
        put64(k + 32, count);
    } else {
        put8(k + 8, 3);
        put8(k + 9, 3);
        put8(k + 10, has_hash ? 0 : values ? 1 : 2);
        put64(k + 24, count);
    }
    for (unsigned i = 0; i < count; i++) {
        uint64_t at = k + head + 8 + (uint64_t)entry * i + (entry == 24 ? 8 : 0);
        put64(at, keys[i]);
        if (values)
            put64(at + 8, values[i]);
    }
    return k;
}

static uint64_t make_dict(uint64_t keys, uint64_t values)
{
    uint64_t d = object(w.dict, 48);
    put64(d + 16, 2);
    put64(d + 32, keys);
    put64(d + 40, values);
    return d;
}

static void start(const struct version *v)
{
    struct memory_reader reader = {.read = on_read};
    struct image_limits limits = {0};

    memset(&w, 0, sizeof(w));
    w.v = v;
    w.used = 64;
    w.type = object(0, 1024);
    put64(w.type + 8, w.type);
    put64(w.type + 32, 904);
    put64(w.type + 168, 1ull << 31 | 1ull << 12);
    w.tuple = make_type("tuple", 1ull << 26);
    uint64_t name = space(8);
    put(name, "type", 5);
    put64(w.type + 24, name);
    w.str = make_type("str", 1ull << 28);
    w.dict = make_type("dict", 1ull << 29);
    w.list = make_type("list", 1ull << 25);
    w.number = make_type("int", 1ull << 24);
    w.cell = make_type("cell", 0);
    w.module = make_type("module", 0);
    w.method = make_type("method", 0);
    w.code = make_type("code", 0);
    w.plain = make_type("Plain", 1ull << 9);
    assert_int_equal(image_new(&reader, &limits, &w.image), 0);
    pyobj_init(&w.py, w.image, pyobj_layout_find(v->minor));
}

static void stop(void)
{
    pyobj_done(&w.py);
    w.image = image_free(w.image);
}

#define EACH_VERSION(v)                                                                            \
    for (const struct version *v = versions;                                                       \
         v < versions + sizeof(versions) / sizeof(versions[0]); stop(), v++)

static void versions_that_are_known(void **state)
{
    for (unsigned minor = 0; minor < 20; minor++)
        assert_true((pyobj_layout_find(minor) != NULL) == (minor >= 9 && minor <= 13));
}

static void strings(void **state)
{
    EACH_VERSION(v)
    {
        char text[96], tiny[4];
        start(v);
        assert_int_equal(pyobj_str(&w.py, make_str("abc"), text, sizeof(text)), 3);
        assert_string_equal(text, "abc");
        assert_int_equal(pyobj_str(&w.py, make_str("abcdefgh"), tiny, sizeof(tiny)), 0);
        assert_int_equal(pyobj_str(&w.py, make_str("a\x1b\n"), text, sizeof(text)), 3);
        assert_string_equal(text, "a??"); /* nothing that a terminal would obey */

        /* not ASCII: two bytes a character */
        uint64_t s = object(w.str, 128);
        uint16_t wide[] = {0x4e2d, 0xe4, 'x', 0xd800};
        put64(s + 16, 4);
        put32(s + 32, 2 << 2 | 1 << 5 | 1 << 7);
        put(s + v->compact, wide, sizeof(wide));
        assert_int_equal(pyobj_str(&w.py, s, text, sizeof(text)), 7);
        assert_string_equal(text, "\xe4\xb8\xad\xc3\xa4x?");

        put32(s + 32, 2 << 2 | 1 << 7); /* not compact */
        assert_int_equal(pyobj_str(&w.py, s, text, sizeof(text)), -EBADMSG);
        put32(s + 32, 2 << 2 | 1 << 5 | 1 << 6); /* ASCII of two bytes */
        assert_int_equal(pyobj_str(&w.py, s, text, sizeof(text)), -EBADMSG);
        put32(s + 32, 1 << 2 | 1 << 5 | 1 << 6);
        put64(s + 16, 1ull << 40); /* longer than any name */
        assert_int_equal(pyobj_str(&w.py, s, text, sizeof(text)), -EBADMSG);
        assert_int_equal(pyobj_str(&w.py, 0x40000000, text, sizeof(text)), -EFAULT);
        assert_int_equal(pyobj_str(&w.py, s + 4, text, sizeof(text)), -EBADMSG);
    }
}

static uint64_t make_int(const struct version *v, uint64_t low, uint64_t high, bool is_negative)
{
    uint64_t o = object(w.number, 32), digits = high ? 2 : low ? 1 : 0;

    if (v->minor >= 12)
        put64(o + 16, digits << 3 | (is_negative ? 2 : digits ? 0 : 1));
    else
        put64(o + 16, is_negative ? -digits : digits);
    put32(o + 24, (uint32_t)low);
    put32(o + 28, (uint32_t)high);
    return o;
}

static void numbers(void **state)
{
    EACH_VERSION(v)
    {
        int64_t value;
        char text[32];
        start(v);
        assert_int_equal(pyobj_int(&w.py, make_int(v, 0, 0, false), &value), 0);
        assert_int_equal(value, 0);
        assert_int_equal(pyobj_int(&w.py, make_int(v, 77, 0, true), &value), 0);
        assert_int_equal(value, -77);
        assert_int_equal(pyobj_int(&w.py, make_int(v, 5, 3, false), &value), 0);
        assert_int_equal(value, (3ll << 30) + 5);
        uint64_t big = make_int(v, 1, 1, false);
        put64(big + 16, v->minor >= 12 ? 3 << 3 : 3); /* three digits: more than 60 bits */
        assert_int_equal(pyobj_int(&w.py, big, &value), -EBADMSG);
        assert_int_equal(pyobj_key_text(&w.py, big, text, sizeof(text)), 1);
        assert_string_equal(text, "?");
        assert_int_equal(pyobj_key_text(&w.py, make_int(v, 9, 0, true), text, sizeof(text)), 2);
        assert_string_equal(text, "-9");
        assert_int_equal(pyobj_key_text(&w.py, make_str("k"), text, sizeof(text)), 1);
    }
}

static void sequences(void **state)
{
    EACH_VERSION(v)
    {
        const struct pyobj_type *type;
        uint64_t items, count;
        start(v);
        for (int is_list = 0; is_list < 2; is_list++) {
            uint64_t values[] = {make_str("x"), make_str("y")}, first;
            uint64_t s = make_sequence(is_list, 2, values);
            assert_int_equal(pyobj_type(&w.py, s, &type), 0);
            assert_int_equal(type->kind, is_list ? PYOBJ_LIST : PYOBJ_TUPLE);
            assert_int_equal(pyobj_items(&w.py, s, type, &items, &count), 0);
            assert_int_equal(count, 2);
            assert_int_equal(image_u64(w.image, items + 8, &first), 0);
            assert_int_equal(first, values[1]);
            put64(s + 16, UINT64_MAX); /* a length of -1 */
            assert_int_equal(pyobj_items(&w.py, s, type, &items, &count), -EBADMSG);
        }
    }
}

static void types_are_checked(void **state)
{
    EACH_VERSION(v)
    {
        const struct pyobj_type *type;
        start(v);
        uint64_t bad = make_type("NotReady", 0), no_name = make_type("x", 0),
                 huge = make_type("x", 0);
        put64(bad + 168, 1 << 9);
        put64(no_name + 24, 0x7000000000);
        put64(huge + 32, 1ull << 40);
        assert_int_equal(pyobj_type(&w.py, object(bad, 32), &type), -EBADMSG);
        assert_int_equal(pyobj_type(&w.py, object(no_name, 32), &type), -EBADMSG);
        assert_int_equal(pyobj_type(&w.py, object(huge, 32), &type), -EBADMSG);
        /* an object whose type is a str */
        assert_int_equal(pyobj_type(&w.py, object(make_str("abc"), 32), &type), -EBADMSG);
        assert_int_equal(pyobj_type(&w.py, object(0, 32), &type), -EBADMSG);
        assert_int_equal(pyobj_type(&w.py, HEAP + 3, &type), -EBADMSG);
        assert_int_equal(pyobj_type(&w.py, object(w.plain, 32), &type), 0);
        assert_string_equal(type->name, "Plain");
        assert_true(type->is_heap);
    }
}

/* "name=value;" of all pairs whose values are str. */
static void pairs_text(struct pyobj_pairs *pairs, char *text, size_t size)
{
    uint64_t key, value;

    text[0] = '\0';
    while (pyobj_next(&w.py, pairs, &key, &value) > 0) {
        char name[96], word[96];
        assert_true(pyobj_key_text(&w.py, key, name, sizeof(name)) > 0);
        assert_true(pyobj_str(&w.py, value, word, sizeof(word)) > 0);
        size_t length = strlen(text);
        snprintf(text + length, size - length, "%s=%s;", name, word);
    }
}

static void dicts(void **state)
{
    EACH_VERSION(v)
    {
        struct pyobj_pairs pairs;
        char text[200];
        uint64_t value;
        start(v);
        uint64_t names[] = {make_str("a"), make_str("bb"), make_str("c")};
        uint64_t values[] = {make_str("1"), 0, make_str("3")}; /* bb was deleted */
        uint64_t mixed[] = {make_int(v, 7, 0, false), make_str("k")};
        uint64_t words[] = {make_str("sieben"), make_str("v")};

        assert_int_equal(
            pyobj_dict_pairs(&w.py, make_dict(make_keys(3, names, values, false), 0), &pairs), 0);
        pairs_text(&pairs, text, sizeof(text));
        assert_string_equal(text, "a=1;c=3;");
        assert_int_equal(
            pyobj_dict_pairs(&w.py, make_dict(make_keys(2, mixed, words, true), 0), &pairs), 0);
        pairs_text(&pairs, text, sizeof(text));
        assert_string_equal(text, "7=sieben;k=v;");

        /* split: the values in an array */
        uint64_t array = space(64), items = array + (v->minor == 13 ? 8 : 0);
        put64(items, values[2]);
        put64(items + 8, values[0]);
        uint64_t split = make_dict(make_keys(3, names, NULL, false), array);
        assert_int_equal(pyobj_dict_pairs(&w.py, split, &pairs), 0);
        pairs_text(&pairs, text, sizeof(text));
        assert_string_equal(text, "a=3;bb=1;");
        assert_int_equal(pyobj_dict_get(&w.py, split, "bb", &value), 0);
        assert_int_equal(value, values[0]);
        assert_int_equal(pyobj_dict_get(&w.py, split, "nope", &value), -ENOENT);
        assert_int_equal(pyobj_dict_pairs(&w.py, names[0], &pairs), -EBADMSG); /* a str */
    }
}

static void dicts_that_lie(void **state)
{
    EACH_VERSION(v)
    {
        struct pyobj_pairs pairs;
        start(v);
        uint64_t names[] = {make_str("a")}, values[] = {make_str("1")};
        uint64_t keys = make_keys(1, names, values, false), d = make_dict(keys, 0);
        uint64_t count_at = keys + (v->minor < 11 ? 32 : 24), size_at = keys + 8;

        put64(count_at, 9); /* of a table of 8 */
        assert_int_equal(pyobj_dict_pairs(&w.py, d, &pairs), -EBADMSG);
        put64(count_at, UINT64_MAX);
        assert_int_equal(pyobj_dict_pairs(&w.py, d, &pairs), -EBADMSG);
        put64(count_at, 1);
        if (v->minor < 11) {
            static const uint64_t sizes[] = {0, 7, 1ull << 40};
            for (size_t i = 0; i < 3; i++) {
                put64(size_at, sizes[i]);
                assert_int_equal(pyobj_dict_pairs(&w.py, d, &pairs), -EBADMSG);
            }
        } else {
            for (unsigned i = 0; i < 3; i++) { /* log of the size, of the indices; the kind */
                static const uint8_t bad[] = {200, 1, 3};
                uint8_t good = w.bytes[size_at + i - HEAP];
                put8(size_at + i, bad[i]);
                assert_int_equal(pyobj_dict_pairs(&w.py, d, &pairs), -EBADMSG);
                put8(size_at + i, good);
            }
        }
        put64(d + 32, 0x77); /* no address */
        assert_int_equal(pyobj_dict_pairs(&w.py, d, &pairs), -EBADMSG);
        put64(d + 32, 0x4000000000); /* not mapped */
        assert_int_equal(pyobj_dict_pairs(&w.py, d, &pairs), -EFAULT);
    }
}

/* An instance with a = "eins" where this version keeps attributes; as_dict: the dict made real. */
static uint64_t make_instance(const struct version *v, bool as_dict)
{
    uint64_t names[] = {make_str("a"), make_str("b")}, values[] = {make_str("eins"), 0};
    uint64_t flags = 1ull << 9, type, o, dict = make_dict(make_keys(2, names, values, false), 0);
    uint64_t keys = make_keys(2, names, NULL, false), array = space(64);

    if (v->minor >= 11)
        flags |= 1ull << 4;
    if (v->minor == 13)
        flags |= 1ull << 2;
    type = make_type("Instance", flags);
    put64(type + v->cached_keys, keys);
    o = object(type, 128);
    if (v->minor < 11) {
        put64(type + 288, 40);
        put64(o + 40, as_dict ? dict : make_dict(keys, array));
        put64(array, values[0]);
    } else if (v->minor == 11) {
        put64(as_dict ? o - 24 : o - 32, as_dict ? dict : array);
        put64(array, values[0]);
    } else if (v->minor == 12) {
        put64(o - 24, as_dict ? dict : array - 1);
        put64(array, values[0]);
    } else {
        put64(o - 24, as_dict ? dict : 0);
        put8(o + 48 + 3, as_dict ? 0 : 1); /* valid */
        put64(o + 48 + 8, values[0]);
    }
    return o;
}

static void attributes(void **state)
{
    EACH_VERSION(v)
    {
        char text[32];
        uint64_t value;
        start(v);
        for (int as_dict = 0; as_dict < 2; as_dict++) {
            uint64_t o = make_instance(v, as_dict);
            assert_int_equal(pyobj_attribute(&w.py, o, "a", &value), 0);
            assert_true(pyobj_str(&w.py, value, text, sizeof(text)) > 0);
            assert_string_equal(text, "eins");
            assert_int_equal(pyobj_attribute(&w.py, o, "b", &value), -ENOENT);
        }
        /* none at all */
        assert_int_equal(pyobj_attribute(&w.py, object(w.plain, 64), "a", &value), -ENOENT);
    }
}

static void slots(void **state)
{
    EACH_VERSION(v)
    {
        uint64_t value;
        start(v);
        uint64_t one = make_str("one");
        uint64_t name = space(8), hidden = space(8), type = make_type("Slots", 1ull << 9);
        put(name, "first", 6);
        put(hidden, "wild", 5);
        put64(type + 16, 2);        /* members */
        put64(type + 904, name);    /* behind the type object, whose size is its type's basicsize */
        put64(type + 904 + 16, 16); /* offset */
        put64(type + 944, hidden);
        put64(type + 944 + 16, 1 << 20); /* outside of the instance */
        uint64_t o = object(type, 64);
        put64(o + 16, one);
        assert_int_equal(pyobj_attribute(&w.py, o, "first", &value), 0);
        assert_int_equal(value, one);
        assert_int_equal(pyobj_attribute(&w.py, o, "wild", &value), -ENOENT);
    }
}

static void cells_methods_modules(void **state)
{
    EACH_VERSION(v)
    {
        uint64_t value, target;
        start(v);
        target = make_str("t");
        uint64_t cell = object(w.cell, 32), method = object(w.method, 48),
                 module = object(w.module, 48);
        put64(cell + 16, target);
        put64(method + 16, module); /* the function */
        put64(method + 24, target); /* self */
        put64(module + 16, target);
        assert_int_equal(pyobj_cell(&w.py, cell, &value), 0);
        assert_int_equal(value, target);
        assert_int_equal(pyobj_cell(&w.py, method, &value), 0);
        assert_int_equal(value, target);
        assert_int_equal(pyobj_cell(&w.py, module, &value), 0);
        assert_int_equal(pyobj_cell(&w.py, object(w.cell, 32), &value), -ENOENT); /* empty */
        assert_int_equal(pyobj_cell(&w.py, target, &value), -ENOENT);             /* a str */
    }
}

/* --- threads and frames --- */

static uint64_t runtime, interpreter, thread, frame;

/* One thread in function run(self) with self = "me"; returns the code object. */
static uint64_t make_thread(const struct version *v, uint64_t local)
{
    uint64_t code = object(w.code, 160), name = make_str("self"), cframe = space(32);

    runtime = space(1024);
    interpreter = space(8192);
    thread = space(256);
    frame = v->minor < 11 ? object(w.plain, 512) : space(128);
    put64(runtime + v->head, interpreter);
    put64(interpreter + v->threads, thread);
    put64(thread + 16, interpreter);
    put64(thread + v->thread_frame, frame);
    if (v->minor == 11 || v->minor == 12) { /* through a C frame */
        put64(thread + v->thread_frame, cframe);
        put64(cframe + (v->minor == 11 ? 8 : 0), frame);
    }
    put64(frame + v->code, code);
    put64(frame + v->frame_locals, local);
    put64(code + v->code_name, make_str("Loop.run"));
    put64(code + v->code_names, make_sequence(false, 1, &name));
    put32(code + v->code_plain, 1);
    if (v->minor < 11)
        put64(code + 88, make_sequence(false, 0, NULL)); /* cells */
    return code;
}

struct seen {
    unsigned frames, locals;
    char function[96], local[96];
    uint64_t value;
};

static int on_local(void *userdata, const char *name, uint64_t value)
{
    struct seen *s = userdata;
    s->locals++;
    snprintf(s->local, sizeof(s->local), "%s", name);
    s->value = value;
    return 0;
}

static int on_frame(void *userdata, const struct pyobj_frame *f)
{
    struct seen *s = userdata;
    s->frames++;
    snprintf(s->function, sizeof(s->function), "%s", f->function);
    return pyobj_each_local(&w.py, f, on_local, s);
}

static void frames_and_locals(void **state)
{
    EACH_VERSION(v)
    {
        uint64_t found;
        start(v);
        uint64_t me = make_str("me"), cell = object(w.cell, 32);
        put64(cell + 16, me);
        for (int as_cell = 0; as_cell < 2; as_cell++) {
            struct seen s = {0};
            make_thread(v, as_cell ? cell : me);
            assert_int_equal(pyobj_interpreter(&w.py, runtime, &found), 0);
            assert_int_equal(found, interpreter);
            assert_int_equal(pyobj_each_frame(&w.py, interpreter, on_frame, &s), 0);
            assert_int_equal(s.frames, 1);
            assert_string_equal(s.function, "Loop.run");
            assert_string_equal(s.local, "self");
            assert_int_equal(s.value, me);
        }
        assert_int_equal(pyobj_interpreter(&w.py, space(1024), &found), -ENODATA);
    }
}

static void chains_that_do_not_end(void **state)
{
    EACH_VERSION(v)
    {
        struct seen s = {0};
        start(v);
        make_thread(v, make_str("me"));
        put64(frame + v->previous, frame); /* it called itself */
        assert_int_equal(pyobj_each_frame(&w.py, interpreter, on_frame, &s), 0);
        assert_int_equal(s.frames, PYOBJ_FRAMES_MAX);
        put64(frame + v->previous, 0);
        put64(thread + 8, thread); /* the next thread is this one */
        s = (struct seen){0};
        assert_int_equal(pyobj_each_frame(&w.py, interpreter, on_frame, &s), 0);
        assert_int_equal(s.frames, PYOBJ_THREADS_MAX);
    }
}

static void a_torn_frame_ends_its_thread_only(void **state)
{
    EACH_VERSION(v)
    {
        struct seen s = {0};
        start(v);
        make_thread(v, make_str("me"));
        uint64_t second = space(256);
        memcpy(w.bytes + (second - HEAP), w.bytes + (thread - HEAP), 256);
        put64(thread + 8, second);
        put64(thread + v->thread_frame, 0x7700000000); /* not mapped */
        assert_int_equal(pyobj_each_frame(&w.py, interpreter, on_frame, &s), 0);
        assert_int_equal(s.frames, 1);
        assert_int_equal(w.py.torn_threads, 1);
    }
}

static void more_locals_than_any_function_has(void **state)
{
    EACH_VERSION(v)
    {
        struct seen s = {0};
        start(v);
        uint64_t code = make_thread(v, make_str("me"));
        put32(code + v->code_plain, UINT32_MAX);
        pyobj_each_frame(&w.py, interpreter, on_frame, &s);
        assert_int_equal(s.locals, 0);
    }
}

static void modules_also_where_they_moved_to(void **state)
{
    EACH_VERSION(v)
    {
        uint64_t found;
        start(v);
        make_thread(v, make_str("me"));
        uint64_t names[] = {make_str("builtins"), make_str("__main__")};
        uint64_t values[] = {object(w.module, 48), object(w.module, 48)};
        uint64_t modules = make_dict(make_keys(2, names, values, false), 0);
        put64(interpreter + v->modules, modules);
        assert_int_equal(pyobj_modules(&w.py, interpreter, &found), 0);
        assert_int_equal(found, modules);
        put64(interpreter + v->modules, 0);
        put64(interpreter + v->modules + 40, modules); /* as on another machine */
        assert_int_equal(pyobj_modules(&w.py, interpreter, &found), 0);
        assert_int_equal(found, modules);
        put64(interpreter + v->modules + 40, make_dict(make_keys(1, names, values, false), 0));
        assert_int_equal(pyobj_modules(&w.py, interpreter, &found), -ENOENT);
    }
}

static int on_tracked(void *userdata, uint64_t o)
{
    ++*(unsigned *)userdata;
    return 0;
}

static void tracked_objects_and_a_list_that_leads_back(void **state)
{
    EACH_VERSION(v)
    {
        unsigned count = 0;
        start(v);
        make_thread(v, make_str("me"));
        uint64_t head = interpreter + v->gc + 24, at[3] = {space(64), space(64), space(64)};
        put64(head, at[0]);
        for (unsigned i = 0; i < 3; i++) {
            put64(at[i], i < 2 ? at[i + 1] : head);
            put64(at[i] + 8, i ? at[i - 1] : head);
        }
        assert_int_equal(pyobj_each_tracked(&w.py, interpreter, 1000, on_tracked, &count), 3);
        assert_int_equal(count, 3);
        put64(at[2], at[1]); /* a ring that never comes back to its head */
        count = 0;
        assert_int_equal(pyobj_each_tracked(&w.py, interpreter, 1000, on_tracked, &count), 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_that_are_known),
        cmocka_unit_test(strings),
        cmocka_unit_test(numbers),
        cmocka_unit_test(sequences),
        cmocka_unit_test(types_are_checked),
        cmocka_unit_test(dicts),
        cmocka_unit_test(dicts_that_lie),
        cmocka_unit_test(attributes),
        cmocka_unit_test(slots),
        cmocka_unit_test(cells_methods_modules),
        cmocka_unit_test(frames_and_locals),
        cmocka_unit_test(chains_that_do_not_end),
        cmocka_unit_test(a_torn_frame_ends_its_thread_only),
        cmocka_unit_test(more_locals_than_any_function_has),
        cmocka_unit_test(modules_also_where_they_moved_to),
        cmocka_unit_test(tracked_objects_and_a_list_that_leads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
