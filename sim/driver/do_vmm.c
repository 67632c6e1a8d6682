/* SPDX-License-Identifier: Apache-2.0 */
/*
 * do_vmm.c - reserved addresses, physical handles, mappings, segments that grow by granules (as
 * torch_npu's expandable segments do), shared handles, and stream-ordered pools.
 *
 * Physical memory is booked on its handle: mapping and unmapping change nothing in the truth.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

enum { GRANULES_MAX = 1 << 20 };

struct segment {
    int64_t granule, count, capacity;
    struct slot *granules; /* handles, mapped at value + i * granule */
};

#define NEED(function)                                                                             \
    do {                                                                                           \
        if (!t->process->acl.function)                                                             \
            return EXPECT_MISSING;                                                                 \
    } while (0)

HANDLER(do_reserve)
{
    void *address = NULL;
    int64_t bytes, flags;
    struct slot *slot = slot_new(t, op, 0);
    NEED(aclrtReserveMemAddress);
    if (!slot || !operand_size(t, op, 1, &bytes) || !operand_int(t, op, 2, 0, &flags))
        return RUN_FAILED;
    int r =
        t->process->acl.aclrtReserveMemAddress(&address, (size_t)bytes, 0, NULL, (uint64_t)flags);
    if (r == 0)
        slot_book(t, slot, SLOT_RANGE, TRUTH_RANGE, 0, (unsigned)t->device, (uint64_t)address,
                  bytes, bytes);
    return r;
}

HANDLER(do_release)
{
    struct slot *slot = slot_get(t, op, 0, SLOT_RANGE);
    if (!slot)
        return RUN_FAILED;
    int r = t->process->acl.aclrtReleaseMemAddress((void *)slot->value);
    if (r == 0)
        slot_clear(t, slot);
    return r;
}

static int handle_create(struct thread *t, struct slot *slot, int64_t bytes, bool host,
                         int32_t attribute)
{
    void *handle = NULL;
    struct sim_acl_phys_prop prop = {.allocation_type = 0,
                                     .mem_attr = attribute,
                                     .location = {(uint32_t)(host ? 0 : t->device),
                                                  host ? SIM_LOCATION_HOST : SIM_LOCATION_DEVICE}};
    int r = t->process->acl.aclrtMallocPhysical(&handle, (size_t)bytes, &prop, 0);
    if (r)
        return r;
    slot_book(t, slot, SLOT_HANDLE, host ? TRUTH_HOST : TRUTH_HANDLE, SIM_MODULE_APP,
              (unsigned)(host ? 0 : t->device), (uint64_t)handle, bytes, bytes);
    slot->map_bytes = bytes;
    return 0;
}

HANDLER(do_create)
{
    int64_t bytes, attribute;
    bool host = operand_choice(op, 2, 0);
    struct slot *slot = slot_new(t, op, 0);
    NEED(aclrtMallocPhysical);
    if (!slot || !operand_size(t, op, 1, &bytes) ||
        !operand_int(t, op, 3, host ? SIM_ATTR_DDR : SIM_ATTR_HBM_HUGE, &attribute))
        return RUN_FAILED;
    return handle_create(t, slot, bytes, host, (int32_t)attribute);
}

HANDLER(do_destroy)
{
    struct slot *slot = slot_get(t, op, 0, SLOT_HANDLE);
    if (!slot)
        return RUN_FAILED;
    int r = t->process->acl.aclrtFreePhysical((void *)slot->value);
    if (r == 0)
        slot_clear(t, slot);
    return r;
}

HANDLER(do_map)
{
    int64_t offset;
    struct slot *range = slot_get(t, op, 0, SLOT_RANGE);
    struct slot *handle = range ? slot_get(t, op, 2, SLOT_HANDLE) : NULL;
    if (!handle || !operand_size(t, op, 1, &offset))
        return RUN_FAILED;
    return t->process->acl.aclrtMapMem((void *)(range->value + (uint64_t)offset),
                                       (size_t)handle->map_bytes, 0, (void *)handle->value, 0);
}

HANDLER(do_unmap)
{
    int64_t offset;
    struct slot *range = slot_get(t, op, 0, SLOT_RANGE);
    if (!range || !operand_size(t, op, 1, &offset))
        return RUN_FAILED;
    return t->process->acl.aclrtUnmapMem((void *)(range->value + (uint64_t)offset));
}

/* One more reference to memory that is booked already: the handle must be destroyed too. */
HANDLER(do_retain)
{
    void *handle = NULL;
    int64_t offset;
    struct slot *slot = slot_new(t, op, 0);
    struct slot *range = slot ? slot_get(t, op, 1, SLOT_RANGE) : NULL;
    NEED(aclrtMemRetainAllocationHandle);
    if (!range || !operand_size(t, op, 2, &offset))
        return RUN_FAILED;
    int r = t->process->acl.aclrtMemRetainAllocationHandle(
        (void *)(range->value + (uint64_t)offset), &handle);
    if (r == 0)
        slot_book(t, slot, SLOT_HANDLE, TRUTH_IMPORTED, 0, (unsigned)t->device, (uint64_t)handle, 0,
                  0);
    return r;
}

