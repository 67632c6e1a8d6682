/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rt_mem.c - memory functions of libruntime: which driver calls one runtime call makes, with which
 * flag bits. Owns nothing but the names of opened inter-process memory.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rt.h"

#define HUGE_THRESHOLD (1ull << 20) /* HUGE_FIRST tries huge pages above this size */
#define ALIGN32(size) (((size) + 31) & ~31ull)
enum { ALLOC_ATTEMPTS = SIM_LAYOUT == 92 ? 2 : 1 };

struct ipc_open {
    char name[64];
    void *ptr;
    struct ipc_open *next;
};

static pthread_mutex_t ipc_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ipc_open *ipc_opened;

static unsigned long long device_flag(int device, int virt, uint16_t module)
{
    return (unsigned)device | (unsigned)virt << SIM_FLAG_VIRT_SHIFT | 1u << SIM_FLAG_PHYS_SHIFT |
           (unsigned long long)module << SIM_FLAG_MODULE_SHIFT;
}

static int device_alloc(void **dev_ptr, uint64_t size, int policy, unsigned long long flag)
{
    int pages = policy & 0xff;
    bool p2p = (pages >= SIM_HUGE_FIRST_P2P && pages <= SIM_NORMAL_ONLY_P2P) ||
               pages == SIM_HUGE1G_ONLY_P2P;
    bool only = pages == SIM_HUGE_ONLY || pages == SIM_HUGE_ONLY_P2P;
    bool first = pages == SIM_HUGE_FIRST || pages == SIM_HUGE_FIRST_P2P;
    int r;

    if (pages > SIM_HUGE1G_ONLY_P2P)
        return SIM_DRV_PARA_ERROR;
    if (p2p)
        flag |= SIM_FLAG_P2P;
    if (policy & SIM_USER_SPACE_READONLY)
        flag |= SIM_FLAG_READONLY;
    if (pages >= SIM_HUGE1G_ONLY)
        return halMemAlloc(dev_ptr, size, flag | SIM_FLAG_GIANT);
    if (only || (first && size > HUGE_THRESHOLD)) {
        r = halMemAlloc(dev_ptr, size, flag | SIM_FLAG_HUGE);
        if (!r || only)
            return r;
    }
    return halMemAlloc(dev_ptr, size, flag);
}

int rt_malloc(void **dev_ptr, uint64_t size, uint32_t type, uint16_t module, int retry)
{
    int device = rt_current_device();
    int r = SIM_DRV_OK;

    if (!dev_ptr || !size || size > UINT64_MAX - 64)
        return SIM_RT_PARAM_INVALID;
    if (device < 0)
        return SIM_RT_CONTEXT_NULL;
    for (int i = 0; i < (retry ? ALLOC_ATTEMPTS : 1); i++) {
        if (i)
            rt_pool_trim_all();
        r = device_alloc(dev_ptr, ALIGN32(size), (int)type,
                         device_flag(device, SIM_VIRT_DEV, module));
        if (!r)
            break;
    }
    return rt_error(r);
}

static uint16_t cfg_module(const struct sim_malloc_cfg *cfg)
{
    for (size_t i = 0; cfg && cfg->attrs && i < cfg->num_attrs; i++)
        if (cfg->attrs[i].attr == SIM_CFG_MODULE_ID)
            return cfg->attrs[i].value.module_id & 0xff;
    return SIM_MODULE_APP;
}

int rt_mem_alloc(void **dev_ptr, uint64_t size, int policy, int advise,
                 const struct sim_malloc_cfg *cfg)
{
    int device = rt_current_device();
    unsigned long long flag;

    if (!dev_ptr || !size || size > UINT64_MAX - 64)
        return SIM_RT_PARAM_INVALID;
    if (device < 0)
        return SIM_RT_CONTEXT_NULL;
    flag = device_flag(device, SIM_VIRT_DEV, cfg_module(cfg));
    if (advise)
        flag |= SIM_FLAG_TS;
    return rt_error(device_alloc(dev_ptr, ALIGN32(size), policy, flag));
}

int rt_malloc_managed(void **ptr, uint64_t size, uint16_t module)
{
    int device = rt_current_device();

    if (device < 0)
        return SIM_RT_CONTEXT_NULL;
    return rt_error(halMemAlloc(ptr, size, device_flag(device, SIM_VIRT_UVM, module)));
}

int rt_free(void *dev_ptr)
{
    if (rt_pool_free(dev_ptr) == 0)
        return 0;
    return rt_error(halMemFree(dev_ptr));
}

int rt_malloc_host(void **host_ptr, uint64_t size, int virt, uint16_t module)
{
    int device = rt_current_device();

    if (device < 0)
        return SIM_RT_CONTEXT_NULL;
    return rt_error(halMemAlloc(host_ptr, size,
                                (unsigned)device | (unsigned)virt << SIM_FLAG_VIRT_SHIFT |
                                    (unsigned long long)module << SIM_FLAG_MODULE_SHIFT));
}

int rt_malloc_host_cfg(void **host_ptr, uint64_t size, const struct sim_malloc_cfg *cfg)
{
    int virt = SIM_VIRT_HOST;

    for (size_t i = 0; cfg && cfg->attrs && i < cfg->num_attrs; i++)
        if (cfg->attrs[i].attr == SIM_CFG_VA_FLAG && cfg->attrs[i].value.va_flag)
            virt = SIM_VIRT_HOST_UVA;
    return rt_malloc_host(host_ptr, size, virt, cfg_module(cfg));
}

