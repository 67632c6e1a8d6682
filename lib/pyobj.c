/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyobj.c - types, strings, numbers, sequences.
 *
 * Owns: the memory of types seen. Must not: follow an object whose type is not plausible.
 * A type is plausible when the object at its own type field is a type, it is READY, its size is
 * that of an object and its name is printable.
 */
#include "pyobj.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "pyobj_internal.h"

#define TYPES_CHUNK_SHIFT 8

static const struct pyobj_layout layouts[] = {
#define PYOBJ_LAYOUT(minor, cached, kind, inst, skip, ascii_at, compact_at, digits_at)             \
    {minor, KEYS_##kind, INSTANCE_##inst, skip, ascii_at, compact_at, DIGITS_##digits_at, cached},
#define PYOBJ_FRAME(...)
#include "pyobj_layout.def"
#undef PYOBJ_LAYOUT
#undef PYOBJ_FRAME
};

const struct pyobj_layout *pyobj_layout_find(unsigned minor)
{
    for (size_t i = 0; i < ARRAY_SIZE(layouts); i++)
        if (layouts[i].minor == minor)
            return &layouts[i];
    return NULL;
}

void pyobj_init(struct pyobj *p, struct image *image, const struct pyobj_layout *layout)
{
    *p = (struct pyobj){.image = image, .layout = layout};
    (void)python_layout_find(layout->minor, &p->threads); /* has the rows that ours has */
    map_init(&p->types, sizeof(struct pyobj_type), TYPES_CHUNK_SHIFT, NULL);
}

void pyobj_done(struct pyobj *p)
{
    map_clear(&p->types);
}

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Reads what a type says of itself; false: it is none. */
static bool type_read(struct pyobj *p, uint64_t address, unsigned char bytes[TYPE_BYTES],
                      char *name, size_t size)
{
    uint64_t meta_flags, basicsize;

    if (!image_pointer(address) || image_read(p->image, address, bytes, TYPE_BYTES) < 0)
        return false;
    if (!image_pointer(image_word(bytes, OBJECT_TYPE)) ||
        image_u64(p->image, image_word(bytes, OBJECT_TYPE) + TYPE_FLAGS, &meta_flags) < 0 ||
        !(meta_flags & FLAG_TYPE))
        return false;
    basicsize = image_word(bytes, TYPE_BASICSIZE);
    return (image_word(bytes, TYPE_FLAGS) & FLAG_READY) && basicsize >= 16 && basicsize < 1 << 20 &&
           image_text(p->image, image_word(bytes, TYPE_NAME), name, size) > 0;
}

/* The classes it inherits from, by name. */
static void type_bases(struct pyobj *p, uint64_t mro, struct pyobj_type *t)
{
    uint64_t count, base, metatype;

    if (!image_pointer(mro) || image_u64(p->image, mro + OBJECT_SIZE, &count) < 0)
        return;
    for (uint64_t i = 0; i < count && i < PYOBJ_MRO_MAX; i++) {
        unsigned char bytes[TYPE_BYTES];
        char name[PYOBJ_NAME_MAX];
        if (image_u64(p->image, mro + ITEMS_INLINE + 8 * i, &base) < 0 ||
            !type_read(p, base, bytes, name, sizeof(name)))
            return;
        t->is_tensor |= ends_with(name, "TensorBase");
        t->is_parameter |= strcmp(name, "Parameter") == 0 || ends_with(name, ".Parameter");
        t->is_nn_module |= strcmp(name, "Module") == 0;
        t->is_deque |= strcmp(name, "collections.deque") == 0;
        if (!(image_word(bytes, TYPE_FLAGS) & FLAG_HEAPTYPE))
            continue;
        /* members of a class statement: their number is the size of the type object */
        metatype = image_word(bytes, OBJECT_SIZE);
        t->has_slots |= metatype > 0 && metatype < 256;
    }
}

static uint8_t kind_of(uint64_t flags, const char *name)
{
    return flags & FLAG_TYPE             ? PYOBJ_TYPE
           : flags & FLAG_DICT           ? PYOBJ_DICT
           : flags & FLAG_LIST           ? PYOBJ_LIST
           : flags & FLAG_TUPLE          ? PYOBJ_TUPLE
           : flags & FLAG_STR            ? PYOBJ_STR
           : flags & FLAG_INT            ? PYOBJ_INT
           : flags & FLAG_HEAPTYPE       ? PYOBJ_OTHER
           : strcmp(name, "cell") == 0   ? PYOBJ_CELL
           : strcmp(name, "module") == 0 ? PYOBJ_MODULE
           : strcmp(name, "method") == 0 ? PYOBJ_METHOD
                                         : PYOBJ_OTHER;
}

static void type_fill(struct pyobj *p, uint64_t address, struct pyobj_type *t)
{
    unsigned char bytes[TYPE_BYTES];
    char name[PYOBJ_NAME_MAX];

    if (!type_read(p, address, bytes, name, sizeof(name)))
        return;
    uint64_t flags = image_word(bytes, TYPE_FLAGS);
    int64_t dict_offset = (int64_t)image_word(bytes, TYPE_DICTOFFSET);
    t->is_valid = true;
    t->basicsize = (uint32_t)image_word(bytes, TYPE_BASICSIZE);
    t->is_heap = flags & FLAG_HEAPTYPE;
    t->has_managed_dict = p->layout->instance != INSTANCE_NONE && (flags & FLAG_MANAGED_DICT);
    t->has_inline_values = p->layout->instance == INSTANCE_INLINE && (flags & FLAG_INLINE_VALUES);
    if (dict_offset > 0 && dict_offset < 1 << 20 && dict_offset % 8 == 0)
        t->dict_offset = (int32_t)dict_offset;
    t->kind = kind_of(flags, name);
    snprintf(t->name, sizeof(t->name), "%.47s", name);
    type_bases(p, image_word(bytes, TYPE_MRO), t);
}

int pyobj_type(struct pyobj *p, uint64_t address, const struct pyobj_type **ret)
{
    uint64_t type;
    int r;

    if (!image_pointer(address))
        return -EBADMSG;
    r = image_u64(p->image, address + OBJECT_TYPE, &type);
    if (r < 0)
        return r;
    uint32_t number = map_find(&p->types, type, 0);
    if (!number) {
        if (!image_pointer(type) || p->types.count >= PYOBJ_TYPES_MAX)
            return -EBADMSG;
        if (map_add(&p->types, type, 0, &number) < 0)
            return -ENOMEM;
        type_fill(p, type, map_at(&p->types, number));
    }
    *ret = map_at(&p->types, number);
    return (*ret)->is_valid ? 0 : -EBADMSG;
}

static int utf8_put(char *to, uint32_t c)
{
    if (c < 0x20 || c == 0x7f || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
        c = '?';
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    for (int i = more; i > 0; i--, c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)((more == 1 ? 0xc0 : more == 2 ? 0xe0 : 0xf0) | c);
    return more + 1;
}

int pyobj_str(struct pyobj *p, uint64_t address, char *buffer, size_t size)
{
    unsigned char head[24], text[4 * PYOBJ_NAME_MAX];
    size_t used = 0;
    int r =
        image_pointer(address) ? image_read(p->image, address + 16, head, sizeof(head)) : -EBADMSG;

    if (r < 0)
        return r;
    /* state: interned 2 bits, kind 3, compact 1, ascii 1 (then ready, up to 3.11) */
    uint64_t length = image_word(head, 0);
    unsigned state = head[16], width = state >> 2 & 7;
    bool is_compact = state & 1 << 5, is_ascii = state & 1 << 6;
    if (!is_compact || (width != 1 && width != 2 && width != 4) || (is_ascii && width != 1) ||
        length > PYOBJ_ITEMS_MAX)
        return -EBADMSG;
    uint64_t count = length < PYOBJ_NAME_MAX ? length : PYOBJ_NAME_MAX;
    r = image_read(p->image, address + (is_ascii ? p->layout->ascii : p->layout->compact), text,
                   count * width);
    if (r < 0)
        return r;
    for (uint64_t i = 0; i < count && used + 5 <= size; i++) {
        uint32_t c = 0;
        memcpy(&c, text + i * width, width);
        used += (size_t)utf8_put(buffer + used, c);
    }
    buffer[used] = '\0';
    return (int)used;
}

int pyobj_int_decode(const struct pyobj_layout *layout, const void *bytes, int64_t *ret)
{
    int64_t size = (int64_t)image_word(bytes, 0);
    bool is_negative;
    uint64_t count;

    if (layout->digits == DIGITS_TAG) {
        is_negative = (size & 3) == 2;
        count = (uint64_t)size >> 3;
    } else {
        is_negative = size < 0;
        count = (uint64_t)(size < 0 ? -size : size);
    }
    if (count > 2)
        return -EBADMSG;
    uint64_t digits = image_word(bytes, 8), value = 0;
    if (count > 0)
        value = digits & 0x3fffffff;
    if (count > 1)
        value |= (digits >> 32 & 0x3fffffff) << 30;
    *ret = is_negative ? -(int64_t)value : (int64_t)value;
    return 0;
}

int pyobj_int(struct pyobj *p, uint64_t address, int64_t *ret)
{
    unsigned char bytes[PYOBJ_INT_BYTES];
    int r = image_read(p->image, address + PYOBJ_INT_AT, bytes, sizeof(bytes));
    return r < 0 ? r : pyobj_int_decode(p->layout, bytes, ret);
}

int pyobj_key_text(struct pyobj *p, uint64_t address, char *buffer, size_t size)
{
    const struct pyobj_type *type;
    int64_t value;
    int r = pyobj_type(p, address, &type);

    if (r < 0)
        return r;
    if (type->kind == PYOBJ_STR)
        return pyobj_str(p, address, buffer, size);
    if (type->kind == PYOBJ_INT && pyobj_int(p, address, &value) == 0)
        return snprintf(buffer, size, "%lld", (long long)value);
    return snprintf(buffer, size, "?");
}

int pyobj_items(struct pyobj *p, uint64_t address, const struct pyobj_type *type,
                uint64_t *ret_items, uint64_t *ret_count)
{
    unsigned char head[16];
    int r = image_read(p->image, address + OBJECT_SIZE, head, sizeof(head));

    if (r < 0)
        return r;
    *ret_count = image_word(head, 0);
    *ret_items = type->kind == PYOBJ_LIST ? image_word(head, 8) : address + ITEMS_INLINE;
    if (*ret_count > PYOBJ_ITEMS_MAX || (*ret_count && !image_pointer(*ret_items)))
        return -EBADMSG;
    return 0;
}

int pyobj_cell(struct pyobj *p, uint64_t cell, uint64_t *ret)
{
    const struct pyobj_type *type;
    int r = pyobj_type(p, cell, &type);

    if (r < 0)
        return r;
    if (type->kind != PYOBJ_CELL && type->kind != PYOBJ_METHOD && type->kind != PYOBJ_MODULE)
        return -ENOENT;
    r = image_u64(p->image, cell + (type->kind == PYOBJ_METHOD ? 24 : 16), ret);
    return r < 0 ? r : image_pointer(*ret) ? 0 : -ENOENT;
}
