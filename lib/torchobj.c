/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torchobj.c - from a tensor's Python object to its memory.
 *
 * Must not: return a tensor of which any check failed.
 */
#include "torchobj.h"

#include <errno.h>
#include <string.h>

/* Relative to torchobj_layout.back; schema/torch_layout.def. */
#define AFTER_SIZES 8u
#define AFTER_OFFSET 96u
#define AFTER_COUNT 104u
#define AFTER_DTYPE 112u
#define AFTER_DEVICE 114u
#define TENSOR_BYTES (64u + 120u)
/* Relative to torchobj_layout.storage, in the StorageImpl. */
#define STORAGE_DELETER 8u
#define STORAGE_CONTEXT 16u
#define STORAGE_DEVICE 24u
#define STORAGE_SIZE 32u
#define STORAGE_BYTES 72u
#define INLINE_DIMS 5u
#define BACK_FLAGS 1u /* bit 0 of the pointer back: torch owns the Python object */

static const struct torchobj_layout layouts[] = {
#define TORCH_LAYOUT(versions, data, storage, back, allocator)                                     \
    {versions, data, storage, back, allocator},
#define TORCH_DTYPE(number, name, bits)
#include "torch_layout.def"
#undef TORCH_LAYOUT
#undef TORCH_DTYPE
};

static const struct {
    const char *name;
    unsigned bits;
} dtypes[] = {
#define TORCH_LAYOUT(versions, data, storage, back, allocator)
#define TORCH_DTYPE(number, name, bits) [number] = {name, bits},
#include "torch_layout.def"
#undef TORCH_LAYOUT
#undef TORCH_DTYPE
};

const char *torch_dtype_name(uint8_t dtype)
{
    return dtype < ARRAY_SIZE(dtypes) ? dtypes[dtype].name : "?";
}

unsigned torch_dtype_bits(uint8_t dtype)
{
    return dtype < ARRAY_SIZE(dtypes) ? dtypes[dtype].bits : 0;
}

/* The last element that the strides reach, counted from the first one of the storage. */
static int extent_of(const int64_t *sizes, const int64_t *strides, uint64_t dims, uint64_t offset,
                     uint64_t *ret)
{
    uint64_t extent = offset, step;

    for (uint64_t i = 0; i < dims; i++)
        if (strides[i] < 0 || (uint64_t)strides[i] > TORCH_STORAGE_MAX ||
            __builtin_mul_overflow((uint64_t)sizes[i] - 1, (uint64_t)strides[i], &step) ||
            __builtin_add_overflow(extent, step, &extent))
            return -EBADMSG;
    *ret = extent;
    return extent <= TORCH_STORAGE_MAX ? 0 : -EBADMSG;
}

/* Shape, number of elements, type: all of one tensor must agree. *ret_end: bytes of the storage
 * that it reaches. */
static int shape_read(struct image *image, const struct torchobj_layout *layout,
                      const unsigned char *tensor, struct torchobj *t, uint64_t *ret_end)
{
    const unsigned char *sizes = tensor + layout->back + AFTER_SIZES;
    uint64_t dims = image_word(sizes, 0), product = 1, extent = 0;
    uint64_t count = image_word(tensor, layout->back + AFTER_COUNT);
    int64_t all[2 * TORCH_DIMS_MAX]; /* sizes, then strides */

    if (dims > TORCH_DIMS_MAX)
        return -EBADMSG;
    if (dims <= INLINE_DIMS) {
        memcpy(all, sizes + 8, dims * 8);
        memcpy(all + dims, sizes + 8 + 8 * INLINE_DIMS, dims * 8);
    } else {
        int r = image_read(image, image_word(sizes, 8), all, dims * 16);
        if (r < 0)
            return r == -EFAULT ? -EBADMSG : r;
    }
    for (uint64_t i = 0; i < dims; i++)
        if (all[i] < 0 || __builtin_mul_overflow(product, (uint64_t)all[i], &product))
            return -EBADMSG;
    t->offset = image_word(tensor, layout->back + AFTER_OFFSET);
    t->dtype = tensor[layout->back + AFTER_DTYPE];
    unsigned bits = torch_dtype_bits(t->dtype);
    if (product != count || count > TORCH_STORAGE_MAX || t->offset > TORCH_STORAGE_MAX || !bits ||
        tensor[layout->back + AFTER_DTYPE + 1])
        return -EBADMSG;
    if (count && extent_of(all, all + dims, dims, t->offset, &extent) < 0)
        return -EBADMSG;
    t->dim_count = (uint8_t)dims;
    memcpy(t->dims, all, (dims < TORCH_DIMS_KEPT ? dims : TORCH_DIMS_KEPT) * sizeof(all[0]));
    t->used_bytes = count * (bits / 8);
    *ret_end = count ? (extent + 1) * (bits / 8) : 0;
    return 0;
}

