/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyobj.h - CPython objects of another process: types, strings, containers, attributes.
 *
 * Everything is read through an image and nothing that was read is trusted: sizes are bounded,
 * types are checked for plausibility before their objects are followed. -EBADMSG means "not what it
 * should be": skip it. Errors of image_read() pass through; callers stop when image_stopped() says
 * so.
 *
 * The interpreter runs meanwhile: an object may be freed and its memory be something else between
 * two reads. What a caller reports must be verified by what it is (torchobj.h does).
 */
#ifndef NPUMEM_PYOBJ_H
#define NPUMEM_PYOBJ_H

#include <stdbool.h>
#include <stdint.h>

#include "image_read.h"
#include "map.h"
#include "python_layout.h"

#define PYOBJ_NAME_MAX 96          /* names of types and attributes, cut */
#define PYOBJ_ITEMS_MAX (1u << 20) /* items of one container */
#define PYOBJ_TYPES_MAX 65536u     /* types remembered */
#define PYOBJ_MRO_MAX 64u

enum pyobj_kind {
    PYOBJ_OTHER = 0, /* an instance of a class, or of a built-in type that is not followed */
    PYOBJ_LIST,
    PYOBJ_TUPLE,
    PYOBJ_STR,
    PYOBJ_DICT,
    PYOBJ_INT,
    PYOBJ_TYPE,
    PYOBJ_CELL,
    PYOBJ_MODULE,
    PYOBJ_METHOD
};

/* What a type says of its objects. Borrowed from the struct pyobj, until pyobj_forget(). */
struct pyobj_type {
    uint64_t address; /* struct map_key */
    uint32_t key_b;
    uint32_t basicsize;
    int32_t dict_offset; /* 0 none */
    uint8_t kind;        /* enum pyobj_kind */
    bool is_valid;       /* false: this is no type, its "objects" are none */
    bool is_heap;        /* made by a class statement */
    bool is_tensor;      /* a subclass of torch's TensorBase */
    bool is_parameter;   /* ... of Parameter */
    bool is_nn_module;   /* a subclass of something named Module */
    bool is_deque;       /* collections.deque or a subclass: its length is where a list has it */
    bool has_managed_dict, has_inline_values;
    bool has_slots; /* __slots__ of it or a base: see pyobj_slots() */
    uint8_t zero[3];
    char name[48];
};

struct pyobj_layout {
    uint8_t minor, keys_kind, instance, items_skip, ascii, compact, digits;
    uint16_t cached_keys;
};

struct pyobj {
    struct image *image; /* borrowed */
    const struct pyobj_layout *layout;
    struct python_layout threads; /* interpreters, threads, frames, names of code */
    struct map types;
    uint64_t torn_threads; /* whose frames could not be followed to the end */
};

/* NULL: this minor version of CPython 3 is not known. */
const struct pyobj_layout *pyobj_layout_find(unsigned minor);

void pyobj_init(struct pyobj *p, struct image *image, const struct pyobj_layout *layout);
void pyobj_done(struct pyobj *p);

/* Type of the object at `address`. Errors: -EBADMSG no object; -ENOMEM. Cost: one read when the
 * type is known. */
int pyobj_type(struct pyobj *p, uint64_t address, const struct pyobj_type **ret);

/* UTF-8 text of a str, cut to size - 1 bytes at a character; control characters become '?'.
 * Returns its length. */
int pyobj_str(struct pyobj *p, uint64_t address, char *buffer, size_t size);
/* The name of a dict key for people: a str as it is, an int in decimal, else "?". */
int pyobj_key_text(struct pyobj *p, uint64_t address, char *buffer, size_t size);
/* Value of an int that fits into 60 bits. */
int pyobj_int(struct pyobj *p, uint64_t address, int64_t *ret);
/* The same from the PYOBJ_INT_BYTES bytes from PYOBJ_INT_AT of the object on. */
#define PYOBJ_INT_AT 16u
#define PYOBJ_INT_BYTES 16u
int pyobj_int_decode(const struct pyobj_layout *layout, const void *bytes, int64_t *ret);

/* Items of a list or tuple: where they are and how many. */
int pyobj_items(struct pyobj *p, uint64_t address, const struct pyobj_type *type,
                uint64_t *ret_items, uint64_t *ret_count);

/* Walks the (key, value) pairs of a dict, or the attributes of an instance. */
struct pyobj_pairs {
    uint64_t entries; /* address of the first entry */
    uint64_t values;  /* address of the values array, 0: in the entries */
    uint32_t entry_bytes, key_at, value_at;
    uint64_t count, at;
};
int pyobj_dict_pairs(struct pyobj *p, uint64_t dict, struct pyobj_pairs *ret);
/* Errors: -ENODATA it has no attributes. */
int pyobj_attribute_pairs(struct pyobj *p, uint64_t object, const struct pyobj_type *type,
                          struct pyobj_pairs *ret);
/* 1 and a pair with a value; 0 at the end; errors. Dead entries are skipped. */
int pyobj_next(struct pyobj *p, struct pyobj_pairs *pairs, uint64_t *ret_key, uint64_t *ret_value);

/* Value under a str key of a dict; attribute of an instance (its own, of its __slots__, or of a
 * module). Errors: -ENOENT. Cost: linear in the keys. */
int pyobj_dict_get(struct pyobj *p, uint64_t dict, const char *name, uint64_t *ret);
int pyobj_attribute(struct pyobj *p, uint64_t object, const char *name, uint64_t *ret);

/*
 * Where an attribute of an instance keeps its value: while every one of `words` reads the same, the
 * word at `slot` is its value, so that it can be read again without looking for it. Attributes of
 * __slots__ and of modules have none. Errors: -ENOENT.
 */
#define PYOBJ_PLACE_WORDS 6u
struct pyobj_word {
    uint64_t address, value;
};
struct pyobj_place {
    uint64_t slot, value;
    uint32_t word_count;
    struct pyobj_word words[PYOBJ_PLACE_WORDS];
};
int pyobj_attribute_place(struct pyobj *p, uint64_t object, const char *name,
                          struct pyobj_place *ret);

/* Calls fn(name, value) for the __slots__ that have a value, until it returns non-zero. */
int pyobj_slots(struct pyobj *p, uint64_t object, const struct pyobj_type *type,
                int (*fn)(void *, const char *, uint64_t), void *userdata);

/* What a cell holds, a bound method's self, a module's dict. Errors: -ENOENT nothing. */
int pyobj_cell(struct pyobj *p, uint64_t cell, uint64_t *ret);

#endif
