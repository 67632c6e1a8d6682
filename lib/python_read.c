/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_read.c - strings and code objects of another process; see python_layout.h.
 *
 * A compact str has its length at 16, a state word at 32 (kind in bits 2-4, compact bit 5, ASCII
 * bit 6) and its characters behind its head. Source: CPython unicodeobject.h, 3.9 to 3.14.
 */
#include "python_layout.h"

#include <errno.h>
#include <string.h>

#define STRING_LENGTH 16
#define STRING_STATE 32
#define STRING_CHARACTERS_MAX (1u << 20) /* longer is no name */
#define STATE_KIND(s) (((s) >> 2) & 7)
#define STATE_COMPACT(s) (((s) >> 5) & 1)
#define STATE_ASCII(s) (((s) >> 6) & 1)
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
    uint8_t head[40], raw[4 * PYTHON_NAME_MAX];
    uint64_t length, count, skip = 0;
    uint32_t state;
    size_t width, at = 0;
    int r;

    ret[0] = '\0';
    r = memory_read(rt, address, head, sizeof(head));
    if (r < 0)
        return r;
    memcpy(&length, head + STRING_LENGTH, sizeof(length));
    memcpy(&state, head + STRING_STATE, sizeof(state));
    width = STATE_KIND(state);
    if (!STATE_COMPACT(state) || (width != 1 && width != 2 && width != 4) ||
        (STATE_ASCII(state) && width != 1) || length > STRING_CHARACTERS_MAX)
        return -EBADMSG;
    count = length;
    if (count > size - 1)
        count = size - 1;
    if (count > PYTHON_NAME_MAX)
        count = PYTHON_NAME_MAX;
    if (from_end)
        skip = length - count;
    address += STATE_ASCII(state) ? rt->layout.string_ascii : rt->layout.string_compact;
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
    uint8_t object[144]; /* the named fields lie within, in every version */
    uint64_t type, file, name, qualified = 0;
    int r;

    memset(ret, 0, sizeof(*ret));
    if (code % 8 || l->code_file > sizeof(object) - 8 || l->code_name > sizeof(object) - 8 ||
        l->code_qualified > sizeof(object) - 8 || l->code_line > sizeof(object) - 8)
        return -EBADMSG;
    r = memory_read(rt, code, object, sizeof(object));
    if (r < 0)
        return r;
    memcpy(&type, object + OBJECT_TYPE, sizeof(type));
    if (rt->code_type && type != rt->code_type)
        return -EBADMSG;
    memcpy(&file, object + l->code_file, sizeof(file));
    memcpy(&name, object + l->code_name, sizeof(name));
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
