/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nnop.c - libnnopbase: tensors that carry a data address, and the two functions through which
 * every aclnn operator passes its workspace. No operator computes anything.
 */
#include <stdlib.h>

#include "call.h"
#include "sim_abi.h"

#define NNOP_PARAM_NULL 161001
#define TENSOR_MAGIC 0x72736e74u

struct tensor {
    uint32_t magic;
    void *data;
};

static void *nnop_tensor(void *data)
{
    struct tensor *made = malloc(sizeof(*made));

    if (made)
        *made = (struct tensor){TENSOR_MAGIC, data};
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

#define FN(ret, sym, out, size, params, args, body)                                                \
    SIM_FUNCTION(ret, sym, sym, out, size, params, args, body)
#include "nnop.def"