static int storage_read(struct image *image, const struct image_ranges *ranges,
                        const struct torchobj_layout *layout, uint64_t end, struct torchobj *t)
{
    unsigned char bytes[24 + STORAGE_BYTES];
    int r = image_read(image, t->storage, bytes, layout->storage + 40u);

    if (r < 0)
        return r == -EFAULT ? -EBADMSG : r;
    const unsigned char *data = bytes + layout->storage;
    if (!image_ranges_in_file(ranges, image_word(bytes, 0)))
        return -EBADMSG;
    t->data = image_word(data, 0);
    t->deleter = image_word(data, STORAGE_DELETER);
    t->context = image_word(data, STORAGE_CONTEXT);
    t->storage_bytes = image_word(data, STORAGE_SIZE);
    if ((int8_t)data[STORAGE_DEVICE] != t->device_type ||
        (int8_t)data[STORAGE_DEVICE + 1] != t->device_index || t->storage_bytes > TORCH_STORAGE_MAX)
        return -EBADMSG;
    /* a storage that was given back for a while has no bytes, but its tensors keep their shape */
    if (t->storage_bytes && end > t->storage_bytes)
        return -EBADMSG;
    if (t->deleter && !image_ranges_in_code(ranges, t->deleter))
        return -EBADMSG;
    t->is_owner = t->context != 0;
    return 0;
}

int torchobj_read(struct image *image, const struct image_ranges *ranges,
                  const struct torchobj_layout *layout, uint64_t object, struct torchobj *ret)
{
    unsigned char bytes[TENSOR_BYTES];
    struct torchobj t = {.object = object};
    uint64_t end = 0;
    int r = image_u64(image, object + layout->data, &t.tensor);

    if (r < 0)
        return r;
    if (!image_pointer(t.tensor))
        return -EBADMSG;
    r = image_read(image, t.tensor, bytes, layout->back + 120u);
    if (r < 0)
        return r == -EFAULT ? -EBADMSG : r;
    if (!image_ranges_in_file(ranges, image_word(bytes, 0)) ||
        (image_word(bytes, layout->back) & ~(uint64_t)BACK_FLAGS) != object)
        return -EBADMSG;
    t.storage = image_word(bytes, layout->storage);
    t.device_type = (int8_t)bytes[layout->back + AFTER_DEVICE];
    t.device_index = (int8_t)bytes[layout->back + AFTER_DEVICE + 1];
    if (t.device_type < 0 || t.device_type > 63 || t.device_index < -1)
        return -EBADMSG;
    if (!t.storage)
        return -ENODATA;
    if (!image_pointer(t.storage))
        return -EBADMSG;
    r = shape_read(image, layout, bytes, &t, &end);
    if (r == 0)
        r = storage_read(image, ranges, layout, end, &t);
    if (r == 0)
        *ret = t;
    return r;
}

/* How many of the samples verify; the device must be one that has memory. */
static size_t votes(struct image *image, const struct image_ranges *ranges,
                    const struct torchobj_layout *layout, const uint64_t *objects, size_t count,
                    size_t *ret_empty)
{
    size_t n = 0;

    *ret_empty = 0;
    for (size_t i = 0; i < count; i++) {
        struct torchobj t;
        int r = torchobj_read(image, ranges, layout, objects[i], &t);
        n += r == 0;
        *ret_empty += r == -ENODATA;
    }
    return n;
}

int torchobj_calibrate(struct image *image, const struct image_ranges *ranges,
                       const uint64_t *objects, size_t count, struct torchobj_layout *ret_layout,
                       size_t *ret_verified)
{
    static const uint16_t backs[] = {56, 48, 64, 40};
    struct torchobj_layout best = {0};
    size_t best_votes = 0, best_empty = 0, empty;

    if (count > TORCHOBJ_SAMPLES)
        count = TORCHOBJ_SAMPLES;
    if (!count)
        return -ENOENT;
    /* after the rows of the table: every other combination */
    for (size_t i = 0; i < ARRAY_SIZE(layouts) + 16; i++) {
        struct torchobj_layout l;
        size_t c = i - ARRAY_SIZE(layouts);
        if (i < ARRAY_SIZE(layouts)) {
            l = layouts[i];
        } else {
            l = (struct torchobj_layout){"calibrated", c & 1 ? 24 : 16, c & 2 ? 24 : 16,
                                         backs[c / 4], 0};
            l.allocator = l.storage + 48;
        }
        size_t n = votes(image, ranges, &l, objects, count, &empty);
        if (n > best_votes) {
            best = l;
            best_votes = n;
            best_empty = empty;
        }
        if (best_votes == count)
            break;
    }
    int r = image_stopped(image);
    if (r < 0)
        return r;
    /* tensors come and go meanwhile, so not every one has to verify, but most have to */
    if (best_votes * 4 < (count - best_empty) * 3 || !best_votes)
        return -ENODATA;
    *ret_layout = best;
    *ret_verified = best_votes;
    return 0;
}
