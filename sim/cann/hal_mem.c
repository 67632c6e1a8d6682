/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hal_mem.c - plain device and host memory of libascend_hal, and the state of the process. Owns
 * `hal`, its lock, the process's slot in the book and what happens at fork and exit.
 * Invariant: what the slot is charged with is the sum of mapped_bytes over blocks and handles.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hal.h"
#include "svm_text.h"

pthread_mutex_t hal_lock = PTHREAD_MUTEX_INITIALIZER;
struct hal_state hal = {.slot = -1, .phys_fd = -1};

static void fork_prepare(void)
{
    pthread_mutex_lock(&hal_lock);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&hal_lock);
}

/* The child shares pages and descriptors with its parent but owns none of its memory. */
static void fork_child(void)
{
    hal.slot = -1;
    table_clear(&hal.blocks);
    svm_text_forget();
    heap_after_fork();
    hal_vmm_after_fork();
    hal_share_after_fork();
    pthread_mutex_unlock(&hal_lock);
}

__attribute__((constructor)) static void hal_setup(void)
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

__attribute__((destructor)) static void hal_teardown(void)
{
    pthread_mutex_lock(&hal_lock);
    hal.closed = true;
    hal_share_close();
    if (hal.slot >= 0)
        book_slot_release(hal.book, hal.slot);
    hal.slot = -1;
    pthread_mutex_unlock(&hal_lock);
}

int hal_ready(void)
{
    if (hal.slot >= 0)
        return SIM_DRV_OK;
    if (hal.closed)
        return SIM_DRV_INNER_ERR;
    if (!hal.book)
        hal.book = book_open();
    if (!hal.book)
        return SIM_DRV_INNER_ERR;
    hal.slot = book_slot_acquire(hal.book);
    if (hal.slot < 0) {
        hal.slot = -1;
        return SIM_DRV_INNER_ERR;
    }
    svm_text_open(hal.slot, (int)getpid());
    return SIM_DRV_OK;
}

int hal_take(int device, enum book_page page, int module, uint64_t size_bytes,
             uint64_t mapped_bytes, uint8_t *row)
{
    struct book_slot *slot = &hal.book->slots[hal.slot];
    uint64_t *pages = &slot->pages[device][page];
    int index = book_row_index(hal.book, hal.slot, device, page, module);
    struct book_row *own;

    if (index < 0)
        return SIM_DRV_INNER_ERR;
    if (book_charge(hal.book, hal.slot, device, mapped_bytes) < 0)
        return SIM_DRV_OUT_OF_MEMORY;
    own = &slot->rows[index];
    own->current_bytes += size_bytes;
    own->alloc_count++;
    if (own->current_bytes > own->peak_bytes)
        own->peak_bytes = own->current_bytes;
    *pages += mapped_bytes / book_page_bytes(page);
    if (*pages > slot->pages_peak[device][page])
        slot->pages_peak[device][page] = *pages;
    svm_text_update(slot, (uint32_t)index);
    *row = (uint8_t)index;
    return SIM_DRV_OK;
}

void hal_give(int device, uint8_t row, uint64_t size_bytes, uint64_t mapped_bytes)
{
    struct book_slot *slot;
    struct book_row *own;

    if (hal.slot < 0)
        return; /* after exit: all has been given back */
    slot = &hal.book->slots[hal.slot];
    own = &slot->rows[row];
    own->current_bytes -= size_bytes;
    own->free_count++;
    slot->pages[device][own->page] -= mapped_bytes / book_page_bytes(own->page);
    book_uncharge(hal.book, hal.slot, device, mapped_bytes);
    svm_text_update(slot, row);
}

static int alloc_block(void **pp, uint64_t size, enum book_page page, uint8_t kind, int device,
                       int module)
{
    uint64_t page_bytes = book_page_bytes(page);
    struct sim_entry block = {.size_bytes = size, .device = (int16_t)device, .kind = kind};
    int r = SIM_DRV_OK;

    if (kind == HAL_DEVICE) {
        if (size > hal.book->hbm_bytes)
            return SIM_DRV_OUT_OF_MEMORY;
        block.mapped_bytes = (size + page_bytes - 1) & ~(page_bytes - 1);
        r = hal_take(device, page, module, size, block.mapped_bytes, &block.row);
    }
    if (r)
        return r;
    block.key =
        heap_take(block.mapped_bytes ? block.mapped_bytes : size, page != BOOK_PAGE_4K, &block.bin);
    if (block.key && table_put(&hal.blocks, &block) == 0) {
        *pp = (void *)(uintptr_t)block.key;
        return SIM_DRV_OK;
    }
    if (block.key)
        heap_give(block.key, block.bin);
    if (kind == HAL_DEVICE)
        hal_give(device, block.row, size, block.mapped_bytes);
    return SIM_DRV_OUT_OF_MEMORY;
}

