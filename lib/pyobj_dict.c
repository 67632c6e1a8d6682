/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyobj_dict.c - dicts in their three forms, and the attributes of instances.
 *
 * A split dict (instances of one class share the keys) and inline values have their values in an
 * array of their own, in the order of the keys; a general table has hash, key and value, a table of
 * str keys no hash (3.11 on).
 */
#include "pyobj.h"

#include <errno.h>
#include <string.h>

#include "pyobj_internal.h"

#define DICT_KEYS 32u
#define DICT_VALUES 40u
#define LOG_SIZE_MAX 24u

/* Fills where the entries of a keys object are. */
static int keys_old(struct pyobj *p, uint64_t keys, struct pyobj_pairs *ret)
{
    unsigned char head[40];
    int r = image_read(p->image, keys, head, sizeof(head));

    if (r < 0)
        return r;
    uint64_t size = image_word(head, 8);
    if (size < 1 || size > (uint64_t)1 << LOG_SIZE_MAX || (size & (size - 1)))
        return -EBADMSG;
    uint64_t width = size <= 0xff ? 1 : size <= 0xffff ? 2 : 4;
    ret->count = image_word(head, 32);
    ret->entries = keys + 40 + size * width;
    ret->entry_bytes = 24;
    ret->key_at = 8;
    ret->value_at = 16;
    return ret->count <= size ? 0 : -EBADMSG;
}

static int keys_log(struct pyobj *p, uint64_t keys, struct pyobj_pairs *ret)
{
    unsigned char head[32];
    int r = image_read(p->image, keys, head, sizeof(head));

    if (r < 0)
        return r;
    unsigned log_size = head[8], log_index = head[9], kind = head[10];
    if (log_size > LOG_SIZE_MAX || log_index < log_size || log_index > log_size + 3 || kind > 2)
        return -EBADMSG;
    ret->count = image_word(head, 24);
    ret->entries = keys + 32 + ((uint64_t)1 << log_index);
    ret->entry_bytes = kind == 0 ? 24 : 16;
    ret->key_at = kind == 0 ? 8 : 0;
    ret->value_at = ret->key_at + 8;
    return ret->count <= (uint64_t)1 << log_size ? 0 : -EBADMSG;
}

static int keys_pairs(struct pyobj *p, uint64_t keys, struct pyobj_pairs *ret)
{
    *ret = (struct pyobj_pairs){0};
    if (!image_pointer(keys))
        return -EBADMSG;
    int r = p->layout->keys_kind == KEYS_OLD ? keys_old(p, keys, ret) : keys_log(p, keys, ret);
    if (r == 0 && ret->count > PYOBJ_ITEMS_MAX)
        r = -EBADMSG;
    return r;
}

int pyobj_dict_pairs(struct pyobj *p, uint64_t dict, struct pyobj_pairs *ret)
{
    const struct pyobj_type *type;
    unsigned char head[48];
    int r = pyobj_type(p, dict, &type);

    if (r == 0 && type->kind != PYOBJ_DICT)
        r = -EBADMSG;
    if (r == 0)
        r = image_read(p->image, dict, head, sizeof(head));
    if (r == 0)
        r = keys_pairs(p, image_word(head, DICT_KEYS), ret);
    if (r < 0)
        return r;
    uint64_t values = image_word(head, DICT_VALUES);
    if (values) {
        if (!image_pointer(values))
            return -EBADMSG;
        ret->values = values + p->layout->items_skip;
    }
    return 0;
}

/* Attributes in the values array that belongs to an instance; its keys are the class's. */
static int values_pairs(struct pyobj *p, uint64_t object, uint64_t values, struct pyobj_pairs *ret)
{
    uint64_t type, keys;
    int r = image_u64(p->image, object + OBJECT_TYPE, &type);

    if (r == 0)
        r = image_u64(p->image, type + p->layout->cached_keys, &keys);
    if (r == 0)
        r = keys_pairs(p, keys, ret);
    if (r == 0)
        ret->values = values + p->layout->items_skip;
    return r;
}

static int managed_pairs(struct pyobj *p, uint64_t object, const struct pyobj_type *type,
                         struct pyobj_pairs *ret)
{
    uint64_t words[2]; /* at -32 and -24 */
    int r = image_read(p->image, object - 32, words, sizeof(words));

