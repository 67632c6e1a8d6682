/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acl.h - inside the ACL layer: bodies of acl.def. Arguments are checked here (100000), everything
 * else is the runtime's business.
 */
#ifndef SIM_ACL_H
#define SIM_ACL_H

#include <stdbool.h>

#include "sim_abi.h"

/* The call when the condition holds, else "invalid parameter". */
#define ACL_NEED(condition, call) ((condition) ? (call) : SIM_ACL_INVALID_PARAM)

/* align32(size + 32) bytes below; 1 GiB page policies are not padded. */
int acl_malloc(void **dev_ptr, size_t size, int policy);
/* align32(size) bytes below. */
int acl_malloc_align32(void **dev_ptr, size_t size, int policy);
int acl_malloc_cached(void **dev_ptr, size_t size, int policy);
int acl_malloc_cfg(void **dev_ptr, size_t size, int policy, int advise, struct sim_malloc_cfg *cfg);
int acl_malloc_physical(void **handle, size_t size, const struct sim_acl_phys_prop *prop,
                        uint64_t flags);
int acl_granularity(const struct sim_acl_phys_prop *prop, int option, size_t *granularity);
int acl_import_v2(const void *shareable, void **handle);
int acl_host_device_pointer(void *host_ptr, void **dev_ptr);
int acl_memcpy2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                 size_t height);

int acl_init(const char *config_path);
int acl_finalize(void);
/* Stores a value; 100000 when there is no place for it. */
int acl_put_int(int *place, int value);
int acl_set_sat_mode(int mode);
int acl_get_sat_mode(int *mode);
int acl_device_status(int32_t device, int *status);
const char *acl_soc_name(void);
int acl_launch_callback(void (*callback)(void *), void *data);
int acl_process_report(int32_t timeout_ms);
int acl_capture_begin(void *stream);
int acl_capture_info(void *stream, int *status, void **model);
int acl_capture_end(void *stream, void **model);
int acl_task_group(void **handle);
int acl_model_destroy(void *model);
int acl_version(char *version);
int acl_version_numbers(int32_t *major, int32_t *minor, int32_t *patch);
const char *acl_error_text(void);
int acl_compile_option(char *value, size_t length);

#endif
