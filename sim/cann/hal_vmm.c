/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hal_vmm.c - physical handles, reserved addresses and maps. Owns the sparse memfd behind handles
 * and the handle objects. Invariant: handle->maps counts the entries of hal.maps that name it; a
 * handle with no reference and no map is gone, and only then is its card given the memory back.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hal.h"

#define ALIGN (2ull << 20)
#define PHYS_BYTES (1ull << 60)
enum { SIDE_DEVICE = 1 };

struct hal_handle *hal_handle_of(void *pointer)
{
    return table_find(&hal.handles, (uint64_t)(uintptr_t)pointer) ? pointer : NULL;
}

static int phys_open(void)
{
    if (hal.phys_fd >= 0)
        return 0;
    hal.phys_fd = memfd_create("npusim-hbm", MFD_CLOEXEC);
    if (hal.phys_fd < 0 || ftruncate(hal.phys_fd, (off_t)PHYS_BYTES) < 0)
        return SIM_DRV_OUT_OF_MEMORY;
    return 0;
}

int hal_handle_add(struct hal_handle *handle, void **ret)
{
    struct sim_entry entry = {.key = (uint64_t)(uintptr_t)handle,
                              .size_bytes = handle->size_bytes,
                              .device = (int16_t)handle->prop.devid};

    handle->refs = 1;
    if (table_put(&hal.handles, &entry) < 0)
        return SIM_DRV_OUT_OF_MEMORY;
    *ret = handle;
    return SIM_DRV_OK;
}

static int create_locked(void **ret, size_t size, const struct sim_drv_prop *prop)
{
    enum book_page page = prop->pg_type < BOOK_PAGES ? (enum book_page)prop->pg_type : BOOK_PAGE_2M;
    uint64_t page_bytes = book_page_bytes(page);
    uint64_t rounded = (size + page_bytes - 1) & ~(page_bytes - 1);
    struct hal_handle *handle;
    int r = hal_ready();

    if (!r)
        r = phys_open();
    if (!r && prop->devid >= hal.book->device_count)
        r = SIM_DRV_INVALID_DEVICE;
    if (r)
        return r;
    if (rounded < size)
        return SIM_DRV_OUT_OF_MEMORY;
    handle = calloc(1, sizeof(*handle));
    if (!handle)
        return SIM_DRV_OUT_OF_MEMORY;
    handle->prop = *prop;
    handle->size_bytes = size;
    handle->fd = hal.phys_fd;
    handle->offset = hal.phys_next;
    if (prop->side == SIDE_DEVICE) {
        r = hal_take((int)prop->devid, page, (int)prop->module_id, size, rounded, &handle->row);
        handle->mapped_bytes = rounded;
    }
    if (!r) {
        r = hal_handle_add(handle, ret);
        if (r && handle->mapped_bytes)
            hal_give((int)prop->devid, handle->row, size, rounded);
    }
    if (r)
        free(handle);
    else
        hal.phys_next += (rounded + ALIGN - 1) & ~(ALIGN - 1);
    return r;
}

int hal_create(void **handle, size_t size, const struct sim_drv_prop *prop)
{
    int r;

    if (!handle || !size || !prop)
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    r = create_locked(handle, size, prop);
    pthread_mutex_unlock(&hal_lock);
    return r;
}

static void handle_settle(struct hal_handle *handle)
{
    if (handle->refs || handle->maps)
        return;
    if (handle->share[0])
        share_withdraw(handle->share);
    if (handle->imported) {
        close(handle->fd);
    } else {
        (void)!fallocate(handle->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         (off_t)handle->offset, (off_t)((handle->size_bytes + 4095) & ~4095ull));
        if (handle->mapped_bytes)
            hal_give((int)handle->prop.devid, handle->row, handle->size_bytes,
                     handle->mapped_bytes);
    }
    table_remove(&hal.handles, table_find(&hal.handles, (uint64_t)(uintptr_t)handle));
    free(handle);
}

