/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rt.h - inside libruntime: bodies of rt.def. Functions return 0 or a runtime error code
 * (sim_abi.h). A device id is the user's (after ASCEND_RT_VISIBLE_DEVICES) above this layer and
 * the driver's logical id below it.
 *
 * NPUSIM_RUNTIME=SIZE[,SIZE...] (default 2M,4M; 0: none): what the runtime itself allocates on a
 * device when a process first sets it: halMemAlloc with module RUNTIME and no ACL call above.
 * NPUSIM_STREAMS (1984): streams that a process may have; one more fails with 207005.
 * NPUSIM_EVENT_MS (0): an event is done that long after it was recorded: a stream that is busy.
 */
#ifndef SIM_RT_H
#define SIM_RT_H

#include <stdbool.h>

#include "sim_abi.h"

/* Runtime error code of a drvError_t. */
int rt_error(int drv);
/* 0 when the calling thread has a device, else 107002. */
int rt_need_context(void);
/* Driver's logical id of the thread's device, or -1. */
int rt_current_device(void);

int rt_set_device(int32_t device);
int rt_device_reset(int32_t device);
int rt_get_device(int32_t *device);
int rt_device_count(int32_t *count);
int rt_check_device(int32_t device);
int rt_user_to_logic(int32_t user, int32_t *logic);
int rt_logic_to_user(int32_t logic, int32_t *user);
int rt_context_create(void **context, int32_t device);
int rt_context_destroy(void *context);
int rt_context_set(void *context);
int rt_context_get(void **context);

int rt_stream_create(void **stream);
int rt_stream_destroy(void *stream);
int rt_stream_check(void *stream);
int rt_stream_id(void *stream, int32_t *id);
int rt_streams_available(uint32_t *count);
int rt_default_stream(void **stream);
int rt_event_create(void **event);
int rt_event_destroy(void *event);
int rt_event_record(void *event, void *stream);
/* Waits until the event is done. */
int rt_event_synchronize(void *event);
int rt_event_query(void *event, int *status); /* 1 done (or never recorded), 0 not yet */
int rt_event_elapsed(float *ms, void *start, void *end);
int rt_event_timestamp(uint64_t *timestamp_us, void *event);
int rt_event_id(void *event, uint32_t *id);
/* Forgets streams and events of a parent process. */
void rt_stream_after_fork(void);

/* type: aclrtMemMallocPolicy; retry: try once more after the implicit trim (9.2 only). */
int rt_malloc(void **dev_ptr, uint64_t size, uint32_t type, uint16_t module, int retry);
int rt_mem_alloc(void **dev_ptr, uint64_t size, int policy, int advise,
                 const struct sim_malloc_cfg *cfg);
int rt_malloc_managed(void **ptr, uint64_t size, uint16_t module);
int rt_free(void *dev_ptr);
int rt_malloc_host(void **host_ptr, uint64_t size, int virt, uint16_t module);
int rt_malloc_host_cfg(void **host_ptr, uint64_t size, const struct sim_malloc_cfg *cfg);
int rt_free_host(void *host_ptr);
int rt_malloc_physical(void **handle, size_t size, const struct sim_drv_prop *prop, uint64_t flags);
int rt_handle_properties(void *handle, struct sim_acl_phys_prop *prop);
int rt_import(uint64_t shareable, int32_t device, void **handle);
int rt_ipc_open(void **ptr, const char *name);
int rt_ipc_close(const char *name);
int rt_host_register(void *ptr, uint64_t size, uint32_t flag, void **dev_ptr);
int rt_host_unregister(void *ptr);
int rt_mem_info(uint32_t type, size_t *free_bytes, size_t *total_bytes);
int rt_mem_usage(int32_t device, struct sim_mem_usage *info, size_t in_count, size_t *out_count);
int rt_memcpy(void *dst, uint64_t dest_max, const void *src, uint64_t count);
int rt_memset(void *ptr, uint64_t dest_max, uint32_t value, uint64_t count);

int rt_pool_create(void **pool, const struct sim_pool_props *props);
int rt_pool_destroy(void *pool);
int rt_pool_attr(void *pool, int attr, void *value, int set);
int rt_pool_malloc(void **dev_ptr, size_t size, void *pool, void *stream);
/* 0 when the pointer was a pool's, else 107000. */
int rt_pool_free(void *ptr);
int rt_pool_trim(void *pool, size_t keep_bytes);
/* Gives back what all pools can spare (before an allocation is tried again). */
void rt_pool_trim_all(void);
/* Destroys the pools of a device that is being reset. */
void rt_pool_drop(int device);
void rt_pool_after_fork(void);

#endif
