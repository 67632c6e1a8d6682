/* SPDX-License-Identifier: Apache-2.0 */
/* acl_mem.c - memory functions of the ACL layer: sizes and properties as the layer below wants
 * them. */
#include <string.h>

#include "acl.h"

#define PAD 32ull

static uint64_t align32(uint64_t size)
{
    return (size + PAD - 1) / PAD * PAD;
}

static bool bad_size(void **dev_ptr, size_t size)
{
    return !dev_ptr || !size || size > SIZE_MAX - 4 * PAD;
}

static uint64_t padded(size_t size, int policy)
{
    int pages = policy & 0xff;

    return pages == SIM_HUGE1G_ONLY || pages == SIM_HUGE1G_ONLY_P2P ? align32(size)
                                                                    : align32(size + PAD);
}

int acl_malloc(void **dev_ptr, size_t size, int policy)
{
    if (bad_size(dev_ptr, size))
        return SIM_ACL_INVALID_PARAM;
    return rtMalloc(dev_ptr, padded(size, policy), (uint32_t)policy, SIM_MODULE_APP);
}

int acl_malloc_align32(void **dev_ptr, size_t size, int policy)
{
    if (bad_size(dev_ptr, size))
        return SIM_ACL_INVALID_PARAM;
    return rtMalloc(dev_ptr, align32(size), (uint32_t)policy, SIM_MODULE_APP);
}

int acl_malloc_cached(void **dev_ptr, size_t size, int policy)
{
    if (bad_size(dev_ptr, size))
        return SIM_ACL_INVALID_PARAM;
    return rtMallocCached(dev_ptr, padded(size, policy), (uint32_t)policy, SIM_MODULE_APP);
}

int acl_malloc_cfg(void **dev_ptr, size_t size, int policy, int advise, struct sim_malloc_cfg *cfg)
{
    if (bad_size(dev_ptr, size))
        return SIM_ACL_INVALID_PARAM;
    return rtsMalloc(dev_ptr, size, policy, advise, cfg);
}

/* Page type of an aclrtMemAttr: 0 4 KiB, 1 2 MiB, 2 1 GiB. */
static uint32_t page_type(int attr)
{
    switch (attr) {
    case 3:
    case 5:
    case 7:
    case 9:
    case 12:
    case 15:
        return 0;
    case 10:
    case 11:
    case 14:
    case 17:
        return 2;
    default:
        return 1;
    }
}

int acl_malloc_physical(void **handle, size_t size, const struct sim_acl_phys_prop *prop,
                        uint64_t flags)
{
    struct sim_drv_prop own = {.module_id = SIM_MODULE_APP};

    if (!handle || !size || !prop)
        return SIM_ACL_INVALID_PARAM;
    own.side = prop->location.type == SIM_LOCATION_DEVICE;
    own.devid = own.side ? prop->location.id : 0;
    own.pg_type = page_type(prop->mem_attr);
    own.mem_type = own.side ? 0 : 1;
    return rtMallocPhysical(handle, size, &own, flags);
}

int acl_granularity(const struct sim_acl_phys_prop *prop, int option, size_t *granularity)
{
    static const size_t sizes[] = {4096, 2u << 20, 1u << 30};

    if (!prop || !granularity || option < 0 || option > 1)
        return SIM_ACL_INVALID_PARAM;
    *granularity = sizes[page_type(prop->mem_attr)];
    return 0;
}

int acl_import_v2(const void *shareable, void **handle)
{
    uint64_t number;

    if (!shareable || !handle)
        return SIM_ACL_INVALID_PARAM;
    memcpy(&number, shareable, sizeof(number));
    return rtMemImportFromShareableHandle(number, -1, handle);
}

int acl_host_device_pointer(void *host_ptr, void **dev_ptr)
{
    if (!host_ptr || !dev_ptr)
        return SIM_ACL_INVALID_PARAM;
    *dev_ptr = host_ptr;
    return 0;
}

int acl_memcpy2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                 size_t height)
{
    if (!dst || !src || !width || !height || width > dst_pitch || width > src_pitch)
        return SIM_ACL_INVALID_PARAM;
    for (size_t i = 0; i < height; i++)
        memmove((char *)dst + i * dst_pitch, (const char *)src + i * src_pitch, width);
    return rtDeviceSynchronize();
}