    if (r < 0)
        return r;
    switch (p->layout->instance) {
    case INSTANCE_BEFORE:
        if (image_pointer(words[1]))
            return pyobj_dict_pairs(p, words[1], ret);
        return image_pointer(words[0]) ? values_pairs(p, object, words[0], ret) : -ENODATA;
    case INSTANCE_TAGGED:
        if (words[1] & 1)
            return image_pointer(words[1] + 1) ? values_pairs(p, object, words[1] + 1, ret)
                                               : -EBADMSG;
        return image_pointer(words[1]) ? pyobj_dict_pairs(p, words[1], ret) : -ENODATA;
    case INSTANCE_INLINE:
        if (image_pointer(words[1]))
            return pyobj_dict_pairs(p, words[1], ret);
        if (type->has_inline_values) {
            uint8_t is_valid = 0;
            r = image_u8(p->image, object + type->basicsize + 3, &is_valid);
            if (r == 0 && is_valid)
                return values_pairs(p, object, object + type->basicsize, ret);
        }
        return r < 0 ? r : -ENODATA;
    default:
        return -ENODATA;
    }
}

int pyobj_attribute_pairs(struct pyobj *p, uint64_t object, const struct pyobj_type *type,
                          struct pyobj_pairs *ret)
{
    uint64_t dict;
    int r;

    if (type->kind == PYOBJ_MODULE) {
        r = pyobj_cell(p, object, &dict);
        return r < 0 ? r : pyobj_dict_pairs(p, dict, ret);
    }
    if (type->has_managed_dict)
        return managed_pairs(p, object, type, ret);
    if (!type->dict_offset)
        return -ENODATA;
    r = image_u64(p->image, object + (uint64_t)type->dict_offset, &dict);
    if (r < 0)
        return r;
    return image_pointer(dict) ? pyobj_dict_pairs(p, dict, ret) : -ENODATA;
}

int pyobj_next(struct pyobj *p, struct pyobj_pairs *pairs, uint64_t *ret_key, uint64_t *ret_value)
{
    while (pairs->at < pairs->count) {
        uint64_t at = pairs->at++;
        uint64_t entry = pairs->entries + at * pairs->entry_bytes;
        unsigned char bytes[24];
        int r = image_read(p->image, entry, bytes, pairs->entry_bytes);
        if (r < 0)
            return r;
        *ret_key = image_word(bytes, pairs->key_at);
        *ret_value = image_word(bytes, pairs->value_at);
        if (pairs->values) {
            r = image_u64(p->image, pairs->values + 8 * at, ret_value);
            if (r < 0)
                return r;
        }
        if (image_pointer(*ret_key) && image_pointer(*ret_value))
            return 1;
    }
    return 0;
}

/* Whether a key is this str. Interned names are ASCII nearly always. */
static bool key_is(struct pyobj *p, uint64_t key, const char *name, size_t length)
{
    char text[PYOBJ_NAME_MAX];
    uint64_t count;

    return image_u64(p->image, key + OBJECT_SIZE, &count) == 0 && count == length &&
           pyobj_str(p, key, text, sizeof(text)) == (int)length && memcmp(text, name, length) == 0;
}

static int pairs_get(struct pyobj *p, struct pyobj_pairs *pairs, const char *name, uint64_t *ret)
{
    size_t length = strlen(name);
    uint64_t key, value;
    int r;

    while ((r = pyobj_next(p, pairs, &key, &value)) > 0)
        if (key_is(p, key, name, length)) {
            *ret = value;
            return 0;
        }
    return r < 0 ? r : -ENOENT;
}

int pyobj_dict_get(struct pyobj *p, uint64_t dict, const char *name, uint64_t *ret)
{
    struct pyobj_pairs pairs;
    int r = pyobj_dict_pairs(p, dict, &pairs);
    return r < 0 ? r : pairs_get(p, &pairs, name, ret);
}

struct slot_wanted {
    const char *name;
    uint64_t value;
};

static int on_slot(void *userdata, const char *name, uint64_t value)
{
    struct slot_wanted *wanted = userdata;
    if (strcmp(name, wanted->name) != 0)
        return 0;
    wanted->value = value;
    return 1;
}

int pyobj_attribute(struct pyobj *p, uint64_t object, const char *name, uint64_t *ret)
{
    const struct pyobj_type *type;
    struct pyobj_pairs pairs;
    int r = pyobj_type(p, object, &type);

    if (r < 0)
        return r;
    r = pyobj_attribute_pairs(p, object, type, &pairs);
    if (r == 0)
        r = pairs_get(p, &pairs, name, ret);
    if ((r == -ENOENT || r == -ENODATA) && type->has_slots) {
        struct slot_wanted wanted = {.name = name};
        if (pyobj_slots(p, object, type, on_slot, &wanted) > 0) {
            *ret = wanted.value;
            return 0;
        }
    }
    return r == -ENODATA ? -ENOENT : r;
}