HANDLER(do_export)
{
    char key[SCENARIO_LINE_MAX], file[256];
    uint64_t shareable[16] = {0};
    int r;
    struct slot *slot = slot_get(t, op, 0, SLOT_HANDLE);
    if (!slot || !operand_text(t, op, 1, key, sizeof(key)))
        return RUN_FAILED;
    if (operand_choice(op, 2, 0)) {
        NEED(aclrtMemExportToShareableHandleV2);
        r = t->process->acl.aclrtMemExportToShareableHandleV2((void *)slot->value, 0, 1, shareable);
    } else {
        NEED(aclrtMemExportToShareableHandle);
        r = t->process->acl.aclrtMemExportToShareableHandle((void *)slot->value, 0, 0, shareable);
    }
    if (r)
        return r;
    shareable[15] = (uint64_t)slot->map_bytes;
    control_name(key);
    snprintf(file, sizeof(file), "key.%.200s", key);
    r = control_put(&t->process->control, file, shareable, sizeof(shareable));
    return r < 0 ? thread_fail(t, op, "key cannot be written: %s", strerror(-r)) : 0;
}

HANDLER(do_import)
{
    char key[SCENARIO_LINE_MAX];
    uint64_t shareable[16] = {0};
    void *handle = NULL;
    int r;
    struct slot *slot = slot_new(t, op, 0);
    if (!slot || !operand_text(t, op, 1, key, sizeof(key)))
        return RUN_FAILED;
    control_name(key);
    r = control_get_key(&t->process->control, key, shareable, sizeof(shareable));
    if (r < 0)
        return thread_fail(t, op, "key %s: %s", key, strerror(-r));
    if (operand_choice(op, 2, 0)) {
        NEED(aclrtMemImportFromShareableHandleV2);
        r = t->process->acl.aclrtMemImportFromShareableHandleV2(shareable, 1, 0, &handle);
    } else {
        NEED(aclrtMemImportFromShareableHandle);
        r = t->process->acl.aclrtMemImportFromShareableHandle(shareable[0], (int32_t)t->device,
                                                              &handle);
    }
    if (r)
        return r;
    slot_book(t, slot, SLOT_HANDLE, TRUTH_IMPORTED, 0, (unsigned)t->device, (uint64_t)handle, 0, 0);
    slot->map_bytes = (int64_t)shareable[15];
    return 0;
}

HANDLER(do_segment)
{
    void *address = NULL;
    int64_t bytes, granule;
    struct slot *slot = slot_new(t, op, 0);
    NEED(aclrtReserveMemAddress);
    if (!slot || op->args[0].anonymous || !operand_size(t, op, 1, &bytes) ||
        !operand_size(t, op, 2, &granule))
        return RUN_FAILED;
    if (!granule || bytes / granule > GRANULES_MAX || bytes % granule)
        return thread_fail(t, op, "the granule must divide the reserved size, at most %d times",
                           GRANULES_MAX);
    struct segment *segment = calloc(1, sizeof(*segment));
    if (segment)
        segment->granules = calloc((size_t)(bytes / granule) + 1, sizeof(*segment->granules));
    if (!segment || !segment->granules) {
        free(segment);
        return thread_fail(t, op, "out of memory");
    }
    segment->granule = granule;
    segment->capacity = bytes / granule;
    int r = t->process->acl.aclrtReserveMemAddress(&address, (size_t)bytes, 0, NULL, 1);
    if (r) {
        free(segment->granules);
        free(segment);
        return r;
    }
    slot_book(t, slot, SLOT_SEGMENT, TRUTH_RANGE, 0, (unsigned)t->device, (uint64_t)address, bytes,
              bytes);
    slot->more = segment;
    return 0;
}

/* All physical handles first, then all mappings; after a failure the handles go back. */
HANDLER(do_grow)
{
    const struct acl *acl = &t->process->acl;
    int64_t count, made = 0;
    int r = 0;
    struct slot *slot = slot_get(t, op, 0, SLOT_SEGMENT);
    if (!slot || !operand_size(t, op, 1, &count))
        return RUN_FAILED;
    struct segment *segment = slot->more;
    if (count > segment->capacity - segment->count)
        return thread_fail(t, op, "%lld granules, but only %lld are left of the reserved range",
                           (long long)count, (long long)(segment->capacity - segment->count));
    struct slot *fresh = segment->granules + segment->count;
    while (made < count && r == 0) {
        r = handle_create(t, &fresh[made], segment->granule, false, SIM_ATTR_HBM_HUGE);
        made += r == 0;
    }
    for (int64_t i = 0; i < made && r; i++) {
        if (acl->aclrtFreePhysical((void *)fresh[i].value) == 0)
            slot_clear(t, &fresh[i]);
    }
    for (int64_t i = 0; i < count && r == 0; i++) {
        uint64_t at = slot->value + (uint64_t)((segment->count) * segment->granule);
        r = acl->aclrtMapMem((void *)at, (size_t)segment->granule, 0,
                             (void *)segment->granules[segment->count].value, 0);
        segment->count += r == 0;
    }
    return r;
}