int rt_free_host(void *host_ptr)
{
    struct sim_ptr_attributes attributes;
    int r = halMemGetAttributes(host_ptr, &attributes);

    if (!r && attributes.location.type != SIM_LOCATION_HOST)
        return SIM_RT_PARAM_INVALID;
    return rt_error(halMemFree(host_ptr));
}

int rt_malloc_physical(void **handle, size_t size, const struct sim_drv_prop *prop, uint64_t flags)
{
    struct sim_drv_prop own;
    int32_t logic;
    int r = rt_need_context();

    if (!r && !prop)
        r = SIM_RT_PARAM_INVALID;
    if (!r)
        r = rt_user_to_logic((int32_t)prop->devid, &logic);
    if (r)
        return r;
    own = *prop;
    own.devid = (uint32_t)logic;
    return rt_error(halMemCreate(handle, size, &own, flags));
}

int rt_handle_properties(void *handle, struct sim_acl_phys_prop *prop)
{
    static const int attrs[] = {SIM_ATTR_HBM_NORMAL, SIM_ATTR_HBM_HUGE, SIM_ATTR_HUGE1G};
    struct sim_drv_prop own;
    int32_t user = 0;
    int r = rt_error(halMemGetAllocationPropertiesFromHandle(&own, handle));

    if (!r)
        r = rt_logic_to_user((int32_t)own.devid, &user);
    if (r)
        return r;
    *prop = (struct sim_acl_phys_prop){.mem_attr = attrs[own.pg_type < 3 ? own.pg_type : 1]};
    prop->location.id = (uint32_t)user;
    prop->location.type = own.side ? SIM_LOCATION_DEVICE : SIM_LOCATION_HOST;
    return 0;
}

int rt_import(uint64_t shareable, int32_t device, void **handle)
{
    int32_t logic = rt_current_device();
    int r = device < 0 ? 0 : rt_user_to_logic(device, &logic);

    if (r)
        return r;
    if (logic < 0)
        return SIM_RT_CONTEXT_NULL;
    return rt_error(halMemImportFromShareableHandle(shareable, (uint32_t)logic, handle));
}

int rt_ipc_open(void **ptr, const char *name)
{
    struct ipc_open *open;
    uint64_t address;
    int r = rt_need_context();

    if (r || strlen(name) >= sizeof(open->name))
        return r ? r : SIM_RT_PARAM_INVALID;
    r = rt_error(halShmemOpenHandle(name, &address));
    if (r)
        return r;
    *ptr = (void *)(uintptr_t)address;
    open = calloc(1, sizeof(*open));
    if (!open)
        return SIM_RT_DRV_INTERNAL;
    strcpy(open->name, name);
    open->ptr = *ptr;
    pthread_mutex_lock(&ipc_lock);
    open->next = ipc_opened;
    ipc_opened = open;
    pthread_mutex_unlock(&ipc_lock);
    return 0;
}

int rt_ipc_close(const char *name)
{
    struct ipc_open *found = NULL;
    int r;

    pthread_mutex_lock(&ipc_lock);
    for (struct ipc_open **at = &ipc_opened; *at; at = &(*at)->next)
        if (!strcmp((*at)->name, name)) {
            found = *at;
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&ipc_lock);
    if (!found)
        return rt_error(halShmemDestroyHandle(name));
    r = rt_error(halShmemCloseHandle((uint64_t)(uintptr_t)found->ptr));
    free(found);
    return r;
}

int rt_host_register(void *ptr, uint64_t size, uint32_t flag, void **dev_ptr)
{
    int device = rt_current_device();

    if (device < 0)
        return SIM_RT_CONTEXT_NULL;
    return rt_error(halHostRegister(ptr, size, flag, (unsigned)device, dev_ptr));
}

int rt_host_unregister(void *ptr)
{
    int device = rt_current_device();

    return rt_error(halHostUnregister(ptr, device < 0 ? 0 : (unsigned)device));
}

int rt_mem_info(uint32_t type, size_t *free_bytes, size_t *total_bytes)
{
    int device = rt_current_device();

    if (device < 0)
        return SIM_RT_CONTEXT_NULL;
    /* The cards here have HBM only. */
    if (type == SIM_ATTR_DDR || type == 2 || type == 3 || type == 6 || type == 7) {
        *free_bytes = *total_bytes = 0;
        return 0;
    }
    if (type > 17)
        return SIM_RT_PARAM_INVALID;
    return rt_error(halMemGetInfo((uint32_t)device, free_bytes, total_bytes));
}

int rt_mem_usage(int32_t device, struct sim_mem_usage *info, size_t in_count, size_t *out_count)
{
    int32_t logic;
    int r = rt_user_to_logic(device, &logic);

    return r ? r : rt_error(halGetMemUsageInfo((uint32_t)logic, info, in_count, out_count));
}

int rt_memcpy(void *dst, uint64_t dest_max, const void *src, uint64_t count)
{
    int r = rt_need_context();

    if (r)
        return r;
    if (!dst || !src || count > dest_max)
        return SIM_RT_PARAM_INVALID;
    memmove(dst, src, count);
    return 0;
}

int rt_memset(void *ptr, uint64_t dest_max, uint32_t value, uint64_t count)
{
    int r = rt_need_context();

    if (r)
        return r;
    if (!ptr || count > dest_max)
        return SIM_RT_PARAM_INVALID;
    memset(ptr, (int)(value & 0xff), count);
    return 0;
}
