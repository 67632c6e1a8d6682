/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hal_share.c - memory that other processes open by name, and questions about addresses. A name is
 * a small file that says which descriptor of which process holds the memory; opening it through
 * /proc needs the same user and pid namespace. Opening never charges a card.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hal.h"

struct export
{
    char name[64];
    uint64_t address;
    uint64_t size_bytes;
    int fd;
    struct export *next;
};

static struct export *exports;

static void share_path(char *path, size_t size, const char *name)
{
    char leaf[128];

    book_path(path, size, "share");
    if (mkdir(path, 0777) == 0)
        (void)!chmod(path, 0777);
    snprintf(leaf, sizeof(leaf), "share/%s", name);
    book_path(path, size, leaf);
}

int share_publish(const char *name, int fd, uint64_t offset, uint64_t size_bytes, int device)
{
    char path[4096], text[128];
    int length, out, r = 0;

    share_path(path, sizeof(path), name);
    out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out < 0)
        return -errno;
    length = snprintf(text, sizeof(text), "%d %d %" PRIu64 " %" PRIu64 " %d\n", (int)getpid(), fd,
                      offset, size_bytes, device);
    if (write(out, text, (size_t)length) != length)
        r = -EIO;
    close(out);
    return r;
}

int share_open(const char *name, uint64_t *offset, uint64_t *size_bytes, int *device)
{
    char path[4096], text[128];
    int pid, fd;
    ssize_t length;

    if (strchr(name, '/') || strlen(name) >= 64)
        return -1;
    share_path(path, sizeof(path), name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0)
        return -1;
    text[length] = '\0';
    if (sscanf(text, "%d %d %" SCNu64 " %" SCNu64 " %d", &pid, &fd, offset, size_bytes, device) !=
        5)
        return -1;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

void share_withdraw(const char *name)
{
    char path[4096];

    share_path(path, sizeof(path), name);
    unlink(path);
}

/* Moves the content of a block into a memfd at the same address, so that it can be shared. */
static int block_to_memfd(const struct sim_entry *block)
{
    char *address = (char *)(uintptr_t)block->key;
    uint64_t size = block->mapped_bytes;
    int fd = memfd_create("npusim-ipc", MFD_CLOEXEC);
    unsigned char resident;

    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        goto fail;
    for (uint64_t at = 0; at < size; at += 4096) {
        if (mincore(address + at, 4096, &resident) < 0 || !(resident & 1))
            continue; /* never touched: reads zero, as the memfd does */
        if (pwrite(fd, address + at, 4096, (off_t)at) != 4096)
            goto fail;
    }
    if (mmap(address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        goto fail;
    return fd;
fail:
    if (fd >= 0)
        close(fd);
    return -1;
}

static int shmem_create_locked(uint64_t ptr, size_t size, char *name, uint32_t length)
{
    struct sim_entry *block = table_find(&hal.blocks, ptr);
    struct export *export;

    if (!block)
        block = table_covering(&hal.blocks, ptr);
    if (!block || block->kind != HAL_DEVICE || block->aux ||
        size > block->size_bytes - (ptr - block->key))
        return SIM_DRV_INVALID_VALUE;
    export = calloc(1, sizeof(*export));
    if (!export)
        return SIM_DRV_OUT_OF_MEMORY;
    snprintf(export->name, sizeof(export->name), "ipc-%d-%u", (int)getpid(), ++hal.share_next);
    export->address = block->key;
    export->size_bytes = size;
    export->fd = block_to_memfd(block);
    if (export->fd < 0 || strlen(export->name) >= length ||
        share_publish(export->name, export->fd, ptr - block->key, size, block->device) < 0) {
        if (export->fd >= 0)
            close(export->fd);
        free(export);
        return SIM_DRV_INNER_ERR;
    }
    strcpy(name, export->name);
    block->aux = (uint64_t)(uintptr_t) export;
    export->next = exports;
    exports = export;
    return SIM_DRV_OK;
}

int hal_shmem_create(uint64_t ptr, size_t size, char *name, uint32_t length)
{
    int r;

    if (!ptr || !size || !name || !length)
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    r = shmem_create_locked(ptr, size, name, length);
    pthread_mutex_unlock(&hal_lock);
    return r;
}

static void export_remove(struct export *export)
{
    for (struct export **at = &exports; *at; at = &(*at)->next)
        if (*at == export) {
            *at = export->next;
            break;
        }
    share_withdraw(export->name);
    close(export->fd);
    free(export);
}

void hal_share_forget(struct sim_entry *block)
{
    if (block->kind == HAL_DEVICE) {
        /* Private again, so that the range can be handed out anew. */
        mmap((void *)(uintptr_t)block->key, block->mapped_bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        export_remove((struct export *)(uintptr_t)block->aux);
    }
    block->aux = 0;
}

int hal_shmem_destroy(const char *name)
{
    int r = SIM_DRV_INVALID_VALUE;

    if (!name)
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    for (struct export *at = exports; at; at = at->next)
        if (!strcmp(at->name, name)) {
            share_withdraw(name); /* the block keeps its memfd until it is freed */
            r = SIM_DRV_OK;
            break;
        }
    pthread_mutex_unlock(&hal_lock);
    return r;
}

static int shmem_open_locked(const char *name, uint64_t *ptr)
{
    struct sim_entry block = {.kind = HAL_IPC};
    uint64_t offset;
    int device, fd;
    char *base;

    fd = share_open(name, &offset, &block.size_bytes, &device);
    if (fd < 0)
        return SIM_DRV_INVALID_VALUE;
    block.device = (int16_t)device;
    base = mmap(NULL, block.size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                (off_t)(offset & ~4095ull));
    close(fd);
    if (base == MAP_FAILED)
        return SIM_DRV_OUT_OF_MEMORY;
    block.key = (uint64_t)(uintptr_t)base + (offset & 4095);
    if (table_put(&hal.blocks, &block) < 0) {
        munmap(base, block.size_bytes);
        return SIM_DRV_OUT_OF_MEMORY;
    }
    *ptr = block.key;
    return SIM_DRV_OK;
}

int hal_shmem_open(const char *name, uint64_t *ptr)
{
    int r;

    if (!name || !ptr)
        return SIM_DRV_PARA_ERROR;
    pthread_mutex_lock(&hal_lock);
    r = hal_ready();
    if (!r)
        r = shmem_open_locked(name, ptr);
    pthread_mutex_unlock(&hal_lock);
    return r;
}

int hal_shmem_close(uint64_t ptr)
{
    struct sim_entry *block;
    int r = SIM_DRV_INVALID_VALUE;

    pthread_mutex_lock(&hal_lock);
    block = table_find(&hal.blocks, ptr);
    if (block && block->kind == HAL_IPC) {
        munmap((void *)(uintptr_t)(ptr & ~4095ull), block->size_bytes);
        table_remove(&hal.blocks, block);
        r = SIM_DRV_OK;
    }
    pthread_mutex_unlock(&hal_lock);
    return r;
}

void hal_share_close(void)
{
    for (struct export *at = exports; at; at = at->next)
        share_withdraw(at->name);
    for (size_t i = 0; i < hal.handles.capacity; i++)
        if (hal.handles.entries[i].key) {
            const struct hal_handle *handle =
                (const struct hal_handle *)(uintptr_t)hal.handles.entries[i].key;

            if (handle->share[0])
                share_withdraw(handle->share);
        }
}

void hal_share_after_fork(void)
{
    exports = NULL;
}