int hal_release(void *pointer)
{
    struct hal_handle *handle;
    int r = SIM_DRV_INVALID_HANDLE;

    pthread_mutex_lock(&hal_lock);
    handle = hal_handle_of(pointer);
    if (handle && handle->refs) {
        handle->refs--;
        handle_settle(handle);
        r = SIM_DRV_OK;
    }
    pthread_mutex_unlock(&hal_lock);
    return r;
}

static char *reserve_range(size_t size, void *addr, size_t *slack)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *base;

    *slack = 0;
    if (addr && !((uintptr_t)addr & (ALIGN - 1))) {
        base = mmap(addr, size, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (base == addr)
            return base;
        if (base != MAP_FAILED)
            munmap(base, size);
    }
    base = mmap(NULL, size + ALIGN, PROT_NONE, flags, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    *slack = (ALIGN - ((uintptr_t)base & (ALIGN - 1))) & (ALIGN - 1);
    if (*slack)
        munmap(base, *slack);
    if (*slack != ALIGN)
        munmap(base + *slack + size, ALIGN - *slack);
    return base + *slack;
}

int hal_reserve(void **ptr, size_t size, size_t alignment, void *addr)
{
    size_t rounded = (size + 4095) & ~(size_t)4095;
    struct sim_entry entry = {.size_bytes = rounded};
    size_t slack;
    char *base;
    int r;

    if (!ptr || !size || rounded < size || (alignment && (alignment & (alignment - 1))))
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    r = hal_ready();
    base = r ? NULL : reserve_range(rounded, addr, &slack);
    entry.key = (uint64_t)(uintptr_t)base;
    if (!r && (!base || table_put(&hal.reserves, &entry) < 0))
        r = SIM_DRV_OUT_OF_MEMORY;
    if (!r)
        *ptr = base;
    pthread_mutex_unlock(&hal_lock);
    return r;
}

static bool reserve_in_use(const struct sim_entry *reserve)
{
    for (size_t i = 0; i < hal.maps.capacity; i++)
        if (hal.maps.entries[i].key >= reserve->key &&
            hal.maps.entries[i].key - reserve->key < reserve->size_bytes)
            return true;
    return false;
}

int hal_address_free(void *ptr)
{
    struct sim_entry *reserve;
    int r = SIM_DRV_INVALID_VALUE;

    pthread_mutex_lock(&hal_lock);
    reserve = table_find(&hal.reserves, (uint64_t)(uintptr_t)ptr);
    if (reserve && !reserve_in_use(reserve)) {
        munmap(ptr, reserve->size_bytes);
        table_remove(&hal.reserves, reserve);
        r = SIM_DRV_OK;
    }
    pthread_mutex_unlock(&hal_lock);
    return r;
}

static int map_locked(void *ptr, size_t size, size_t offset, struct hal_handle *handle, int access)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    const struct sim_entry *reserve = table_covering(&hal.reserves, address);
    struct sim_entry entry = {.key = address,
                              .size_bytes = size,
                              .aux = (uint64_t)(uintptr_t)handle,
                              .kind = access ? 3 : 0};

    if (!handle)
        return SIM_DRV_INVALID_HANDLE;
    if (!reserve || size > reserve->size_bytes - (address - reserve->key) || (address & 4095) ||
        (offset & 4095) || offset > handle->size_bytes || size > handle->size_bytes - offset ||
        table_find(&hal.maps, address))
        return SIM_DRV_INVALID_VALUE;
    entry.device = (int16_t)handle->prop.devid;
    if (table_put(&hal.maps, &entry) < 0)
        return SIM_DRV_OUT_OF_MEMORY;
    if (mmap(ptr, size, access ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED | MAP_FIXED,
             handle->fd, (off_t)(handle->offset + offset)) == MAP_FAILED) {
        table_remove(&hal.maps, table_find(&hal.maps, address));
        return SIM_DRV_INNER_ERR;
    }
    handle->maps++;
    return SIM_DRV_OK;
}

int hal_map(void *ptr, size_t size, size_t offset, void *handle, int access)
{
    int r;

    if (!ptr || !size)
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    r = map_locked(ptr, size, offset, hal_handle_of(handle), access);
    pthread_mutex_unlock(&hal_lock);
    return r;
}

