/* SPDX-License-Identifier: Apache-2.0 */
/* hal_info.c - what libascend_hal says about addresses, cards and usage; changes nothing. */
#include <stdio.h>
#include <string.h>

#include "hal.h"

static const struct sim_entry *entry_at(uint64_t address)
{
    const struct sim_entry *entry = table_find(&hal.blocks, address);

    if (!entry)
        entry = table_covering(&hal.maps, address);
    if (!entry)
        entry = table_covering(&hal.blocks, address);
    return entry;
}

int hal_address_range(void *ptr, void **base, size_t *size)
{
    const struct sim_entry *entry;

    if (!ptr || !base || !size)
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    entry = entry_at((uint64_t)(uintptr_t)ptr);
    if (entry) {
        *base = (void *)(uintptr_t)entry->key;
        *size = entry->size_bytes;
    }
    pthread_mutex_unlock(&hal_lock);
    return entry ? SIM_DRV_OK : SIM_DRV_INVALID_VALUE;
}

int hal_attributes(const void *ptr, struct sim_ptr_attributes *attributes)
{
    const struct sim_entry *entry;
    bool host;

    if (!ptr || !attributes)
        return SIM_DRV_PARA_ERROR;
    memset(attributes, 0, sizeof(*attributes));
    attributes->location.type = SIM_LOCATION_UNREGISTERED;
    pthread_mutex_lock(&hal_lock);
    entry = entry_at((uint64_t)(uintptr_t)ptr);
    if (entry) {
        host = entry->kind == HAL_HOST || entry->kind == HAL_REGISTERED;
        if (table_find(&hal.maps, entry->key) == entry)
            host = false;
        attributes->location.type = host ? SIM_LOCATION_HOST : SIM_LOCATION_DEVICE;
        attributes->location.id = host ? 0 : (uint32_t)entry->device;
        attributes->page_bytes = host ? 4096 : 2u << 20;
    }
    pthread_mutex_unlock(&hal_lock);
    return SIM_DRV_OK;
}

int hal_mem_info(uint32_t devid, size_t *free_bytes, size_t *total_bytes)
{
    int r;

    if (!free_bytes || !total_bytes)
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    r = hal_ready();
    if (!r && devid >= hal.book->device_count)
        r = SIM_DRV_INVALID_DEVICE;
    if (!r) {
        book_reap(hal.book, hal.slot);
        *total_bytes = hal.book->hbm_bytes;
        *free_bytes = hal.book->hbm_bytes - book_used_bytes(hal.book, (int)devid);
    }
    pthread_mutex_unlock(&hal_lock);
    return r;
}

static void usage_name(char *name, size_t size, int module)
{
    snprintf(name, size, "%s",
             module == SIM_MODULE_HCCL      ? "HCCL"
             : module == SIM_MODULE_RUNTIME ? "RUNTIME"
             : module == SIM_MODULE_APP     ? "APP"
                                            : "OTHER");
}

int hal_mem_usage(uint32_t devid, struct sim_mem_usage *info, size_t in_count, size_t *out_count)
{
    const struct book_slot *slot;
    uint8_t modules[BOOK_ROWS_MAX];
    size_t count = 0;
    int r;

    if (!info || !out_count)
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    r = hal_ready();
    slot = r ? NULL : &hal.book->slots[hal.slot];
    for (uint32_t i = 0; !r && i < slot->row_count; i++) {
        const struct book_row *row = &slot->rows[i];
        size_t at = 0;

        if (row->device != devid)
            continue;
        while (at < count && modules[at] != row->module)
            at++;
        if (at == count) {
            if (count == in_count)
                continue;
            modules[count++] = row->module;
            memset(&info[at], 0, sizeof(info[at]));
            usage_name(info[at].name, sizeof(info[at].name), row->module);
        }
        info[at].cur_bytes += row->current_bytes;
        info[at].peak_bytes += row->peak_bytes;
    }
    *out_count = count;
    pthread_mutex_unlock(&hal_lock);
    return r;
}

int hal_device_count(uint32_t *count)
{
    int r = SIM_DRV_OK;

    if (!count)
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    if (!hal.book)
        hal.book = book_open();
    if (hal.book)
        *count = hal.book->device_count;
    else
        r = SIM_DRV_INNER_ERR;
    pthread_mutex_unlock(&hal_lock);
    return r;
}
