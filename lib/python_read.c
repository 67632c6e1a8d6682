/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_read.c - strings and code objects of another process; see python_layout.h.
 *
 * Of a str only the compact form is read: its characters are behind its head.
 */
#include "python_layout.h"

#include <errno.h>
#include <string.h>

#define OBJECT_TYPE 8

static int memory_read(const struct python_runtime *rt, uint64_t address, void *ret, size_t bytes)
{
    if (!address || address >= IMAGE_ADDRESS_MAX)
        return -EFAULT;
    return rt->reader.read(rt->reader.userdata, address, ret, bytes);
}

/* Appends one character as UTF-8 if it fits whole. */
static size_t utf8_put(uint32_t c, char *ret, size_t at, size_t size)
{
    uint8_t bytes[4];
    size_t n;

    if (c < 0x20 || c == 0x7f || (c >= 0x80 && c < 0xa0) || (c >= 0xd800 && c < 0xe000) ||
        c > 0x10ffff)
        c = '?';
    if (c < 0x80) {
        bytes[0] = (uint8_t)c;
        n = 1;
    } else if (c < 0x800) {
        bytes[0] = (uint8_t)(0xc0 | c >> 6);
        n = 2;
    } else if (c < 0x10000) {
        bytes[0] = (uint8_t)(0xe0 | c >> 12);
        n = 3;
    } else {
        bytes[0] = (uint8_t)(0xf0 | c >> 18);
        n = 4;
    }
    for (size_t i = 1; i < n; i++)
        bytes[i] = (uint8_t)(0x80 | ((c >> 6 * (n - 1 - i)) & 0x3f));
    if (at + n >= size)
        return 0;
    memcpy(ret + at, bytes, n);
    return n;
}

int python_string_read(const struct python_runtime *rt, uint64_t address, bool from_end, char *ret,
                       size_t size)
{
    uint8_t head[NM_CODE_STR_BYTES], raw[4 * PYTHON_NAME_MAX];
    uint64_t length, count, skip = 0;
    uint32_t state;
    size_t width, at = 0;
    int r;

    ret[0] = '\0';
    r = memory_read(rt, address, head, sizeof(head));
    if (r < 0)
        return r;
    memcpy(&length, head + NM_PY_STR_LENGTH, sizeof(length));
    memcpy(&state, head + NM_PY_STR_STATE, sizeof(state));
    width = NM_PY_STR_WIDTH(state);
    if (!NM_PY_STR_IS_COMPACT(state) || (width != 1 && width != 2 && width != 4) ||
        (NM_PY_STR_IS_ASCII(state) && width != 1) || length > NM_PY_STR_MAX)
        return -EBADMSG;
    count = length;
    if (count > size - 1)
        count = size - 1;
    if (count > PYTHON_NAME_MAX)
        count = PYTHON_NAME_MAX;
    if (from_end)
        skip = length - count;
    address +=
        NM_PY_STR_IS_ASCII(state) ? rt->layout.walk.string_ascii : rt->layout.walk.string_compact;
    r = count ? memory_read(rt, address + skip * width, raw, count * width) : 0;
    if (r < 0)
        return r;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t c = 0;
        size_t n;
        memcpy(&c, raw + i * width, width);
        n = utf8_put(c, ret, at, size);
        if (!n)
            break;
        at += n;
    }
    ret[at] = '\0';
    return (int)at;
}

int python_code_read(const struct python_runtime *rt, uint64_t code, struct python_code *ret)
{
    const struct python_layout *l = &rt->layout;
    uint8_t object[NM_CODE_BYTES]; /* the named fields lie within, in every version */
    uint64_t type, file, name, qualified = 0;
    int r;

    memset(ret, 0, sizeof(*ret));
    if (code % 8 || l->walk.code_file > sizeof(object) - 8 ||
        l->walk.code_plain > sizeof(object) - 8 || l->code_qualified > sizeof(object) - 8 ||
        l->code_line > sizeof(object) - 8)
        return -EBADMSG;
    r = memory_read(rt, code, object, sizeof(object));
    if (r < 0)
        return r;
    memcpy(&type, object + OBJECT_TYPE, sizeof(type));
    if (rt->code_type && type != rt->code_type)
        return -EBADMSG;
    memcpy(&file, object + l->walk.code_file, sizeof(file));
    memcpy(&name, object + l->walk.code_plain, sizeof(name));
    memcpy(&ret->line, object + l->code_line, sizeof(ret->line));
    r = python_string_read(rt, name, false, ret->name, sizeof(ret->name));
    if (r < 0)
        return r;
    r = python_string_read(rt, file, true, ret->file, sizeof(ret->file));
    if (r < 0)
        return r;
    ret->name_pointer = name;
    if (!l->code_qualified)
        return 0;
    memcpy(&qualified, object + l->code_qualified, sizeof(qualified));
    r = python_string_read(rt, qualified, false, ret->qualified, sizeof(ret->qualified));
    if (r < 0)
        return r;
    ret->name_pointer = qualified;
    ret->has_qualified = true;
    return 0;
}

/* One piece of the process's memory that was kept. */
static bool piece_read(uint64_t at, const uint8_t *bytes, size_t size, uint64_t address,
                       void *buffer, size_t wanted)
{
    if (address < at || wanted > size || address - at > size - wanted)
        return false;
    memcpy(buffer, bytes + (address - at), wanted);
    return true;
}

struct kept {
    uint64_t code;
    const struct nm_code_memory *memory;
};

static int kept_read(void *userdata, uint64_t address, void *buffer, size_t bytes)
{
    const struct kept *k = userdata;
    const struct nm_code_string *strings[] = {&k->memory->plain, &k->memory->file,
                                              &k->memory->qualified};

    if (piece_read(k->code, k->memory->object, NM_CODE_BYTES, address, buffer, bytes))
        return 0;
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
        const struct nm_code_string *s = strings[i];
        size_t text = s->text_bytes < NM_CODE_TEXT_BYTES ? s->text_bytes : NM_CODE_TEXT_BYTES;
        if (piece_read(s->address, s->head, NM_CODE_STR_BYTES, address, buffer, bytes) ||
            piece_read(s->text_at, s->text, text, address, buffer, bytes))
            return 0;
    }
    return -EFAULT;
}

int python_code_decode(const struct python_runtime *rt, uint64_t code,
                       const struct nm_code_memory *memory, struct python_code *ret)
{
    struct kept kept = {code, memory};
    struct python_runtime then = *rt;

    then.reader = (struct memory_reader){kept_read, &kept};
    return python_code_read(&then, code, ret);
}
