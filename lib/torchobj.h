/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torchobj.h - torch tensors of another process, from their Python objects.
 *
 * A tensor counts only if everything about it fits: virtual tables of the TensorImpl and the
 * StorageImpl in mapped libraries; a pointer back to exactly this Python object; the device the
 * same in both; shape, number of elements and type consistent; and the bytes they need within the
 * storage. What does not verify is not named.
 */
#ifndef NPUMEM_TORCHOBJ_H
#define NPUMEM_TORCHOBJ_H

#include <stdbool.h>
#include <stdint.h>

#include "image_ranges.h"
#include "image_read.h"

#define TORCH_DEVICE_CPU 0
#define TORCH_DEVICE_NPU 20 /* c10::DeviceType::PrivateUse1 */
#define TORCH_DIMS_KEPT 6
#define TORCH_DIMS_MAX 64
#define TORCH_STORAGE_MAX ((uint64_t)1 << 46)
#define TORCHOBJ_SAMPLES 64 /* tensors that calibration looks at */

struct torchobj_layout {
    const char *versions; /* of torch; "calibrated" where no row fits */
    uint16_t data, storage, back, allocator;
};

/* One tensor as it is in the process. */
struct torchobj {
    uint64_t object, tensor, storage; /* PyObject, TensorImpl, StorageImpl */
    uint64_t data, context, deleter;  /* of the storage's DataPtr */
    uint64_t storage_bytes;
    uint64_t used_bytes; /* elements times their size */
    uint64_t offset;     /* of the first element in the storage, in elements */
    int64_t dims[TORCH_DIMS_KEPT];
    uint8_t dim_count; /* may be above TORCH_DIMS_KEPT */
    uint8_t dtype;
    int8_t device_type, device_index;
    bool is_owner; /* false: another owner's memory is shown (outputs of captured graphs) */
};

/* Name of an element type, "?" unknown; bits of one element, 0 unknown. */
const char *torch_dtype_name(uint8_t dtype);
unsigned torch_dtype_bits(uint8_t dtype);

/*
 * Finds the layout of a process from some of its tensors (addresses of Python objects whose type is
 * a tensor's). Writes how many verified under it.
 * Returns 0; -ENODATA fewer than one in two verifies under any layout; -ENOENT no samples; errors
 * that ended reading.
 */
int torchobj_calibrate(struct image *image, const struct image_ranges *ranges,
                       const uint64_t *objects, size_t count, struct torchobj_layout *ret_layout,
                       size_t *ret_verified);

/* Reads and verifies one tensor. Errors: -EBADMSG it does not verify; -ENODATA a tensor without
 * storage (undefined, sparse, a wrapper); errors of image_read(). Cost: three reads. */
int torchobj_read(struct image *image, const struct image_ranges *ranges,
                  const struct torchobj_layout *layout, uint64_t object, struct torchobj *ret);

#endif
