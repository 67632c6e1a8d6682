/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nnop.c - libnnopbase: tensors that know where their elements are, and the two functions through
 * which every aclnn operator passes its workspace. No operator computes anything here;
 * npusim_tensor_view is for the few that copy or fill (the generated libopapi of sim/wheels).
 */
#include <stdlib.h>

#include "call.h"
#include "sim_abi.h"

#define NNOP_PARAM_NULL 161001
#define TENSOR_MAGIC 0x72736e74u

struct tensor {
    uint32_t magic;
    int type; /* aclDataType */
    void *data;
    int64_t offset; /* of the first element, in elements */
    uint64_t count; /* elements of the view; 0 where they are not one contiguous run */
};

/* Elements of a view whose strides are those of a dense array, else 0. */
static uint64_t dense_count(const int64_t *dims, uint64_t dim_count, const int64_t *stride)
{
    int64_t count = 1;

    if (dim_count && (!dims || !stride))
        return 0;
    for (uint64_t i = dim_count; i-- > 0;) {
        if (dims[i] < 0 || (dims[i] != 1 && stride[i] != count) ||
            __builtin_mul_overflow(count, dims[i], &count))
            return 0;
    }
    return (uint64_t)count;
}

static void *nnop_tensor(const int64_t *dims, uint64_t dim_count, int type, const int64_t *stride,
                         int64_t offset, void *data)
{
    struct tensor *made = malloc(sizeof(*made));

    if (made)
        *made =
            (struct tensor){TENSOR_MAGIC, type, data, offset, dense_count(dims, dim_count, stride)};
    return made;
}

static struct tensor *tensor_of(const void *pointer)
{
    struct tensor *tensor = (struct tensor *)(uintptr_t)pointer;

    return tensor && tensor->magic == TENSOR_MAGIC ? tensor : NULL;
}

static int nnop_tensor_free(const void *pointer)
{
    struct tensor *tensor = tensor_of(pointer);

    if (!tensor)
        return NNOP_PARAM_NULL;
    tensor->magic = 0;
    free(tensor);
    return 0;
}

static int nnop_tensor_set(void *pointer, void *addr)
{
    struct tensor *tensor = tensor_of(pointer);

    if (!tensor)
        return NNOP_PARAM_NULL;
    tensor->data = addr;
    return 0;
}

static int nnop_tensor_get(const void *pointer, void **addr)
{
    const struct tensor *tensor = tensor_of(pointer);

    if (!tensor || !addr)
        return NNOP_PARAM_NULL;
    *addr = tensor->data;
    return 0;
}

/*
 * The elements of a tensor: 1 with the base address, offset in elements, aclDataType and number of
 * elements; 0 where it is no tensor, or not one contiguous run.
 */
__attribute__((visibility("default"))) int
npusim_tensor_view(const void *pointer, void **data, int64_t *offset, int *type, uint64_t *count);
int npusim_tensor_view(const void *pointer, void **data, int64_t *offset, int *type,
                       uint64_t *count)
{
    const struct tensor *tensor = tensor_of(pointer);

    if (!tensor || !tensor->data || !tensor->count || tensor->offset < 0)
        return 0;
    *data = tensor->data;
    *offset = tensor->offset;
    *type = tensor->type;
    *count = tensor->count;
    return 1;
}

#define FN(ret, sym, out, size, params, args, body)                                                \
    SIM_FUNCTION(ret, sym, sym, out, size, params, args, body)
#include "nnop.def"