int hal_alloc(void **pp, unsigned long long size, unsigned long long flag)
{
    int device = (int)(flag & SIM_FLAG_DEVICE_MASK);
    int virt = (int)(flag >> SIM_FLAG_VIRT_SHIFT) & 15;
    int module = (int)(flag >> SIM_FLAG_MODULE_SHIFT);
    bool host = virt == SIM_VIRT_HOST || virt == SIM_VIRT_HOST_UVA;
    enum book_page page = flag & SIM_FLAG_GIANT  ? BOOK_PAGE_1G
                          : flag & SIM_FLAG_HUGE ? BOOK_PAGE_2M
                                                 : BOOK_PAGE_4K;
    int r;

    if (!pp || !size)
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    r = hal_ready();
    if (!r && !host && device >= (int)hal.book->device_count)
        r = SIM_DRV_INVALID_DEVICE;
    if (!r)
        r = alloc_block(pp, size, host ? BOOK_PAGE_4K : page, host ? HAL_HOST : HAL_DEVICE, device,
                        module);
    pthread_mutex_unlock(&hal_lock);
    return r;
}

static void drop_block(struct sim_entry *block)
{
    if (block->aux)
        hal_share_forget(block);
    if (block->kind == HAL_DEVICE)
        hal_give(block->device, block->row, block->size_bytes, block->mapped_bytes);
    if (block->kind == HAL_DEVICE || block->kind == HAL_HOST)
        heap_give(block->key, block->bin);
}

static int free_kind(void *pp, unsigned kinds)
{
    struct sim_entry *block;
    int r = SIM_DRV_INVALID_VALUE;

    pthread_mutex_lock(&hal_lock);
    block = table_find(&hal.blocks, (uint64_t)(uintptr_t)pp);
    if (block && kinds >> block->kind & 1) {
        drop_block(block);
        table_remove(&hal.blocks, block);
        r = SIM_DRV_OK;
    }
    pthread_mutex_unlock(&hal_lock);
    return r;
}

int hal_free(void *pp)
{
    return free_kind(pp, 1u << HAL_DEVICE | 1u << HAL_HOST);
}

int hal_mbuf_alloc(uint64_t size, void **mbuf)
{
    int r;

    if (!mbuf || !size)
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    r = hal_ready();
    if (!r)
        r = alloc_block(mbuf, size, BOOK_PAGE_4K, HAL_HOST, 0, 0);
    pthread_mutex_unlock(&hal_lock);
    return r;
}

int hal_mbuf_free(void *mbuf)
{
    return free_kind(mbuf, 1u << HAL_HOST);
}

static int put_block(const struct sim_entry *block)
{
    int r;

    pthread_mutex_lock(&hal_lock);
    r = hal_ready();
    if (!r && table_find(&hal.blocks, block->key))
        r = SIM_DRV_INVALID_VALUE;
    if (!r && table_put(&hal.blocks, block) < 0)
        r = SIM_DRV_OUT_OF_MEMORY;
    pthread_mutex_unlock(&hal_lock);
    return r;
}

int hal_host_register(void *src, unsigned long long size, unsigned int devid, void **dst)
{
    struct sim_entry block = {.key = (uint64_t)(uintptr_t)src,
                              .size_bytes = size,
                              .device = (int16_t)devid,
                              .kind = HAL_REGISTERED};
    int r;

    if (!src || !size)
        return SIM_DRV_PARA_ERROR;
    r = put_block(&block);
    if (!r && dst)
        *dst = src;
    return r;
}

int hal_host_unregister(void *src)
{
    return free_kind(src, 1u << HAL_REGISTERED);
}

int hal_pool_create(void **pool, size_t size, uint32_t devid, void *base)
{
    struct sim_entry block = {.size_bytes = size,
                              .device = (int16_t)devid,
                              .aux = 0,
                              .kind = HAL_POOL,
                              .key = (uint64_t)(uintptr_t)base};
    int r;

    if (!pool || !size || !base)
        return SIM_DRV_PARA_ERROR;
    r = put_block(&block);
    if (!r)
        *pool = base;
    return r;
}

int hal_pool_destroy(void *pool)
{
    return free_kind(pool, 1u << HAL_POOL);
}

int hal_device_open(uint32_t devid)
{
    int r;

    pthread_mutex_lock(&hal_lock);
    r = hal_ready();
    if (!r && devid >= hal.book->device_count)
        r = SIM_DRV_INVALID_DEVICE;
    pthread_mutex_unlock(&hal_lock);
    return r;
}

int hal_device_close(uint32_t devid)
{
    size_t i = 0;

    pthread_mutex_lock(&hal_lock);
    hal_vmm_close((int)devid);
    while (i < hal.blocks.capacity) {
        struct sim_entry *block = &hal.blocks.entries[i];

        if (block->key && block->kind == HAL_DEVICE && block->device == (int)devid) {
            drop_block(block);
            table_remove(&hal.blocks, block); /* may move another entry here: look again */
        } else {
            i++;
        }
    }
    pthread_mutex_unlock(&hal_lock);
    return SIM_DRV_OK;
}