static int place_word(struct pyobj *p, struct pyobj_place *place, uint64_t address)
{
    struct pyobj_word *word = &place->words[place->word_count++];

    word->address = address;
    return image_u64(p->image, address, &word->value);
}

/* What leads from an instance to its attributes; *ret_dict 0: to a values array, by the class's
 * keys. */
static int place_root(struct pyobj *p, uint64_t object, const struct pyobj_type *type,
                      struct pyobj_place *place, uint64_t *ret_dict)
{
    const struct pyobj_word *dict;
    int r = place_word(p, place, object + OBJECT_TYPE);

    if (r == 0 && type->has_managed_dict && p->layout->instance == INSTANCE_BEFORE)
        r = place_word(p, place, object - 32);
    if (r == 0)
        r = place_word(p, place,
                       type->has_managed_dict ? object - 24 : object + (uint64_t)type->dict_offset);
    dict = &place->words[place->word_count - 1];
    *ret_dict = r == 0 && image_pointer(dict->value) ? dict->value : 0;
    return r;
}

int pyobj_attribute_place(struct pyobj *p, uint64_t object, const char *name,
                          struct pyobj_place *ret)
{
    const struct pyobj_type *type;
    struct pyobj_pairs pairs;
    struct pyobj_place place = {0};
    uint64_t dict;
    int r = pyobj_type(p, object, &type);

    if (r < 0)
        return r;
    if (type->kind == PYOBJ_MODULE)
        return -ENOENT;
    r = pyobj_attribute_pairs(p, object, type, &pairs);
    if (r == 0)
        r = pairs_get(p, &pairs, name, &place.value);
    if (r < 0)
        return r == -ENODATA ? -ENOENT : r;
    uint64_t entry = pairs.entries + (pairs.at - 1) * pairs.entry_bytes;
    place.slot = pairs.values ? pairs.values + 8 * (pairs.at - 1) : entry + pairs.value_at;
    r = place_root(p, object, type, &place, &dict);
    if (r == 0 && dict)
        r = place_word(p, &place, dict + DICT_KEYS);
    if (r == 0 && dict)
        r = place_word(p, &place, dict + DICT_VALUES);
    if (r == 0)
        r = place_word(p, &place, entry + pairs.key_at);
    if (r == 0)
        *ret = place;
    return r;
}

/* The member table of a class statement lies behind its type object. */
static int class_slots(struct pyobj *p, uint64_t object, uint64_t class, uint32_t basicsize,
                       int (*fn)(void *, const char *, uint64_t), void *userdata)
{
    uint64_t meta, meta_size, count, value;
    int r = image_u64(p->image, class + OBJECT_TYPE, &meta);

    if (r == 0)
        r = image_u64(p->image, meta + TYPE_BASICSIZE, &meta_size);
    if (r == 0)
        r = image_u64(p->image, class + OBJECT_SIZE, &count);
    if (r < 0)
        return r;
    if (count > 255 || meta_size > 4096)
        return 0;
    for (uint64_t i = 0; i < count; i++) {
        unsigned char member[24]; /* name, type, offset; 40 bytes each */
        char name[PYOBJ_NAME_MAX];
        r = image_read(p->image, class + meta_size + 40 * i, member, sizeof(member));
        if (r < 0)
            return r;
        uint64_t offset = image_word(member, 16);
        if (offset < 16 || offset % 8 || offset >= basicsize ||
            image_text(p->image, image_word(member, 0), name, sizeof(name)) <= 0 ||
            image_u64(p->image, object + offset, &value) < 0 || !image_pointer(value))
            continue;
        r = fn(userdata, name, value);
        if (r)
            return r;
    }
    return 0;
}

int pyobj_slots(struct pyobj *p, uint64_t object, const struct pyobj_type *type,
                int (*fn)(void *, const char *, uint64_t), void *userdata)
{
    uint64_t mro, count, class, flags;
    int r = image_u64(p->image, type->address + TYPE_MRO, &mro);

    if (r == 0 && !image_pointer(mro))
        return 0;
    if (r == 0)
        r = image_u64(p->image, mro + OBJECT_SIZE, &count);
    for (uint64_t i = 0; r == 0 && i < count && i < PYOBJ_MRO_MAX; i++) {
        r = image_u64(p->image, mro + ITEMS_INLINE + 8 * i, &class);
        if (r == 0 && !image_pointer(class))
            return -EBADMSG;
        if (r == 0)
            r = image_u64(p->image, class + TYPE_FLAGS, &flags);
        if (r == 0 && (flags & FLAG_HEAPTYPE))
            r = class_slots(p, object, class, type->basicsize, fn, userdata);
    }
    return r;
}