static int segment_shrink(struct thread *t, struct slot *slot, int64_t count)
{
    const struct acl *acl = &t->process->acl;
    struct segment *segment = slot->more;
    int r = 0;
    for (; count > 0 && segment->count > 0 && r == 0; count--) {
        struct slot *last = &segment->granules[segment->count - 1];
        uint64_t at = slot->value + (uint64_t)((segment->count - 1) * segment->granule);
        r = acl->aclrtUnmapMem((void *)at);
        if (r == 0)
            r = acl->aclrtFreePhysical((void *)last->value);
        if (r == 0) {
            slot_clear(t, last);
            segment->count--;
        }
    }
    return r;
}

HANDLER(do_shrink)
{
    int64_t count;
    struct slot *slot = slot_get(t, op, 0, SLOT_SEGMENT);
    if (!slot || !operand_size(t, op, 1, &count))
        return RUN_FAILED;
    if (count > ((struct segment *)slot->more)->count)
        return thread_fail(t, op, "the segment has fewer granules");
    return segment_shrink(t, slot, count);
}

HANDLER(do_segment_free)
{
    struct slot *slot = slot_get(t, op, 0, SLOT_SEGMENT);
    if (!slot)
        return RUN_FAILED;
    struct segment *segment = slot->more;
    int r = segment_shrink(t, slot, segment->count);
    if (r == 0)
        r = t->process->acl.aclrtReleaseMemAddress((void *)slot->value);
    if (r == 0) {
        free(segment->granules);
        free(segment);
        slot_clear(t, slot);
    }
    return r;
}

HANDLER(do_pool)
{
    void *pool = NULL;
    int64_t max;
    struct slot *slot = slot_new(t, op, 0);
    NEED(aclrtMemPoolCreate);
    if (!slot || !operand_int(t, op, 1, 0, &max))
        return RUN_FAILED;
    struct sim_pool_props props = {.location = {(uint32_t)t->device, SIM_LOCATION_DEVICE},
                                   .max_bytes = (size_t)max};
    int r = t->process->acl.aclrtMemPoolCreate(&pool, &props);
    if (r == 0)
        *slot = (struct slot){.kind = SLOT_POOL, .value = (uint64_t)pool};
    return r;
}

HANDLER(do_pool_malloc)
{
    void *address = NULL;
    int64_t bytes;
    struct slot *slot = slot_new(t, op, 0);
    NEED(aclrtMemPoolMallocAsync);
    struct slot *pool = slot ? slot_get(t, op, 2, SLOT_POOL) : NULL;
    struct slot *stream = pool ? slot_get(t, op, 3, SLOT_STREAM) : NULL;
    if (!stream || !operand_size(t, op, 1, &bytes))
        return RUN_FAILED;
    int r = t->process->acl.aclrtMemPoolMallocAsync(&address, (size_t)bytes, (void *)pool->value,
                                                    (void *)stream->value);
    if (r == 0)
        slot_book(t, slot, SLOT_POOL_BLOCK, TRUTH_POOL, SIM_MODULE_APP, (unsigned)t->device,
                  (uint64_t)address, bytes, bytes);
    return r;
}

HANDLER(do_pool_free)
{
    struct slot *slot = slot_get(t, op, 0, SLOT_POOL_BLOCK);
    struct slot *stream = slot ? slot_get(t, op, 1, SLOT_STREAM) : NULL;
    NEED(aclrtMemPoolFreeAsync);
    if (!stream)
        return RUN_FAILED;
    int r = t->process->acl.aclrtMemPoolFreeAsync((void *)slot->value, (void *)stream->value);
    if (r == 0)
        slot_clear(t, slot);
    return r;
}

HANDLER(do_pool_trim)
{
    int64_t keep;
    struct slot *pool = slot_get(t, op, 0, SLOT_POOL);
    NEED(aclrtMemPoolTrimTo);
    if (!pool || !operand_size(t, op, 1, &keep))
        return RUN_FAILED;
    return t->process->acl.aclrtMemPoolTrimTo((void *)pool->value, (size_t)keep);
}

HANDLER(do_pool_destroy)
{
    struct slot *pool = slot_get(t, op, 0, SLOT_POOL);
    NEED(aclrtMemPoolDestroy);
    if (!pool)
        return RUN_FAILED;
    int r = t->process->acl.aclrtMemPoolDestroy((void *)pool->value);
    if (r == 0)
        *pool = (struct slot){0};
    return r;
}