static void unmap_locked(struct sim_entry *map)
{
    struct hal_handle *handle = (struct hal_handle *)(uintptr_t)map->aux;

    mmap((void *)(uintptr_t)map->key, map->size_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    table_remove(&hal.maps, map);
    handle->maps--;
    handle_settle(handle);
}

int hal_unmap(void *ptr)
{
    struct sim_entry *map;
    int r = SIM_DRV_INVALID_VALUE;

    pthread_mutex_lock(&hal_lock);
    map = table_find(&hal.maps, (uint64_t)(uintptr_t)ptr);
    if (map) {
        unmap_locked(map);
        r = SIM_DRV_OK;
    }
    pthread_mutex_unlock(&hal_lock);
    return r;
}

int hal_set_access(void *ptr, size_t size, const struct sim_access_desc *desc, size_t count)
{
    struct sim_entry *map;
    int r = SIM_DRV_INVALID_VALUE;

    if (!ptr || !size || !desc || !count)
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    map = table_covering(&hal.maps, (uint64_t)(uintptr_t)ptr);
    if (map) {
        int flags = desc[0].flags;
        int prot = (flags & 1 ? PROT_READ : 0) | (flags & 2 ? PROT_WRITE : 0);

        map->kind = (uint8_t)(flags & 3);
        r = mprotect(ptr, size, prot) == 0 ? SIM_DRV_OK : SIM_DRV_INVALID_VALUE;
    }
    pthread_mutex_unlock(&hal_lock);
    return r;
}

int hal_get_access(void *ptr, uint64_t *flags)
{
    const struct sim_entry *map;

    pthread_mutex_lock(&hal_lock);
    map = table_covering(&hal.maps, (uint64_t)(uintptr_t)ptr);
    if (map && flags)
        *flags = map->kind;
    pthread_mutex_unlock(&hal_lock);
    return map ? SIM_DRV_OK : SIM_DRV_INVALID_VALUE;
}

int hal_retain(void **ret, void *ptr)
{
    const struct sim_entry *map;

    if (!ret)
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    map = table_covering(&hal.maps, (uint64_t)(uintptr_t)ptr);
    if (map) {
        struct hal_handle *handle = (struct hal_handle *)(uintptr_t)map->aux;

        handle->refs++;
        *ret = handle;
    }
    pthread_mutex_unlock(&hal_lock);
    return map ? SIM_DRV_OK : SIM_DRV_INVALID_VALUE;
}

int hal_handle_prop(struct sim_drv_prop *prop, void *pointer)
{
    struct hal_handle *handle;

    pthread_mutex_lock(&hal_lock);
    handle = hal_handle_of(pointer);
    if (handle && prop)
        *prop = handle->prop;
    pthread_mutex_unlock(&hal_lock);
    return handle && prop ? SIM_DRV_OK : SIM_DRV_INVALID_HANDLE;
}

int hal_granularity(const struct sim_drv_prop *prop, size_t *granularity)
{
    if (!prop || !granularity || prop->pg_type >= BOOK_PAGES)
        return SIM_DRV_PARA_ERROR;
    *granularity = book_page_bytes((enum book_page)prop->pg_type);
    return SIM_DRV_OK;
}

void hal_vmm_close(int device)
{
    size_t i = 0;

    while (i < hal.maps.capacity) {
        struct sim_entry *map = &hal.maps.entries[i];

        if (map->key && map->device == device)
            unmap_locked(map);
        else
            i++;
    }
    i = 0;
    while (i < hal.handles.capacity) {
        struct sim_entry *entry = &hal.handles.entries[i];

        if (entry->key && entry->device == device) {
            struct hal_handle *handle = (struct hal_handle *)(uintptr_t)entry->key;

            handle->refs = 0;
            handle_settle(handle);
        } else {
            i++;
        }
    }
}

void hal_vmm_after_fork(void)
{
    table_clear(&hal.handles); /* the objects stay with the parent's addresses: never used again */
    table_clear(&hal.maps);
    table_clear(&hal.reserves);
    if (hal.phys_fd >= 0)
        close(hal.phys_fd);
    hal.phys_fd = -1;
    hal.phys_next = 0;
}
