/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hal_vmm_share.c - physical handles that other processes open. An imported handle maps the
 * exporter's memory and is charged to no card.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hal.h"

enum { SIDE_DEVICE = 1 };

int hal_export(void *pointer, uint64_t *shareable)
{
    struct hal_handle *handle;
    int r = SIM_DRV_INVALID_HANDLE;

    if (!shareable)
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    handle = hal_handle_of(pointer);
    if (handle && !handle->share[0]) {
        snprintf(handle->share, sizeof(handle->share), "h-%x-%x", (unsigned)getpid(),
                 ++hal.share_next);
        if (share_publish(handle->share, handle->fd, handle->offset, handle->size_bytes,
                          (int)handle->prop.devid) < 0)
            handle->share[0] = '\0';
    }
    if (handle && handle->share[0]) {
        unsigned pid, number;

        sscanf(handle->share, "h-%x-%x", &pid, &number);
        *shareable = (uint64_t)pid << 32 | number;
        r = SIM_DRV_OK;
    }
    pthread_mutex_unlock(&hal_lock);
    return r;
}

static int import_locked(const char *name, uint32_t devid, void **ret)
{
    struct hal_handle *handle = calloc(1, sizeof(*handle));
    int device;
    int r;

    if (!handle)
        return SIM_DRV_OUT_OF_MEMORY;
    handle->imported = true;
    handle->fd = share_open(name, &handle->offset, &handle->size_bytes, &device);
    if (handle->fd < 0) {
        free(handle);
        return SIM_DRV_INVALID_HANDLE;
    }
    handle->prop.side = SIDE_DEVICE;
    handle->prop.pg_type = BOOK_PAGE_2M;
    handle->prop.devid = devid < hal.book->device_count ? devid : (uint32_t)device;
    r = hal_handle_add(handle, ret);
    if (r) {
        close(handle->fd);
        free(handle);
    }
    return r;
}

int hal_import(uint64_t shareable, uint32_t devid, void **ret)
{
    char name[64];
    int r;

    if (!ret)
        return SIM_DRV_PARA_ERROR;
    snprintf(name, sizeof(name), "h-%x-%x", (unsigned)(shareable >> 32), (unsigned)shareable);
    pthread_mutex_lock(&hal_lock);
    r = hal_ready();
    if (!r)
        r = import_locked(name, devid, ret);
    pthread_mutex_unlock(&hal_lock);
    return r;
}
