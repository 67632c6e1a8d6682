/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hal.h - inside libascend_hal: the bodies of hal.def and the state that they share.
 *
 * Device memory is host virtual memory that costs RAM only where it is touched: one big NORESERVE
 * range, from which blocks are handed out 4 KiB or 2 MiB aligned; physical handles are ranges of
 * one sparse memfd that are mapped into reserved addresses. Addresses of freed blocks are reused,
 * last freed first.
 * Everything here is under hal_lock. A child of fork starts with nothing; what it inherited is
 * unknown to it.
 */
#ifndef SIM_HAL_H
#define SIM_HAL_H

#include <pthread.h>

#include "book.h"
#include "sim_abi.h"
#include "table.h"

enum hal_kind {
    HAL_DEVICE,
    HAL_HOST,       /* pinned host memory */
    HAL_REGISTERED, /* the caller's own host memory */
    HAL_IPC,        /* another process's block, opened here */
    HAL_POOL,
};

struct hal_state {
    struct book *book;
    int slot;                  /* -1: none yet */
    bool closed;               /* the process is past its exit handlers */
    struct sim_table blocks;   /* address -> device or host block */
    struct sim_table handles;  /* physical handle -> itself */
    struct sim_table maps;     /* mapped address -> aux: handle */
    struct sim_table reserves; /* reserved address -> aux: start of the whole mapping */
    int phys_fd;               /* memfd behind physical handles, -1: none yet */
    uint64_t phys_next;
    uint32_t share_next;
};

extern pthread_mutex_t hal_lock;
extern struct hal_state hal;

/* A physical handle: memory goes back to the card when refs and maps are both 0. */
struct hal_handle {
    uint64_t offset;
    uint64_t size_bytes;
    uint64_t mapped_bytes; /* charged; 0 for an imported or a host handle */
    struct sim_drv_prop prop;
    uint32_t refs;
    uint32_t maps;
    int fd;
    bool imported;
    uint8_t row;
    char share[64]; /* name of its export, or empty */
};

/* state: 0, or a drvError_t when there is no book or no slot. Called with the lock. */
int hal_ready(void);
/* Charges a card and counts a row; *row is set. Called with the lock. */
int hal_take(int device, enum book_page page, int module, uint64_t size_bytes,
             uint64_t mapped_bytes, uint8_t *row);
/* Reverses hal_take. */
void hal_give(int device, uint8_t row, uint64_t size_bytes, uint64_t mapped_bytes);

/* The handle behind a pointer from outside, or NULL. Called with the lock. */
struct hal_handle *hal_handle_of(void *pointer);
/* Registers a handle with one reference. Called with the lock. */
int hal_handle_add(struct hal_handle *handle, void **ret);

/* heap: address ranges of at least size bytes, 2 MiB aligned when huge; 0 when exhausted. */
uint64_t heap_take(uint64_t size_bytes, bool huge, uint32_t *bin);
/* Gives a range back; its content is dropped. */
void heap_give(uint64_t address, uint32_t bin);
void heap_after_fork(void);

/* Takes the IPC export of a block back before the block is freed. Called with the lock. */
void hal_share_forget(struct sim_entry *block);

/* Names shared between processes: $NPUSIM_DIR/share/<name> says who holds the memory. */
int share_publish(const char *name, int fd, uint64_t offset, uint64_t size_bytes, int device);
/* Opens the holder's descriptor; -1 when there is no such name or the holder is gone. */
int share_open(const char *name, uint64_t *offset, uint64_t *size_bytes, int *device);
void share_withdraw(const char *name);
/* Withdraws all that this process published. */
void hal_share_close(void);
void hal_share_after_fork(void);

int hal_alloc(void **pp, unsigned long long size, unsigned long long flag);
int hal_free(void *pp);
int hal_create(void **handle, size_t size, const struct sim_drv_prop *prop);
int hal_release(void *handle);
int hal_reserve(void **ptr, size_t size, size_t alignment, void *addr);
int hal_address_free(void *ptr);
int hal_map(void *ptr, size_t size, size_t offset, void *handle, int access);
int hal_unmap(void *ptr);
int hal_set_access(void *ptr, size_t size, const struct sim_access_desc *desc, size_t count);
int hal_get_access(void *ptr, uint64_t *flags);
int hal_retain(void **handle, void *ptr);
int hal_handle_prop(struct sim_drv_prop *prop, void *handle);
int hal_granularity(const struct sim_drv_prop *prop, size_t *granularity);
int hal_address_range(void *ptr, void **base, size_t *size);
int hal_attributes(const void *ptr, struct sim_ptr_attributes *attributes);
int hal_export(void *handle, uint64_t *shareable);
int hal_import(uint64_t shareable, uint32_t devid, void **handle);
int hal_shmem_create(uint64_t ptr, size_t size, char *name, uint32_t length);
int hal_shmem_destroy(const char *name);
int hal_shmem_open(const char *name, uint64_t *ptr);
int hal_shmem_close(uint64_t ptr);
int hal_host_register(void *src, unsigned long long size, unsigned int devid, void **dst);
int hal_host_unregister(void *src);
int hal_mbuf_alloc(uint64_t size, void **mbuf);
int hal_mbuf_free(void *mbuf);
int hal_pool_create(void **pool, size_t size, uint32_t devid, void *base);
int hal_pool_destroy(void *pool);
int hal_mem_info(uint32_t devid, size_t *free_bytes, size_t *total_bytes);
int hal_mem_usage(uint32_t devid, struct sim_mem_usage *info, size_t in_count, size_t *out_count);
int hal_device_count(uint32_t *count);
int hal_device_open(uint32_t devid);
int hal_device_close(uint32_t devid);

/* Drops all handles and maps of a device (hal_device_close). Called with the lock. */
void hal_vmm_close(int device);
void hal_vmm_after_fork(void);

#endif
